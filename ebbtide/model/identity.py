"""When two rows are equal: the identity by which a retraction finds its row, whatever the store.

| value | equal to |
|---|---|
| null | null |
| NaN | NaN, whatever its bits |
| -0.0 | -0.0, not 0.0 |
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


def identity(values: Iterable[Any]) -> tuple[Hashable, ...]:
    """Return what two rows have in common exactly if they are equal; it can be a dict's key and be stored.

    Args:
        values: The row's values.

    Example:
        >>> identity([float("nan"), None]) == identity([-float("nan"), None]), identity([0.0]) == identity([-0.0])
        (True, False)
        >>> identity([Decimal("1.0")]) == identity([Decimal("1.00")])
        True
    """
    row = tuple(values)
    return row if _PLAIN.issuperset(map(type, row)) else tuple(map(_identity, row))


def _identity(value: Any) -> Hashable:
    match value:
        case float():
            return _DOUBLE.pack(math.nan if math.isnan(value) else value) if not value or math.isnan(value) else value
        case Decimal():
            return value.as_integer_ratio()
        case list() | tuple():
            return identity(value)
        case dict():
            return tuple(sorted((identity(pair) for pair in value.items()), key=repr))
        case Hashable():
            return value
    raise TypeError(
        f"a row cannot hold {value!r}; got {type(value).__name__}; allowed: what a column of a Spark table gives"
    )
