"""The changelog: rows with a kind, in no reliable order.

A changelog table has the user's columns and these reserved ones:

| column | type | meaning |
|---|---|---|
| `_kind` | string | `+I`, `-U`, `+U`, `-D` (`RowKind`), or `T`: the whole table was emptied (TRUNCATE) |
| `_op` | string, null | the source's own operation (Debezium: c r u d t), by which sequence mode knows duplicates |
| `_lsn` | int64, null | the source's log position; null for incremental snapshot rows |
| `_unavailable` | list<string>, null | columns whose value the source did not send because it had not changed |
| `_moved_from` | string, null | of an update that changed the key and left values out: `{"lsn": its own, "key": [the old key]}` |
| `_event_ms` | int64, null | event time, epoch ms |
| `_order` | struct<step, part, position> | the order of arrival; files: part = file within the step, position = line |
| `_origin` | struct<source, partition, position> | where the record stands in its source, the same on redelivery |

Source: FLIP-544, "SinkUpsertMaterializer"; Flink's `RowKind`.
"""

from __future__ import annotations

from enum import StrEnum

import pyarrow as pa


class RowKind(StrEnum):
    """The kind of a change; +I and +U add a row, -U and -D retract one."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"


ADDS = frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER})
"""Kinds that add a row; the others retract one."""
TRUNCATE = "T"

ORDER = pa.struct([("step", pa.int64()), ("part", pa.int64()), ("position", pa.int64())])
ORIGIN = pa.struct([("source", pa.string()), ("partition", pa.int64()), ("position", pa.int64())])
SEQUENCE = pa.struct([("lsn", pa.int64()), ("op", pa.int32())])

OP_TRUNCATE, OP_DELETE, OP_UPSERT = 0, 1, 2
"""Ranks of operations at one log position: a delete comes before a create (a changed key is both)."""

CHANGELOG_COLUMNS: dict[str, pa.DataType] = {
    "_kind": pa.string(),
    "_op": pa.string(),
    "_lsn": pa.int64(),
    "_unavailable": pa.list_(pa.string()),
    "_moved_from": pa.string(),
    "_event_ms": pa.int64(),
    "_order": ORDER,
    "_origin": ORIGIN,
}


def changelog_schema(columns: pa.Schema) -> pa.Schema:
    """Add the reserved changelog columns to the user's.

    Example:
        >>> changelog_schema(pa.schema([("id", pa.int64())])).names[:3]
        ['id', '_kind', '_op']
    """
    return pa.schema([f.with_nullable(True) for f in columns] + [pa.field(n, t) for n, t in CHANGELOG_COLUMNS.items()])
