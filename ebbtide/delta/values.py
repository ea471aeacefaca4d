"""Values of a data file as the table has them: those of partition columns, which stand in the log as text, and those of files.

Source: Delta transaction log protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import pyarrow as pa


def repeated(text: str | None, type_: pa.DataType, n_rows: int) -> pa.Array:
    """Return the values of a partition column.

    Args:
        text: The value, as the log has it; empty is null.
        type_: The column's.
        n_rows: How often it is repeated.

    Raises:
        pa.ArrowException: it is no value of this type.
    """
    if not text:
        return pa.nulls(n_rows, type_)
    if pa.types.is_binary(type_):
        raise pa.ArrowInvalid("bytes as a partition's value, which Spark and delta-rs write in different ways")
    is_instant = pa.types.is_timestamp(type_) and type_.tz is not None
    if is_instant and not text.endswith("Z"):
        raise pa.ArrowInvalid(
            f"'{text}' as a partition's value: a time without a zone, which only its writer's session says"
        )
    value = pa.scalar(text).cast(type_)
    return pa.repeat(value, n_rows)


def fitted(values: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """Return the values of a file's column in the table's type.

    Raises:
        pa.ArrowException: they do not fit.
    """
    if _has_other_case(values.type, type_):
        raise pa.ArrowInvalid(f"fields of {values.type} that differ by case alone")  # a cast would make them null
    return values.cast(type_)


def _has_other_case(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether nested fields of two types have names that differ by case alone."""
    stored_fields = [stored.field(number) for number in range(stored.num_fields)]
    wanted_fields = [wanted.field(number) for number in range(wanted.num_fields)]
    pairs = list(zip(stored_fields, wanted_fields, strict=False))
    if pa.types.is_struct(stored):
        by_name = {field.name.lower(): field for field in wanted_fields}
        pairs = [(field, by_name[field.name.lower()]) for field in stored_fields if field.name.lower() in by_name]
        if any(field.name != other.name for field, other in pairs):
            return True
    return any(_has_other_case(field.type, other.type) for field, other in pairs)
