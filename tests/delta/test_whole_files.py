"""A table is brought back to an earlier version whole, or not at all."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from ebbtide.delta import DataFile, Definition, Log, Snapshot, Writer
from ebbtide.delta import _vectors as vectors
from ebbtide.errors import HistoryGoneError

COLUMNS = pa.schema([("n", pa.int64())])
PUTS = Writer()


@pytest.fixture
def table(tmp_path):
    """Version 1 has rows 1 to 3; 2 lacks row 2 by a vector; 3 has 4 too."""
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(COLUMNS, {"delta.enableDeletionVectors": "true"}), name="t", info={})
    put(path, "a.parquet", 1, 2, 3)
    found = Snapshot.read(path)
    [file] = found.files.values()
    [vector] = vectors.write(path, [BitMap64([1])])
    actions = [file.removed(0, data_change=True), file.with_vector(vector, data_change=True)]
    PUTS.commit(found, actions, {"operation": "DELETE"})
    put(path, "b.parquet", 4)
    return path


def put(path, name, *numbers):
    rows = pa.table({"n": list(numbers)}, COLUMNS)
    PUTS.commit(Snapshot.read(path), [DataFile.write(path, name, rows, bounded=["n"])], {"operation": "WRITE"})


def numbers(path):
    return sorted(Snapshot.read(path).rows(COLUMNS)["n"].to_pylist())


@pytest.mark.parametrize(("version", "rows"), [(0, []), (1, [1, 2, 3]), (2, [1, 3]), (3, [1, 3, 4])])
@pytest.mark.parametrize("data_change", [True, False])
def test_rows_are_those_of_the_version(table, version, rows, data_change):
    found = Snapshot.read(table)
    PUTS.commit(found, found.restoring(version, data_change=data_change), {"operation": "RESTORE"})
    assert numbers(table) == rows
    newest = Log(table).commit(4)
    flags = {action[kind]["dataChange"] for action in newest for kind in ("add", "remove") if kind in action}
    assert flags <= {data_change}


def test_file_that_is_gone_is_counted_and_nothing_restored(table):
    found = Snapshot.read(table)
    Path(table, "a.parquet").unlink()
    with pytest.raises(HistoryGoneError, match="1 of its data files deleted"):
        found.restoring(1)


@pytest.mark.parametrize("harm", ["size", "footer", "vector"])
def test_file_that_is_not_whole_is_counted_and_nothing_restored(table, harm):
    found = Snapshot.read(table)
    file = Path(table, "a.parquet")
    if harm == "vector":
        [file] = Path(table).glob("*.bin")
    torn = bytearray(file.read_bytes())
    if harm == "size":
        del torn[8]
    else:
        torn[-1 if harm == "vector" else -12] ^= 1
    file.write_bytes(torn)
    with pytest.raises(HistoryGoneError, match="1 of its data files damaged"):
        found.restoring(2)


def test_columns_and_properties_are_those_of_the_version(table):
    found = Snapshot.read(table)
    wider = Definition(COLUMNS.append(pa.field("b", pa.string()))).altering(found)
    altered = PUTS.commit(found, wider, {"operation": "ALTER"})
    restored = PUTS.commit(altered, altered.restoring(3), {"operation": "RESTORE"})
    assert altered.metadata != restored.metadata == found.metadata


def test_version_whose_commit_is_deleted_is_not_mistaken_for_the_one_below_it(table):
    found = Snapshot.read(table)
    with pytest.raises(HistoryGoneError, match="its commit is deleted"):
        found.restoring(9)
    PUTS.commit_version(table, 4, [], {"operation": "WRITE"})
    Path(Log(table).commit_file(3)).unlink()
    with pytest.raises(HistoryGoneError, match="its commit is deleted"):
        found.restoring(3)


def test_removed_file_is_named_with_its_vector(table):
    found = Snapshot.read(table)
    removes = [action["remove"] for action in found.restoring(0) if "remove" in action]
    assert {remove["path"]: "deletionVector" in remove for remove in removes} == {"a.parquet": True, "b.parquet": False}
