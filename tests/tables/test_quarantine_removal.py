"""Records are deleted from the quarantine by vectors, also after another client has moved them to other files."""

import pyarrow as pa
import pytest

from ebbtide.delta import DataFile, Definition, Snapshot, Writer
from ebbtide.tables._quarantine_removal import ORDERS, rebased, removal

PUTS = Writer()
ONE = pa.schema([("order", ORDERS.field("order").type)])


def orders(*positions):
    rows = [{"order": {"step": 1, "part": 0, "position": position}} for position in positions]
    return pa.Table.from_pylist(rows, ORDERS)


@pytest.fixture
def table(tmp_path):
    """A table with records 0 to 3 in one file and 4 to 5 in another."""
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(ONE, {"delta.enableDeletionVectors": "true"}), name="t", info={})
    put(path, "a.parquet", 0, 1, 2, 3)
    put(path, "b.parquet", 4, 5)
    return path


def put(path, name, *positions):
    PUTS.commit(Snapshot.read(path), [DataFile.write(path, name, orders(*positions), bounded=())], {"operation": "W"})


def left(path):
    rows = Snapshot.read(path).rows(ORDERS)
    return sorted(row["order"]["position"] for row in rows.to_pylist())


def commit_actions(path, actions):
    PUTS.commit(Snapshot.read(path), actions, {"operation": "DELETE"})


def test_records_are_deleted_by_a_vector_or_with_a_file_that_has_no_more(table):
    actions = removal(Snapshot.read(table), orders(1, 4, 5, 9))
    removes = {action["remove"]["path"] for action in actions if "remove" in action}
    adds = {action["add"]["path"] for action in actions if "add" in action}
    assert (removes, adds) == ({"a.parquet", "b.parquet"}, {"a.parquet"})
    assert all(action["remove"]["dataChange"] for action in actions if "remove" in action)
    assert all(action["add"]["dataChange"] for action in actions if "add" in action)
    commit_actions(table, actions)
    assert left(table) == [0, 2, 3]
    assert removal(Snapshot.read(table), orders(1, 4)) == [], "they are deleted already"
    assert all(action["remove"]["deletionTimestamp"] > 0 for action in actions if "remove" in action)
    commit_actions(table, removal(Snapshot.read(table), orders(0, 1)))
    assert left(table) == [2, 3]
    commit_actions(table, removal(Snapshot.read(table), orders(2, 3)))
    assert Snapshot.read(table).files == {}


def test_file_without_such_a_record_is_not_changed(table):
    put(table, "c.parquet", 6)
    actions = removal(Snapshot.read(table), orders(5))
    assert {action["remove"]["path"] for action in actions if "remove" in action} == {"b.parquet"}


def test_actions_are_unchanged_if_no_client_has_moved_the_records(table):
    found = Snapshot.read(table)
    actions = [*removal(found, orders(1, 4, 5)), DataFile.write(table, "new.parquet", orders(8), bounded=())]
    assert rebased(actions, found) == actions


def test_records_that_another_client_has_moved_are_deleted_from_their_new_file(table):
    commit_actions(table, removal(Snapshot.read(table), orders(0)))
    found = Snapshot.read(table)
    actions = [*removal(found, orders(1, 4, 5)), DataFile.write(table, "new.parquet", orders(8), bounded=())]
    joined = DataFile.write(table, "joined.parquet", found.rows(ORDERS), bounded=(), data_change=False)
    removes = [file.removed(0, data_change=False) for file in found.files.values()]
    commit_actions(table, [*removes, joined])
    again = rebased(actions, Snapshot.read(table))
    commit_actions(table, again)
    assert left(table) == [2, 3, 8]
    paths = {action["add"]["path"] for action in again if "add" in action}
    assert paths == {"joined.parquet", "new.parquet"}
