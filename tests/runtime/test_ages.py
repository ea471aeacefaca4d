"""Parts of a pipeline over files that are of different ages, or missing: tables end right, or an error names the part and a way out that ends right."""

import pytest
from crashes.ages import PARTS, AllMixes, aged, last, pairwise, refuse_wrong, rewound

pytestmark = pytest.mark.usefixtures("unsynced")


def test_mixes_of_the_ages_of_each_two_parts_end_right(make):
    """Missing parts are among the mixes of `test_topic_ages.py`."""
    refuse_wrong(aged(make(), rewound), PARTS, pairwise((2, 4), PARTS), last)


class TestAllMixes(AllMixes):
    pass
