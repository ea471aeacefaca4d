"""Infers types of unknown columns, if records determine them with certainty.

| in the record | type |
|---|---|
| a schema | the schema's type |
| true, false | BOOLEAN |
| an integer of 64 bits | BIGINT |
| a number with a fraction or an exponent | DOUBLE |
| text | STRING |
| null, a value that was not sent | from other records |
| an object, an array, a longer integer | uncertain |

BIGINT and DOUBLE in one step become DOUBLE; any other mix of types is uncertain.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from decimal import Decimal
from typing import Any

from ebbtide.formats._format import DecodedChange
from ebbtide.formats._unavailable import Unavailable

UNCERTAIN = ""
"""Marks an uncertain type."""


def types_text(
    change: DecodedChange,
    known: frozenset[str],
    unavailable: Unavailable,
) -> str | None:
    """Return the unknown columns of a change with their types, as JSON; None if there are none.

    Args:
        change: The change.
        known: The known columns.
        unavailable: Recognizes unsent values, which have no type.
    """
    row = change.row
    if row is None or known.issuperset(row):
        return None
    types = {}
    for name in row.keys() - known:
        type_ = change.schema.type_of(name) if change.schema else None
        if type_ is None and not unavailable.is_mark(row[name]):
            type_ = type_of_value(row[name])
        types[name] = type_
    return json.dumps(types, sort_keys=True)


def type_of_value(value: Any) -> str | None:
    """Return the type of a JSON value as DDL, empty if uncertain; None for null.

    Example:
        >>> type_of_value(True), type_of_value(7), type_of_value(2**63), type_of_value(None)
        ('BOOLEAN', 'BIGINT', '', None)
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        fits = -(2**63) <= value < 2**63
        return "BIGINT" if fits else UNCERTAIN
    if isinstance(value, float | Decimal):
        return "DOUBLE"
    if isinstance(value, str):
        return "STRING"
    return UNCERTAIN


def agreed(types: Collection[str]) -> str | None:
    """Return the type of a column from the types of its values; None if uncertain.

    Example:
        >>> agreed({"BIGINT", "DOUBLE"}), agreed({"BIGINT", "STRING"}), agreed(set())
        ('DOUBLE', None, None)
    """
    distinct = set(types)
    if distinct == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if len(distinct) != 1 or UNCERTAIN in distinct:
        return None
    return distinct.pop()
