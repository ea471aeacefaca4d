"""Arrival mode with a time to live: each row of a history by its own insertion; the sink keeps what it shows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local.support import acted_on, change, cut, envelope, plain, record, spec
from oracles.reference import Histories
from plans import operator_of

from ebbtide.entries import Step
from ebbtide.testing import MemoryPipeline

TTL = 100
BY_CLOCK = plain(ttl="100ms")
BY_EVENT = plain(
    "id BIGINT NOT NULL, n INT, at TIMESTAMP",
    event_time="at",
    allowed_delay="20ms",
    ttl={"ttl": "100ms", "time_characteristic": "EVENT_TIME"},
)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["+I", "-U", "+U", "-D"]), st.integers(0, 1), st.integers(0, 2)), max_size=8
)
TIMES = st.integers(0, 60)
TIMED = st.lists(st.tuples(st.sampled_from(["+I", "-D"]), st.integers(0, 1), st.integers(0, 300)), max_size=6)


def row(kind, key, n):
    return change(kind, id=key, n=n)


def numbers(pipeline):
    return {row["id"]: row["n"] for row in pipeline.rows()}


def agrees(pipeline, histories):
    names = [f.name for f in pipeline.spec.table.columns if f.name != "at"]
    assert [{n: row[n] for n in names} for row in pipeline.rows()] == [
        {n: row[n] for n in names} for row in histories.shown()
    ]


@given(st.lists(st.tuples(TIMES, CHANGES, st.booleans()), max_size=8))
def test_rows_expire_by_the_clock_of_steps_as_histories_do(steps):
    pipeline, histories, now = MemoryPipeline(BY_CLOCK), Histories(["id"], TTL), 0
    for wait, changes, tick in steps:
        now += wait
        histories.expire(now)
        pipeline.step([row(*each) for each in changes], now_ms=now)
        for kind, key, n in changes:
            histories.apply(kind, {"id": key, "n": n}, now)
        agrees(pipeline, histories)
        if tick:
            now += wait
            histories.expire(now)
            pipeline.tick(now_ms=now)
            agrees(pipeline, histories)
            assert stored(pipeline) == sum(map(len, histories.rows.values()))
    assert pipeline.metrics["unmatched"] == histories.unmatched


def stored(pipeline):
    entries = {(e["id"], e["_position"]): e["_removed"] for e in pipeline.state.sort_by("_step").to_pylist()}
    return sum(not removed for removed in entries.values())


@pytest.mark.demand("sum-watermark")
@given(st.lists(TIMED, max_size=8))
def test_rows_expire_by_the_watermark_as_histories_do(steps):
    """Rows already past their time reach the sink and are not stored; until the step ends they can be retracted."""
    pipeline, histories, greatest = MemoryPipeline(BY_EVENT), Histories(["id"], TTL), -(10**6)
    for changes in steps:
        watermark, late = greatest - 20, pipeline.metrics["late"]
        histories.expire(watermark)
        rows = [(kind, {"id": key, "n": at // 100, "at": at * 1000}, at) for kind, key, at in changes]
        pipeline.step([change(kind, **r) for kind, r, _ in rows])
        for kind, r, at in rows:
            histories.apply(kind, r, at)
        assert pipeline.metrics["late"] - late == histories.expire(watermark)
        agrees(pipeline, histories)
        greatest = max([greatest, *(at for _, _, at in changes)])


def run(*steps, of=BY_CLOCK):
    """Run (now, lines) pairs; lines of None are a tick."""
    pipeline = MemoryPipeline(of)
    for now, lines in steps:
        pipeline.tick(now_ms=now) if lines is None else pipeline.step(lines, now_ms=now)
    return pipeline


@pytest.mark.parametrize(("now", "left"), [(99, 1), (100, 0)])
@pytest.mark.demand("ttl-cleaned")
def test_tick_drops_a_row_at_exactly_its_time_and_leaves_the_sink(now, left):
    pipeline = run((0, [row("+I", 1, 1)]), (now, None), (now, None))
    assert (stored(pipeline), pipeline.metrics["expired"], numbers(pipeline)) == (left, 1 - left, {1: 1})


@pytest.mark.parametrize("tick", [False, True])
def test_retraction_of_an_expired_row_is_unmatched_and_leaves_its_orphan(tick):
    pipeline = run((0, [row("+I", 1, 1)]), *([(100, None)] if tick else []), (100, [row("-D", 1, 1)]))
    assert (numbers(pipeline), pipeline.metrics["unmatched"]) == ({1: 1}, 1)
    assert pipeline.metrics["unmatched_expired"] == (0 if tick else 1)


@pytest.mark.parametrize("tick", [False, True])
def test_row_added_to_an_orphan_is_an_update_of_the_sink(tick):
    pipeline = run((0, [row("+I", 1, 1)]), *([(100, None)] if tick else []), (100, [row("+I", 1, 2)]))
    assert (numbers(pipeline), pipeline.metrics["inserted"], stored(pipeline)) == ({1: 2}, 0, 1)


@pytest.mark.parametrize("cuts", [[], [1]], ids=["one step", "two steps"])
def test_row_added_to_an_orphan_and_retracted_takes_the_orphan_along(cuts):
    lines = [row("+I", 1, 2), row("-D", 1, 2)]
    pipeline = run((0, [row("+I", 1, 1)]), (100, None), *((100, step) for step in cut(lines, cuts)))
    assert (numbers(pipeline), stored(pipeline)) == ({}, 0)


def test_clock_that_goes_back_brings_nothing_back_and_expires_nothing_early():
    pipeline = run((500, [row("+I", 1, 1)]), (0, [row("+I", 1, 2)]), (0, None), (599, None))
    assert (stored(pipeline), pipeline.now_ms) == (2, 599)
    operator = pipeline.operator
    assert operator.expire(pipeline.state, Step(9, -(2**63))).entries.num_rows == 0


def timed(kind, key, n, at):
    return change(kind, id=key, n=n, at=at * 1000)


def test_late_row_reaches_the_sink_and_is_not_stored():
    pipeline = run((0, [timed("+I", 1, 1, 1000)]), (0, [timed("+I", 2, 2, 880)]), of=BY_EVENT)
    assert (numbers(pipeline), pipeline.metrics["late"], stored(pipeline)) == ({1: 1, 2: 2}, 1, 1)
    pipeline.step([timed("-D", 2, 2, 880)])
    assert (numbers(pipeline), pipeline.metrics["unmatched"]) == ({1: 1, 2: 2}, 1)


def test_older_row_that_outlived_a_newer_one_is_shown_once_something_is_added():
    pipeline = run((0, [timed("+I", 1, 1, 1000), timed("+I", 1, 2, 900)]), (0, []), of=BY_EVENT)
    assert numbers(pipeline) == {1: 2}
    pipeline.step([timed("+I", 1, 1, 1000)])
    assert numbers(pipeline) == {1: 1}


@pytest.mark.parametrize(("stamp", "gone_at"), [(0, 100), (-1, 99), (-(2**53), 100 - 2**53)])
def test_row_with_an_extreme_event_time_expires_at_its_time(stamp, gone_at):
    by_source = spec(order="arrival", ttl={"ttl": "100ms", "time_characteristic": "EVENT_TIME"})
    pipeline = run((0, [record(envelope("c", 1, after={"id": 1, "n": 1}, ts_ms=stamp))]), of=by_source)
    expire = pipeline.operator.expire
    assert expire(pipeline.state, Step(9, 0, watermark_ms=gone_at - 1)).entries.num_rows == 0
    assert expire(pipeline.state, Step(9, 0, watermark_ms=gone_at)).entries["_removed"].to_pylist() == [True]


def test_tick_writes_nothing_of_keys_of_which_nothing_expires():
    rows = record(envelope("c", 1, after={"id": 1, "n": 1}), 0), record(envelope("t", 2), 1)
    pipeline = run(*((now, [row]) for now, row in enumerate(rows)), (9, None), of=spec(order="arrival", ttl="100ms"))
    assert (numbers(pipeline), len(pipeline.state)) == ({}, 1)


def test_rows_below_a_truncate_are_not_counted_as_expired_matches():
    by_clock = spec(order="arrival", ttl="100ms")
    first = record(envelope("c", 1, after={"id": 1, "n": 1}), 0)
    truncate, delete = record(envelope("t", 2), 1), record(envelope("d", 3, before={"id": 1, "n": 1}), 2)
    pipeline = run((0, [first]), (50, [truncate]), (200, [delete]), of=by_clock)
    assert (numbers(pipeline), pipeline.metrics["unmatched"], pipeline.metrics["unmatched_expired"]) == ({}, 1, 0)


@pytest.mark.parametrize(("keep", "shown"), [("first", [1, 2, 3, None]), ("last", [3, 3, 3, None])])
def test_tick_that_deletes_shows_the_next_row_that_lives(keep, shown):
    deletes = plain(ttl="100ms", materializer={"keep": keep, "on_expire": "delete", "emission": "every"})
    pipeline = run(*((now, [row("+I", 1, n)]) for now, n in ((0, 1), (50, 2), (60, 3))), of=deletes)
    emitted = len(pipeline.changelog)
    found = []
    for now in (99, 100, 150, 160):
        pipeline.tick(now_ms=now)
        found.append(numbers(pipeline).get(1))
    assert found == shown
    told = [(each["_kind"], each["n"]) for each in pipeline.changelog[emitted:]]
    assert told == ([("+U", 2), ("+U", 3), ("-D", 3)] if keep == "first" else [("-D", 3)])


@pytest.mark.parametrize("keep", ["first", "last"])
def test_tick_that_deletes_leaves_the_shown_row_where_another_expires(keep):
    materializer = {"keep": keep, "on_expire": "delete"}
    deletes = plain(schema=BY_EVENT.schema_, ttl=BY_EVENT.ttl, event_time="at", materializer=materializer)
    lives, expires = timed("+I", 1, 1, 1000), timed("+I", 1, 2, 900)
    lines = [lives, expires] if keep == "first" else [expires, lives]
    pipeline = run((0, lines), (0, None), of=deletes)
    assert (numbers(pipeline), pipeline.metrics["expired"], stored(pipeline)) == ({1: 1}, 1, 1)


@pytest.mark.parametrize(("on_expire", "left"), [("keep", ["waiting"]), ("delete", ["live", "waiting"])])
def test_what_a_tick_has_to_act_on_is_not_settled_before(on_expire, left):
    deletes = plain(ttl="100ms", materializer={"on_expire": on_expire, "retraction_grace": "50ms"})
    pipeline = run((0, [row("+I", 1, 1), row("+I", 1, 2), row("-D", 2, 2)]), of=deletes)
    found = acted_on(pipeline.state, operator_of(deletes))
    assert sorted(entry["_role"] for entry in found) == left
    assert {entry["n"] for entry in found} == {2}


def emitted(pipeline):
    return [(row["_kind"], row["id"], row["n"]) for row in pipeline.changelog]


DELETES = {"emission": "every", "on_expire": "delete"}


@pytest.mark.parametrize(("keep", "shown"), [("last", [(1, 2), (2, 2)]), ("first", [(1, 1), (2, 1)])])
def test_row_whose_time_is_over_gives_place_to_one_that_lives_and_that_is_emitted(keep, shown):
    of = plain(
        "id BIGINT NOT NULL, n INT, at TIMESTAMP",
        event_time="at",
        ttl={"ttl": "100ms", "time_characteristic": "EVENT_TIME"},
        materializer=DELETES | {"keep": keep},
    )
    old, young = (900, 1000) if keep == "first" else (1000, 900)
    rows = [timed("+I", key, n, at) for key in (1, 2) for n, at in ((1, old), (2, young))]
    pipeline = run((0, rows), of=of)
    assert [(each["id"], each["n"]) for each in pipeline.rows()] == shown
    before = len(pipeline.changelog)
    pipeline.tick(now_ms=0)
    other = 3 - shown[0][1]
    assert emitted(pipeline)[before:] == [("+U", 1, other), ("+U", 2, other)]
    pipeline.step([timed("+I", 9, 9, 1100)])
    pipeline.tick(now_ms=0)
    assert emitted(pipeline)[before + 2 :] == [("+I", 9, 9), ("-D", 1, other), ("-D", 2, other)]
    numbers_of = [each["_number"] for each in pipeline.changelog[before:]]
    orders = [tuple(each["_order"].values()) for each in pipeline.changelog[before:]]
    assert (numbers_of, orders) == ([0, 1, 0, 0, 1], [(2, -1, -1), (2, -1, -1), (3, 0, 0), (4, -1, -1), (4, -1, -1)])


@pytest.mark.parametrize("on_expire", ["keep", "delete"])
def test_what_a_tick_changes_stands_before_the_changes_of_its_step(on_expire):
    pipeline = run((0, [row("+I", 1, 1)]), (100, None), of=plain(ttl="100ms", materializer={"on_expire": on_expire}))
    first, last = pipeline.state.sort_by("_step").to_pylist()
    place = {"step": 2, "part": -1, "position": -1} if on_expire == "delete" else first["_changed_by"]
    change_ = "D" if on_expire == "delete" else None
    assert (last["_changed_by"], last["_change"], last["_removed"], last["_stamp_ms"]) == (place, change_, True, 0)


def test_retraction_that_waits_carries_no_deletion_of_what_was_there_before_it():
    """A later step decides otherwise and does not write it again: what stays must not tell what no longer holds."""
    of = plain(ttl="100ms", materializer={"retraction_grace": "1d"})
    pipeline = run((0, [row("+I", 1, 1), row("-D", 1, 1), row("-D", 1, 2)]), of=of)
    entries = pipeline.state.to_pylist()
    told = [(entry["_role"], entry["_change"], entry["_removed"]) for entry in entries]
    assert sorted(told, key=str) == [("gone", "D", True), ("waiting", None, False)]
    assert [entry["_changed_by"]["position"] for entry in entries] == [2, 2], "the sink knows the key's last change"
