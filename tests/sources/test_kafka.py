"""What batches take of a topic, and how they are dealt out; no broker."""

import json

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import SourceReadError, SourceUnavailableError
from ebbtide.sources.kafka.client import Client
from ebbtide.sources.kafka.position import TopicRange
from ebbtide.sources.kafka.source import dealt_out
from ebbtide.sources.kafka.stream import KafkaStreamReader
from ebbtide.sources.kafka.topic import _unreadable

THERE = TopicRange("c", "t", "i", {0: 10, 1: 0, 2: 5}, {0: 110, 1: 0, 2: 6})


def covered(tasks):
    return sorted((each.partition, each.start, each.end) for task in tasks for each in task)


def test_range_is_what_its_json_says():
    assert TopicRange.from_json(json.loads(json.dumps(THERE.to_json()))) == THERE


def test_batches_cover_a_range_without_gaps_and_none_is_larger_than_it_may_be(tmp_path):
    plan = str(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text(json.dumps(THERE.to_json()))
    reader = KafkaStreamReader(plan, 7)
    start, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batches.append(TopicRange.from_json(end))
        start = end
    assert [batch.size for batch in batches] == [7] * 14 + [3]
    ends = [THERE.start, *(batch.end for batch in batches)]
    assert [batch.start for batch in batches] == ends[:-1]
    assert ends[-1] == THERE.end


def test_plan_that_grows_gives_the_next_batch_and_a_new_partition_from_its_first(tmp_path):
    grown = TopicRange("c", "t", "i", {0: 110, 1: 0, 2: 6, 3: 2}, {0: 111, 1: 0, 2: 6, 3: 4})
    (tmp_path / "plan.json").write_text(json.dumps(grown.to_json()))
    end = KafkaStreamReader(str(tmp_path / "plan.json"), 99).latestOffset(THERE.to_json())
    assert TopicRange.from_json(end) == grown


def test_one_record_a_step_is_taken_from_one_partition():
    assert THERE.first(1).size == 1
    assert TopicRange("c", "t", "i", {0: 0, 1: 0, 2: 0}, {0: 1, 1: 1, 2: 1}).first(2).end == {0: 1, 1: 1, 2: 0}


def test_large_partition_is_cut_among_tasks_unless_its_order_counts():
    large = TopicRange("c", "t", "i", {0: 0, 1: 7}, {0: 100_000, 1: 7})
    assert covered(dealt_out(large, 4, in_order=False)) == [(0, at, at + 25_000) for at in range(0, 100_000, 25_000)]
    assert covered(dealt_out(large, 4, in_order=True)) == [(0, 0, 100_000)]


@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=6), st.integers(1, 8), st.booleans())
def test_tasks_cover_a_batch_and_none_has_two_ranges_of_one_partition(sizes, n_tasks, in_order):
    start = {partition: 3 * partition for partition in range(len(sizes))}
    end = {partition: start[partition] + size for partition, size in enumerate(sizes)}
    tasks = dealt_out(TopicRange("c", "t", "i", start, end), n_tasks, in_order=in_order)
    assert len(tasks) <= n_tasks
    assert all(len({each.partition for each in task}) == len(task) for task in tasks)
    places = [place for partition, first, last in covered(tasks) for place in ((partition, first), (partition, last))]
    joined = [place for place in places if places.count(place) == 1]
    assert joined == [(p, offset) for p in start if sizes[p] for offset in (start[p], end[p])]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.LEADER_NOT_AVAILABLE, SourceUnavailableError),
        (KafkaError.NOT_LEADER_FOR_PARTITION, SourceUnavailableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SourceReadError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, SourceReadError),
    ],
)
def test_what_passes_by_itself_is_told_from_what_does_not(code, kind):
    error = _unreadable(Client("b:1", {}, "t"), "t", KafkaException(KafkaError(code)))
    assert type(error) is kind
