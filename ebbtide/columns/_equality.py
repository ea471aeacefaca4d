"""When two rows are equal: the key by which a retraction finds its row, whatever the store.

| value | equal to |
|---|---|
| null | null |
| NaN | NaN, whatever its bits |
| -0.0 | 0.0, as in SQL |
| decimal | the same number, whatever its scale |
| array, struct | equal elements, in order |
| map | equal entries, in any order |
| anything else | what Python calls equal; the values of a column have one type |
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
"""Types whose values are what they are equal to."""


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
    """Return the one form that all equal keys of a map have, so that every store takes them for one.

    A decimal is written with no zeros after its last digit: 1.50 and 1.5 are one key. The keys of a map have one type.

    Raises:
        TypeError: a float, or a decimal that is not a number: some stores take -0.0 and 0.0 for one key, some for two, and
            NaN is not even equal to itself.

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
            # NaN equals nothing in Python: it is represented by its bytes. -0.0 is written as 0.0, since keys are compared as texts, too.
            return _DOUBLE.pack(math.nan) if math.isnan(value) else value + 0.0
        case Decimal():
            # The reduced fraction is the same for 1.0 and 1.00.
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
        f"a row cannot hold {value!r}; got {type(value).__name__}; allowed: what a column of a Spark table gives"
    )
