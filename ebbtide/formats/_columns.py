"""JSON values to typed Arrow columns; values that do not fit are reported, never guessed.

| Arrow type | JSON that fits |
|---|---|
| integers | an integer in range; its text; a float without a fraction below 2^53, where floats are exact |
| float, double | a number in range, -0.0 as 0.0, which it equals; "NaN", "Infinity", "-Infinity" |
| decimal(p,s) | a number, or a string, that fits without rounding |
| string | a string |
| boolean | true, false |
| binary | base64, base64url or hex |
| date | epoch days, as integers have them, or ISO 8601 text, also with Z; years 1 to 9999, as in Spark |
| timestamp | epoch units (ms, us, ns), or ISO 8601 text, with a zone if and only if the column has one; no part of a microsecond; years 1 to 9999 |
| list, struct, map | an array, an object, an object with string keys, of the above |
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats._encodings import BinaryEncoding, Encoding, is_precise, of_bytes, read_bytes

TimeUnit = Literal["ms", "us", "ns"]
Values = Sequence[Any]
Converted = tuple[pa.Array, list[int]]
"""A column, and the indices of values that do not fit; these are null in it."""


class Coding(NamedTuple):
    """The coding of a column's values in JSON.

    Args:
        unit: Unit of integers in a timestamp column.
        binary: Encoding of bytes; None: not stated.
    """

    unit: TimeUnit = "us"
    binary: BinaryEncoding | None = "base64"

    @classmethod
    def of(cls, encoding: Encoding | None, unit: TimeUnit = "us") -> Self:
        """Return the coding that a spec gives a column.

        Args:
            encoding: Its entry in `encodings`, if it has one; one of numbers states nothing about bytes.
            unit: Its entry in `time_units`.
        """
        return cls(unit, of_bytes(encoding))

    @staticmethod
    def is_of_bytes(type_: pa.DataType) -> bool:
        """Return whether a type has an encoding of bytes: it is BINARY, or holds it."""
        return holds_binary(type_)

    @staticmethod
    def is_precise(value: Any) -> bool:
        """Return whether a JSON value can be a precise decimal but not a number: base64, or `{"scale", "value"}`.

        Example:
            >>> Coding.is_precise("AU74"), Coding.is_precise("1234"), Coding.is_precise({"scale": 0, "value": "AU74"})
            (True, False, True)
        """
        return is_precise(value)

    def read_bytes(self, text: str) -> bytes:
        """Read the bytes that a text encodes.

        Raises:
            ValueError: The text is not in its encoding; or without one, it may be hex.
        """
        return read_bytes(text, self.binary)

    def convert(self, values: Values, type_: pa.DataType) -> Converted:
        """Convert one column.

        Args:
            values: (n,) parsed JSON values; None is null.
            type_: The column's type.

        Returns:
            The (n,) column, and the indices of values that do not fit; these are null in it.

        Raises:
            InexactNumberError: A decimal column was given floats; parse the JSON again with `Decimal` for them.

        Example:
            >>> array, bad = Coding().convert(["1.50", "x", None], pa.decimal128(6, 2))
            >>> array.to_pylist(), bad
            ([Decimal('1.50'), None, None], [1])
        """
        # The whole column at once. Its values are tried one by one only if that fails.
        try:
            column = _column(values, type_, self)
        except REFUSALS:
            return _fitting_column(values, type_, self)
        return column, []


Builder = Callable[[Any, Any, Coding], pa.Array]
"""Builds a column from values, a type and their coding."""
SPECIAL_FLOATS = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
REFUSALS = (
    pa.ArrowException,
    ValueError,
    TypeError,
    OverflowError,
)
"""Errors that a builder raises for a value that does not fit."""
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,38})")
INEXACT_FROM = 2**53
"""From here on, floats skip integers."""
_DAY_IN_UTC = r"^([0-9]{4}-[0-9]{2}-[0-9]{2})(Z)$"
"""A day as Debezium's IsoDate writes it: the day, and what says nothing more."""
_ZEROS_BELOW_US = r"^(.{19}\.[0-9]{6})(0{1,3})([Z+-].*)?$"
"""A time with more digits than microseconds, all 0, as SQL Server and Oracle write it."""
_FIRST_US = -62_135_596_800_000_000
_LAST_US = 253_402_300_799_999_999
"""The first and the last microsecond of the years 1 to 9999, from 1970."""


class InexactNumberError(Exception):
    """Raised when a float is given where every digit matters."""


def holds_binary(type_: pa.DataType) -> bool:
    """Return whether a type is BINARY, or holds it."""
    if pa.types.is_binary(type_):
        return True
    inner = [type_.field(i).type for i in range(type_.num_fields)]
    return any(map(holds_binary, inner))


def _fitting_column(values: Values, type_: pa.DataType, coding: Coding) -> Converted:
    """Convert a column with values that do not fit, one by one. Slow, but only such columns need it."""
    fitting = list(values)
    misfits = []
    for i, value in enumerate(values):
        try:
            _column([value], type_, coding)
        except REFUSALS:
            fitting[i] = None
            misfits.append(i)
    column = _column(fitting, type_, coding)
    return column, misfits


def _column(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    """Convert values that all fit, or raise one of `REFUSALS`."""
    for is_of_type, build in _BUILDERS.items():
        if is_of_type(type_):
            return build(values, type_, coding)
    raise TypeError(f"no JSON form for {type_}")


def _require(values: Values, *allowed: type) -> None:
    """Refuse values of other classes, including subclasses: in JSON a boolean is not an integer."""
    classes = set(map(type, values))
    null_class = type(None)
    unexpected = classes.difference(allowed, [null_class])
    if unexpected:
        names = [class_.__name__ for class_ in unexpected]
        listed = ", ".join(sorted(names))
        raise TypeError(f"unexpected {listed}")


def _direct(class_: type) -> Builder:
    """Return a builder for values that Arrow converts directly."""

    def build(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
        _require(values, class_)
        return pa.array(values, type_)

    return build


def _integers(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    _require(values, int, str, float, Decimal)
    if set(map(type, values)).isdisjoint((str, float, Decimal)):
        return pa.array(values, type_)
    numbers = [None if value is None else _integer_of(value) for value in values]
    return pa.array(numbers, type_)


def _integer_of(value: Any) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise ValueError("text that is not an integer")
        return int(value)
    is_float = isinstance(value, float | Decimal)
    if is_float and not (abs(value) < INEXACT_FROM and value == int(value)):
        raise ValueError("float that is not an integer, or may have lost digits")
    return int(value)


def _floats(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    """Convert numbers and the names of special ones. A number out of range must not become infinity."""
    _require(values, int, float, Decimal, str)
    numbers: list[float | None] = []
    n_written_infinite = 0
    for value in values:
        number: float | None = None
        if isinstance(value, str):
            if value not in SPECIAL_FLOATS:
                raise ValueError("text that is not a number")
            number = SPECIAL_FLOATS[value]
            n_written_infinite += math.isinf(number)
        elif value is not None:
            number = float(value) + 0.0  # -0.0 becomes 0.0
        numbers.append(number)
    doubles = pa.array(numbers, pa.float64())
    floats = doubles.cast(type_)
    # More infinities than were written: a finite number is out of range of the narrower type.
    is_infinite = pc.is_inf(floats)
    n_infinite = pc.sum(is_infinite).as_py() or 0
    if n_infinite != n_written_infinite:
        raise OverflowError("number out of range")
    return floats


def _decimals(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    """Convert through text, so that no digit is lost.

    Arrow's cast from text does not round, but wraps around or crashes on numbers out of range. Plain texts with few enough digits
    are safe. If any text is not, all are rewritten first.
    """
    classes = set(map(type, values))
    if float in classes:
        raise InexactNumberError
    _require(values, int, Decimal, str)
    written = list(map(_number_text, values))
    texts = pa.array(written, pa.string())
    is_safe = are_plain_decimals(texts, type_)
    are_all_safe = pc.all(is_safe).as_py()
    if are_all_safe is False:  # None: no value at all
        rewritten = []
        for text in written:
            fixed_point = None if text is None else _fixed_point(text, type_)
            rewritten.append(fixed_point)
        texts = pa.array(rewritten, pa.string())
    return texts.cast(type_)


def are_plain_decimals(texts: pa.StringArray, type_: pa.Decimal128Type) -> pa.BooleanArray:
    """Return whether all texts are plain numbers with few enough digits for Arrow's cast to the type."""
    whole_digits = type_.precision - type_.scale
    fraction_digits = 38 - whole_digits
    whole = rf"0*[0-9]{{0,{whole_digits}}}"
    fraction = rf"\.[0-9]{{0,{fraction_digits}}}"
    safe = rf"^[+-]?{whole}({fraction})?$"
    return pc.match_substring_regex(texts, safe)


def _number_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value)


def _fixed_point(text: str, type_: pa.Decimal128Type) -> str:
    """Write a number without exponent and redundant zeros; refuse one that does not fit.

    The number is `digits` * 10^-`scale`, with neither leading nor trailing zeros in `digits`.
    """
    if not _DECIMAL.fullmatch(text):
        raise ValueError("text that is not a number")
    lower = text.lower()
    mantissa, _, exponent = lower.partition("e")
    whole, _, fraction = mantissa.partition(".")
    is_negative = whole.startswith("-")
    sign = "-" if is_negative else ""
    written_digits = whole.lstrip("+-") + fraction
    without_trailing = written_digits.rstrip("0")
    trailing_zeros = len(written_digits) - len(without_trailing)
    written_scale = len(fraction) - trailing_zeros
    scale = written_scale - int(exponent or 0)
    digits = without_trailing.lstrip("0")
    if not digits:
        return "0"
    whole_digits = len(digits) - scale
    allowed_whole_digits = type_.precision - type_.scale
    if scale > type_.scale or whole_digits > allowed_whole_digits:
        raise OverflowError("more digits than the column has")
    if scale <= 0:
        zeros = "0" * -scale
        return f"{sign}{digits}{zeros}"
    padded = digits.zfill(scale + 1)
    before_point = padded[:-scale]
    after_point = padded[-scale:]
    return f"{sign}{before_point}.{after_point}"


def _binary(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    _require(values, str, bytes)  # bytes: defaults, and values decoded by a format
    raw: list[bytes | None] = []
    for value in values:
        if value is None:
            raw.append(None)
        else:
            decoded = value if isinstance(value, bytes) else coding.read_bytes(value)
            raw.append(decoded)
    return pa.array(raw, type_)


def _dates(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    integers = _whole(values)
    texts = _of_class(str, values)
    return dates_of(
        pa.array(integers, pa.int32()),
        pa.array(texts, pa.string()),
        type_,
    )


def _timestamps(values: Values, type_: pa.DataType, coding: Coding) -> pa.Array:
    integers = _whole(values)
    texts = _of_class(str, values)
    return timestamps_of(
        pa.array(integers, pa.int64()),
        pa.array(texts, pa.string()),
        type_,
        coding.unit,
    )


def _whole(values: Values) -> list[int | None]:
    """Return the numbers among times as integers, and null for texts."""
    _require(values, int, str, float, Decimal)
    if set(map(type, values)).isdisjoint((float, Decimal)):
        return _of_class(int, values)
    return [None if value is None or isinstance(value, str) else _integer_of(value) for value in values]


def _of_class(class_: type, values: Values) -> list[Any]:
    """Return the values of one class, and null for the rest."""
    return [value if isinstance(value, class_) else None for value in values]


def dates_of(
    epoch_days: pa.Int32Array,
    texts: pa.StringArray,
    type_: pa.DataType,
) -> pa.Array:
    """Return dates from epoch days, or from texts where these are null; raise one of `REFUSALS` if any does not fit."""
    from_days = epoch_days.cast(type_)
    dates = _or_of_text(from_days, texts, _DAY_IN_UTC, r"\1")
    return _within(dates, date.min, date.max)


def timestamps_of(
    ticks: pa.Int64Array,
    texts: pa.StringArray,
    type_: pa.DataType,
    unit: TimeUnit,
) -> pa.Array:
    """Return times from integers in a unit, or from texts, like `dates_of`."""
    type_in_unit = pa.timestamp(unit, type_.tz)
    in_unit = ticks.cast(type_in_unit)
    from_ticks = in_unit.cast(type_)
    times = _or_of_text(from_ticks, texts, _ZEROS_BELOW_US, r"\1\3")
    return _within(times, _FIRST_US, _LAST_US)


def _or_of_text(array: pa.Array, texts: pa.StringArray, further: str, usual: str) -> pa.Array:
    """Fill in the values given as text, parsed by Arrow as ISO 8601.

    Args:
        array: The values given as numbers.
        texts: The texts.
        further: Pattern of a form that Arrow does not parse.
        usual: Its replacement, which Arrow does parse.
    """
    if texts.null_count == len(texts):
        return array
    try:
        from_text = texts.cast(array.type)
    except pa.ArrowInvalid:  # seldom, so the usual texts do not pay for it
        from_text = pc.replace_substring_regex(texts, further, usual).cast(array.type)
    return pc.coalesce(array, from_text)


def _within(array: pa.Array, first: Any, last: Any) -> pa.Array:
    """Refuse days and times that Spark cannot represent."""
    earliest = pa.scalar(first, array.type)
    latest = pa.scalar(last, array.type)
    too_early = pc.less(array, earliest)
    too_late = pc.greater(array, latest)
    is_outside = pc.or_(too_early, too_late)
    if pc.any(is_outside).as_py():
        raise OverflowError("outside the years 1 to 9999")
    return array


def _lists(values: Values, type_: pa.ListType, coding: Coding) -> pa.Array:
    _require(values, list)
    elements = _flat(values)
    items = _column(elements, type_.value_type, coding)
    # Arrow keeps the elements of all lists in one array, with the offset of each list.
    offsets = _offsets(values)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        items,
        type=type_,
        mask=_nulls(values),
    )


def _structs(values: Values, type_: pa.StructType, coding: Coding) -> pa.Array:
    _require(values, dict)
    names = set(_flat(values))
    known = {field.name for field in type_}
    unknown = sorted(names - known)
    if unknown:
        raise ValueError(f"unknown fields {unknown}")
    rows = [value or {} for value in values]
    columns = []
    for field in type_:
        name = field.name
        cells = [row.get(name) for row in rows]
        column = _column(cells, field.type, coding)
        columns.append(column)
    return pa.StructArray.from_arrays(
        columns,
        fields=list(type_),
        mask=_nulls(values),
    )


def _maps(values: Values, type_: pa.MapType, coding: Coding) -> pa.Array:
    _require(values, dict)
    objects = [value or {} for value in values]
    contents = [object_.values() for object_ in objects]
    all_keys = _flat(values)
    all_items = _flat(contents)
    keys = _column(all_keys, type_.key_type, coding)
    items = _column(all_items, type_.item_type, coding)
    # A map is null if its offset is null; the last offset only ends the last map.
    is_null = [value is None for value in values]
    is_null.append(False)
    offsets = pa.array(
        _offsets(values),
        pa.int32(),
        mask=np.array(is_null),
    )
    maps = pa.MapArray.from_arrays(offsets, keys, items)
    return maps.cast(type_)


def _flat(values: Iterable[Iterable[Any] | None]) -> list[Any]:
    """Return the elements of all collections in one list; for an object, its keys."""
    items: list[Any] = []
    for value in values:
        items.extend(value or ())
    return items


def _offsets(values: Values) -> np.ndarray:
    """Return (n + 1,) the offset of each collection's first element among all elements, and the end of the last."""
    lengths = [len(value or ()) for value in values]
    return np.cumsum([0, *lengths])


def _nulls(values: Values) -> pa.Array:
    is_null = [value is None for value in values]
    return pa.array(is_null, pa.bool_())


_BUILDERS: dict[Callable[[pa.DataType], bool], Builder] = {
    pa.types.is_string: _direct(str),
    pa.types.is_integer: _integers,
    pa.types.is_decimal: _decimals,
    pa.types.is_timestamp: _timestamps,
    pa.types.is_boolean: _direct(bool),
    pa.types.is_date: _dates,
    pa.types.is_floating: _floats,
    pa.types.is_binary: _binary,
    pa.types.is_list: _lists,
    pa.types.is_struct: _structs,
    pa.types.is_map: _maps,
}
"""Test of a type to the builder of its columns; the first matching test counts."""
