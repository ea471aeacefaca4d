"""What batches take of a topic, and how they are dealt out; no broker."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import (
    ConfigError,
    SourceLostError,
    SourceReadError,
    SourceUnavailableError,
)
from ebbtide.sources import Client, Discovery, Span
from ebbtide.sources._kafka.topic import Topic, _refuse_without_id, _unreadable
from ebbtide.sources._positioned import dealt_out
from ebbtide.sources._span_planner import SpanPlanner


def span_of(start, end, **identity):
    return Span({"cluster_id": "c", "topic": "t", "topic_id": "i", **identity}, start, end)


def of_other(span, **identity):
    return replace(span, identity={**span.identity, **identity})


THERE = span_of({0: 10, 1: 0, 2: 5}, {0: 110, 1: 0, 2: 6})


def covered(tasks):
    return sorted((each, task.start[each], task.end[each]) for task in tasks for each in task.start)


NOW = Topic.of("c", "t", "i", {0: 0, 1: 5}, {0: 120, 1: 20})


def test_range_is_what_its_json_says():
    assert Span.from_json(json.loads(json.dumps(THERE.to_json()))) == THERE


def test_batches_cover_a_range_without_gaps_and_none_is_larger_than_it_may_be():
    planner = SpanPlanner(Discovery(span=THERE), 7)
    last, batches = None, []
    while (end := planner.after(last)) != last:
        batches.append(Span.from_json(end))
        last = end
    assert [batch.size for batch in batches] == [7] * 14 + [3]
    ends = [THERE.start, *(batch.end for batch in batches)]
    assert [batch.start for batch in batches] == ends[:-1]
    assert ends[-1] == THERE.end


def test_range_that_grows_gives_the_next_batch_and_a_new_partition_from_its_first():
    grown = span_of({0: 110, 1: 0, 2: 6, 3: 2}, {0: 111, 1: 0, 2: 6, 3: 4})
    planner = SpanPlanner(Discovery(span=THERE), 99)
    planner.note(Discovery(span=grown))
    assert Span.from_json(planner.after(THERE.to_json())) == grown


def test_one_record_a_step_is_taken_from_one_partition():
    assert THERE.first(1).size == 1
    assert span_of({0: 0, 1: 0, 2: 0}, {0: 1, 1: 1, 2: 1}).first(2).end == {0: 1, 1: 1, 2: 0}


def test_empty_partition_gets_no_share():
    assert span_of({0: 0, 1: 0, 2: 0}, {0: 0, 1: 3, 2: 3}).first(1).end == {0: 0, 1: 1, 2: 0}
    assert THERE.first(THERE.size) == THERE


def test_what_is_left_behind_offsets_ends_no_sooner_than_it_begins():
    left = THERE.after({0: 50, 1: 7})
    assert (left.start, left.end) == ({0: 50, 1: 7, 2: 5}, {0: 110, 1: 7, 2: 6})
    assert THERE.behind(replace(THERE, end={0: 50, 1: 0, 2: 5})) == replace(THERE, start={0: 50, 1: 0, 2: 5})


@pytest.mark.parametrize("other", [{"cluster_id": "d"}, {"topic_id": "j"}])
def test_of_another_topic_nothing_is_read_yet(other):
    assert THERE.behind(of_other(THERE, **other)) == THERE
    left = NOW.left_of(of_other(THERE, **other))
    assert (left.start, left.end) == ({0: 0, 1: 5}, {0: 120, 1: 20})


READ = span_of({0: 0}, {0: 100})


def test_what_follows_is_read_from_where_the_last_step_ended_and_a_new_partition_from_its_first():
    whole = replace(NOW, earliest={0: 0, 1: 0})
    assert whole.following(READ) == span_of({0: 100, 1: 0}, {0: 120, 1: 20})
    assert NOW.following(replace(READ, end={0: 120, 1: 5})).size == 15


@pytest.mark.parametrize("latest", [20, 5])
def test_new_partition_that_lost_its_first_records_is_refused(latest):
    topic = replace(NOW, latest={0: 120, 1: latest})
    with pytest.raises(SourceLostError, match="partition 1: 0 is next, it has only from 5"):
        topic.following(READ)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ({"identity": {**READ.identity, "cluster_id": "d"}}, "cluster is not the one that topic 't' was read from. Got: cluster c. Allowed: cluster d. Correct"),
        ({"identity": {**READ.identity, "topic_id": "j"}}, "Topic 't' was deleted and recreated; its records are not those that were read. Got: topic id i. Allowed: topic id j. Run"),
        ({"end": {0: 1, 1: 5, 3: 0}}, "Topic 't' has fewer partitions than were read. Got: without partition 3. Allowed: 3 partitions or more. Run"),
        ({"end": {3: 0, 2: 0}}, "Got: without partitions 2, 3."),
        ({"end": {1: 4}}, "were deleted, perhaps by its retention. Got: partition 1: 4 is next, it has only from 5. Allowed: a source that keeps records until they are read. Run"),
        ({"end": {0: 121, 1: 21}}, "perhaps by an unclean leader election. Got: partition 0: 121 is next, it has up to 120; partition 1: 21 is next, it has up to 20. Allowed: a source that still has the records that were read. Run"),
    ],
)  # fmt: skip
def test_topic_that_lost_what_was_read_of_it_or_is_next_is_refused(read, message):
    with pytest.raises(SourceLostError) as refused:
        NOW.following(replace(READ, **read))
    assert message in str(refused.value)
    assert "'ebbtide run --accept-loss'" in str(refused.value)


def test_each_partition_that_lost_records_is_named():
    topic = Topic.of("c", "t", "i", {0: 3, 1: 5}, {0: 9, 1: 9})
    with pytest.raises(SourceLostError, match="0: 2 is next, it has only from 3; partition 1: 4 is next,"):
        topic.following(replace(READ, end={0: 2, 1: 4}))


def test_loss_that_is_accepted_leaves_what_the_topic_still_has():
    assert NOW.left_of(replace(READ, end={0: 121, 1: 4, 2: 9})).start == {0: 120, 1: 5}
    assert NOW.left_of(replace(READ, end={0: 100})) == span_of({0: 100, 1: 5}, {0: 120, 1: 20})


@pytest.mark.parametrize(
    ("start", "begins"),
    [
        ("earliest", {0: 0, 1: 5}),
        ("latest", {0: 120, 1: 20}),
        (datetime(2026, 1, 1, tzinfo=UTC), {0: 3, 1: 6}),
        ({1: 20}, {0: 0, 1: 20}),
        ({0: 0, 1: 5}, {0: 0, 1: 5}),
    ],
)
def test_first_step_begins_where_the_spec_says(start, begins):
    assert NOW.beginning(start, lambda _: {0: 3, 1: 6}) == span_of(begins, {0: 120, 1: 20})


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({2: 0}, "names partitions that topic 't' does not have. Got: partition 2. Allowed: 0 to 1. Correct source.start in the spec, or --from of the command."),
        ({1: 4, 0: 121}, "names offsets that topic 't' does not have. Got: partition 0: 121; partition 1: 4. Allowed: partition 0: 0 to 120; partition 1: 5 to 20. Correct source.start in the spec, or --from of the command."),
    ],
)  # fmt: skip
def test_start_that_the_topic_has_not_is_refused(start, message):
    with pytest.raises(ConfigError) as refused:
        NOW.beginning(start, {})
    assert message in str(refused.value)


def test_large_partition_is_cut_among_tasks_unless_its_order_counts():
    large = span_of({0: 0, 1: 7}, {0: 100_000, 1: 7})
    assert covered(dealt_out(large, 4, in_order=False)) == [(0, at, at + 25_000) for at in range(0, 100_000, 25_000)]
    assert covered(dealt_out(large, 4, in_order=True)) == [(0, 0, 100_000)]


@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=6), st.integers(1, 8), st.booleans())
def test_tasks_cover_a_batch_each_place_once(sizes, n_tasks, in_order):
    start = {partition: 3 * partition for partition in range(len(sizes))}
    end = {partition: start[partition] + size for partition, size in enumerate(sizes)}
    tasks = dealt_out(span_of(start, end), n_tasks, in_order=in_order)
    assert len(tasks) <= n_tasks
    places = [place for partition, first, last in covered(tasks) for place in ((partition, first), (partition, last))]
    joined = [place for place in places if places.count(place) == 1]
    assert joined == [(p, offset) for p in start if sizes[p] for offset in (start[p], end[p])]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.LEADER_NOT_AVAILABLE, SourceUnavailableError),
        (KafkaError.NOT_LEADER_FOR_PARTITION, SourceUnavailableError),
        (KafkaError._NOENT, SourceUnavailableError),
        (KafkaError.UNKNOWN_LEADER_EPOCH, SourceUnavailableError),
        (KafkaError.FENCED_LEADER_EPOCH, SourceUnavailableError),
        (KafkaError.OFFSET_NOT_AVAILABLE, SourceUnavailableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, SourceReadError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, SourceReadError),
    ],
)
def test_what_passes_by_itself_is_told_from_what_does_not(code, kind):
    error = _unreadable(Client("b:1", {}, "t"), "t", KafkaException(KafkaError(code)))
    assert type(error) is kind


def test_broker_that_gives_topics_no_ids_is_refused_with_the_oldest_version_that_does():
    with pytest.raises(SourceReadError, match=r"no id of topic 't'.*Allowed: brokers of Kafka 2\.8 or newer\. Upgrade"):
        _refuse_without_id("t", str(Uuid(0, 0)))
    _refuse_without_id("t", str(Uuid(0, 1)))
