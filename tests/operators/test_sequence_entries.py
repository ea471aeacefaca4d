"""Sequence mode: what entries remember, and what is written at all."""

from __future__ import annotations

import itertools
import json

import pytest
from local.notes_log import KEPT, NOTES, event, run, written
from local.support import change, envelope, plain, record, spec

from ebbtide.testing import MemoryPipeline

BY_TIME = {"order": {"sequence": ["at"]}}
TIMED = {"ttl": "100ms", "time_characteristic": "EVENT_TIME"}


def place(entry):
    return entry["_changed_by"]["step"], entry["_changed_by"]["position"]


def lsn(sequence):
    return None if sequence is None else sequence["_lsn"]


def test_row_is_changed_by_its_own_event_where_an_older_one_of_the_step_has_the_value():
    pipeline = run([event("u", 9, 1, KEPT), event("c", 4, 1, "long"), event("c", 5, 2, "x")])
    assert {key: place(entry) for key, entry in written(pipeline, 1).items()} == {1: (1, 0), 2: (1, 2)}


def test_stored_row_that_is_filled_is_changed_by_the_event_that_fills_it():
    pipeline = run([event("u", 9, 1, KEPT), event("c", 5, 2, "x")], [event("c", 4, 1, "long")])
    [entry] = written(pipeline, 2).values()
    assert (place(entry), entry["notes"], entry["_change"]) == ((2, 0), "long", "U")


@pytest.mark.parametrize("filled", ["a", "b"])
def test_stored_row_is_filled_where_only_one_of_its_columns_is_and_waits_for_the_other(filled):
    of = spec("id BIGINT NOT NULL, a STRING, b STRING")
    row = {"id": 1, "a": KEPT, "b": KEPT}
    older = row | {filled: "old"}
    pipeline = run([record(envelope("u", 9, after=row))], [record(envelope("u", 4, after=older))], of=of)
    assert pipeline.rows() == [{"id": 1, "a": None, "b": None, filled: "old"}]
    assert pipeline.metrics["waiting"] == 2


def test_row_filled_from_the_row_kept_under_its_old_key_is_changed_by_the_change_that_tells_so():
    pipeline = run(
        [event("c", 4, 1, "long"), event("c", 6, 1, "next")], [event("u", 7, 2, KEPT)], [event("u", 5, 2, KEPT, was=1)]
    )
    entry = written(pipeline, 3)[2]
    assert (entry["notes"], place(entry)) == ("long", (3, 0))


def test_row_that_a_late_delete_takes_a_value_from_is_changed_by_the_delete():
    pipeline = run([event("c", 4, 1, "long")], [event("u", 9, 1, KEPT)], [event("c", 7, 2, "x"), event("d", 6)])
    entry = written(pipeline, 3)[1]
    assert (entry["notes"], entry["_change"], place(entry)) == (None, "U", (3, 1))


def test_row_that_is_filled_by_a_change_under_another_key_is_changed_by_one_of_the_step():
    pipeline = run([event("c", 4, 3, "long"), event("u", 8, 2, KEPT, was=1)], [event("u", 6, 1, KEPT, was=3)])
    entry = written(pipeline, 2)[2]
    assert (entry["notes"], entry["_change"], place(entry)[0]) == ("long", "U", 2)


def test_row_waits_for_a_value_that_came_neither_with_it_nor_with_the_delete_below_it():
    assert run([event("d", 5), event("u", 6, 1, KEPT)]).metrics["waiting"] == 1


@pytest.mark.parametrize("older", [event("u", 3, 1, "older"), event("u", 8, 1, KEPT), event("d", 2)])
def test_change_that_tells_nothing_new_writes_no_entry(older):
    start = [event("c", 4, 1, "long"), event("u", 9, 1, KEPT)]
    assert written(run([event("d", 3)], start, [older]), 3) == {}


@pytest.mark.parametrize("of", [NOTES, spec("id BIGINT NOT NULL, notes STRING", ttl=TIMED)], ids=["kept", "with a ttl"])
def test_late_delete_below_a_row_that_may_be_filled_is_noted_and_not_shown(of):
    pipeline = run([event("u", 9, 1, KEPT, ts_ms=20)], [event("d", 6, ts_ms=10)], of=of)
    [entry] = written(pipeline, 2).values()
    assert (entry["_change"], lsn(entry["_base"]), lsn(entry["_sequence"]), entry["_removed"]) == (None, 6, 9, False)


def test_entry_tells_since_when_its_row_has_the_key():
    pipeline = run([event("c", 4, 1, "x"), event("u", 9, 1, "y"), event("u", 5, 2, "z")])
    assert {key: lsn(entry["_since"]) for key, entry in written(pipeline, 1).items()} == {1: 4, 2: None}
    pipeline.step([event("u", 10, 1, "w")])
    assert lsn(written(pipeline, 2)[1]["_since"]) == 4


def by_column(schema="id BIGINT NOT NULL, at INT, n INT", make=plain, **more):
    return make(schema, **(BY_TIME | more))


def test_value_at_the_sequence_of_a_delete_by_column_is_dead():
    of = by_column("id BIGINT NOT NULL, at INT, notes STRING", spec)
    row = {"id": 1, "at": 5, "notes": "dead"}
    log = [
        record(envelope("c", None, after=row)),
        record(envelope("d", None, before=row)),
        record(envelope("u", None, after=row | {"at": 6, "notes": KEPT})),
    ]
    assert run(log, of=of).rows() == [{"id": 1, "at": 6, "notes": None}]


def test_value_at_the_sequence_of_a_delete_in_a_log_lives():
    log = [event("d", 5), event("c", 5, 1, "alive"), event("u", 6, 1, KEPT)]
    assert run(log).rows() == [{"id": 1, "notes": "alive"}]


@pytest.mark.parametrize("turn", [1, -1])
def test_each_key_is_filled_with_its_own_newest_value(turn):
    older = [event("c", at, key, f"{key}-{at}") for at in (2, 4, 3) for key in (1, 2, 3)]
    pipeline = run([*older[::turn], *(event("u", 9, key, KEPT) for key in (1, 2, 3))])
    assert [row["notes"] for row in pipeline.rows()] == ["1-4", "2-4", "3-4"]


def test_contents_taken_back_are_stored_and_stay_taken_back():
    taken = [change("+I", id=1, at=5, n=1), change("-U", id=1, at=5, n=1)]
    pipeline = run(taken, of=by_column())
    [first] = written(pipeline, 1).values()
    assert (first["_tombstone"], len(first["_retracted"])) == (True, 1)
    pipeline.step([change("+U", id=1, at=5, n=2)])
    [second] = written(pipeline, 2).values()
    assert (second["_retracted"], second["n"]) == (first["_retracted"], 2)
    pipeline.step([change("-U", id=1, at=5, n=3)])
    [third] = written(pipeline, 3).values()
    assert (len(third["_retracted"]), third["_change"], third["_conflict"]) == (2, None, False)
    pipeline.step([change("-U", id=1, at=5, n=3)])
    assert written(pipeline, 4) == {}


@pytest.mark.parametrize("turn", [1, -1])
def test_conflict_beside_what_was_taken_back_is_noted(turn):
    taken = [change("+I", id=1, at=5, n=1), change("-U", id=1, at=5, n=1)]
    first, second = [change("+U", id=1, at=5, n=n) for n in (2, 3)][::turn]
    pipeline = run([*taken, first], [second], of=by_column())
    [entry] = written(pipeline, 2).values()
    assert (entry["_conflict"], len(entry["_retracted"])) == (True, 1)


@pytest.mark.parametrize("rows", list(itertools.permutations(["a", "b", KEPT])))
def test_value_of_a_conflict_is_that_of_the_row_that_wins_in_any_order(rows):
    of = by_column("id BIGINT NOT NULL, at INT, notes STRING", spec)
    log = [envelope("u", None, after={"id": 1, "at": 5 + (notes == KEPT), "notes": notes}) for notes in rows]
    tied = sorted((row for row in log if row["after"]["at"] == 5), key=json.dumps)
    [winner] = run([record(row) for row in tied], of=of).rows()
    assert run([record(row) for row in log], of=of).rows() == [winner | {"at": 6}]


@pytest.mark.parametrize("turn", [1, -1])
def test_value_of_a_change_goes_before_that_of_a_snapshot_row_at_its_lsn(turn):
    same = [event("r", 5, 1, "read"), event("u", 5, 1, "changed")]
    assert run([*same[::turn], event("u", 6, 1, KEPT)]).rows() == [{"id": 1, "notes": "changed"}]


def test_retraction_alone_is_stored_with_its_content():
    pipeline = run([change("-U", id=1, at=5, n=1), change("+I", id=2, at=5, n=1)], of=by_column())
    assert {key: bool(entry["_retracted"]) for key, entry in written(pipeline, 1).items()} == {1: True, 2: False}
    pipeline.step([change("+I", id=1, at=5, n=1), change("-D", id=2, at=5)])
    assert pipeline.rows() == []
    assert written(pipeline, 2)[2]["_retracted"] is None


def test_stored_retraction_takes_back_no_row_that_is_like_it_without_its_values():
    """Of what was taken back the digest alone is stored."""
    pipeline = run([change("-U", id=1, at=5, n=1)], [change("+U", id=1, at=5, n=None)], of=by_column())
    assert pipeline.rows() == [{"id": 1, "at": 5, "n": None}]


def test_conflict_found_late_is_noted_once():
    log = [change("+I", id=1, at=5, n=n) for n in (1, 2)]
    pipeline = run(log, of=by_column())
    [entry] = written(pipeline, 1).values()
    kept, lost = log if entry["n"] == 1 else log[::-1]
    pipeline = run([lost], [kept], [kept], of=by_column())
    assert [len(written(pipeline, step)) for step in (1, 2, 3)] == [1, 1, 0]
    again = run([kept], [lost], [lost], of=by_column())
    [noted] = written(again, 2).values()
    assert (noted["_conflict"], noted["_change"], written(again, 3)) == (True, None, {})


@pytest.mark.parametrize(("ts_ms", "notes"), [(30, [30]), (20, []), (10, [])])
def test_late_change_renews_a_row_by_its_event_time_and_is_not_shown(ts_ms, notes):
    of = spec("id BIGINT NOT NULL, notes STRING", ttl=TIMED)
    pipeline = run([event("u", 9, 1, "x", ts_ms=20)], [event("u", 5, 1, "old", ts_ms=ts_ms)], of=of)
    entries = written(pipeline, 2).values()
    assert [entry["_stamp_ms"] for entry in entries] == notes
    assert {entry["_change"] for entry in entries} <= {None}


def test_live_row_already_past_its_time_reaches_the_sink_and_is_not_kept():
    of = spec("id BIGINT NOT NULL, notes STRING", ttl=TIMED | {"expire_live": True})
    pipeline = run([event("c", 1, 2, "new", ts_ms=1000)], [event("c", 2, 1, "late", ts_ms=900)], of=of)
    assert (len(pipeline.rows()), pipeline.metrics["late"], written(pipeline, 2)[1]["_removed"]) == (2, 1, True)


def test_entry_written_again_for_its_time_keeps_what_was_taken_back():
    of = by_column("id BIGINT NOT NULL, at INT, n INT, t TIMESTAMP", event_time="t", ttl=TIMED)
    row = {"id": 1, "at": 5, "n": 1, "t": 0}
    pipeline = run([change("+I", **row), change("-U", **row), change("+U", **row | {"n": 2})], of=of)
    [first] = written(pipeline, 1).values()
    pipeline.step([change("+I", id=1, at=3, n=0, t=50_000)])
    [second] = written(pipeline, 2).values()
    assert (second["_stamp_ms"], second["_retracted"]) == (50, first["_retracted"])
    assert len(first["_retracted"]) == 1


def test_what_becomes_of_each_key_is_counted():
    start = [event("c", 1, key, "x") for key in (1, 2, 3)] + [event("u", 9, 4, KEPT)]
    pipeline = run(start, [event("u", 2, 1, "y"), event("u", 2, 2, "y"), event("d", 2, 3), event("c", 4, 4, "old")])
    counts = {name: pipeline.metrics[name] for name in ("inserted", "updated", "deleted", "filled", "waiting", "late")}
    assert counts == {"inserted": 4, "updated": 3, "deleted": 1, "filled": 1, "waiting": 1, "late": 0}


@pytest.mark.parametrize(("clock", "stamp"), [("PROCESSING_TIME", 7), ("EVENT_TIME", 50)])
def test_entry_is_created_at_the_time_of_its_clock(clock, stamp):
    ttl = TIMED | {"time_characteristic": clock, "update_type": "ON_CREATE"}
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, notes STRING", ttl=ttl))
    pipeline.step([event("d", 9, ts_ms=50)], now_ms=7)
    assert [entry["_stamp_ms"] for entry in pipeline.state.to_pylist()] == [stamp]


def test_value_as_new_as_its_row_is_not_listed_beside_those_that_are_not():
    pipeline = run([event("u", 9, 1, KEPT), event("c", 4, 2, "x"), event("u", 5, 2, KEPT), event("c", 5, 3, "y")])
    listed = {key: entry["_columns"] for key, entry in written(pipeline, 1).items()}
    assert (listed[1], [name for name, _ in listed[2]], listed[3]) == ([("notes", None)], ["notes"], None)
