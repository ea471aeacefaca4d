"""Inputs with partition columns, as an adopted sink may have: their values stand in the log alone."""

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from ebbtide.delta import Log
from ebbtide.delta._feed import feed_files
from ebbtide.storage import Location
from ebbtide.views.cutting import PinnedTable

REGION = "e u/%ü"


@pytest.fixture
def table(tmp_path):
    path = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2, 3], "region": [REGION, "us", REGION], "amount": [10, 20, 30]})
    write_deltalake(path, rows, partition_by=["region"], configuration={"delta.enableChangeDataFeed": "true"})
    write_deltalake(path, pa.table({"id": [4], "region": [REGION], "amount": [40]}), mode="append")
    DeltaTable(path).update(updates={"amount": "11"}, predicate="id = 1")
    return path


def test_rows_are_found_by_a_partition_column_and_have_its_value(table):
    pinned = PinnedTable(table, 1)
    by_region = pinned.cut([("region",)], pa.table({"region": [REGION]}))
    assert sorted(by_region["id"].to_pylist()) == [1, 3, 4]
    by_id = pinned.cut([("id",)], pa.table({"id": [1]}))
    assert by_id.to_pylist() == [{"id": 1, "region": REGION, "amount": 10}]


@pytest.mark.parametrize(("since", "until"), [(0, 1), (1, 2)], ids=["by data files", "by change files"])
def test_changed_values_of_a_partition_column_are_those_of_the_log(table, since, until):
    pinned = PinnedTable(table, until)
    feed = pinned.feed(range(since + 1, until + 1))
    changed = pinned.values(feed, ["region"], pa.schema([("region", pa.string())]))
    assert set(changed["region"].to_pylist()) == {REGION}


def test_change_files_in_folders_of_partitions_are_there(table):
    actions = Log(table).commit(2)
    assert any("cdc" in action for action in actions)
    assert all(Location(file).exists() for file in feed_files(table, actions))
