"""Statistics of a data file, for the log. Invariant: bounds may be too wide, never too narrow, since readers skip files by them.

Bounds are kept of integers, dates, timestamps, texts and decimals; those of decimals are whole numbers, on whose form in JSON all readers agree. Of floats
and other types only nulls are counted. Other writers keep to the columns that a property of the table names. Source: Delta transaction log protocol, "Per-file Statistics".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TEXT_LENGTH = 32
"""Characters of a text that are kept."""
LAST_CHARACTER = chr(0x10FFFF)
"""Appended to a cut text to make it an upper bound, as in Spark."""
EXACT_IN_DOUBLE = 2**53
"""Whole numbers up to this one are exact for readers that make each number a double."""


def statistics(rows: pa.Table, columns: Iterable[str]) -> str:
    """Return the statistics of a data file.

    Args:
        rows: Rows of the file.
        columns: Top-level columns to keep statistics of.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        column = rows[name]
        type_ = column.type
        if pa.types.is_struct(type_):
            continue  # its fields would have them
        n_nulls = column.null_count
        nulls[name] = n_nulls
        is_all_null = n_nulls == len(column)
        if is_all_null or not _has_bounds(type_):
            continue
        try:
            ends = pc.min_max(column).as_py()
        except (OverflowError, ValueError):
            continue  # a year that Python lacks, such as 10000: without bounds the file is never skipped
        lower = _lower(ends["min"], type_)
        upper = _upper(ends["max"], type_)
        if lower is not None:
            least[name] = lower
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
    has_bounds = (
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
        or pa.types.is_decimal(type_)
    )
    return bool(has_bounds)


def _lower(value: Any, type_: pa.DataType) -> Any:
    """Return a lower bound for the least value; None if there is none that all readers take."""
    if isinstance(value, str):
        return value[:TEXT_LENGTH]
    if isinstance(value, Decimal):
        return _whole(math.floor(value), type_)
    if isinstance(value, datetime):
        return _milliseconds(value)
    if isinstance(value, date):
        return value.isoformat()
    return value


def _upper(value: Any, type_: pa.DataType) -> Any:
    """Return an upper bound for the greatest value; None if there is none that all readers take."""
    if isinstance(value, str):
        return _upper_text(value)
    if isinstance(value, Decimal):
        return _whole(math.ceil(value), type_)
    if isinstance(value, datetime):
        return _milliseconds_up(value)
    return _lower(value, type_)  # exact, so it is both bounds


def _upper_text(value: str) -> str | None:
    if len(value) <= TEXT_LENGTH:
        return value
    if value[TEXT_LENGTH] == LAST_CHARACTER:
        return None
    return value[:TEXT_LENGTH] + LAST_CHARACTER


def _whole(bound: int, type_: pa.DataType) -> int | None:
    """Return the whole number that bounds decimals of a type; None if readers would not take it for one of them."""
    size = abs(bound)
    n_digits = type_.precision - type_.scale
    # A bound with one more digit, such as 10 for 9.9, is not a value of the type.
    is_of_type = size < 10**n_digits
    if not is_of_type or size > EXACT_IN_DOUBLE:
        return None
    return bound


def _milliseconds_up(value: datetime) -> str | None:
    """Round a time up to a millisecond; None if that is out of range."""
    milliseconds = value.microsecond // 1000
    below = value.replace(microsecond=milliseconds * 1000)
    is_exact = below == value
    if is_exact:
        return _milliseconds(value)
    step = timedelta(milliseconds=1)
    last = datetime.max.replace(tzinfo=value.tzinfo)
    if below > last - step:
        return None
    return _milliseconds(below + step)


def _milliseconds(value: datetime) -> str:
    """Round a time down to a millisecond, in UTC if it has a zone."""
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    in_utc = value.astimezone(UTC)
    bare = in_utc.replace(tzinfo=None)
    return bare.isoformat(timespec="milliseconds") + "Z"
