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
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TimeUnit = Literal["ms", "us", "ns"]
Values = Sequence[Any]
Builder = Callable[[Any, Any, TimeUnit], pa.Array]
"""Builds a column of values, a type and a unit."""
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
    # Some value does not fit: try each by itself. Slow, but only for columns that hold a bad one.
    fitting = list(values)
    misfits = []
    for i, value in enumerate(values):
        try:
            _column([value], type_, unit)
        except _REFUSALS:
            fitting[i] = None
            misfits.append(i)
    return _column(fitting, type_, unit), misfits


def _column(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    """Convert values that all fit, or raise one of `_REFUSALS`."""
    for is_of_type, build in _BUILDERS:
        if is_of_type(type_):
            return build(values, type_, unit)
    raise TypeError(f"no JSON form for {type_}")


def _require(values: Values, *allowed: type) -> None:
    """Refuse values of other classes, subclasses too: to JSON a boolean is not an integer."""
    classes = set(map(type, values))
    others = classes.difference(allowed, [type(None)])
    if others:
        names = sorted(class_.__name__ for class_ in others)
        raise TypeError(f"unexpected {', '.join(names)}")


def _direct(class_: type) -> Builder:
    """Return a builder for values that Arrow takes as they are."""

    def build(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
        _require(values, class_)
        return pa.array(values, type_)

    return build


def _floats(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    """Convert numbers and the names of special ones; a number beyond the type's range must not become infinity."""
    _require(values, int, float, Decimal, str)
    numbers: list[float | None] = []
    n_infinite = 0
    for value in values:
        if isinstance(value, str):
            if value not in SPECIAL_FLOATS:
                raise ValueError("text that is not a number")
            numbers.append(SPECIAL_FLOATS[value])
            n_infinite += value != "NaN"
        else:
            numbers.append(None if value is None else float(value))
    exact = pa.array(numbers, pa.float64())
    with np.errstate(over="ignore"):
        narrow = exact.cast(type_, safe=False)
    if n_infinite != (pc.sum(pc.is_inf(narrow)).as_py() or 0):
        raise OverflowError("number out of range")
    return narrow


def _decimals(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    """Convert by way of text, so that no digit is lost.

    Arrow's cast from text rounds nothing, but wraps around, or crashes, on numbers beyond the type. Texts of plain form
    and few enough digits are safe; where any is not, all are first rewritten.
    """
    if float in set(map(type, values)):
        raise InexactNumberError
    _require(values, int, Decimal, str)
    written = list(map(_number_text, values))
    texts = pa.array(written, pa.string())
    whole_digits = type_.precision - type_.scale
    safe = rf"^[+-]?0*[0-9]{{0,{whole_digits}}}(\.[0-9]{{0,{38 - whole_digits}}})?$"
    is_safe = pc.match_substring_regex(texts, safe)
    if pc.all(is_safe).as_py() is False:  # None: no value at all
        rewritten = [None if text is None else _fixed_point(text, type_) for text in written]
        texts = pa.array(rewritten, pa.string())
    return texts.cast(type_)


def _number_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _fixed_point(text: str, type_: pa.Decimal128Type) -> str:
    """Write a number that fits without exponent and needless zeros: Arrow's cast wraps around, or crashes, on what does not.

    The number is `digits` * 10^-`scale`, with neither leading nor trailing zeros in `digits`.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError("text that is not a number")
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if whole.startswith("-") else ""
    all_digits = whole.lstrip("+-") + fraction
    digits = all_digits.rstrip("0")
    trailing_zeros = len(all_digits) - len(digits)
    scale = len(fraction) - int(exponent or 0) - trailing_zeros
    digits = digits.lstrip("0")
    if not digits:
        return "0"
    whole_digits = len(digits) - scale
    if scale > type_.scale or whole_digits > type_.precision - type_.scale:
        raise OverflowError("more digits than the column has")
    if scale <= 0:
        return sign + digits + "0" * -scale
    padded = digits.zfill(scale + 1)
    return f"{sign}{padded[:-scale]}.{padded[-scale:]}"


def _binary(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _require(values, str)
    raw: list[bytes | None] = []
    for value in values:
        if value is None:
            raw.append(None)
        else:
            raw.append(base64.b64decode(value, validate=True))
    return pa.array(raw, type_)


def _dates(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _require(values, int, str)
    epoch_days = pa.array(_integers(values), pa.int32())
    dates = epoch_days.cast(type_)
    dates = _with_text(dates, values, type_)
    return _within(dates, date.min, date.max)


def _timestamps(values: Values, type_: pa.DataType, unit: TimeUnit) -> pa.Array:
    _require(values, int, str)
    ticks = pa.array(_integers(values), pa.int64())
    in_unit = ticks.cast(pa.timestamp(unit, type_.tz))
    moments = in_unit.cast(type_)
    moments = _with_text(moments, values, type_)
    return _within(moments, *_TIMES_US)


def _integers(values: Values) -> list[int | None]:
    return [value if isinstance(value, int) else None for value in values]


def _with_text(array: pa.Array, values: Values, type_: pa.DataType) -> pa.Array:
    """Fill in what was written as text, by Arrow's reading of ISO 8601."""
    texts = [value if isinstance(value, str) else None for value in values]
    written = pa.array(texts, pa.string())
    if written.null_count == len(written):
        return array
    return pc.coalesce(array, written.cast(type_))


def _within(array: pa.Array, first: Any, last: Any) -> pa.Array:
    """Refuse days and times that Spark has not."""
    earliest = pa.scalar(first, array.type)
    latest = pa.scalar(last, array.type)
    too_early = pc.less(array, earliest)
    too_late = pc.greater(array, latest)
    is_outside = pc.or_(too_early, too_late)
    if pc.any(is_outside).as_py():
        raise OverflowError("outside the years 1 to 9999")
    return array


def _lists(values: Values, type_: pa.ListType, unit: TimeUnit) -> pa.Array:
    _require(values, list)
    elements = _flat(values)
    items = _column(elements, type_.value_type, unit)
    offsets = pa.array(_offsets(values), pa.int32())
    is_null = _nulls(values)
    return pa.ListArray.from_arrays(offsets, items, type=type_, mask=is_null)


def _structs(values: Values, type_: pa.StructType, unit: TimeUnit) -> pa.Array:
    _require(values, dict)
    unknown = set(_flat(values)) - {field.name for field in type_}
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}")
    columns = []
    for field in type_:
        cells = [value.get(field.name) if value else None for value in values]
        columns.append(_column(cells, field.type, unit))
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=_nulls(values))


def _maps(values: Values, type_: pa.MapType, unit: TimeUnit) -> pa.Array:
    _require(values, dict)
    contents = [value.values() if value else () for value in values]
    keys = _column(_flat(values), type_.key_type, unit)
    items = _column(_flat(contents), type_.item_type, unit)
    # A map is null where its offset is; the last offset only ends the last map.
    is_null = [value is None for value in values]
    mask = np.array([*is_null, False])
    offsets = pa.array(_offsets(values), pa.int32(), mask=mask)
    maps = pa.MapArray.from_arrays(offsets, keys, items)
    return maps.cast(type_)


def _flat(values: Iterable[Iterable[Any] | None]) -> list[Any]:
    """Return the elements of all collections, one after the other; of an object its keys."""
    return [item for value in values if value for item in value]


def _offsets(values: Values) -> np.ndarray:
    """Return where each collection begins among the elements of all, and where the last one ends: (n + 1,)."""
    lengths = [len(value) if value else 0 for value in values]
    return np.cumsum([0, *lengths])


def _nulls(values: Values) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


_BUILDERS: list[tuple[Callable[[pa.DataType], bool], Builder]] = [
    (pa.types.is_string, _direct(str)),
    (pa.types.is_integer, _direct(int)),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_timestamp, _timestamps),
    (pa.types.is_boolean, _direct(bool)),
    (pa.types.is_date, _dates),
    (pa.types.is_floating, _floats),
    (pa.types.is_binary, _binary),
    (pa.types.is_list, _lists),
    (pa.types.is_struct, _structs),
    (pa.types.is_map, _maps),
]
