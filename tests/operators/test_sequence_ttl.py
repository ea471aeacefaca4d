"""Sequence mode with a time to live: tombstones that expire, live entries that may, and the sink's row in their place."""

from __future__ import annotations

import itertools

import pytest
from local.notes_log import PIPELINES, under_other_keys
from local.support import UNAVAILABLE, acted_on, envelope, record, spec
from plans import operator_of

from ebbtide.entries import Step
from ebbtide.testing import MemoryPipeline


def pipeline_of(kind=MemoryPipeline, delay="0s", **ttl):
    return kind(spec("id BIGINT NOT NULL, n INT", ttl={"ttl": "100ms"} | ttl, allowed_delay=delay))


def event(op, lsn, key=1, ts_ms=0):
    row = {"id": key, "n": lsn}
    return record(envelope(op, lsn, before=row if op == "d" else None, after=None if op == "d" else row, ts_ms=ts_ms))


def numbers(pipeline):
    return {row["id"]: row["n"] for row in pipeline.rows()}


def stored(pipeline):
    entries = {entry["id"]: entry for entry in pipeline.state.sort_by("_step").to_pylist()}
    return {key for key, entry in entries.items() if not entry["_removed"]}


@PIPELINES
@pytest.mark.parametrize(("now", "shown"), [(199, {}), (200, {1: 5}), (201, {1: 5})])
@pytest.mark.demand("ttl-unified")
def test_tombstone_keeps_older_changes_dead_until_exactly_its_time(kind, now, shown):
    pipeline = pipeline_of(kind)
    pipeline.step([event("d", 9)], now_ms=100)
    pipeline.step([event("c", 5)], now_ms=now)
    assert numbers(pipeline) == shown


@pytest.mark.parametrize(("update_type", "gone_at"), [("ON_CREATE", 100), ("ON_CREATE_AND_WRITE", 150)])
def test_tombstone_written_again_is_renewed_by_update_type(update_type, gone_at):
    pipeline = pipeline_of(update_type=update_type)
    pipeline.step([event("d", 9)], now_ms=0)
    pipeline.step([event("d", 10)], now_ms=50)
    pipeline.tick(now_ms=gone_at - 1)
    assert (stored(pipeline), pipeline.metrics["expired"]) == ({1}, 0)
    pipeline.tick(now_ms=gone_at)
    assert (stored(pipeline), pipeline.metrics["expired"]) == (set(), 1)


@pytest.mark.parametrize("update_type", ["ON_CREATE", "ON_CREATE_AND_WRITE"])
def test_tombstone_of_a_row_that_lived_long_starts_its_own_time(update_type):
    pipeline = pipeline_of(update_type=update_type)
    pipeline.step([event("c", 1)], now_ms=0)
    pipeline.step([event("d", 9)], now_ms=1000)
    pipeline.step([event("c", 5)], now_ms=1099)
    assert numbers(pipeline) == {}


@pytest.mark.parametrize("line", [event("d", 9), event("d", 8)], ids=["again", "older"])
def test_tombstone_is_not_renewed_by_what_does_not_change_it(line):
    pipeline = pipeline_of()
    pipeline.step([event("d", 9)], now_ms=0)
    pipeline.step([line], now_ms=60)
    pipeline.tick(now_ms=100)
    assert stored(pipeline) == set()


@pytest.mark.parametrize(
    ("characteristic", "update_type", "ts_ms"),
    [("EVENT_TIME", "ON_CREATE", 150), ("EVENT_TIME", "ON_CREATE_AND_WRITE", 100), ("PROCESSING_TIME", "ON_CREATE_AND_WRITE", 150)],
)  # fmt: skip
def test_older_change_that_renews_nothing_writes_nothing(characteristic, update_type, ts_ms):
    pipeline = pipeline_of(time_characteristic=characteristic, update_type=update_type)
    pipeline.step([event("d", 9, ts_ms=100)], now_ms=0)
    pipeline.step([event("c", 5, ts_ms=ts_ms)], now_ms=0)
    assert len(pipeline.state) == 1


def test_live_rows_do_not_expire_unless_asked():
    pipeline = pipeline_of()
    pipeline.step([event("c", 5), event("d", 6, 2)], now_ms=0)
    pipeline.tick(now_ms=10**15)
    assert (stored(pipeline), numbers(pipeline), pipeline.metrics["expired"]) == ({1}, {1: 5}, 1)


@pytest.mark.demand("ttl-cleaned")
def test_tick_removes_exactly_what_is_due_and_once():
    pipeline = pipeline_of()
    for now, key in ((0, 1), (10, 2), (20, 3)):
        pipeline.step([event("d", 9, key)], now_ms=now)
    for now, left in ((99, {1, 2, 3}), (110, {3}), (110, {3}), (119, {3}), (120, set())):
        pipeline.tick(now_ms=now)
        assert stored(pipeline) == left
    assert pipeline.metrics["expired"] == 3


def test_clock_going_back_expires_nothing_early():
    pipeline = pipeline_of()
    pipeline.step([event("d", 9)], now_ms=1000)
    pipeline.step([event("c", 5)], now_ms=400)
    pipeline.tick(now_ms=0)
    assert (stored(pipeline), pipeline.now_ms) == ({1}, 1000)
    operator = pipeline.operator
    nothing = pipeline.operator.changes.empty_table()
    assert operator.apply(nothing, pipeline.state, Step(9, -(2**63))).entries.num_rows == 0
    assert operator.expire(pipeline.state, Step(9, -(2**63))).entries.num_rows == 0


@pytest.mark.demand("ttl-event-time")
@PIPELINES
def test_tombstone_expires_by_the_watermark_of_earlier_steps_only(kind):
    pipeline = pipeline_of(kind, delay="30ms", time_characteristic="EVENT_TIME")
    pipeline.step([event("d", 9, 1, ts_ms=1000)], now_ms=10**12)
    pipeline.step([event("c", 5, 1, ts_ms=0), event("c", 1, 2, ts_ms=1130)], now_ms=10**13)
    assert numbers(pipeline) == {2: 1}
    pipeline.tick(now_ms=10**14)
    assert (stored(pipeline), pipeline.metrics["expired"]) == ({2}, 1)


@pytest.mark.demand("ttl-event-time")
def test_watermark_does_not_fall_and_does_not_start_at_zero():
    pipeline = pipeline_of(time_characteristic="EVENT_TIME")
    pipeline.step([event("d", 9, 1, ts_ms=-500)])
    pipeline.step([event("c", 1, 2, ts_ms=-1000)])
    pipeline.tick(now_ms=10**12)
    assert stored(pipeline) == {1, 2}
    pipeline.step([event("c", 1, 3, ts_ms=-400), event("c", 1, 4, ts_ms=-700)])
    pipeline.tick(now_ms=0)
    assert stored(pipeline) == {2, 3, 4}


@pytest.mark.parametrize(("update_type", "left"), [("ON_CREATE", set()), ("ON_CREATE_AND_WRITE", {1})])
def test_event_time_stamp_is_the_greatest_or_the_first(update_type, left):
    pipeline = pipeline_of(time_characteristic="EVENT_TIME", update_type=update_type)
    pipeline.step([event("d", 9, 1, ts_ms=1000)])
    pipeline.step([event("d", 10, 1, ts_ms=1050)])
    pipeline.step([event("d", 11, 1, ts_ms=900), event("c", 1, 2, ts_ms=1100)])
    pipeline.tick(now_ms=0)
    assert stored(pipeline) == left | {2}


def test_delete_already_past_its_time_reaches_the_sink_and_is_not_kept():
    pipeline = pipeline_of(time_characteristic="EVENT_TIME")
    pipeline.step([event("c", 1, 1, ts_ms=800), event("c", 2, 2, ts_ms=1000)])
    pipeline.step([event("d", 9, 1, ts_ms=900)])
    assert (numbers(pipeline), pipeline.metrics["late"], stored(pipeline)) == ({2: 2}, 1, {2})


EVENTS = {
    "a later delete": [event("d", 2, ts_ms=100), event("d", 3, ts_ms=50)],
    "a row before it": [event("c", 1, ts_ms=100), event("u", 2, ts_ms=80), event("d", 3, ts_ms=50)],
    "deleted twice": [event("d", 1, ts_ms=100), event("c", 2, ts_ms=20), event("d", 3, ts_ms=50)],
}


@PIPELINES
@pytest.mark.parametrize("changes", EVENTS.values(), ids=EVENTS)
def test_event_time_of_a_tombstone_depends_on_neither_cuts_nor_order(kind, changes):
    cuts = itertools.product(itertools.permutations(changes), range(len(changes)))
    runs = [(order[:cut], order[cut:]) for order, cut in cuts]
    pipeline = pipeline_of(kind, time_characteristic="EVENT_TIME")
    for step in zip(*runs, strict=True):
        pipeline.step([under_other_keys(line, number) for number, part in enumerate(step) for line in part])
    newest = {entry["id"]: entry for entry in pipeline.state.sort_by("_step").to_pylist()}
    found = [(entry["_tombstone"], entry["_stamp_ms"]) for entry in newest.values()]
    assert found == [(True, 100)] * len(runs)


RUNS = {
    "deleted twice": ([event("d", 1, ts_ms=100), event("d", 2, ts_ms=150)], 100),
    "a row between": ([event("d", 1, ts_ms=100), event("c", 2, ts_ms=120), event("d", 3, ts_ms=150)], 150),
}


@PIPELINES
@pytest.mark.parametrize("run", RUNS)
def test_creation_of_a_tombstone_does_not_depend_on_where_steps_are_cut(kind, run):
    changes, created = RUNS[run]
    for cut in range(len(changes)):
        pipeline = pipeline_of(kind, time_characteristic="EVENT_TIME", update_type="ON_CREATE")
        for part in (changes[:cut], changes[cut:]):
            pipeline.step(part)
        newest = pipeline.state.sort_by("_step").to_pylist()[-1]
        assert (newest["_tombstone"], newest["_stamp_ms"]) == (True, created), cut


def test_row_that_is_filled_keeps_its_time():
    live = {"ttl": "100ms", "expire_live": True, "update_type": "ON_CREATE"}
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, notes STRING", ttl=live))
    pipeline.step([record(envelope("u", 6, after={"id": 1, "notes": "__debezium_unavailable_value"}))], now_ms=0)
    pipeline.step([record(envelope("c", 5, after={"id": 1, "notes": "long"}))], now_ms=50)
    assert (pipeline.rows(), pipeline.metrics["filled"]) == ([{"id": 1, "notes": "long"}], 1)
    assert pipeline.state.sort_by("_step").to_pylist()[-1]["_stamp_ms"] == 0


def test_record_of_a_far_year_ends_no_other_key_s_time():
    pipeline = MemoryPipeline(spec(ttl={"ttl": "30d", "time_characteristic": "EVENT_TIME"}))
    now = 1_800_000_000_000
    pipeline.step([event("c", 1, ts_ms=now), event("d", 9, ts_ms=now)], now_ms=now)
    pipeline.step([event("c", 1, 2, ts_ms=252_982_000_000_000)], now_ms=now)
    pipeline.tick(now_ms=now + 2000)
    pipeline.step([event("u", 5, ts_ms=now)], now_ms=now + 2000)
    assert [row["_reason"] for row in pipeline.quarantine] == ["event_time_ahead"]
    assert numbers(pipeline) == {}


def expired_row(kind, update_type="ON_CREATE_AND_WRITE"):
    """A pipeline whose one row is in the sink at lsn 5, and no longer in the state."""
    pipeline = pipeline_of(kind, expire_live=True, update_type=update_type)
    pipeline.step([event("c", 5)], now_ms=0)
    pipeline.tick(now_ms=100)
    assert (stored(pipeline), numbers(pipeline), pipeline.metrics["expired"]) == (set(), {1: 5}, 1)
    return pipeline


@PIPELINES
@pytest.mark.parametrize(
    ("line", "shown", "count"),
    [
        (event("u", 4), {1: 5}, "superseded"),
        (event("d", 4), {1: 5}, "superseded"),
        (event("u", 6), {1: 6}, "updated"),
        (event("d", 6), {}, "deleted"),
        (event("c", 6, 2), {1: 5, 2: 6}, "inserted"),
    ],
    ids=["older update", "older delete", "newer update", "newer delete", "another key"],
)
def test_expired_live_row_is_stood_in_for_by_the_sink(kind, line, shown, count):
    pipeline = expired_row(kind)
    before = pipeline.metrics[count]
    pipeline.step([line], now_ms=150)
    assert (numbers(pipeline), pipeline.metrics[count] - before) == (shown, 1)


@PIPELINES
def test_value_not_sent_is_kept_from_the_sink_s_row(kind):
    pipeline = kind(spec("id BIGINT NOT NULL, notes STRING", ttl={"ttl": "100ms", "expire_live": True}))
    pipeline.step([record(envelope("c", 5, after={"id": 1, "notes": "long"}))], now_ms=0)
    pipeline.tick(now_ms=100)
    pipeline.step([record(envelope("u", 6, after={"id": 1, "notes": "__debezium_unavailable_value"}))], now_ms=100)
    assert (pipeline.rows(), pipeline.metrics["waiting"]) == ([{"id": 1, "notes": "long"}], 0)


@PIPELINES
@pytest.mark.parametrize(("update_type", "gone_at"), [("ON_CREATE", 250), ("ON_CREATE_AND_WRITE", 290)])
def test_row_written_after_it_had_expired_is_an_entry_of_its_own(kind, update_type, gone_at):
    pipeline = expired_row(kind, update_type)
    pipeline.step([event("u", 6)], now_ms=150)
    pipeline.step([event("u", 7)], now_ms=190)
    assert (stored(pipeline), pipeline.metrics["late"]) == ({1}, 0)
    pipeline.tick(now_ms=gone_at - 1)
    assert stored(pipeline) == {1}
    pipeline.tick(now_ms=gone_at)
    assert (stored(pipeline), numbers(pipeline)) == (set(), {1: 7})


@pytest.mark.parametrize(("stamp", "gone_at"), [(0, 100), (-1, 99), (-(2**63), 100 - 2**63), (2**63 - 1, 2**63 - 1)])
def test_entry_with_an_extreme_stamp_expires_at_its_time(stamp, gone_at):
    pipeline = pipeline_of(time_characteristic="EVENT_TIME")
    pipeline.step([event("d", 9, 1, ts_ms=stamp)])
    expire = pipeline.operator.expire
    assert expire(pipeline.state, Step(9, 0, watermark_ms=gone_at - 1)).entries.num_rows == 0
    assert expire(pipeline.state, Step(9, 0, watermark_ms=gone_at)).entries["_removed"].to_pylist() == [True]


def test_only_tombstones_and_rows_that_wait_may_expire_unless_live_ones_may():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, n INT, v STRING", ttl="100ms"))
    row, unsent = {"id": 1, "n": 1, "v": "long"}, {"id": 3, "n": 1, "v": UNAVAILABLE}
    moved = envelope("u", 5, before={"id": 2, "n": 1, "v": None}, after=unsent)
    pipeline.step([record(envelope("c", 1, after=row), 0), record(moved, 1)], now_ms=0)
    operator = pipeline.operator
    entries = pipeline.state.to_pylist()
    assert [entry["id"] for entry in entries if any(entry[name] for name in operator.expiry.any_set)] == [2, 3]
    assert [entry["id"] for entry in acted_on(pipeline.state, operator)] == [1, 3]
    assert sorted(entry["id"] for entry in operator.expire(pipeline.state, Step(9, 100)).entries.to_pylist()) == [2, 3]
    live = operator_of(spec(ttl={"ttl": "100ms", "expire_live": True}))
    assert (live.expiry.any_set, live.expiry.needs_tick) == ((), ())


@pytest.mark.parametrize("live", [False, True])
def test_dropped_entry_keeps_its_key_its_time_and_what_changed_it(live):
    pipeline = pipeline_of(expire_live=live)
    pipeline.step([event("c", 8), event("d", 9)] if not live else [event("c", 9)], now_ms=7)
    [entry] = pipeline.state.to_pylist()
    [dropped] = pipeline.operator.expire(pipeline.state, Step(9, 107)).entries.to_pylist()
    kept = {name: entry[name] for name in ("id", "_stamp_ms", "_changed_by")}
    assert {name: dropped[name] for name in kept} == kept
    assert (dropped["_step"], dropped["_removed"], dropped["_change"]) == (9, True, None)


def waiting(**ttl):
    """A pipeline whose row 3 waits for a value of row 2, and whose row 1 has one kept behind it."""
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, v STRING", ttl={"ttl": "100ms"} | ttl))
    old, new = ({"id": 1, "v": v} for v in ("old", "new"))
    moved = envelope("u", 5, before={"id": 2, "v": None}, after={"id": 3, "v": UNAVAILABLE})
    created = (envelope("c", lsn, after=row) for lsn, row in ((1, old), (4, new)))
    pipeline.step([record(each, n) for n, each in enumerate((moved, *created))], now_ms=0)
    return pipeline


def test_row_whose_waiting_ends_stays_and_is_not_shown_again():
    pipeline = waiting()
    before = {entry["id"]: entry for entry in pipeline.state.to_pylist()}
    assert [key for key in sorted(before) if before[key]["_kept"]] == [1]
    assert [key for key in sorted(before) if before[key]["_moved_from"]] == [3]
    result = pipeline.operator.expire(pipeline.state, Step(9, 100))
    after = {entry["id"]: entry for entry in result.entries.to_pylist() if not entry["_removed"]}
    ended = {"_step": 9, "_change": None, "_moved_from": None, "_kept": None}
    assert after == {key: before[key] | ended for key in (1, 3)}
    assert result.metrics["waiting_expired"] == 2


@pytest.mark.parametrize(("live", "stops"), [(False, {1, 3}), (True, set())])
def test_row_that_may_expire_itself_does_not_only_stop_waiting(live, stops):
    pipeline = waiting(expire_live=live)
    ended = pipeline.operator.stops_waiting(pipeline.state, Step(9, 100))
    assert {key for key, stop in zip(pipeline.state["id"].to_pylist(), ended, strict=True) if stop} == stops
