"""The change feed is read as far as files and commits are there, and not past what no feed shows."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from ebbtide.delta import Commit, DataFile, Definition, Feed, Log, Snapshot, Writer
from ebbtide.delta._feed import feed_files
from ebbtide.storage import Location

COLUMNS = pa.schema([("n", pa.int64())])
PUTS = Writer()


@pytest.fixture
def table(tmp_path):
    """Versions 1 and 3 add rows, 2 joins files, 4 has a change file of its own."""
    path = str(tmp_path / "t")
    PUTS.create(path, Definition(COLUMNS), name="t", info={})
    put(path, 1)
    put(path, 2, data_change=False)
    put(path, 3)
    shown = DataFile.write(path, "_change_data/c d.parquet", pa.table({"n": [4]}, COLUMNS), bounded=())["add"]
    added = DataFile.write(path, "4.parquet", pa.table({"n": [4]}, COLUMNS), bounded=())
    PUTS.commit_version(path, 4, [added, {"cdc": {"path": shown["path"], "dataChange": False}}], {"operation": "MERGE"})
    return path


def put(path, version, *, data_change=True):
    rows = pa.table({"n": [version]}, COLUMNS)
    action = DataFile.write(path, f"{version}.parquet", rows, bounded=(), data_change=data_change)
    PUTS.commit_version(path, version, [action], {"operation": "WRITE"})


def test_change_files_are_read_where_there_are_some_and_else_data_files_that_change_rows(table):
    found = {version: feed_files(table, Log(table).commit(version)) for version in range(1, 5)}
    assert found == {
        1: [Location(table) / "1.parquet"],
        2: [],
        3: [Location(table) / "3.parquet"],
        4: [Location(table) / "_change_data/c d.parquet"],
    }


def test_feed_is_readable_behind_the_last_version_of_which_something_is_gone(table):
    assert Feed(table, 0, 4).readable_since() == 0
    assert Feed(table, 0, 4).gap() == ""
    Path(table, "2.parquet").unlink()
    Path(table, "4.parquet").unlink()
    assert Feed(table, 0, 4).readable_since() == 0, "no feed is read from these"
    Path(table, "1.parquet").unlink()
    assert (Feed(table, 0, 4).readable_since(), Feed(table, 1, 4).readable_since()) == (1, 1)
    Path(table, "3.parquet").unlink()
    assert (Feed(table, 0, 4).readable_since(), Feed(table, 2, 4).readable_since()) == (3, 3)
    assert "versions 1 to 3 are gone" in Feed(table, 0, 4).gap()


def test_commit_that_is_gone_ends_the_feed(table):
    Path(Log(table).commit_file(2)).unlink()
    assert Feed(table, 0, 4).readable_since() == 2
    assert Feed(table, 1, 2).has_changes(), "it is unknown"


def test_replaced_commit_has_another_hash(table):
    hashes = [Log(table).hash_of(version) for version in range(5)]
    assert len(set(hashes)) == 5
    assert "" not in hashes
    assert Log(table).hash_of(5) == ""


def test_gap_names_a_change_of_columns(table):
    PUTS.commit_version(table, 5, [{"metaData": Snapshot.read(table).metadata}], {"operation": "ALTER"})
    assert Feed(table, 4, 5).gap() == "the columns or properties were changed in version 5"
    assert Feed(table, 5, 5).gap() == ""
    PUTS.commit_version(table, 6, [{"txn": {"appId": "a", "version": 1}}], {"operation": "WRITE"})
    assert Feed(table, 4, 6).gap() == Feed(table, 3, 5).gap() == Feed(table, 4, 5).gap()
    assert not Feed(table, 5, 6).has_changes()
    assert Feed(table, 4, 5).has_changes()


def test_files_that_are_joined_change_no_row(table):
    assert [Feed(table, version - 1, version).has_changes() for version in (1, 2, 3, 4)] == [
        True,
        False,
        True,
        True,
    ]
    assert not Feed(table, 4, 4).has_changes()


@pytest.mark.parametrize("flag", [{"dataChange": True}, {}])
@pytest.mark.parametrize("kind", ["add", "remove"])
def test_added_or_removed_file_is_a_change_unless_flagged_otherwise(table, kind, flag):
    file = next(iter(Snapshot.read(table).files.values()))
    PUTS.commit_version(table, 5, [{kind: {"path": file.path, "partitionValues": {}, "size": file.size, **flag}}], {})
    assert Feed(table, 4, 5).has_changes()
    assert feed_files(table, Log(table).commit(5)) == [Location(table) / file.path]


def test_own_commits_are_yielded_newest_first(table):
    for version, step in ((5, 1), (6, 2)):
        PUTS.commit_version(table, version, [], {"userMetadata": json.dumps({Commit.FORMAT: 1, "step": step})})
    PUTS.commit_version(table, 7, [], {"userMetadata": "of another client"})
    assert [(version, facts["step"]) for version, facts in Log(table).own_commits()] == [(6, 2), (5, 1)]
    assert Log(table).last_step() == 2
