"""Stored entries under other columns: what of an entry names the user's columns beside the columns themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ebbtide.model.schema_change import SchemaChange


def altered_entries(
    entries: pa.Table,
    schema: pa.Schema,
    change: SchemaChange,
    fills: Mapping[str, pa.Scalar],
) -> pa.Table:
    """Return entries under their new columns.

    By sequence, `_columns` and `_kept` hold names of columns too, and `_kept` a row; see `ebbtide.operators.sequence`. Few
    entries have them: those are converted one by one.

    Args:
        entries: Under their old columns.
        schema: Of an entry under the new ones.
        change: What becomes of the columns.
        fills: Added column to its value in all rows.
    """
    rows = change.rows(entries, schema, fills)
    if "_kept" not in schema.names:
        return rows
    known = [_known_columns(value, change) for value in _values(entries, "_columns")]
    kept = [_kept(value, change) for value in _values(entries, "_kept")]
    rows = _with_values(rows, "_columns", known)
    return _with_values(rows, "_kept", kept)


def _values(entries: pa.Table, column: str) -> list[Any]:
    """Return the values of a column; none at all where all are null."""
    is_empty = entries[column].null_count == len(entries)
    if is_empty:
        return []
    values: list[Any] = entries[column].to_pylist()
    return values


def _with_values(rows: pa.Table, name: str, values: list[Any]) -> pa.Table:
    if not values:
        return rows
    index = rows.schema.get_field_index(name)
    column = rows.schema.field(index)
    array = pa.array(values, column.type)
    return rows.set_column(index, column, array)


def _known_columns(known: list[tuple[str, Any]] | None, change: SchemaChange) -> list[tuple[str, Any]] | None:
    """Rename the columns whose values are older than the row; those that are gone wait for nothing."""
    if known is None:
        return None
    renamed = []
    for name, sequence in known:
        new_name = change.new_name(name)
        if new_name is not None:
            renamed.append((new_name, sequence))
    return renamed or None


def _kept(kept: dict[str, Any] | None, change: SchemaChange) -> dict[str, Any] | None:
    """Rename the columns of a row that had the key before, and of what is known of it."""
    if kept is None:
        return None
    row = {}
    for name, value in (kept["row"] or {}).items():
        new_name = change.new_name(name)
        if new_name is not None:
            row[new_name] = value
    names = map(change.new_name, kept["known"] or ())
    known = [name for name in names if name is not None]
    return kept | {"row": row, "known": known}
