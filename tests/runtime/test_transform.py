"""The worker's part of a transform: it reads the rows to evaluate, writes the selected ones, and reports those that fail."""

import pyarrow as pa
import pytest
from local.support import plain

from ebbtide.changelog import changelog_schema
from ebbtide.columns import entry_table
from ebbtide.delta import DataFile, Snapshot, Writer, write_files
from ebbtide.runtime import Plan, Stager
from ebbtide.runtime._workers.staging import Share
from ebbtide.runtime._workers.transform import Results, StagedFinish, StagedInputs, StoredFinish, StoredInputs

TRANSFORM = {
    "schema": "key BIGINT NOT NULL, n INT NOT NULL",
    "select": {"key": "id", "n": "CAST(v AS INT)"},
    "where": "v <> 'hidden'",
    "key": ["key"],
}
OF = plain("id BIGINT NOT NULL, v STRING, seq BIGINT", order={"sequence": ["seq"]}, transform=TRANSFORM)
RESULT = pa.struct([("fits", pa.bool_()), ("row", pa.struct([("key", pa.int64()), ("n", pa.int32())]))])
RESULTS = pa.chunked_array([[{"fits": True, "row": {"key": 1, "n": 5}}, {"fits": False, "row": None}, None]], RESULT)
SOME = Results(OF.sink_table.columns, ("id", "v"), most=10)
OUT = OF.sink_table.columns


@pytest.fixture
def state(tmp_path):
    table = Plan.under(str(tmp_path), OF).state
    table.create()
    return table


def written(state):
    """A file with rows that fit, do not fit and fail, a tombstone, a dropped entry, and a note."""
    ids = [1, 2, 3, 4, 5, None]
    values = {
        "_entry": ["row"] * 5 + ["file"],
        "_note": [None] * 5 + ["in.jsonl"],
        "id": ids,
        "v": ["5", "hidden", "bad", "9", "9", None],
        "_tombstone": [False, False, False, True, False, None],
        "_removed": [False, False, False, False, True, None],
        "_shown": [True, True, False, False, False, None],
        "_change": ["U", None, "I", "D", None, None],
        "_step": [1] * 6,
        "_changed_by": [{"step": 1, "part": 0, "position": at} for at in range(6)],
        "_out": pa.array(
            [{"key": 1, "n": 4}, {"key": 2, "n": 4}, {"key": 3, "n": 4}, {"key": 4, "n": None}, None, None],
            state.operator.schema.field("_out").type,
        ),
    }
    rows = entry_table(state.schema, values, 6)
    [action] = write_files(state.path, rows, state.bounded, rows_per_file=9, data_change=False, tags={"made": "here"})
    return action


def test_stored_rows_that_a_sink_could_show_are_evaluated_and_all_are_written_again(state):
    add = written(state)
    inputs = StoredInputs(("id", "v"), state.path, state.schema)
    assert inputs(add).to_pylist() == [{"id": 1, "v": "5"}, {"id": 2, "v": "hidden"}, {"id": 3, "v": "bad"}]
    adds, failed = StoredFinish(inputs, state.operator.output_key, state.bounded, SOME)(add, RESULTS)
    [action] = adds
    file = DataFile(action["add"])
    assert (file.tags["made"], action["add"]["dataChange"]) == ("here", True)
    rows = file.read(state.path, state.schema).to_pylist()
    assert [row["id"] for row in rows] == [1, 2, 3, 4, 5, None]
    assert rows[5]["_note"] == "in.jsonl"
    assert [row["_shown"] for row in rows] == [True, False, False, False, False, False]
    assert rows[0]["_out"] == {"key": 1, "n": 5}
    assert (failed.n_rows, failed.rows.to_pylist()) == (
        1,
        [{"id": 3, "v": "bad", "_order": {"step": 1, "part": 0, "position": 2}}],
    )


def test_failing_rows_are_all_counted_and_some_reported(state):
    rows = DataFile(written(state)["add"]).read(state.path, state.schema).slice(0, 3)
    results = pa.chunked_array([[None] * 3], RESULT)
    few = Results(OUT, ("id",), most=2)
    failed = few.failed(rows, few.selected(results), "_changed_by")
    assert (failed.n_rows, failed.rows["id"].to_pylist()) == (3, [1, 2])


def test_changes_for_the_sink_are_what_was_selected(state):
    made = Writer().commit(Snapshot.read(state.path), [written(state)], {"operation": "WRITE"})
    changes = state.changes(made.version)
    assert changes.rows(OUT).to_pylist() == [
        {"_change": "U", "key": 1, "n": 4},
        {"_change": "I", "key": 3, "n": 4},
        {"_change": "D", "key": 4, "n": None},
    ]


def test_staged_changes_that_fit_are_staged_under_the_sinks_columns(tmp_path):
    columns = changelog_schema(pa.schema([("id", pa.int64()), ("v", pa.string())]))
    changes = {
        "id": [1, 2, 3],
        "v": ["5", "hidden", "bad"],
        "_kind": ["+I"] * 3,
        "_order": [{"step": 1, "part": 0, "position": at} for at in range(3)],
        "_reason": [None] * 3,
    }
    bad = pa.schema([("_reason", pa.string()), ("_detail", pa.string()), ("_raw", pa.binary())])
    decoded = entry_table(pa.schema([*columns, *bad]), changes, 3)
    folder = str(tmp_path)
    staged = Stager(folder, columns, ("id",)).stage([decoded])
    inputs = StagedInputs(("id", "v"), columns, ("id",))
    share = Share((staged,), staged.slices)
    order = [row["id"] for row in inputs(share).to_pylist()]
    results = pa.chunked_array([[RESULTS[id_ - 1].as_py() for id_ in order]], RESULT)
    sink_columns = changelog_schema(OUT)
    finish = StagedFinish(inputs, Stager(folder, sink_columns, ("key",)), Results(OUT, ("id",), most=10))
    file, failed = finish(share, results)
    rows = [row for batch in file.read(file.slices) for row in batch.to_pylist()]
    assert [(row["key"], row["n"], row["_kind"], row["_order"]["position"]) for row in rows] == [(1, 5, "+I", 0)]
    assert (sum(file.rows), file.bad, failed.rows["id"].to_pylist()) == (1, None, [3])
