"""A version is put once: who comes late learns that it is taken, and never fills a hole in the log."""

from pathlib import Path

import pyarrow as pa
import pytest

from ebbtide.delta import log
from ebbtide.delta.commit import LocalPuts, commit
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import commit_on, create
from ebbtide.errors import DeltaLogError, VersionTakenError

PUTS = LocalPuts()
INFO = {"operation": "WRITE"}


@pytest.fixture
def table(tmp_path):
    create(PUTS, str(tmp_path), pa.schema([("a", pa.int64())]), {}, name="t", info={})
    return str(tmp_path)


@pytest.mark.parametrize("n_others", [1, 2, 3])
def test_version_that_others_were_first_with_is_taken_however_many_follow_it(table, n_others):
    for version in range(1, 1 + n_others):
        commit(PUTS, table, version, [], INFO)
    with pytest.raises(VersionTakenError):
        commit(PUTS, table, 1, [], INFO)


def test_version_that_was_lost_is_not_put_again(table):
    for version in (1, 2):
        commit(PUTS, table, version, [], INFO)
    Path(log.commit_file(table, 1)).unlink()
    with pytest.raises(DeltaLogError, match="version 2 without version 1"):
        commit(PUTS, table, 1, [], INFO)


def test_transaction_follows_whatever_others_have_committed_meanwhile(table):
    stale = Snapshot.read(table)
    for version in (1, 2, 3):
        commit(PUTS, table, version, [], INFO)
    made = commit_on(PUTS, stale, lambda _: [], "p/sink", 7, INFO)
    assert made.version == 4
    assert made.transactions == {"p/sink": 7}
