"""Parts of a pipeline over a topic that are of different ages, or missing: tables end right, or an error names the part and a way out that ends right."""

import pytest
from crashes.ages import EVERY, FEWER_AGES, WITH_CHANGELOG, AllMixes, aged, first, one_missing, pairwise, refuse_wrong
from servers.kafka_support import TopicPipeline

pytestmark = [pytest.mark.usefixtures("unsynced"), pytest.mark.group("broker")]  # its broker


@pytest.fixture
def make(broker, request, tmp_path):
    topic = request.node.name.translate(str.maketrans("[] ", "..."))
    broker.create(topic, 3)
    return lambda **fields: TopicPipeline(tmp_path, broker, topic, **fields)


def test_mixes_of_the_ages_of_each_two_parts_end_right(make):
    mixes = [
        *one_missing(WITH_CHANGELOG),
        *pairwise(FEWER_AGES, WITH_CHANGELOG)[::3],
    ]  # all of a pipeline over files: test_ages
    refuse_wrong(aged(make(**EVERY)), WITH_CHANGELOG, mixes, first)


class TestAllMixes(AllMixes):
    pass
