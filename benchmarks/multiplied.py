"""Stores many rows without the steps that would have made them: what `benchmarks/local_scale.py` has stored is written again under other keys.

The layout is that which steps and folds leave: three quarters of the state are of a fold of the whole, each file with one range of the hashes; the rest, and all
of the sink, are of folds of eight steps. Local copies are made as a fold makes them. Cost: 3 us a row, a fourth of its loading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide import UpsertPipeline
from ebbtide.columns import key_hashes
from ebbtide.delta import Action, IndexCache, KeyIndex, Snapshot, write_files
from ebbtide.ledger import writer_of
from ebbtide.runtime import Plan
from ebbtide.tables._state.layout import BASE
from ebbtide.tables._state.ranges import ROWS_IN_PART

Keys = NDArray[np.int64]
ROWS_IN_FOLD = 2_000_000
"""Rows of eight steps of 250,000, which a fold joins."""
ROWS_IN_SINK_FILE = 1_000_000
VALUES = """
    SELECT id, 0::BIGINT AS at, 'name-' || id * 7919 % 1000003 AS name, (id % 9973)::INT AS amount,
        repeat(format('{:x}/0', id), 4) AS text FROM ids
"""


def multiply(work: Path, spec: UpsertPipeline, first: int, end: int) -> None:
    """Store the rows of the keys from one number to another in state and sink.

    Args:
        work: The root, with rows of smaller keys.
        spec: The pipeline.
        first: The first key.
        end: Behind the last key.
    """
    plan = Plan.under(str(work), spec)
    end_of_base = first + (end - first) * 3 // 4
    base = np.arange(first, end_of_base)
    folds = list(groups(end_of_base, end))
    ranges = by_hash(base)
    state_keys = [*ranges, *(part for fold in folds for part in by_hash(fold))]
    n_base = len(ranges)
    adds = []
    template = template_of(plan.state.path)
    operator = plan.operator
    copies = plan.state.stored_in([]).copies(operator.key)
    for number, keys in enumerate(state_keys):
        rows = filled(template, keys)
        in_order, _, _ = KeyIndex.in_hash_order(rows, operator.key)
        tags = BASE if number < n_base else None
        adds += stored(plan.state.path, in_order, plan.state.bounded, copies, tags)
    commit(plan.state.path, adds)
    sink = plan.delta_sink
    template = template_of(sink.path)
    copies = IndexCache(sink.path, sink.key, sink.schema, table_id=snapshot_of(sink.path).id)
    adds = []
    for fold in groups(first, end, ROWS_IN_SINK_FILE):
        adds += stored(sink.path, filled(template, fold), sink.bounded, copies, None)
    commit(sink.path, adds)


def groups(first: int, end: int, n_rows: int = ROWS_IN_FOLD) -> Iterator[Keys]:
    """Yield the keys in groups."""
    for start in range(first, end, n_rows):
        yield np.arange(start, min(start + n_rows, end))


def by_hash(keys: Keys) -> list[Keys]:
    """Divide keys into equal ranges of their hashes, of about `ROWS_IN_PART` rows."""
    hashes = key_hashes(pa.table({"id": keys}), ["id"])
    n_parts = -(-len(keys) // ROWS_IN_PART)
    bounds = np.array([number * 2**64 // n_parts for number in range(1, n_parts)], np.uint64)
    part_of_key = np.searchsorted(bounds, hashes, side="right").astype(np.int16)
    order = np.argsort(part_of_key, kind="stable")
    ends = np.cumsum(np.bincount(part_of_key, minlength=n_parts))
    return np.split(keys[order], ends[:-1])


def template_of(table: str) -> pa.Table:
    """Return a stored row, with all columns."""
    snapshot = snapshot_of(table)
    largest = max(snapshot.files.values(), key=lambda file: file.size)
    from deltalake import Schema

    columns = pa.schema(Schema.from_json(snapshot.metadata["schemaString"]).to_arrow())
    return largest.read(table, columns, live=False).slice(0, 1)


def filled(template: pa.Table, ids: Keys) -> pa.Table:
    """Return the rows of some keys; what is not the user's is as in the template, with its own place in the source."""
    values = duckdb.from_arrow(pa.table({"id": ids})).query("ids", VALUES).to_arrow_table()
    arrays = []
    for column in template.schema:
        if column.name in values.column_names:
            array = values[column.name].cast(column.type)
        elif column.name == "_changed_by":
            place = template[column.name][0].as_py() | {"position": 0}
            parts = [
                pa.array(ids % 250_000) if name == "position" else pa.array(np.full(len(ids), place[name]))
                for name in place
            ]
            array = pa.StructArray.from_arrays(parts, list(place)).cast(column.type)
        else:
            array = pa.repeat(template[column.name][0], len(ids))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=template.schema)


def stored(
    table: str, rows: pa.Table, bounded: Sequence[str], copies: IndexCache, tags: dict[str, str] | None
) -> list[Action]:
    """Write a data file."""
    return write_files(table, rows, bounded, data_change=False, copies=copies, tags=tags)


def snapshot_of(table: str) -> Snapshot:
    """Return the newest version of a table."""
    snapshot = Snapshot.read(table)
    if snapshot is None:
        raise LookupError(f"no Delta table at {table}")
    return snapshot


def commit(table: str, adds: list[Action]) -> None:
    """Commit files."""
    if writer_of(table).commit(snapshot_of(table), adds, {"operation": "OPTIMIZE"}) is None:
        raise RuntimeError(f"another client writes {table}")
