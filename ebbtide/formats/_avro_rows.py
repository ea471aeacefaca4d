"""Reads Avro values straight into typed structs, for the quick path."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from ebbtide.formats._avro import AvroRecords, WriterSchema
from ebbtide.formats._columns import TimeUnit
from ebbtide.formats._connect import (
    Fields,
    encoded_fields,
    has_bytes,
    in_unit,
    plain_value,
    reads_wrongly,
    row_fields,
    time_units,
)
from ebbtide.formats._encodings import BinaryEncoding, of_bytes, read_bytes
from ebbtide.formats._format import Json
from ebbtide.formats._forms import TypedForm
from ebbtide.formats._settings import DecodingSettings

Undo = Callable[[Any], Any]
"""Decodes one value of a column from Connect's coding."""
EncodedColumns = list[tuple[str, Undo]]
"""Columns that must be decoded."""


class AvroRows:
    """Reads the Avro values of a pipeline's batches.

    Args:
        form: The common form of a record.
        settings: Settings of the pipeline.
    """

    def __init__(self, form: TypedForm, settings: DecodingSettings) -> None:
        self._form = form
        self._units = settings.time_units
        self._unavailable = settings.unavailable
        self._encodings = settings.encodings
        self._types = {column.name: column.type for column in settings.columns}
        self._undoing = lru_cache(maxsize=256)(self._undoing_of)

    def read(self, records: AvroRecords, raw: bytes) -> Any:
        """Read a value as the form's struct.

        Raises:
            BadRecordError, ValueError, TypeError, msgspec.MsgspecError: the exact path must read it.
        """
        schema = records.schema_of(raw)
        payload = schema.payload(raw)
        for side, columns in self._undoing(schema):
            row = payload if side is None else payload[side]
            if row is None:
                continue
            for column, undo in columns:
                row[column] = undo(row[column])
        return msgspec.convert(payload, self._form.value)

    def _undoing_of(self, schema: WriterSchema) -> list[tuple[str | None, EncodedColumns]]:
        """Return the fields that hold rows, each with its columns that must be decoded."""
        connect = schema.parsed.connect
        undoing = []
        for side in self._form.rows:
            fields = row_fields(connect, side)
            self._refuse_misread(fields)
            columns = self._encoded_columns(fields)
            if columns:
                undoing.append((side, columns))
        return undoing

    def _refuse_misread(self, fields: Fields) -> None:
        """Raise ValueError if a column would misread its values: the exact path refuses such records."""
        for column, field in fields.items():
            type_ = self._types.get(column)
            if type_ is None:
                continue
            is_coded = of_bytes(self._encodings.get(column)) is not None
            is_nested_text = is_coded and pa.types.is_nested(type_) and not has_bytes(field)
            if is_nested_text or reads_wrongly(field, type_, is_coded=is_coded):
                raise ValueError(f"{column}: needs decoding; left to the exact path")

    def _encoded_columns(self, fields: Fields) -> EncodedColumns:
        """Return columns with encoded values, or with times in another unit than the spec's."""
        columns: EncodedColumns = []
        for column, field in encoded_fields(fields).items():
            undo = self._plain(field)
            columns.append((column, undo))
        for column, field in fields.items():
            encoding = of_bytes(self._encodings.get(column))
            if encoding is not None and not has_bytes(field):
                columns.append((column, self._as_base64(encoding)))
        units = time_units(fields) or {}
        for column, given in units.items():
            wanted = self._units.get(column, "us")
            type_ = self._types.get(column)
            if type_ is None or wanted == given:
                continue
            if pa.types.is_timestamp(type_):
                undo = _in_unit(given, wanted)
                columns.append((column, undo))
        return columns

    def _plain(self, field: Json) -> Undo:
        is_mark = self._unavailable.is_mark
        return lambda value: value if is_mark(value) else plain_value(value, field)

    def _as_base64(self, encoding: BinaryEncoding) -> Undo:
        """Return a function that encodes a text like Avro's bytes."""
        is_mark = self._unavailable.is_mark

        def undo(value: Any) -> Any:
            if not isinstance(value, str) or is_mark(value, pa.binary()):
                return value
            raw = read_bytes(value, encoding)
            return base64.b64encode(raw).decode()

        return undo


def _in_unit(given: TimeUnit, wanted: TimeUnit) -> Undo:

    def undo(value: Any) -> Any:
        if type(value) is not int:
            return value
        return in_unit(value, given, wanted)

    return undo
