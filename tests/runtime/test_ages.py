"""Parts of a pipeline over files that are of different ages, or missing: tables end right, or an error names the part and a way out that ends right."""

import pytest
from ages import (
    AGES,
    EVERY,
    FEWER_AGES,
    PARTS,
    WITH_CHANGELOG,
    aged,
    all_mixes,
    first,
    last,
    nothing,
    pairwise,
    refreshed,
    refuse_wrong,
    rewound,
)

pytestmark = pytest.mark.usefixtures("unsynced")


def test_mixes_of_the_ages_of_each_two_parts_end_right(make):
    refuse_wrong(aged(make(), rewound), PARTS, pairwise(FEWER_AGES, PARTS), last)


@pytest.mark.grid
@pytest.mark.parametrize("state", AGES)
@pytest.mark.parametrize("choose", [first, last])
@pytest.mark.parametrize("between", [nothing, refreshed, rewound])
def test_all_mixes_of_ages_end_right(make, between, choose, state):
    refuse_wrong(aged(make(), between), PARTS, all_mixes(AGES, PARTS, state), choose)


@pytest.mark.grid
@pytest.mark.parametrize("state", FEWER_AGES)
@pytest.mark.parametrize("choose", [first, last])
@pytest.mark.parametrize("between", [nothing, refreshed, rewound])
def test_all_mixes_of_ages_end_right_with_a_changelog(make, between, choose, state):
    mixes = all_mixes(FEWER_AGES, WITH_CHANGELOG, state)
    refuse_wrong(aged(make(**EVERY), between), WITH_CHANGELOG, mixes, choose)
