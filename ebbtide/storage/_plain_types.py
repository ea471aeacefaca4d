"""Arrow's types as Delta has them: another writer may note in a file that it had the same values in another layout.

A Parquet file can hold the Arrow schema of its writer, and a reader then gets strings as views, dictionaries or with 64-bit offsets,
and lists in as many forms. Arrow has not all functions for all of these: strings as views cannot be taken by their positions, and a
cast of views of lists loses items.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LIST_VIEWS = (pa.types.is_list_view, pa.types.is_large_list_view)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, *_LIST_VIEWS)
_STRINGS = (pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


def with_plain_types(rows: pa.Table) -> pa.Table:
    """Return the same rows without views, dictionaries, 64-bit offsets and extension types, at any depth.

    Raises:
        pa.ArrowException: Arrow cannot convert them.
    """
    wanted = pa.schema([field.with_type(plain_type(field.type)) for field in rows.schema])
    if wanted.equals(rows.schema):
        return rows
    castable = [_without_list_views(column) for column in rows.columns]
    return pa.table(castable, names=rows.column_names).cast(wanted)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the plain type of the same values.

    Raises:
        pa.ArrowNotImplementedError: it is nested in a way that Parquet does not have.

    Example:
        >>> plain_type(pa.large_list(pa.string_view()))
        ListType(list<item: string>)
    """
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type)
    if pa.types.is_dictionary(type_):
        return plain_type(type_.value_type)
    if type_.num_fields:
        return _plain_nested(type_)
    if any(is_one(type_) for is_one in _STRINGS):
        return pa.string()
    if any(is_one(type_) for is_one in _BYTES):
        return pa.binary()
    return type_


def _plain_nested(type_: pa.DataType) -> pa.DataType:
    """Return the plain type of a nested one; see `plain_type`."""
    if pa.types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field))
    if any(is_one(type_) for is_one in _LISTS):
        return pa.list_(_plain_field(type_.value_field))
    raise pa.ArrowNotImplementedError(f"values of {type_}")


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def _without_list_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with lists in place of views of lists, which Arrow's cast loses items of."""
    if not _has_list_views(column.type):
        return column
    # A column without a chunk has no type once its chunks are converted.
    chunks = column.chunks or [pa.array([], column.type)]
    return pa.chunked_array([_as_lists(chunk) for chunk in chunks])


def _has_list_views(type_: pa.DataType) -> bool:
    if any(is_one(type_) for is_one in _LIST_VIEWS):
        return True
    return any(_has_list_views(type_.field(number).type) for number in range(type_.num_fields))


def _as_lists(values: pa.Array) -> pa.Array:
    """Return an array whose views of lists, at any depth, are lists with 64-bit offsets.

    `flatten` gives the items in the order of the lists that hold them, without those of nulls: the running sum of the lists' lengths
    is where each list ends among them.
    """
    type_ = values.type
    if not _has_list_views(type_):
        return values
    is_null = values.is_null()
    if pa.types.is_struct(type_):
        children = [_as_lists(values.field(number)) for number in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, names=[field.name for field in type_], mask=is_null)
    is_map = pa.types.is_map(type_)
    lists = values
    if is_map:
        entry = pa.struct([type_.key_field, type_.item_field])
        lists = values.cast(pa.list_(entry))
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int64), ends]))
    items = lists.flatten()
    if not is_map:
        return pa.LargeListArray.from_arrays(offsets, _as_lists(items), mask=is_null)
    keys, mapped = items.flatten()
    return pa.MapArray.from_arrays(offsets.cast(pa.int32()), _as_lists(keys), _as_lists(mapped), mask=is_null)
