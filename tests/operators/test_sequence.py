"""Sequence mode, case by case: what the recorded capture does not have."""

from __future__ import annotations

import itertools

import pytest
from local.notes_log import KEPT, NOTES, PIPELINES, event, notes, rows_by_order, rows_by_run, run


def arrivals(*events):
    """Every order of arrival, in one step and in a step each."""
    for order in itertools.permutations(events):
        yield [list(order)]
        yield list(order)


SNAPSHOT = event("r", None, 1, "snapshot")


TRUNCATE = event("t", 10)
IN_EVERY_ORDER = {
    "snapshot row alone": ([SNAPSHOT], {1: "snapshot"}),
    "created": ([SNAPSHOT, event("c", 5, 1, "c")], {1: "c"}),
    "changed": ([SNAPSHOT, event("c", 5, 1, "c"), event("u", 7, 1, "u")], {1: "u"}),
    "fills": ([SNAPSHOT, event("u", 7, 1, KEPT)], {1: "snapshot"}),
    "deleted": ([SNAPSHOT, event("d", 5)], {}),
    "came back": ([SNAPSHOT, event("d", 5), event("c", 6, 1, "c")], {1: "c"}),
    "fills nothing": ([SNAPSHOT, event("d", 5), event("u", 7, 1, KEPT)], {1: None}),
    "change beside a snapshot row at its lsn": ([event("r", 5, 1, "r"), event("u", 5, 1, "u")], {1: "u"}),
}


@pytest.mark.parametrize(("events", "shown"), IN_EVERY_ORDER.values(), ids=IN_EVERY_ORDER)
@pytest.mark.parametrize("together", [True, False], ids=["one step", "a step each"])
def test_log_shows_its_rows_in_every_order_of_arrival_and_read_again(events, shown, together):
    orders = [*itertools.permutations(events)]
    for some in (orders, [(*order, *order) for order in orders]):
        for rows in rows_by_order(NOTES, some, together=together):
            assert {row["id"]: row["notes"] for row in rows} == shown


WITH_A_TRUNCATE = {
    "below it": ([SNAPSHOT, event("t", 5)], {}),
    "filled again": ([SNAPSHOT, event("t", 5), event("c", 6, 1, "c")], {1: "c"}),
    "change at a truncate": ([TRUNCATE, event("c", 10, 1, "new"), event("c", 9, 2, "old")], {1: "new"}),
    "change above a truncate": ([TRUNCATE, event("c", 11, 1, "new"), event("c", 9, 2, "old")], {1: "new"}),
    "row at a truncate keeps its values": ([event("c", 10, 1, "long"), TRUNCATE, event("u", 11, 1, KEPT)], {1: "long"}),
}


@pytest.mark.parametrize(("events", "shown"), WITH_A_TRUNCATE.values(), ids=WITH_A_TRUNCATE)
def test_truncate_takes_what_is_below_it_in_every_order_of_arrival(events, shown):
    for steps in arrivals(*events):
        assert notes(run(*steps)) == shown


def test_snapshot_row_without_lsn_read_twice_counts_once():
    pipeline = run(SNAPSHOT, [SNAPSHOT, event("u", 3, 1, "u")], SNAPSHOT)
    assert (notes(pipeline), pipeline.metrics["duplicates"], pipeline.metrics["superseded"]) == ({1: "u"}, 1, 1)


def test_change_below_truncate_is_counted_as_below_floor():
    pipeline = run(event("t", 10), event("c", 9, 1, "old"))
    assert (notes(pipeline), pipeline.metrics["below_floor"]) == ({}, 1)


def test_delete_and_create_at_one_lsn_leave_the_row_or_a_conflict():
    delete, create = event("d", 5), event("c", 5, 1, "new")
    for steps in arrivals(event("c", 3, 1, "old"), delete, create):
        pipeline = run(*steps)
        together = [list(step) for step in steps if delete in step and create in step]
        if not together:
            assert (notes(pipeline), pipeline.metrics["conflicts"]) == ({1: "new"}, 1)
        elif together[0].index(delete) < together[0].index(create):
            assert (notes(pipeline), pipeline.metrics["conflicts"]) == ({1: "new"}, 0)
        else:
            assert (notes(pipeline), pipeline.metrics["conflicts"]) == ({}, 0)


def test_parked_swap_at_one_lsn_each_is_right_in_any_order():
    swap = [
        *(event("d", 5, 1), event("c", 5, -1, "one")),
        *(event("d", 6, 2), event("c", 6, 1, "two")),
        *(event("d", 7, -1), event("c", 7, 2, "one")),
    ]
    start = [event("c", 1, 1, "one"), event("c", 2, 2, "two")]
    runs = [(start, order[:3], order[3:]) for order in itertools.islice(itertools.permutations(swap), 0, None, 7)]
    for rows in rows_by_run(NOTES, runs):
        assert rows == [{"id": 1, "notes": "two"}, {"id": 2, "notes": "one"}]


def test_redelivered_changes_are_counted_and_change_nothing():
    log = [event("c", 5, 1, "a"), event("u", 6, 1, "b"), event("c", 7, 2, "x"), event("d", 8, 2)]
    pipeline = run(log, log, log + log)
    assert notes(pipeline) == {1: "b"}
    assert (pipeline.metrics["duplicates"], pipeline.metrics["superseded"]) == (2 + 6, 6 - 2)
    assert (pipeline.metrics["inserted"], pipeline.metrics["updated"], pipeline.metrics["deleted"]) == (1, 0, 0)


def test_late_fill_reaches_the_sink_at_the_row_s_own_sequence():
    pipeline = run(event("u", 9, 1, KEPT))
    assert (notes(pipeline), pipeline.metrics["waiting"]) == ({1: None}, 1)
    before = pipeline.sink["[1]"]["_sequence"]
    pipeline.step([event("c", 4, 1, "long")])
    assert (notes(pipeline), pipeline.metrics["filled"]) == ({1: "long"}, 1)
    assert pipeline.sink["[1]"]["_sequence"] == before == {"_lsn": 9, "op": 3}


@PIPELINES
@pytest.mark.parametrize("first", [0, 2], ids=["together", "row later"])
def test_key_changed_more_often_than_python_calls_deep_takes_the_value_along(kind, first):
    log = [event("c", 4, 1, "long"), *(event("u", 4 + n, 1 + n, KEPT, was=n) for n in range(1, 1201))]
    assert notes(run(log[first:], log[:first], kind=kind)) == {1201: "long"}


def test_update_whose_before_has_the_same_key_is_no_move():
    pipeline = run(event("c", 4, 1, "a"), event("u", 5, 1, "b", was=1))
    assert (notes(pipeline), pipeline.metrics["deleted"]) == ({1: "b"}, 0)


@pytest.mark.parametrize("changes", [[], [event("t", 5)]], ids=["nothing", "truncate"])
def test_step_without_changes_writes_no_entries(changes):
    pipeline = run(event("c", 9, 1, "a"), changes)
    assert (notes(pipeline), len(pipeline.state)) == ({1: "a"}, 1)
