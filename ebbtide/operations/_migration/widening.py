"""Widening of column types: whether a type holds all values of another."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Bits of an integer type to the digits before the point that a decimal needs for all of its values."""


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether a type holds all values of another.

    These are the pairs of the Delta protocol's "Type Widening", and, as files are written again, decimals with no digit to spare,
    and structs with more fields.

    Example:
        >>> widens(pa.int32(), pa.int64()), widens(pa.int64(), pa.int32())
        (True, False)
        >>> widens(pa.int64(), pa.decimal128(21, 2)), widens(pa.int64(), pa.decimal128(20, 2))
        (True, False)
        >>> widens(pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int16()), ("b", pa.string())]))
        True
    """
    if old == new:
        return True
    if pa.types.is_nested(old):
        return _widens_nested(old, new)
    are_integers = _are_both(pa.types.is_integer, old, new)
    are_floating = _are_both(pa.types.is_floating, old, new)
    if are_integers or are_floating:
        return bool(old.bit_width <= new.bit_width)
    # The rest are changes of kind: integers to decimals or doubles, dates to timestamps without a zone.
    if pa.types.is_integer(old):
        return _takes_integers(new, old.bit_width)
    if _are_both(pa.types.is_decimal, old, new):
        has_scale = old.scale <= new.scale
        has_digits = _whole_digits(old) <= _whole_digits(new)
        return has_scale and has_digits
    has_no_zone = pa.types.is_timestamp(new) and new.tz is None
    return has_no_zone and bool(pa.types.is_date(old))


def _widens_nested(old: pa.DataType, new: pa.DataType) -> bool:
    if _are_both(pa.types.is_struct, old, new):
        return _has_wider_fields(old, new)
    if _are_both(pa.types.is_list, old, new):
        return widens(old.value_type, new.value_type)
    if _are_both(pa.types.is_map, old, new):
        has_same_key = bool(old.key_type == new.key_type)
        return has_same_key and widens(old.item_type, new.item_type)
    return False


def _are_both(is_of_kind: Callable[[pa.DataType], bool], old: pa.DataType, new: pa.DataType) -> bool:
    return is_of_kind(old) and is_of_kind(new)


def _takes_integers(new: pa.DataType, bits: int) -> bool:
    """Return whether a decimal or floating type holds all integers of so many bits."""
    if pa.types.is_decimal(new):
        return _whole_digits(new) >= DIGITS[bits]
    # A double holds every integer of 32 bits exactly, but not every one of 64.
    return bool(pa.types.is_float64(new)) and bits <= 32


def _whole_digits(decimal: pa.Decimal128Type) -> int:
    return int(decimal.precision - decimal.scale)


def _has_wider_fields(old: pa.StructType, new: pa.StructType) -> bool:
    new_types = {column.name: column.type for column in new}
    for column in old:
        new_type = new_types.get(column.name)
        if new_type is None or not widens(column.type, new_type):
            return False
    return True
