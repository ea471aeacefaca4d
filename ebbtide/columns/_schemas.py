"""Parts of schemas and of nested types."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa


def columns_named(columns: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return some of the columns, in the order of the names."""
    fields = [columns.field(name) for name in names]
    return pa.schema(fields)


def inner_fields(type_: pa.DataType) -> list[pa.Field]:
    """Return the fields within a type: a list's items, a map's entries; none for a plain type."""
    numbers = range(type_.num_fields)
    return [type_.field(number) for number in numbers]
