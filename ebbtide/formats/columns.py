"""JSON values to typed Arrow columns; a value that does not fit is named, never guessed at.

| Arrow type | JSON that fits |
|---|---|
| integers | an integer in range |
| float, double | a number in range; "NaN", "Infinity", "-Infinity" |
| decimal(p,s) | a number, or a string, that fits without rounding |
| string | a string |
| boolean | true, false |
| binary | base64 |
| date | epoch days, or ISO 8601 text; years 1 to 9999, as in Spark |
| timestamp | epoch units (ms, us, ns), or ISO 8601 text; with a zone exactly where the column has one; years 1 to 9999 |
| list, struct, map | an array, an object, an object with string keys, of the above |
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TimeUnit = Literal["ms", "us", "ns"]
Values = Sequence[Any]
SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_REFUSALS = (pa.ArrowException, ValueError, TypeError, OverflowError)
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_TIMES_US = -62_135_596_800_000_000, 253_402_300_799_999_999


class InexactNumberError(Exception):
    """Raised when a float stands where digits matter."""


def convert(values: Values, type_: pa.DataType, unit: TimeUnit = "us") -> tuple[pa.Array, list[int]]:
    """Convert one column.

    Args:
        values: (n,) parsed JSON values; None is null.
        type_: The column's type.
        unit: What integers mean in a timestamp column.

    Returns:
        The (n,) column, and the indices of the values that do not fit, which are null in it.

    Raises:
        InexactNumberError: A decimal column was given floats; parse the JSON again with `Decimal` for them.

    Example:
        >>> array, bad = convert(["1.50", "x", None], pa.decimal128(6, 2))
        >>> array.to_pylist(), bad
        ([Decimal('1.50'), None, None], [1])
    """
    try:
        return _column(values, type_, unit), []
    except _REFUSALS:
        pass
    fitting, bad = list(values), []
    for i, value in enumerate(values):
        try:
            _column([value], type_, unit)
        except _REFUSALS:
            fitting[i] = None
            bad.append(i)
    return _column(fitting, type_, unit), bad


def _column(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    for test, build in _BUILDERS:
        if test(type_):
            return build(values, type_, unit)
    raise TypeError(f"no JSON form for {type_}")


def _only(values: Values, *allowed: type) -> None:
    other = set(map(type, values)) - {*allowed, type(None)}
    if other:
        raise TypeError(f"unexpected {', '.join(sorted(t.__name__ for t in other))}")


def _plain(*allowed: type) -> Callable[[Values, pa.DataType, TimeUnit], pa.Array]:
    def build(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
        _only(values, *allowed)
        return pa.array(values, type_)

    return build


def _floats(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _only(values, int, float, Decimal, str)
    if any(isinstance(v, str) and v not in SPECIAL_FLOATS for v in values):
        raise ValueError("text that is no number")
    numbers = [SPECIAL_FLOATS[v] if isinstance(v, str) else None if v is None else float(v) for v in values]
    array = pa.array(numbers, pa.float64())
    with np.errstate(over="ignore"):
        narrow = array.cast(type_, safe=False)
    asked = sum(isinstance(v, str) and v != "NaN" for v in values)
    if asked != (pc.sum(pc.is_inf(narrow)).as_py() or 0):
        raise OverflowError("number out of range")
    return narrow


def _decimals(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    if float in set(map(type, values)):
        raise InexactNumberError
    _only(values, int, Decimal, str)
    texts = pa.array([None if v is None else v if isinstance(v, str) else str(v) for v in values], pa.string())
    whole = type_.precision - type_.scale
    safe = rf"^[+-]?0*[0-9]{{0,{whole}}}(\.[0-9]{{0,{38 - whole}}})?$"
    if pc.all(pc.match_substring_regex(texts, safe)).as_py() is False:
        texts = pa.array([None if v is None else _fixed_point(v, type_) for v in texts.to_pylist()], pa.string())
    return texts.cast(type_)


def _fixed_point(text: str, type_: pa.Decimal128Type) -> str:
    """Write a number that fits without exponent and needless zeros: Arrow's cast wraps around, or crashes, on what does not."""
    if not _DECIMAL.fullmatch(text):
        raise ValueError("text that is no number")
    number, _, exponent = text.lower().partition("e")
    whole, _, fraction = number.partition(".")
    sign, whole = ("-" if whole.startswith("-") else ""), whole.lstrip("+-")
    digits, scale = (whole + fraction).lstrip("0"), len(fraction) - int(exponent or 0)
    trailing = len(digits) - len(digits.rstrip("0"))
    digits, scale = digits.rstrip("0"), scale - trailing
    if not digits:
        return "0"
    if scale > type_.scale or len(digits) - scale > type_.precision - type_.scale:
        raise OverflowError("more digits than the column has")
    digits = digits + "0" * -scale if scale < 0 else digits.zfill(scale + 1)
    return sign + (digits[: len(digits) - scale] + "." + digits[len(digits) - scale :] if scale > 0 else digits)


def _binary(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _only(values, str)
    return pa.array([None if v is None else base64.b64decode(v, validate=True) for v in values], type_)


def _dates(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _only(values, int, str)
    days = pa.array([v if isinstance(v, int) else None for v in values], pa.int32()).cast(type_)
    return _between(_with_text(days, values, type_), *(pa.scalar(day, type_) for day in (date.min, date.max)))


def _timestamps(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _only(values, int, str)
    ticks = pa.array([v if isinstance(v, int) else None for v in values], pa.int64()).cast(pa.timestamp(unit, type_.tz))
    return _between(_with_text(ticks.cast(type_), values, type_), *(pa.scalar(t, type_) for t in _TIMES_US))


def _between(array: pa.Array, low: pa.Scalar, high: pa.Scalar) -> pa.Array:
    if pc.any(pc.or_(pc.less(array, low), pc.greater(array, high))).as_py():
        raise OverflowError("outside the years 1 to 9999")
    return array


def _with_text(array: pa.Array, values: Values, type_: pa.DataType) -> pa.Array:
    text = pa.array([v if isinstance(v, str) else None for v in values], pa.string())
    return array if text.null_count == len(text) else pc.coalesce(array, text.cast(type_))


def _lists(values: Values, type_: pa.ListType, unit: TimeUnit) -> pa.Array:
    _only(values, list)
    offsets = np.cumsum([0, *(len(v) if v else 0 for v in values)])
    items = _column([item for v in values if v for item in v], type_.value_type, unit)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items, type=type_, mask=_nulls(values))


def _structs(values: Values, type_: pa.StructType, unit: TimeUnit) -> pa.Array:
    _only(values, dict)
    names = [f.name for f in type_]
    unknown = {name for v in values if v for name in v} - set(names)
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    columns = [_column([v.get(f.name) if v else None for v in values], f.type, unit) for f in type_]
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=_nulls(values))


def _maps(values: Values, type_: pa.MapType, unit: TimeUnit) -> pa.Array:
    _only(values, dict)
    offsets = np.cumsum([0, *(len(v) if v else 0 for v in values)])
    keys = _column([k for v in values if v for k in v], type_.key_type, unit)
    items = _column([i for v in values if v for i in v.values()], type_.item_type, unit)
    nulls = _nulls(values)
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32(), mask=_offset_nulls(nulls)), keys, items).cast(type_)


def _nulls(values: Values) -> pa.Array:
    return pa.array([v is None for v in values], pa.bool_())


def _offset_nulls(nulls: pa.Array) -> np.ndarray:
    return np.append(nulls.to_numpy(zero_copy_only=False), False)


_BUILDERS: list[tuple[Callable[[pa.DataType], bool], Callable[[Any, Any, TimeUnit], pa.Array]]] = [
    (pa.types.is_string, _plain(str)),
    (pa.types.is_integer, _plain(int)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_boolean, _plain(bool)),
    (pa.types.is_date, _dates),
    (pa.types.is_floating, _floats),
    (pa.types.is_binary, _binary),
    (pa.types.is_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
]
