"""The quarantine: bad records are written before the decision that names them, and appended once."""

import json

import pyarrow as pa
import pytest
from frame.limits import set_limits
from local.made_facts import made_facts as facts

from ebbtide.changelog import OffsetRanges
from ebbtide.delta import Snapshot
from ebbtide.runtime._workers.staging import BAD_ROWS
from ebbtide.tables import QuarantineTable, Selection


def bad(*texts, reason="bad_json"):
    rows = [
        {
            "_reason": reason,
            "_detail": f"d{at}",
            "_origin": {"source": "f", "partition": 0, "position": at},
            "_order": {"step": 1, "part": 0, "position": at},
            "_raw": text.encode(),
        }
        for at, text in enumerate(texts)
    ]
    return pa.Table.from_pylist(rows, schema=BAD_ROWS)


def stored(quarantine):
    rows = Snapshot.read(quarantine.path).rows(quarantine.schema)
    return sorted((row["step"], row["raw"].decode()) for row in rows.to_pylist())


@pytest.fixture
def quarantine(tmp_path):
    return QuarantineTable(str(tmp_path / "quarantine"), knows_offsets=True)


def append(quarantine, step, rows):
    decided = facts(step)
    quarantine.append(quarantine.write(rows, decided), decided)


def test_record_is_stored_with_all_columns_the_step_and_its_time(quarantine):
    append(quarantine, 3, bad("{"))
    [record] = quarantine.records(Selection()).to_pylist()
    assert record == {
        "step": 3,
        "reason": "bad_json",
        "detail": "d0",
        "origin": {"source": "f", "partition": 0, "position": 0},
        "order": {"step": 1, "part": 0, "position": 0},
        "raw": b"{",
        "at": record["at"],
    }
    assert record["at"].timestamp() == 1
    made = Snapshot.read(quarantine.path)
    assert (made.metadata["name"], made.transactions) == ("quarantine", {"t/quarantine": 3})
    [file] = made.files.values()
    assert json.loads(file.add["stats"])["numRecords"] == 1


def test_selection_is_by_steps_and_reasons_the_oldest_first(quarantine):
    append(quarantine, 1, bad("a", "b"))
    append(quarantine, 2, bad("c", reason="null_key"))
    raws = lambda **how: sorted(quarantine.records(Selection(**how))["raw"].to_pylist())  # noqa: E731
    assert raws() == [b"a", b"b", b"c"]
    assert raws(steps=(1,)) == [b"a", b"b"]
    assert raws(reasons=("null_key",)) == [b"c"]
    assert raws(steps=(1,), reasons=("null_key",)) == []
    assert raws(steps=(1, 2), reasons=("null_key", "bad_json")) == [b"a", b"b", b"c"]
    assert len(quarantine.records(Selection(limit=1))) == 1
    assert quarantine.size() == 3


def test_absent_quarantine_is_empty(quarantine):
    assert quarantine.size() == 0
    assert quarantine.records(Selection()).schema == quarantine.schema
    assert quarantine.values("origin", "raw").num_rows == 0
    assert quarantine.replace(quarantine.records(Selection()), quarantine.records(Selection())) == []
    assert len(quarantine.new(bad("a", "a"))) == 2


def test_oldest_first_goes_by_step_then_part_then_position(quarantine):
    places = [(2, 0, 0), (1, 1, 0), (1, 0, 2), (1, 0, 1), (1, 1, 1)]
    orders = [dict(zip(("step", "part", "position"), place, strict=True)) for place in places]
    rows = bad(*"abcde").set_column(3, BAD_ROWS.field("_order"), pa.array(orders, BAD_ROWS.field("_order").type))
    append(quarantine, 1, rows)
    found = quarantine.values("order")
    assert [tuple(row["order"].values()) for row in found.to_pylist()] == sorted(places)


def test_record_that_an_earlier_step_read_is_not_new(quarantine):
    read_before = OffsetRanges({"f/0": [(0, 1)]})
    rows = bad("a", "b", "c")
    known = [read_before.knows_origin(origin) for origin in rows["_origin"].to_pylist()]
    assert known.count(True) in (1, 2)
    found = quarantine.new(rows, read_before)["_raw"].to_pylist()
    assert found == [raw for raw, is_known in zip((b"a", b"b", b"c"), known, strict=True) if not is_known]
    other = QuarantineTable(quarantine.path, knows_offsets=False)
    assert len(other.new(rows, read_before)) == 3


def test_records_are_replaced_in_one_commit(quarantine):
    append(quarantine, 1, bad("a", "b", "c"))
    assert "delta.enableDeletionVectors" not in Snapshot.read(quarantine.path).configuration, (
        "not before it has a vector"
    )
    records = quarantine.records(Selection())
    coming = records.slice(0, 1).set_column(1, quarantine.schema.field("reason"), pa.array(["null_key"]))
    actions = quarantine.replace(records.slice(0, 2), coming)
    quarantine.append(actions, facts(2))
    quarantine.append(actions, facts(2))
    left_over = quarantine.records(Selection()).to_pylist()
    assert [(row["raw"], row["reason"]) for row in left_over] == [(b"a", "null_key"), (b"c", "bad_json")]
    assert Snapshot.read(quarantine.path).configuration["delta.enableDeletionVectors"] == "true"


def test_emptied_quarantine_keeps_its_properties(quarantine):
    append(quarantine, 1, bad("a"))
    quarantine.empty(facts(2))
    assert quarantine.size() == 0
    assert Snapshot.read(quarantine.path).transactions["t/quarantine"] == 2
    QuarantineTable(quarantine.path + "-absent", knows_offsets=True).empty(facts(2))


def test_rows_are_appended_once_after_they_are_written(quarantine):
    decided = facts(1)
    actions = quarantine.write(bad("a", "b"), decided)
    assert Snapshot.read(quarantine.path) is None, "written, and not named by a commit"
    quarantine.append(actions, decided)
    quarantine.append(actions, decided)
    assert stored(quarantine) == [(1, "a"), (1, "b")]


def test_redelivered_record_is_not_new(quarantine):
    append(quarantine, 1, bad("a", "b"))
    assert quarantine.new(bad("a", "b", "c"))["_raw"].to_pylist() == [b"c"]
    assert len(QuarantineTable(quarantine.path, knows_offsets=False).new(bad("a"))) == 1


def test_files_of_many_steps_are_joined(quarantine):
    set_limits(width=3)
    for step in range(1, 8):
        append(quarantine, step, bad(f"row {step}"))
    assert stored(quarantine) == [(step, f"row {step}") for step in range(1, 8)]
    assert len(Snapshot.read(quarantine.path).files) < 4
