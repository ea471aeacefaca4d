"""Checkpoints of a log: written in time, thinned out as they get old; every version stays readable."""

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from ebbtide.delta import checkpoints, log
from ebbtide.delta.commit import LocalPuts
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import commit_after, create

PUTS = LocalPuts()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, number in {"INTERVAL": 2, "RECENT": 3, "RARE": 4}.items():
        monkeypatch.setattr(checkpoints, name, number)


@pytest.fixture
def table(tmp_path):
    create(PUTS, str(tmp_path), pa.schema([("a", pa.int64())]), {}, name="t", info={})
    return str(tmp_path)


def add(number):
    of_file = {"partitionValues": {}, "size": 1, "modificationTime": number, "dataChange": True}
    return {"add": {"path": f"{number}.parquet", **of_file}}


def commit_until(table, version):
    snapshot = Snapshot.read(table)
    while snapshot.version < version:
        snapshot = commit_after(PUTS, snapshot, [add(snapshot.version + 1)], {"operation": "WRITE"})


def checkpoints_of(table):
    names = Path(table, log.LOG).glob("*.checkpoint.parquet")
    return sorted(int(name.name.partition(".")[0]) for name in names)


def test_checkpoints_that_get_old_are_thinned_out(table):
    commit_until(table, 25)
    assert checkpoints_of(table) == [8, 16, 20, 22, 24]


@pytest.mark.parametrize("version", [3, 8, 13, 19, 25])
def test_every_version_is_read_from_the_checkpoint_that_is_left_below_it(table, version):
    commit_until(table, 25)
    files = {f"{number}.parquet" for number in range(1, version + 1)}
    assert {path for path, _ in Snapshot.read(table, version).files} == files
    assert {Path(uri).name for uri in DeltaTable(table, version=version).file_uris()} == files


def test_checkpoint_that_cannot_be_deleted_stays_and_is_told(table, monkeypatch, caplog):
    def refuse(location):
        raise PermissionError(location)

    monkeypatch.setattr(checkpoints, "delete", refuse)
    with caplog.at_level(logging.WARNING):
        commit_until(table, 8)
    assert checkpoints_of(table) == [2, 4, 6, 8]
    assert [record.getMessage().partition(" of '")[0] for record in caplog.records] == [
        "The old checkpoint of version 2",
    ]
