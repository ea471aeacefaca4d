"""Describes faults of a spec like all errors: the value got, and the allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ebbtide.spec._names import NAME

_MOST_CHARACTERS = 110
_UNIONS = ("order", "start", "ttl")
"""Fields that hold either a word or a group of fields."""
_MEMBER = re.compile(r"literal\[.*\]|[A-Z]\w*|function-\w+.*|timedelta|str")
"""Names that pydantic adds to an error's location for a member of a union."""
_FIELD = re.compile(r"([a-z_]+(?:\.[a-z_]+)*): ")
"""Pattern of the field at the beginning of a message about several fields."""
_ALLOWED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "bool_parsing": lambda _: "true or false",
    "bool_type": lambda _: "true or false",
    "dict_type": lambda _: "fields: {name: value}",
    "float_parsing": lambda _: "a number",
    "greater_than": lambda given: f"greater than {given['gt']}",
    "greater_than_equal": lambda given: f"greater than or equal to {given['ge']}",
    "int_parsing": lambda _: "a whole number",
    "int_type": lambda _: "a whole number",
    "list_type": lambda _: "a list: [value, value]",
    "literal_error": lambda given: str(given["expected"]),
    "model_attributes_type": lambda _: "fields: {name: value}",
    "model_type": lambda _: "fields: {name: value}",
    "string_pattern_mismatch": lambda given: _pattern(given["pattern"]),
    "string_type": lambda _: "text",
    "too_short": lambda given: f"at least {given['min_length']} item",
    "union_tag_invalid": lambda given: f"fields with a type: {given['expected_tags']}",
    "union_tag_not_found": lambda _: "fields with a type",
}
"""Type of an error to a function that describes the allowed values from the error's context."""


def _pattern(pattern: str) -> str:
    """Describe a pattern."""
    is_name = pattern == NAME
    return "1 to 63 lower-case letters, digits and underscores, a letter first" if is_name else f"text like {pattern}"


def without_members(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of a field, without names of union members.

    Example:
        >>> without_members(("order", "SequenceOrder", "sequence"))
        ('order', 'sequence')
    """
    kept: list[str] = []
    for name in names:
        is_member = bool(kept) and kept[-1] in _UNIONS and _MEMBER.fullmatch(name)
        if not is_member:
            kept.append(name)
    return tuple(kept)


def named_in(message: str) -> tuple[str, ...]:
    """Return the path of the field at the beginning of a message; empty if there is none.

    Example:
        >>> named_in("order.sequence: got ts; allowed: id")
        ('order', 'sequence')
    """
    found = _FIELD.match(message)
    return tuple(found[1].split(".")) if found else ()


def fault(details: Mapping[str, Any], *, is_secret: bool) -> str:
    """Describe the fault of a field.

    Args:
        details: One pydantic error.
        is_secret: The value may be a credential.
    """
    message: str = details["msg"].removeprefix("Value error, ").rstrip(".")
    if details["type"] == "missing":
        return f"{message}; docs/reference/spec.md describes it"
    if details["type"] == "extra_forbidden":
        return message
    got = "a value that is not shown" if is_secret else repr(details["input"])[:_MOST_CHARACTERS]
    allowed = _ALLOWED.get(details["type"])
    if allowed is not None:
        return f"got {got}; allowed: {allowed(details.get('ctx', {}))}"
    return message if is_secret or "got" in message.lower() else f"{message}, got {got}"
