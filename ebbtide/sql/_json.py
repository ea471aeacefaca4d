"""Rows as JSON values, which results consist of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ebbtide.sql._results import Row


def json_rows(table: pa.Table) -> Iterator[Row]:
    """Yield rows as JSON values."""
    columns = [column.to_pylist() for column in table.columns]
    for values in zip(*columns, strict=True):
        yield list(map(json_value, values))


def json_value(value: Any) -> Any:
    """Return a value that JSON holds exactly: decimals, dates, times, NaN and infinities as text, bytes in hexadecimal."""
    if isinstance(value, dict):
        return {str(name): json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return list(map(json_value, value))
    write = _WRITERS.get(type(value))
    return value if write is None else write(value)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _time_text(time: datetime) -> str:
    in_utc = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    return in_utc.isoformat(sep=" ")


_WRITERS: dict[type, Callable[[Any], Any]] = {
    float: _number,
    Decimal: lambda value: format(value, "f"),
    bytes: bytes.hex,
    datetime: _time_text,
    date: date.isoformat,
}
