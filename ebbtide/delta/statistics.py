"""Statistics of a data file, as the log has them: readers skip files by them, so that bounds may be wide but never narrow.

Kept of integers, dates, timestamps and texts. Of floats, decimals and the rest only the nulls are counted: JSON has no
exact form that all readers agree on. Source: Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TEXT_LENGTH = 32
"""Characters of a text that are kept; a greatest text that is longer is left out."""


def statistics(rows: pa.Table, columns: Iterable[str]) -> str:
    """Return the statistics of a data file.

    Args:
        rows: What is in it.
        columns: Top-level columns to keep statistics of.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column = rows[name]
        if pa.types.is_nested(column.type):
            continue
        nulls[name] = column.null_count
        if column.null_count == len(column) or not _has_bounds(column.type):
            continue
        ends = pc.min_max(column).as_py()
        least[name] = _lower(ends["min"])
        upper = _upper(ends["max"])
        if upper is not None:
            greatest[name] = upper
    return json.dumps(
        {
            "numRecords": len(rows),
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
            "tightBounds": True,
        }
    )


def _has_bounds(type_: pa.DataType) -> bool:
    is_time = pa.types.is_date32(type_) or pa.types.is_timestamp(type_)
    return bool(pa.types.is_integer(type_) or pa.types.is_string(type_) or is_time)


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_LENGTH]
    if isinstance(value, datetime):
        return _milliseconds(value)
    return value.isoformat() if isinstance(value, date) else value


def _upper(value: Any) -> Any:
    """Return a value that is not below the greatest; None if there is none that is short."""
    if isinstance(value, str):
        return value if len(value) <= TEXT_LENGTH else None
    if isinstance(value, datetime):
        rounded = value.replace(microsecond=value.microsecond // 1000 * 1000)
        is_exact = rounded == value
        if is_exact:
            return _milliseconds(value)
        is_last = rounded > datetime.max.replace(tzinfo=rounded.tzinfo) - timedelta(milliseconds=1)
        return None if is_last else _milliseconds(rounded + timedelta(milliseconds=1))
    return value.isoformat() if isinstance(value, date) else value


def _milliseconds(value: datetime) -> str:
    """Write a time to the millisecond below, in UTC if it has a zone."""
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"
