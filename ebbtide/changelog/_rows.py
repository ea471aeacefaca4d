"""The changelog: rows with a kind, in no reliable order.

A changelog table has the user's columns and these reserved ones:

| column | type | meaning |
|---|---|---|
| `_kind` | string | `+I`, `-U`, `+U`, `-D` (`RowKind`), or `T`: the whole table was emptied (TRUNCATE) |
| `_op` | string, null | the source's own operation (Debezium: c r u d t) |
| `_unavailable` | list<string>, null | columns whose value the source did not send |
| `_event_ms` | int64, null | event time, epoch ms |
| `_order` | struct<step, part, position> | the order of arrival; files: part = file within the step, position = line |
| `_origin` | struct<source, partition, position> | the record's place in its source, the same on redelivery |
| `_sequence` | struct of the sequence's columns | sequence mode only: orders a key's changes, see `ebbtide.changelog._sequences` |
| `_moved_from` | list<struct<sequence, key>>, null | sequence mode only: on an update that changed the key, its sequence and the old key; on its delete, the new key |

Source: FLIP-544, "SinkUpsertMaterializer"; Flink's `RowKind`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
import pyarrow as pa

from ebbtide.changelog._sequences import SequenceColumns
from ebbtide.columns import Ints, ints


class RowKind(StrEnum):
    """The kind of a change; +I and +U add a row, -U and -D retract one."""

    INSERT = "+I"
    UPDATE_BEFORE = "-U"
    UPDATE_AFTER = "+U"
    DELETE = "-D"

    @property
    def adds(self) -> bool:
        """Return whether it adds a row; else it retracts one."""
        return self.startswith("+")


TRUNCATE = "T"

ORDER = pa.struct(
    [
        ("step", pa.int64()),
        ("part", pa.int64()),
        ("position", pa.int64()),
    ]
)

ORIGIN = pa.struct(
    [
        ("source", pa.string()),
        ("partition", pa.int64()),
        ("position", pa.int64()),
    ]
)

_RESERVED: dict[str, pa.DataType] = {
    "_kind": pa.string(),
    "_op": pa.string(),
    "_unavailable": pa.list_(pa.string()),
    "_event_ms": pa.int64(),
    "_order": ORDER,
    "_origin": ORIGIN,
}


def changelog_schema(
    columns: pa.Schema,
    key: Sequence[str] = (),
    sequence: Sequence[str] = (),
) -> pa.Schema:
    """Add the reserved changelog columns to the user's.

    Args:
        columns: The user's columns.
        key: Names of the key's columns.
        sequence: Columns that order a key's changes; empty in arrival mode.

    Example:
        >>> changelog_schema(pa.schema([("id", pa.int64())])).names[:3]
        ['id', '_kind', '_op']
    """
    reserved = dict(_RESERVED)
    if sequence:
        of_sequence = SequenceColumns(sequence, columns)
        reserved["_sequence"] = of_sequence.type
        reserved["_moved_from"] = of_sequence.key_changes_type(key)
    user_fields = [field.with_nullable(True) for field in columns]
    own_fields = [pa.field(name, type_) for name, type_ in reserved.items()]
    return pa.schema([*user_fields, *own_fields])


def order_struct(table: pa.Table, column: str = "_order") -> Ints:
    """Return an order column as (n, 3) integers: step, part, position."""
    step = ints(table, f"{column}.step")
    part = ints(table, f"{column}.part")
    position = ints(table, f"{column}.position")
    return np.stack([step, part, position], axis=1)
