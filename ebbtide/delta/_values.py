"""Converts values of a data file to the table's types: partition columns, which the log has as text, and the file's columns.

Source: Delta transaction log protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import pyarrow as pa

from ebbtide.columns import inner_fields


class UnfitValuesError(pa.ArrowInvalid):
    """Raised for values that do not fit, without quoting them: they may be personal, and Arrow's messages quote them."""


def repeated(text: str | None, type_: pa.DataType, n_rows: int) -> pa.Array:
    """Return the values of a partition column.

    Args:
        text: The value, as in the log; empty is null.
        type_: Type of the column.
        n_rows: Number of rows.

    Raises:
        pa.ArrowException: it is not a value of this type.
    """
    if not text:
        return pa.nulls(n_rows, type_)
    if pa.types.is_binary(type_):
        raise UnfitValuesError("bytes as a partition's value, which Spark and delta-rs write in different ways")
    is_instant = pa.types.is_timestamp(type_) and type_.tz is not None
    if is_instant and not text.endswith("Z"):
        raise UnfitValuesError(
            "a partition's value that is a time without a zone, which only its writer's session says"
        )
    value = pa.scalar(text).cast(type_)
    return pa.repeat(value, n_rows)


def fitted(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Cast the values of a file's column to the table's type.

    Raises:
        pa.ArrowException: they do not fit.
    """
    if _has_other_case(values.type, type_):
        # A cast matches nested fields by exact name, and would silently return null for these.
        raise UnfitValuesError(f"fields of {values.type} that differ by case alone")
    return values.cast(type_)


def _has_other_case(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether nested fields of two types have names that differ only by case."""
    stored_fields = inner_fields(stored)
    wanted_fields = inner_fields(wanted)
    # Fields of structs correspond by name, those of lists and maps by position.
    if not pa.types.is_struct(stored):
        pairs = zip(stored_fields, wanted_fields, strict=False)
        return any(_has_other_case(left.type, right.type) for left, right in pairs)
    wanted_by_name = {field.name.lower(): field for field in wanted_fields}
    for field in stored_fields:
        match = wanted_by_name.get(field.name.lower())
        if match is None:
            continue
        has_other_name = field.name != match.name
        if has_other_name or _has_other_case(field.type, match.type):
            return True
    return False
