"""Columns of Arrow tables as numpy arrays, and back; parts of schemas and of nested types."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns._codes import Ints, Mask, in_one_array


def ints(table: pa.Table, column: str, *, null: int = 0) -> Ints:
    """Return an integer column as numpy, nulls replaced; `a.b` names a struct's field."""
    name, _, part = column.partition(".")
    array = in_one_array(table[name])
    if part:
        array = pc.struct_field(array, part)
    filled = array.fill_null(null)
    values = filled.to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.int64)


def flags(table: pa.Table, column: str) -> Mask:
    """Return a boolean column as numpy, null as false."""
    filled = table[column].fill_null(False)
    return np.asarray(filled.to_numpy(), dtype=bool)


def is_set(table: pa.Table, column: str) -> Mask:
    """Mark the rows that have a value in a column."""
    is_valid = table[column].is_valid()
    return np.asarray(is_valid.to_numpy(), dtype=bool)


def only(table: pa.Table, is_kept: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows that a mask keeps. If it keeps all, return the table itself, since a filter would copy it."""
    keeps_all = pc.all(is_kept, skip_nulls=False, min_count=0)
    if keeps_all.as_py():
        return table
    return table.filter(is_kept)


def equals(table: pa.Table, column: str, value: str) -> Mask:
    """Mark the rows whose column equals a text; null does not."""
    is_equal = pc.equal(table[column], value)
    filled = is_equal.fill_null(False)
    return np.asarray(filled.to_numpy(), dtype=bool)


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Replace the values of a column, which keeps its position and type."""
    schema = table.schema
    index = schema.get_field_index(name)
    column = schema.field(index)
    typed_values = values.cast(column.type)
    return table.set_column(index, column, typed_values)


def entry_table(schema: pa.Schema, columns: dict[str, object], n: int) -> pa.Table:
    """Build a table of `schema` with n rows; columns that are not given are null."""
    arrays = []
    for column in schema:
        values = columns.get(column.name)
        array = _typed(values, column.type, n)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def columns_named(columns: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """Return some of the columns, in the order of the names."""
    fields = [columns.field(name) for name in names]
    return pa.schema(fields)


def inner_fields(type_: pa.DataType) -> list[pa.Field]:
    """Return the fields within a type: a list's items, a map's entries; none for a plain type."""
    numbers = range(type_.num_fields)
    return [type_.field(number) for number in numbers]


def _typed(values: object, type_: pa.DataType, n: int) -> pa.Array | pa.ChunkedArray:
    """Return values as a column of a type; n nulls for None."""
    if values is None:
        return pa.nulls(n, type_)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        is_typed = values.type == type_
        return values if is_typed else values.cast(type_)
    return pa.array(values, type_)
