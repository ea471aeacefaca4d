"""Rows that break a rule as JSON values, the same for each engine."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

ROWS_AS_TEXT = ("_decided", "_shown")
"""Columns of samples that hold a row, which is shown as JSON."""


def sample_of(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as JSON values, nulls left out.

    Example:
        >>> sample_of(pa.table({"id": [1], "at": [None], "_shown": [{"id": 1, "v": None}]}))
        [{'id': 1, '_shown': '{"id":1,"v":null}'}]
    """
    sample = []
    for row in rows.to_pylist():
        values = {}
        for column in rows.schema:
            name = column.name
            value = row[name]
            if value is None:
                continue
            write = _text if name in ROWS_AS_TEXT else _value
            values[name] = write(value, column.type)
        sample.append(values)
    return sample


def _value(value: Any, type_: pa.DataType) -> Any:
    """Return a value as a JSON value; for a struct, the fields that are not null."""
    if isinstance(value, Mapping):
        fields = {}
        for name, each in value.items():
            if each is not None:
                field = type_.field(name)
                fields[name] = _value(each, field.type)
        return fields
    if isinstance(value, Decimal):
        return float(value)
    return _plain(value, type_, _value)


def _text(value: Any, type_: pa.DataType) -> str:
    """Write a value as JSON, nulls too; a decimal keeps all its digits."""
    if isinstance(value, Mapping):
        fields = {name: _text(each, type_.field(name).type) for name, each in value.items()}
        return _object(fields)
    if isinstance(value, Decimal):
        return format(value, "f")
    plain = _plain(value, type_, _text)
    if isinstance(plain, list):
        elements = ",".join(plain)
        return f"[{elements}]"
    if isinstance(plain, dict):
        return _object(plain)
    return _quoted(plain)


def _object(written: Mapping[str, str]) -> str:
    """Write a JSON object of values that are already JSON."""
    fields = [f"{_quoted(name)}:{value}" for name, value in written.items()]
    inner = ",".join(fields)
    return f"{{{inner}}}"


def _plain(value: Any, type_: pa.DataType, inner: Any) -> Any:
    """Return a value other than a struct or decimal as a JSON value; `inner` converts elements, given their type."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        has_microseconds = value.microsecond % 1000
        unit = "microseconds" if has_microseconds else "milliseconds"
        text = value.isoformat(timespec=unit)
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if pa.types.is_map(type_):
        return {str(key): inner(each, type_.item_type) for key, each in value}
    if isinstance(value, list):
        return [inner(each, type_.value_type) for each in value]
    return str(value)


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
