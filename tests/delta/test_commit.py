"""A version is put once: who comes late learns that it is taken, and never fills a hole in the log."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyroaring import BitMap64

from ebbtide.delta import Definition, Log, Snapshot, Transaction, Writer
from ebbtide.delta import _vectors as vectors
from ebbtide.delta import _writer as writing
from ebbtide.delta._commit import named_files
from ebbtide.errors import DeltaLogError, TableMismatchError, VersionTakenError

PUTS = Writer()
INFO = {"operation": "WRITE"}


@pytest.fixture
def table(tmp_path):
    PUTS.create(str(tmp_path), Definition(pa.schema([("a", pa.int64())])), name="t", info={})
    return str(tmp_path)


@pytest.mark.parametrize("n_others", [1, 2, 3])
def test_version_of_another_writer_is_not_committed_again(table, n_others):
    for version in range(1, 1 + n_others):
        PUTS.commit_version(table, version, [], INFO)
    with pytest.raises(VersionTakenError):
        PUTS.commit_version(table, 1, [], INFO)


def test_version_that_was_lost_is_not_put_again(table):
    for version in (1, 2):
        PUTS.commit_version(table, version, [], INFO)
    Path(Log(table).commit_file(1)).unlink()
    with pytest.raises(DeltaLogError, match="version 2 without version 1"):
        PUTS.commit_version(table, 1, [], INFO)


@pytest.mark.parametrize("checkpoint", [None, "00000000000000000001.checkpoint.parquet"])
def test_version_is_put_only_behind_the_commit_before_it_or_a_checkpoint_of_that(table, checkpoint):
    PUTS.commit_version(table, 1, [], INFO)
    if checkpoint:
        DeltaTable(table).create_checkpoint()
        assert Path(table, "_delta_log", checkpoint).exists()
    for version in Log(table).versions():
        Path(Log(table).commit_file(version)).unlink()
    if checkpoint:
        PUTS.commit_version(table, 2, [], INFO)
        return
    with pytest.raises(TableMismatchError) as raised:
        PUTS.commit_version(table, 2, [], INFO)
    assert str(raised.value) == (
        f"The table at '{table}' is gone. Got: no version 1 in its log. Allowed: the table as it was written."
        " Restore it; without a copy run 'ebbtide repair' if it is a sink, a changelog or a quarantine, else 'ebbtide refresh'."
    )
    assert Log(table).versions() == [], "a log that no reader could read is not begun"


def test_first_version_of_a_table_that_is_gone_is_not_put(table):
    Path(Log(table).commit_file(0)).unlink()
    with pytest.raises(TableMismatchError, match="no version 0 in its log"):
        PUTS.commit_version(table, 1, [], INFO)


def test_two_commits_of_the_same_at_the_same_time_have_other_bytes(table, monkeypatch):
    """Where the answer of a store was lost, a file of the same bytes counts as ours."""
    monkeypatch.setattr(writing, "now_ms", lambda: 7)
    written = []
    for _ in range(2):
        PUTS.commit_version(table, 1, [], INFO)
        written.append(Path(Log(table).commit_file(1)).read_bytes())
        Path(Log(table).commit_file(1)).unlink()
    assert written[0] != written[1]


def test_every_file_that_a_commit_names_is_waited_for(table):
    [vector] = vectors.write(table, [BitMap64([0])])
    inline = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    actions = [
        {"commitInfo": {}},
        {"add": {"path": "a%20b.parquet", "deletionVector": vector}},
        {"add": {"path": "c.parquet", "deletionVector": inline}},
        {"add": {"path": "d.parquet"}},
        {"cdc": {"path": "_change_data/e.parquet"}},
        {"remove": {"path": "f.parquet"}},
    ]
    relative = [location.removeprefix(f"{table}/") for location in named_files(table, actions)]
    bitmap = Path(vectors.location_of(table, vector)).name
    assert relative == ["a b.parquet", bitmap, "c.parquet", "d.parquet", "_change_data/e.parquet"]


def test_transaction_follows_foreign_commits(table):
    stale = Snapshot.read(table)
    for version in (1, 2, 3):
        PUTS.commit_version(table, version, [], INFO)
    made = PUTS.commit_once(stale, lambda _: [], Transaction("p/sink", 7, INFO))
    assert made.version == 4
    assert made.transactions == {"p/sink": 7}


def test_versions_of_a_log_are_asked_for_from_the_newest_back(table):
    log = Log(table)
    assert (list(log.newest_first()), log.is_beyond(0)) == ([0], False)
    for version in (1, 2):
        PUTS.commit_version(table, version, [], INFO)
    DeltaTable(table).create_checkpoint()
    for each in (log, log.look()):
        assert list(each.newest_first()) == [2, 1, 0]
        assert [each.is_beyond(version) for version in (0, 1, 2)] == [True, True, False]
    absent = Log(f"{table}/absent")
    assert (list(absent.newest_first()), absent.is_beyond(-1)) == ([], False)
