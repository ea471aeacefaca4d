"""Migration of stored entries to other columns. Some entries hold column names as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ebbtide.columns import with_column
from ebbtide.model import SchemaChange


def altered_entries(
    entries: pa.Table,
    schema: pa.Schema,
    change: SchemaChange,
    fills: Mapping[str, pa.Scalar],
) -> pa.Table:
    """Return entries with their new columns.

    `_columns` and `_kept` hold column names, and `_kept`, `_kept_before` and `_tied` hold rows; see
    `ebbtide.operators._sequence.rules`. Few entries have them: those are converted one by one.

    Args:
        entries: Entries with their old columns.
        schema: Schema of an entry with the new columns.
        change: The change of the columns.
        fills: Added column to its value in all rows.
    """
    filled = {name: fill.as_py() for name, fill in fills.items()}
    conversions: dict[str, Callable[[Any], Any]] = {
        "_columns": lambda known: _known_columns(known, change),
        "_kept": lambda row: _kept(row, change),
        "_kept_before": lambda rows: [_kept(row, change) for row in rows],
        "_tied": lambda rows: [_renamed(row, change) | filled for row in rows],
    }
    # All other columns are renamed as whole columns.
    plain_columns = entries.drop_columns(list(conversions))
    altered = change.rows(plain_columns, schema, fills)
    for name, convert in conversions.items():
        if entries[name].null_count == len(entries):
            continue
        values = entries[name].to_pylist()
        converted = [None if value is None else convert(value) for value in values]
        type_ = schema.field(name).type
        array = pa.array(converted, type_)
        altered = with_column(altered, name, array)
    return altered


def _known_columns(known: list[tuple[str, Any]], change: SchemaChange) -> list[tuple[str, Any]] | None:
    """Rename the columns whose values are older than the row; dropped columns no longer wait for a value."""
    renamed = _renamed(dict(known), change)
    if not renamed:
        return None
    return list(renamed.items())


def _kept(kept_row: dict[str, Any], change: SchemaChange) -> dict[str, Any]:
    """Rename the columns of a row that had the key before, and of its known values."""
    names = kept_row["known"] or []
    since = kept_row["since"]
    ranks = since or names
    known = dict(zip(names, ranks, strict=True))
    since_of = _renamed(known, change)
    if since is not None:
        since = list(since_of.values())
    row = kept_row["row"] or {}
    return {
        **kept_row,
        "row": _renamed(row, change),
        "known": list(since_of),
        "since": since,
    }


def _renamed(row: Mapping[str, Any], change: SchemaChange) -> dict[str, Any]:
    """Return values by new column names, without dropped columns."""
    renamed = {}
    for name, value in row.items():
        new_name = change.new_name(name)
        if new_name is not None:
            renamed[new_name] = value
    return renamed
