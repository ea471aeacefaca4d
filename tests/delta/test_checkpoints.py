"""Checkpoints of a log: written in time, thinned out as they get old; every version stays readable."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from frame.limits import set_limits, swap_inside

from ebbtide.delta import Definition, Log, Snapshot, Writer
from ebbtide.delta import _checkpoints as checkpoints
from ebbtide.delta._features import with_feature
from ebbtide.errors import DiskError
from ebbtide.storage import Location

PUTS = Writer()


@pytest.fixture(autouse=True)
def small():
    for name, number in {"INTERVAL": 2, "RECENT": 3, "RARE": 4}.items():
        swap_inside(f"ebbtide.delta._checkpoints.{name}", number)


@pytest.fixture
def table(tmp_path):
    PUTS.create(str(tmp_path), Definition(pa.schema([("a", pa.int64())])), name="t", info={})
    return str(tmp_path)


def add(number):
    of_file = {"partitionValues": {}, "size": 1, "modificationTime": number, "dataChange": True}
    return {"add": {"path": f"{number}.parquet", **of_file}}


def commit_until(table, version):
    snapshot = Snapshot.read(table)
    while snapshot.version < version:
        number = snapshot.version + 1
        Path(table, f"{number}.parquet").touch()
        snapshot = PUTS.commit(snapshot, [add(number)], {"operation": "WRITE"})


def checkpoints_of(table):
    names = Path(table, Log.FOLDER).glob("*.checkpoint.parquet")
    return sorted(int(name.name.partition(".")[0]) for name in names)


def test_checkpoints_that_get_old_are_thinned_out(table):
    commit_until(table, 25)
    assert checkpoints_of(table) == [8, 16, 20, 22, 24]


@pytest.mark.parametrize("kept", [None, 3])
def test_where_a_client_has_dropped_a_feature_no_checkpoint_and_no_commit_is_deleted(table, kept):
    snapshot = Snapshot.read(table)
    protocol = with_feature(snapshot.protocol, "checkpointProtection", of_readers=False)
    protected = {"delta.requireCheckpointProtectionBeforeVersion": "1", "delta.logRetentionDuration": "interval 0 days"}
    metadata = {**snapshot.metadata, "configuration": {**snapshot.configuration, **protected}}
    PUTS.commit(snapshot, [{"protocol": protocol}, {"metaData": metadata}], {"operation": "DROP FEATURE"})
    commit_until(table, 25)
    Writer().trim_log(table, kept)
    assert (checkpoints_of(table), Log(table).versions()) == (list(range(2, 26, 2)), list(range(26)))


@pytest.mark.parametrize("version", [3, 8, 13, 19, 25])
def test_every_version_is_read_from_the_checkpoint_that_is_left_below_it(table, version):
    commit_until(table, 25)
    files = {f"{number}.parquet" for number in range(1, version + 1)}
    assert {path for path, _ in Snapshot.read(table, version).files} == files
    assert {Path(uri).name for uri in DeltaTable(table, version=version).file_uris()} == files


def test_checkpoint_that_cannot_be_deleted_stays_and_is_logged(table, monkeypatch, caplog):
    def refuse(location):
        raise PermissionError(location)

    monkeypatch.setattr("ebbtide.storage.Location.delete", refuse)
    with caplog.at_level(logging.WARNING):
        commit_until(table, 8)
    assert checkpoints_of(table) == [2, 4, 6, 8]
    assert [record.getMessage().partition(" of '")[0] for record in caplog.records] == [
        "The old checkpoint of version 2",
    ]


def test_checkpoint_that_is_not_on_disk_is_missed_and_no_commit_deleted(table, monkeypatch, caplog):
    def fail(*_):
        raise DiskError("no sync")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(Location, "sync", fail)
        commit_until(table, 2)
        Writer().trim_log(table, commits_kept=0)
    assert "No checkpoint of version 2" in caplog.text
    assert Log(table).versions() == [0, 1, 2]


def test_log_is_trimmed_behind_a_checkpoint_alone(table):
    set_limits(checkpoint_interval=5)
    commit_until(table, 8)
    Writer().trim_log(table, commits_kept=5)
    assert Log(table).versions() == list(range(9)), "four would go: not worth it yet"
    commit_until(table, 12)
    Writer().trim_log(table, commits_kept=3)
    assert Log(table).versions() == [10, 11, 12]
    assert checkpoints_of(table) == [12]
    assert len(Snapshot.read(table).files) == 12


@pytest.mark.parametrize("kept", [None, 3])
def test_log_is_not_trimmed_where_no_checkpoint_was_written(table, monkeypatch, kept):
    monkeypatch.setattr(checkpoints, "_checkpoint", lambda table, version: False)
    cleaned = []
    monkeypatch.setattr(checkpoints, "_clean_up", cleaned.append)
    commit_until(table, 12)
    Writer().trim_log(table, kept)
    assert (Log(table).versions(), cleaned) == (list(range(13)), [])


def test_checkpoint_behind_a_torn_one_is_written_from_the_commits_since_an_older_one(table, caplog):
    commit_until(table, 4)
    torn = Path(table, Log.FOLDER, f"{4:020d}.checkpoint.parquet")
    torn.write_bytes(torn.read_bytes()[:50])
    commit_until(table, 6)
    assert caplog.messages == []
    assert checkpoints_of(table) == [2, 4, 6]
    assert len(DeltaTable(table).file_uris()) == len(Snapshot.read(table).files) == 6


def test_checkpoint_that_is_all_there_is_of_a_version_stays(table, caplog):
    commit_until(table, 4)
    Writer().trim_log(table, commits_kept=1)
    Writer().trim_log(table)
    assert caplog.messages == []
    assert (checkpoints_of(table), Log(table).versions()) == ([4], [4])
    assert len(DeltaTable(table).file_uris()) == 4


def test_table_of_one_version_gets_no_checkpoint(table):
    checkpoints.checkpoint_if_due(table, 0)
    assert checkpoints_of(table) == []
