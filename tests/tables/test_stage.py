"""Stages of a step are committed once; records leave the quarantine wherever others have moved them meanwhile."""

import json

import pyarrow as pa
import pytest
from made_facts import made_facts as facts

from ebbtide.delta import joining, log
from ebbtide.delta.commit import LocalPuts
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import add_file, commit_after, create, read_rows
from ebbtide.errors import LeaseLostError
from ebbtide.model.decision import Restore
from ebbtide.model.offsets import OffsetRanges
from ebbtide.tables.quarantine import COLUMNS, QuarantineTable, Selection, oldest_first
from ebbtide.tables.removal import ORDERS, rebased, removal
from ebbtide.tables.stage import commit_and_join, commit_stage, restore_stage
from ebbtide.tables.state.staged import BAD_ROWS

PUTS = LocalPuts()
ONE = pa.schema([("order", ORDERS.field("order").type)])


def orders(*positions):
    rows = [{"order": {"step": 1, "part": 0, "position": position}} for position in positions]
    return pa.Table.from_pylist(rows, ORDERS)


@pytest.fixture
def table(tmp_path):
    """A table with records 0 to 3 in one file and 4 to 5 in another."""
    path = str(tmp_path / "t")
    create(PUTS, path, ONE, {"delta.enableDeletionVectors": "true"}, name="t", info={})
    put(path, "a.parquet", 0, 1, 2, 3)
    put(path, "b.parquet", 4, 5)
    return path


def put(path, name, *positions):
    commit_after(PUTS, Snapshot.read(path), [add_file(path, name, orders(*positions), bounded=())], {"operation": "W"})


def left(path):
    rows = read_rows(Snapshot.read(path), ORDERS)
    return sorted(row["order"]["position"] for row in rows.to_pylist())


def commit_actions(path, actions):
    commit_after(PUTS, Snapshot.read(path), actions, {"operation": "DELETE"})


def test_stage_is_committed_once_under_the_step_s_number(table):
    asked = []

    def actions_of(found):
        asked.append(found.version)
        return []

    made = commit_stage(table, actions_of, facts(7), "sink", "REPLACE TABLE")
    assert (made.version, made.transactions) == (3, {"t/sink": 7})
    info = log.commit_info(log.actions(table, 3))
    assert info["operation"] == "REPLACE TABLE"
    assert json.loads(info["userMetadata"])["step"] == 7
    assert commit_stage(table, actions_of, facts(7), "sink") is None
    assert asked == [2], "what is committed is not worked out again"
    assert commit_stage(table, actions_of, facts(7), "quarantine").version == 4
    assert log.commit_info(log.actions(table, 4))["operation"] == "WRITE"
    with pytest.raises(LeaseLostError):
        commit_stage(table, actions_of, facts(6), "sink")
    assert commit_stage(table + "-absent", actions_of, facts(7), "sink") is None


def test_small_files_are_joined_behind_the_stage_that_made_them_many(table, monkeypatch):
    monkeypatch.setattr(joining, "WIDTH", 3)

    def append(step, position):
        name = f"{position}.parquet"
        commit_and_join(
            table, ORDERS, lambda _: [add_file(table, name, orders(position), bounded=())], (), facts(step), "sink"
        )

    append(1, 6)
    assert left(table) == list(range(7))
    newest = Snapshot.read(table)
    assert len(newest.files) == 1
    assert {action["add"]["dataChange"] for action in log.actions(table, newest.version) if "add" in action} == {False}
    append(1, 9)
    assert left(table) == list(range(7)), "once"
    append(2, 7)
    assert len(Snapshot.read(table).files) == 2, "not before it is worth it"


def test_records_leave_by_a_vector_and_a_file_without_any_left_whole(table):
    actions = removal(Snapshot.read(table), orders(1, 4, 5, 9))
    removes = {action["remove"]["path"] for action in actions if "remove" in action}
    adds = {action["add"]["path"] for action in actions if "add" in action}
    assert (removes, adds) == ({"a.parquet", "b.parquet"}, {"a.parquet"})
    assert all(action["remove"]["dataChange"] for action in actions if "remove" in action)
    assert all(action["add"]["dataChange"] for action in actions if "add" in action)
    commit_actions(table, actions)
    assert left(table) == [0, 2, 3]
    assert removal(Snapshot.read(table), orders(1, 4)) == [], "they are gone already"
    assert all(action["remove"]["deletionTimestamp"] > 0 for action in actions if "remove" in action)
    commit_actions(table, removal(Snapshot.read(table), orders(0, 1)))
    assert left(table) == [2, 3]
    commit_actions(table, removal(Snapshot.read(table), orders(2, 3)))
    assert Snapshot.read(table).files == {}


def test_files_without_such_a_record_stay_as_they_are(table):
    put(table, "c.parquet", 6)
    [actions] = [removal(Snapshot.read(table), orders(5))]
    assert {action["remove"]["path"] for action in actions if "remove" in action} == {"b.parquet"}


def test_table_is_put_back_as_a_stage(table):
    restore_stage(table, Restore(1, changes_rows=True), facts(7), "changelog")
    made = Snapshot.read(table)
    assert (left(table), made.transactions) == ([0, 1, 2, 3], {"t/changelog": 7})


def test_actions_are_as_they_were_where_nobody_has_moved_the_records(table):
    found = Snapshot.read(table)
    actions = [*removal(found, orders(1, 4, 5)), add_file(table, "new.parquet", orders(8), bounded=())]
    assert rebased(actions, found) == actions


def test_records_that_others_have_moved_meanwhile_leave_from_where_they_are(table):
    commit_actions(table, removal(Snapshot.read(table), orders(0)))
    found = Snapshot.read(table)
    actions = [*removal(found, orders(1, 4, 5)), add_file(table, "new.parquet", orders(8), bounded=())]
    joined = add_file(table, "joined.parquet", read_rows(found, ORDERS), bounded=(), data_change=False)
    removes = [file.removed(0, data_change=False) for file in found.files.values()]
    commit_actions(table, [*removes, joined])
    again = rebased(actions, Snapshot.read(table))
    commit_actions(table, again)
    assert left(table) == [2, 3, 8]
    paths = {action["add"]["path"] for action in again if "add" in action}
    assert paths == {"joined.parquet", "new.parquet"}


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


@pytest.fixture
def quarantine(tmp_path):
    return QuarantineTable(str(tmp_path / "quarantine"), knows_offsets=True)


def append(quarantine, step, rows):
    decided = facts(step)
    quarantine.append(quarantine.write(rows, decided), decided)


def test_record_is_kept_whole_with_the_step_and_the_time_that_met_it(quarantine):
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


def test_selection_is_of_steps_and_reasons_the_oldest_first(quarantine):
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
    assert quarantine.records(Selection()).schema == COLUMNS
    assert quarantine.values("origin", "raw").num_rows == 0
    assert quarantine.replace(quarantine.records(Selection()), quarantine.records(Selection())) == []
    assert len(quarantine.new(bad("a", "a"))) == 2


def test_oldest_first_goes_by_step_then_part_then_position():
    places = [(2, 0, 0), (1, 1, 0), (1, 0, 2), (1, 0, 1), (1, 1, 1)]
    rows = [{"order": dict(zip(("step", "part", "position"), place, strict=True))} for place in places]
    found = oldest_first(pa.Table.from_pylist(rows, ORDERS))
    assert [tuple(row["order"].values()) for row in found.to_pylist()] == sorted(places)


def test_record_that_an_earlier_step_has_read_is_not_new(quarantine):
    read_before = OffsetRanges({"f/0": [(0, 1)]})
    rows = bad("a", "b", "c")
    known = [read_before.knows_origin(origin) for origin in rows["_origin"].to_pylist()]
    assert known.count(True) in (1, 2)
    found = quarantine.new(rows, read_before)["_raw"].to_pylist()
    assert found == [raw for raw, is_known in zip((b"a", b"b", b"c"), known, strict=True) if not is_known]
    other = QuarantineTable(quarantine.path, knows_offsets=False)
    assert len(other.new(rows, read_before)) == 3


def test_records_are_exchanged_in_one_commit_that_follows_what_others_did(quarantine):
    append(quarantine, 1, bad("a", "b", "c"))
    assert "delta.enableDeletionVectors" not in Snapshot.read(quarantine.path).configuration, "not before it has some"
    records = quarantine.records(Selection())
    coming = records.slice(0, 1).set_column(1, COLUMNS.field("reason"), pa.array(["null_key"]))
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
