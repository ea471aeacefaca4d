"""Finds the keys that a bad record names, if its bytes can be parsed: in rows at any depth, and in a topic record's key."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from ebbtide.formats import BadRecordError, Coding, parse_exactly

MOST_DEPTH = 16
"""Maximum levels of nesting, and of JSON text within JSON, that are searched."""


def keys_named(raw: bytes, key: pa.Schema) -> pa.Table:
    """Return the keys that a record names, in the key's types; values of other types are ignored.

    Args:
        raw: The record's bytes; none are named if they are not a JSON object.
        key: The key's columns.

    Example:
        >>> keys_named(b'{"after": {"id": 1, "n": "x"}, "before": null}', pa.schema([("id", pa.int64())])).to_pylist()
        [{'id': 1}]
    """
    try:
        value = parse_exactly(raw)
    except BadRecordError:
        value = {}
    found = list(_found(value, key.names, 0))
    columns = []
    fits = [True] * len(found)
    for number, field in enumerate(key):
        own = [values[number] for values in found]
        column, misfits = Coding().convert(own, field.type)
        columns.append(column)
        for index in misfits:
            fits[index] = False
    fields = [field.with_nullable(True) for field in key]
    keys = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    is_key = pa.array(fits, pa.bool_())
    return keys.filter(is_key)


def _found(value: Any, key: Sequence[str], depth: int) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the key's columns of each object that has all of them."""
    if depth > MOST_DEPTH:
        return
    if isinstance(value, dict):
        own = _own_key(value, key)
        if own is not None:
            yield own
    for inner in _within(value):
        yield from _found(inner, key, depth + 1)


def _own_key(value: dict[str, Any], key: Sequence[str]) -> tuple[Any, ...] | None:
    """Return the values of the key's columns in an object; None if one is missing."""
    if all(name in value for name in key):
        return tuple(value[name] for name in key)
    # A topic record's key may be the bare value of the only column.
    bare_key = value.get("key")
    is_record = "offset" in value and isinstance(bare_key, str | int)
    if is_record and len(key) == 1:
        return (bare_key,)
    return None


def _within(value: Any) -> Iterable[Any]:
    """Return the values within a value; a JSON text is parsed."""
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        return ()
    may_be_json = value.lstrip().startswith(("{", "["))
    if not may_be_json:
        return ()
    try:
        return (json.loads(value),)
    except ValueError:
        return ()
