"""Sequence mode, case by case: what the recorded capture does not have."""

from __future__ import annotations

import itertools

import pytest
from local.notes_log import KEPT, PIPELINES, event, notes, run


def arrivals(*events):
    """Every order of arrival, in one step and in a step each."""
    for order in itertools.permutations(events):
        yield [list(order)]
        yield list(order)


SNAPSHOT = event("r", None, 1, "snapshot")


@pytest.mark.parametrize(
    ("logged", "shown"),
    [
        ([], {1: "snapshot"}),
        ([event("c", 5, 1, "c")], {1: "c"}),
        ([event("c", 5, 1, "c"), event("u", 7, 1, "u")], {1: "u"}),
        ([event("u", 7, 1, KEPT)], {1: "snapshot"}),
        ([event("d", 5)], {}),
        ([event("d", 5), event("c", 6, 1, "c")], {1: "c"}),
        ([event("d", 5), event("u", 7, 1, KEPT)], {1: None}),
        ([event("t", 5)], {}),
        ([event("t", 5), event("c", 6, 1, "c")], {1: "c"}),
    ],
    ids=["alone", "created", "changed", "fills", "deleted", "came back", "fills nothing", "truncated", "filled again"],
)
def test_snapshot_row_without_lsn_counts_only_while_its_key_has_nothing_above(logged, shown):
    for steps in arrivals(SNAPSHOT, *logged):
        assert notes(run(*steps)) == shown


def test_snapshot_row_without_lsn_read_twice_counts_once():
    pipeline = run(SNAPSHOT, [SNAPSHOT, event("u", 3, 1, "u")], SNAPSHOT)
    assert (notes(pipeline), pipeline.metrics["duplicates"], pipeline.metrics["superseded"]) == ({1: "u"}, 1, 1)


@pytest.mark.parametrize("lsn", [10, 11])
def test_change_at_or_above_truncate_lives(lsn):
    for steps in arrivals(event("t", 10), event("c", lsn, 1, "new"), event("c", 9, 2, "old")):
        assert notes(run(*steps)) == {1: "new"}


def test_row_at_a_truncate_keeps_its_values_for_what_comes_later():
    for steps in arrivals(event("c", 10, 1, "long"), event("t", 10), event("u", 11, 1, KEPT)):
        assert notes(run(*steps)) == {1: "long"}


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
    for order in itertools.islice(itertools.permutations(swap), 0, None, 59):
        assert notes(run(start, order[:3], list(order[3:]))) == {1: "two", 2: "one"}


def test_change_wins_over_a_snapshot_row_at_one_lsn_in_any_order():
    for steps in arrivals(event("r", 5, 1, "r"), event("u", 5, 1, "u")):
        assert notes(run(*steps, *steps)) == {1: "u"}


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


@PIPELINES
def test_changed_key_does_not_take_a_snapshot_row_read_after_it(kind):
    pipeline = run(event("u", 5, 2, KEPT, was=1), [event("c", 6, 1, "next"), event("r", None, 1, "next")], kind=kind)
    assert notes(pipeline) == {1: "next", 2: None}


def test_update_whose_before_has_the_same_key_is_no_move():
    pipeline = run(event("c", 4, 1, "a"), event("u", 5, 1, "b", was=1))
    assert (notes(pipeline), pipeline.metrics["deleted"]) == ({1: "b"}, 0)


@pytest.mark.parametrize("changes", [[], [event("t", 5)]], ids=["nothing", "truncate"])
def test_step_without_changes_writes_no_entries(changes):
    pipeline = run(event("c", 9, 1, "a"), changes)
    assert (notes(pipeline), len(pipeline.state)) == ({1: "a"}, 1)
