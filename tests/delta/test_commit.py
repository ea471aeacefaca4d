"""A version is put by one; who comes late is told so."""

import pyarrow as pa

from ebbtide.delta.commit import LocalPuts
from ebbtide.delta.snapshot import Snapshot
from ebbtide.delta.table import commit_after, create

PUTS = LocalPuts()


def test_writer_who_is_several_versions_behind_has_lost_the_next_one(tmp_path):
    table = str(tmp_path)
    create(PUTS, table, pa.schema([("n", pa.int64())]), {}, name="t", info={})
    stale = newest = Snapshot.read(table)
    for _ in range(3):
        newest = commit_after(PUTS, newest, [], {"operation": "WRITE"})
    assert newest.version == 3
    assert commit_after(PUTS, stale, [], {"operation": "WRITE"}) is None
