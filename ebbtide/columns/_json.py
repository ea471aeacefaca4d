"""Values of columns as JSON, for people: all digits of a decimal, times as ISO 8601, bytes in Base64."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa


def json_text(value: Any, type_: pa.DataType) -> str:
    """Write a value as JSON, nulls too; a decimal keeps all its digits."""
    if isinstance(value, Mapping):
        fields = {name: json_text(each, type_.field(name).type) for name, each in value.items()}
        return _object(fields)
    if isinstance(value, Decimal):
        return format(value, "f")
    plain = _plain(value, type_)
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


def _plain(value: Any, type_: pa.DataType) -> Any:
    """Return a value other than a struct or decimal as a JSON value; elements are already JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _number(value, type_)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if pa.types.is_map(type_):
        return {str(key): json_text(each, type_.item_type) for key, each in value}
    if isinstance(value, list):
        return [json_text(each, type_.value_type) for each in value]
    return _time(value) if isinstance(value, date) else str(value)


def _time(value: date) -> str:
    """Write a date, or a time: to the microsecond if it has any."""
    if not isinstance(value, datetime):
        return value.isoformat()
    has_microseconds = value.microsecond % 1000
    unit = "microseconds" if has_microseconds else "milliseconds"
    return value.isoformat(timespec=unit).replace("+00:00", "Z")


def _number(value: float, type_: pa.DataType) -> float | str:
    """Return a float as a JSON value; of 32 bits the shortest number that it is the nearest value to."""
    if not math.isfinite(value):
        return _NOT_FINITE.get(value, "NaN")
    return float(str(np.float32(value))) if pa.types.is_float32(type_) else value


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
