"""Parts of a pipeline over a topic that are of different ages, or missing: tables end right, or an error names the part and a way out that ends right."""

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
    one_missing,
    pairwise,
    refreshed,
    refuse_wrong,
    rewound,
)
from kafka_support import TopicPipeline
from local_run import kept_apart

pytestmark = [pytest.mark.usefixtures("unsynced"), pytest.mark.xdist_group("test_kafka.py")]  # its broker


@pytest.fixture
def make(broker, request, tmp_path):
    topic = request.node.name.translate(str.maketrans("[] ", "..."))
    broker.create(topic, 3)
    with kept_apart():
        yield lambda **fields: TopicPipeline(tmp_path, broker, topic, **fields)


def test_mixes_of_the_ages_of_each_two_parts_end_right(make):
    mixes = [*one_missing(WITH_CHANGELOG), *pairwise(FEWER_AGES, WITH_CHANGELOG)]
    refuse_wrong(aged(make(**EVERY)), WITH_CHANGELOG, mixes, first)


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
