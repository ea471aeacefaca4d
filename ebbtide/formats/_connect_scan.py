"""Derives from a Connect schema how to scan the rows of its records."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from ebbtide.formats._connect import (
    DECIMAL,
    MOST_PRECISE,
    Fields,
    encoded_fields,
    fields_of,
    has_schema,
    reads_wrongly,
    row_fields,
    time_units,
)
from ebbtide.formats._format import BadRecordError, Json
from ebbtide.formats._parsing import parse
from ebbtide.formats._scan_schemas import SchemaReading


def schema_reading(
    head: bytes,
    row_in: str | None,
    columns: pa.Schema,
) -> SchemaReading | None:
    """Return how to scan rows with a schema; None: the exact path must read them.

    Args:
        head: Bytes of a record before its payload.
        row_in: The field that holds the row; without such a field the payload is the row.
        columns: Columns of the pipeline.
    """
    try:
        value = parse(head + b"null}")
        if not has_schema(value):  # the supposed payload is part of the schema
            return None
        fields = row_fields(value["schema"], row_in)
        read = [column for column in columns if column.name in fields]
        for column in read:
            field = fields[column.name]
            if reads_wrongly(field, column.type):
                return None
        for field in fields.values():
            _refuse_malformed(field)
        scales = _scales(fields, read)
    except (BadRecordError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if scales is None:
        return None
    units = time_units(fields) or {}
    return SchemaReading(units, scales)


def _refuse_malformed(field: Json) -> None:
    """Raise KeyError, TypeError or AttributeError if the exact path could not read values by a field or within it."""
    hash(field.get("name"))
    within = {"array": ("items",), "map": ("values",)}.get(field.get("type") or "", ())
    inner_fields = [field[part] for part in within]
    if field.get("type") == "struct":
        inner_fields += fields_of(field).values()
    for inner in inner_fields:
        _refuse_malformed(inner)


def _scales(fields: Fields, columns: Iterable[pa.Field]) -> dict[str, int] | None:
    """Return the scales of decimals by column; None if other values are encoded too."""
    decimals = {column.name for column in columns if pa.types.is_decimal(column.type)}
    scales: dict[str, int] = {}
    for name, field in encoded_fields(fields).items():
        if field.get("name") != DECIMAL or name not in decimals:
            return None
        parameters = field["parameters"]
        scale = int(parameters["scale"])
        if not 0 <= scale <= MOST_PRECISE:
            return None
        scales[name] = scale
    return scales
