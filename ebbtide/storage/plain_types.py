"""Arrow's types as Delta has them: another writer may note in a file that it had the same values in another layout.

A Parquet file can hold the Arrow schema of its writer, and a reader then gets strings as views, dictionaries or with 64-bit offsets,
and lists in as many forms. Arrow has not all functions for all of these: strings as views cannot be taken by their positions.
"""

from __future__ import annotations

import pyarrow as pa

_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_STRINGS = (pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


def with_plain_types(rows: pa.Table) -> pa.Table:
    """Return the same rows without views, dictionaries, 64-bit offsets and extension types, at any depth.

    Raises:
        pa.ArrowException: Arrow cannot convert them.
    """
    wanted = pa.schema([field.with_type(plain_type(field.type)) for field in rows.schema])
    return rows if wanted.equals(rows.schema) else rows.cast(wanted)


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Return the plain type of the same values.

    Raises:
        pa.ArrowNotImplementedError: there are views of lists in it.

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
    # Views of lists: Arrow 26 casts them without an error, and loses items.
    raise pa.ArrowNotImplementedError(f"values of {type_}")


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))
