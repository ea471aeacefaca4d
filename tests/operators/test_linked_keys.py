"""Keys linked by changes of the key: what their entries remember of one another."""

from __future__ import annotations

import base64
import itertools

import pyarrow as pa
import pytest
from local.notes_log import KEPT, NOTES, come_from, event, gone_to, moved, notes, rows_by_run, run, written
from local.support import envelope, record, spec

from ebbtide.testing import MemoryPipeline


@pytest.mark.parametrize("turn", [1, -1])
def test_row_that_found_its_values_waits_for_none(turn):
    pipeline = run([event("c", 4, 1, "long"), moved(5, 1, 2)][::turn])
    assert (notes(pipeline), pipeline.metrics["pending_key_changes"]) == ({2: "long"}, 0)
    [found] = [entry for entry in pipeline.state.to_pylist() if entry["_moved_from"]]
    assert (found["id"], found["_columns"]) == (2, [("notes", {"_lsn": 4})])


def test_row_that_waits_remembers_the_changes_of_its_key_newest_first():
    pipeline = run([moved(5, 1, 2), moved(6, 2, 3)])
    [entry] = [entry for entry in pipeline.state.to_pylist() if entry["_moved_from"]]
    changes = [(change["sequence"]["_lsn"], change["key"]["id"]) for change in entry["_moved_from"]]
    assert (entry["id"], changes) == (3, [(6, 2), (5, 1)])
    assert pipeline.metrics["pending_key_changes"] == 1


@pytest.mark.parametrize("again", [moved(5, 1, 2), event("u", 6, 2, KEPT), event("d", 3, 9)])
def test_row_that_waits_is_not_written_again_where_it_learns_nothing(again):
    pipeline = run([moved(5, 1, 2), event("u", 6, 2, KEPT)], [again])
    assert 2 not in written(pipeline, 2)


def test_row_that_waits_is_written_again_where_it_waits_for_another():
    pipeline = run([moved(5, 1, 2)], [moved(4, 7, 1)])
    entry = written(pipeline, 2)[2]
    assert ([change["key"]["id"] for change in entry["_moved_from"]], entry["_change"]) == ([1, 7], None)
    pipeline.step([event("c", 3, 7, "long")])
    assert notes(pipeline) == {2: "long"}


def test_rows_that_wait_side_by_side_find_their_own_values():
    pipeline = run([moved(5, 1, 2), moved(6, 3, 4), moved(7, 5, 6)])
    for lsn, key, value in ((2, 5, "c"), (3, 3, "b"), (4, 1, "a")):
        pipeline.step([event("c", lsn, key, value)])
    assert notes(pipeline) == {2: "a", 4: "b", 6: "c"}


def test_rows_kept_side_by_side_are_found_by_their_own_followers():
    firsts = [event("c", key, key, f"first {key}") for key in (1, 2, 3)]
    pipeline = run(firsts, [event("c", 10 + key, key, f"second {key}") for key in (1, 2, 3)])
    kept = {key: entry["_kept"] for key, entry in written(pipeline, 2).items()}
    assert {key: row["row"]["notes"] for key, row in kept.items()} == {key: f"first {key}" for key in (1, 2, 3)}
    assert {key: (row["sequence"]["_lsn"], row["until"]["_lsn"]) for key, row in kept.items()} == {
        key: (key, 10 + key) for key in (1, 2, 3)
    }
    pipeline.step([moved(5, key, 100 + key) for key in (3, 1)])
    assert notes(pipeline) == {1: "second 1", 2: "second 2", 3: "second 3", 101: "first 1", 103: "first 3"}


def test_row_does_not_take_what_its_old_key_got_after_it_had_left():
    pipeline = run([event("c", 6, 1, "next")], [event("u", 8, 1, KEPT)], [moved(5, 1, 2)])
    assert notes(pipeline) == {1: "next", 2: None}


def test_row_does_not_take_what_its_key_had_before_the_row_got_it():
    pipeline = run([event("c", 2, 2, "before")], [moved(5, 1, 2)], [event("u", 6, 2, KEPT)])
    assert notes(pipeline) == {2: None}
    pipeline.step([event("c", 3, 1, "mine")])
    assert notes(pipeline) == {2: "mine"}


def test_value_known_since_before_a_row_got_its_key_is_that_of_the_row_that_left():
    """Entries that were read back play the same log as the changes themselves."""
    log = [event("c", 1, 1, "one"), moved(3, 1, 2), event("c", 4, 1, "other"), event("u", 5, 1, KEPT), moved(6, 1, 3)]
    cuts = list(itertools.product(range(1, len(log)), (1, -1)))
    found = rows_by_run(NOTES, [[log[:cut], log[cut:]][::turn] for cut, turn in cuts])
    for (cut, turn), rows in zip(cuts, found, strict=True):
        # The end of the later row came before all of the earlier one: an update of that one may be forgotten.
        first = None if turn == -1 and cut > 1 else "one"
        assert [(row["id"], row["notes"]) for row in rows] == [(2, first), (3, "other")], (cut, turn)


def test_deleted_row_leaves_nothing_to_those_that_get_its_key():
    log = [event("c", 1, 1, "dead"), event("d", 2, 1), moved(3, 9, 1), event("u", 4, 1, KEPT)]
    runs = [[log[:cut], log[cut:]][::turn] for cut in range(1, len(log)) for turn in (1, -1)]
    assert rows_by_run(NOTES, runs) == [[{"id": 1, "notes": None}]] * len(runs)
    later = [event("c", 1, 9, "nine")]
    assert rows_by_run(NOTES, [[*run_, later] for run_ in runs]) == [[{"id": 1, "notes": "nine"}]] * len(runs)


def test_row_kept_from_before_a_delete_is_remembered_in_every_entry_that_follows():
    pipeline = run([event("c", 1, 1, "first")], [event("c", 10, 1, "second")], [event("d", 15, 1)])
    for later in (event("c", 20, 1, "third"), event("u", 21, 1, "fourth")):
        pipeline.step([later])
    [entry] = written(pipeline, 5).values()
    assert (entry["_kept"]["sequence"]["_lsn"], entry["_kept"]["until"]["_lsn"]) == (1, 10)
    pipeline.step([moved(5, 1, 101)])
    assert notes(pipeline) == {1: "fourth", 101: "first"}


def test_kept_row_has_each_of_its_values_as_it_was():
    of = spec("id BIGINT NOT NULL, z STRING, b BINARY, a ARRAY<MAP<STRING, INT>>")
    first = {"id": 1, "z": "text", "b": "AAE=", "a": [{"k": 1}]}
    lacks = {"id": 2, "z": KEPT, "b": base64.b64encode(KEPT.encode()).decode(), "a": [KEPT]}
    changes = [
        envelope("c", 1, after=first),
        envelope("c", 9, after=first),
        envelope("u", 5, before={"id": 1}, after=lacks),
    ]
    pipeline = run(*([record(change)] for change in changes), of=of)
    assert pipeline.rows()[1] == {"id": 2, "z": "text", "b": b"\x00\x01", "a": [[("k", 1)]]}


def test_row_does_not_take_what_a_delete_ended_before_the_one_that_it_came_from():
    """The delete is known from an entry that was written since."""
    pipeline = run([event("d", 15, 1)], [event("c", 20, 1, "new")], [event("u", 8, 1, "dead"), moved(17, 1, 2)])
    assert notes(pipeline) == {1: "new", 2: None}


def test_tombstone_waits_for_no_value():
    """A late delete under a key that a row left since, whose own tombstone has expired."""
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, notes STRING", ttl="100ms"))
    pipeline.step([moved(5, 1, 2), moved(6, 2, 3)], now_ms=0)
    pipeline.step([event("u", 7, 3, KEPT)], now_ms=80)
    pipeline.step([event("d", 4, 2)], now_ms=120)
    assert written(pipeline, 3)[2]["_moved_from"] is None


def as_older(entries):
    """Make entries as they were before values had the sequence at which they were known under an old key."""
    kept = [
        kept and {name: kept[name] for name in ("sequence", "until", "known", "row")}
        for kept in entries["_kept"].to_pylist()
    ]
    place = entries.schema.get_field_index("_kept")
    older = entries.set_column(place, "_kept", pa.array(kept))
    return older.drop_columns("_kept_before")


def test_kept_row_of_an_older_state_is_found_by_its_create():
    pipeline = run([event("c", 1, 1, "one")], [gone_to(5, 1, 2)])
    older = as_older(pipeline.state)
    fields = [*pipeline.state.schema]
    columns = [older[field.name].cast(field.type) if field.name in older.column_names else None for field in fields]
    empty = pa.nulls(len(older), pipeline.state.schema.field("_kept_before").type)
    columns = [empty if column is None else column for column in columns]
    pipeline.state = pa.Table.from_arrays(columns, schema=pipeline.state.schema)
    [kept] = [entry["_kept"] for entry in pipeline.state.to_pylist() if entry["_kept"]]
    assert (kept["since"], kept["has_left"], kept["n_moved"]) == (None, None, None)
    pipeline.step([event("c", 7, 3, "beside")])
    pipeline.step([come_from(5, 1, 2)])
    assert notes(pipeline) == {2: "one", 3: "beside"}
    pipeline.step([event("u", 3, 1, "late")])
    assert notes(pipeline) == {2: "late", 3: "beside"}


def test_value_of_an_older_state_stays_the_row_s_own():
    """There it was found under an old key, and no link was left to that."""
    pipeline = run([event("d", 4, 2), event("c", 1, 1, "one")], [moved(5, 1, 2)])
    cleared = {
        name: pa.nulls(len(pipeline.state), pipeline.state.schema.field(name).type)
        for name in ("_moved_from", "_columns")
    }
    for name, column in cleared.items():
        place = pipeline.state.schema.get_field_index(name)
        pipeline.state = pipeline.state.set_column(place, pipeline.state.schema.field(name), column)
    pipeline.step([event("u", 3, 1, "late")])
    pipeline.step([event("u", 6, 2, KEPT)])
    assert notes(pipeline) == {2: "one"}
