"""Erasing of rows in tables of other writers: partitions, constraints, change files; read by another library afterwards."""

import secrets
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from inputs.byte_scan import scan

from ebbtide.delta import Doomed, FileWithout, Snapshot, Transaction, Writer
from ebbtide.errors import DeltaFeatureError
from ebbtide.storage import Location

COLUMNS = pa.schema([("who", pa.string()), ("v", pa.string()), ("n", pa.int64())])


KEY = pa.schema([COLUMNS.field("who")])


@dataclass(frozen=True)
class Of(Doomed):
    """Selects the rows of some keys."""

    keys: tuple[str, ...]
    columns: pa.Schema = KEY

    def marks(self, rows):
        return np.isin(rows["who"].to_numpy(zero_copy_only=False).astype(str), self.keys)


def erase(path, keys):
    doomed = Of(tuple(keys))
    snapshot = Snapshot.read(path)
    rewrite = FileWithout(path, COLUMNS, ("who", "n"), doomed)
    Writer().commit_once(
        snapshot,
        lambda found: FileWithout.actions_of([rewrite(file) for file in found.files.values()]),
        Transaction("app", 1, {"operation": "ERASE"}),
        adds_rows=False,
    )
    newest = Snapshot.read(path)
    assert doomed.found_in(newest).rows == 0
    old = doomed.unnamed(newest)
    for location in old.holding:
        Location(location).delete()
    Writer().cut_log(path, lambda _: {"operation": "ERASE"})
    return old


def rows_of(path):
    query = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t").read_all()
    return sorted(pa.table(query).select(COLUMNS.names).to_pylist(), key=lambda row: str(row["who"]))


@pytest.mark.parametrize("partition", [["who"], ["v"], ["who", "n"]])
def test_rows_go_from_a_partitioned_table_and_the_others_keep_their_partitions(tmp_path, partition):
    path = str(tmp_path / "t")
    gone = [f"{secrets.token_hex(16)} ü/%=" for _ in range(3)]
    kept = [f"{secrets.token_hex(16)} ü/%=" for _ in range(3)]
    values = ["a b/c", "d%e", None]
    people = [{"who": who, "v": values[i % 3], "n": i} for i, who in enumerate([*gone, *kept, None])]
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, pa.Table.from_pylist(people[:4], COLUMNS), partition_by=partition, configuration=feed)
    write_deltalake(path, pa.Table.from_pylist(people[4:], COLUMNS), mode="append")
    DeltaTable(path).update(updates={"n": "n + 100"}, predicate=f"who = '{gone[0]}' OR who = '{kept[0]}'")
    DeltaTable(path).alter.add_constraint({"small": "n < 1000"})
    before = [row for row in rows_of(path) if row["who"] not in gone]
    canaries = [who[:32] for who in gone]
    assert {hit.canary for hit in scan([path], canaries)} == set(canaries)
    assert list(Path(path, "_change_data").rglob("*.parquet"))
    for file in Path(path).rglob("*.parquet"):  # as Spark leaves them
        file.with_name(f".{file.name}.crc").touch()
    old = erase(path, gone)
    assert old.unreadable == ()
    assert rows_of(path) == before
    assert scan([path], canaries) == []
    assert scan([path], [who[:32] for who in kept])


def test_old_file_whose_folders_do_not_name_its_partition_is_said_to_be_unreadable(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.Table.from_pylist([{"who": "a", "v": "x", "n": 1}, {"who": "b", "v": "y", "n": 2}], COLUMNS)
    write_deltalake(path, rows, partition_by=["who"])
    [own, *_] = Path(path, "who=a").glob("*.parquet")
    (Path(path, "elsewhere.parquet")).write_bytes(own.read_bytes())
    assert erase(path, ["a"]).unreadable == (f"{path}/elsewhere.parquet",)
    assert [row["who"] for row in rows_of(path)] == ["b"]


def test_append_only_table_is_refused(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.Table.from_pylist([{"who": "a", "v": "x", "n": 1}], COLUMNS)
    write_deltalake(path, rows, configuration={"delta.appendOnly": "true"})
    with pytest.raises(DeltaFeatureError, match="appendOnly"):
        erase(path, ["a"])
