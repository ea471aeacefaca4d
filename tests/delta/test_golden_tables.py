"""The golden tables of Delta's other implementations: each is read right or refused by name, none wrong.

They are not part of this repository. `GOLDEN_TABLES` names a folder with clones of https://github.com/delta-io/delta-rs and
https://github.com/delta-io/delta-kernel-rs; tables in archives (`*.tar.zst`) are unpacked by the test.
"""

import io
import math
import os
import tarfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import DeltaError

from ebbtide.delta import Snapshot
from ebbtide.errors import EbbtideError

FOLDER = os.environ.get("GOLDEN_TABLES")
DELTA_RS_IS_WRONG = {"table_with_edge_timestamps"}
"""It reads INT96 into nanoseconds: 9999-12-31 becomes a day of 1816."""
pytestmark = [pytest.mark.grid, pytest.mark.skipif(FOLDER is None, reason="GOLDEN_TABLES names no folder")]


def tables(scratch):
    """Yield the folders of all tables, those in archives unpacked."""
    given = Path(FOLDER)
    for number, archive in enumerate(sorted(given.rglob("*.tar.zst"))):
        with pa.input_stream(str(archive), compression="zstd") as stream:
            content = io.BytesIO(stream.read())
        with tarfile.open(fileobj=content) as packed:
            packed.extractall(scratch / f"{number}-{archive.name}", filter="data")
    for folder in (given, scratch):
        for found in sorted(folder.rglob("_delta_log")):
            yield found.parent


def plain(value):
    """Return a value so that equal ones are written alike."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    if isinstance(value, dict):
        return sorted((name, plain(inner)) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def bag(rows, names):
    return Counter(repr([plain(row[name]) for name in names]) for row in rows.to_pylist(maps_as_pydicts="lossy"))


def expected(table):
    """Return the rows of a table as its own project has them, else as delta-rs reads them; None if it does not."""
    files = sorted((table.parent / "expected").rglob("*.parquet"))
    if files and table.name == "delta":
        return pa.concat_tables([pq.ParquetFile(file).read() for file in files])
    try:
        query = QueryBuilder().register("t", DeltaTable(str(table))).execute("SELECT * FROM t")
        return pa.table(query.read_all())
    except (DeltaError, BaseException):  # noqa: BLE001 - it panics on some
        return None


def verdict(table):
    try:
        snapshot = Snapshot.read(str(table))
        if snapshot is None:
            return "no table"
        columns = pa.schema(Schema.from_json(snapshot.metadata["schemaString"]).to_arrow())
        ours = snapshot.rows(columns)
    except EbbtideError:
        return "refused"
    theirs = expected(table)
    if theirs is None or table.name in DELTA_RS_IS_WRONG:
        return "read alone"
    is_right = set(theirs.column_names) == set(columns.names) and bag(ours, columns.names) == bag(theirs, columns.names)
    return "right" if is_right else f"wrong: {table}"


def test_golden_tables_are_read_right_or_refused(tmp_path):
    verdicts = Counter(verdict(table) for table in tables(tmp_path))
    assert [each for each in verdicts if each.startswith("wrong")] == []
    assert verdicts["right"] > 100
