"""Equality of rows: the key by which a retraction finds its row, the same in every store.

| value | equal to |
|---|---|
| null | null |
| NaN | NaN, with any bits |
| -0.0 | 0.0, as in SQL |
| decimal | the same number, at any scale |
| array, struct | equal elements, in order |
| map | equal entries, in any order |
| anything else | equal in Python; the values of a column have one type |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

_DOUBLE = struct.Struct(">d")
_PLAIN = frozenset({int, str, bytes, bool, type(None), date, datetime, timedelta})
"""Types whose values are their own equality keys."""


def equality_key(values: Iterable[Any]) -> tuple[Hashable, ...]:
    """Return a key that two rows share exactly if they are equal. It is hashable and can be stored.

    Args:
        values: The row's values.

    Example:
        >>> equality_key([float("nan"), None]) == equality_key([-float("nan"), None])
        True
        >>> equality_key([Decimal("1.0")]) == equality_key([Decimal("1.00")])
        True
    """
    row = tuple(values)
    if _PLAIN.issuperset(map(type, row)):  # the usual case, kept short
        return row
    return tuple(map(_equal_form, row))


def map_key(key: Any) -> Hashable:
    """Return the canonical form of a map's key, so that every store treats equal keys as one.

    A decimal is written with no zeros after its last digit: 1.50 and 1.5 are one key. The keys of a map have one type.

    Raises:
        TypeError: a float, or a decimal that is not a number: stores disagree on whether -0.0 and 0.0 are one key, and NaN is not
            equal to itself.

    Example:
        >>> map_key(Decimal("1.50")), map_key(Decimal("1E+2")), map_key((Decimal("-0.0"), "a"))
        (Decimal('1.5'), Decimal('100'), (Decimal('0'), 'a'))
    """
    if type(key) in _PLAIN:
        return key  # type: ignore[no-any-return]
    match key:
        case Decimal() if key.is_finite():
            # Written without an exponent, then cut: `normalize` would round to the context's precision.
            text = format(key, "f")
            digits = text.rstrip("0") if "." in text else text
            number = Decimal(digits)
            is_zero = not key
            return abs(number) if is_zero else number
        case float() | Decimal():
            raise TypeError(
                f"a map has no key {key!r}; got {type(key).__name__}; allowed: exact types, as int, a finite Decimal, str"
            )
        case tuple():
            return tuple(map(map_key, key))
        case _:
            return key  # type: ignore[no-any-return]


def _equal_form(value: Any) -> Hashable:
    match value:
        case float():
            # NaN equals nothing in Python: it is represented by its bytes. -0.0 is written as 0.0, since keys are also
            # compared as texts.
            return _DOUBLE.pack(math.nan) if math.isnan(value) else value + 0.0
        case Decimal():
            # 1.0 and 1.00 have the same reduced fraction.
            return value.as_integer_ratio()
        case list() | tuple():
            return equality_key(value)
        case dict():
            # The order of a map's entries does not matter; `repr` orders keys of any type.
            pairs = [equality_key(pair) for pair in value.items()]
            return tuple(sorted(pairs, key=repr))
        case Hashable():
            return value
    raise TypeError(
        f"a row cannot hold {value!r}; got {type(value).__name__}; allowed: values of a Spark table's columns"
    )
