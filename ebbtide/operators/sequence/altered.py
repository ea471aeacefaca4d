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

    By sequence, `_columns` and `_kept` hold names of columns too, `_kept` and the items of `_kept_before` a row, and `_tied` rows; see
    `ebbtide.operators.sequence.operator`. Few entries have them: those are converted one by one.

    Args:
        entries: Under their old columns.
        schema: Of an entry under the new ones.
        change: What becomes of the columns.
        fills: Added column to its value in all rows.
    """
    if "_kept" not in schema.names:
        return change.rows(entries, schema, fills)
    filled = {name: fill.as_py() for name, fill in fills.items()}
    known = [_known_columns(value, change) for value in _values(entries, "_columns")]
    kept = [_kept(value, change) for value in _values(entries, "_kept")]
    kept_before = [_kept_before(value, change) for value in _values(entries, "_kept_before")]
    tied = [_tied(value, change, filled) for value in _values(entries, "_tied")]
    others = entries.drop_columns(["_columns", "_kept", "_kept_before", "_tied"])
    rows = change.rows(others, schema, fills)
    rows = _with_values(rows, "_columns", known)
    rows = _with_values(rows, "_kept", kept)
    rows = _with_values(rows, "_kept_before", kept_before)
    return _with_values(rows, "_tied", tied)


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
    row = _renamed(kept["row"] or {}, change)
    names = kept["known"] or []
    new_names = [change.new_name(name) for name in names]
    known = [name for name in new_names if name is not None]
    since = kept["since"]
    if since is not None:
        since = [at for name, at in zip(new_names, since, strict=True) if name is not None]
    return kept | {"row": row, "known": known, "since": since}


def _kept_before(rows: list[dict[str, Any]] | None, change: SchemaChange) -> list[dict[str, Any] | None] | None:
    """Rename the same of rows that had the key before that."""
    return None if rows is None else [_kept(row, change) for row in rows]


def _tied(
    rows: list[dict[str, Any]] | None,
    change: SchemaChange,
    filled: Mapping[str, Any],
) -> list[dict[str, Any]] | None:
    """Rename the columns of rows that lost a tie; those that are added have the values that they have in all rows."""
    if rows is None:
        return None
    return [{**_renamed(row, change), **filled} for row in rows]


def _renamed(row: Mapping[str, Any], change: SchemaChange) -> dict[str, Any]:
    renamed = {}
    for name, value in row.items():
        new_name = change.new_name(name)
        if new_name is not None:
            renamed[new_name] = value
    return renamed
