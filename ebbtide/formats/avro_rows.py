"""Avro values straight into typed structs; see `quick`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa

from ebbtide.formats.avro import AvroRecords, WriterSchema
from ebbtide.formats.columns import TimeUnit
from ebbtide.formats.connect import encoded_fields, in_unit, plain_value, reads_wrongly, row_fields, time_units
from ebbtide.formats.format import Json
from ebbtide.formats.forms import TypedForm
from ebbtide.formats.settings import DecodingSettings

Undo = Callable[[Any], Any]
"""Turns a column's value, as Connect codes it, into what it stands for."""


class AvroRows:
    """Reads the values of a pipeline's batches.

    Args:
        form: How most records look.
        settings: Settings of the pipeline.
    """

    def __init__(self, form: TypedForm, settings: DecodingSettings) -> None:
        self._form = form
        self._units = settings.time_units
        self._types = {column.name: column.type for column in settings.columns}
        self._undoing = lru_cache(maxsize=256)(self._undoing_of)

    def read(self, records: AvroRecords, raw: bytes) -> Any:
        """Read a value as the form's struct.

        Raises:
            BadRecordError, ValueError, TypeError, msgspec.MsgspecError: it is to be looked at.
        """
        schema = records.schema_of(raw)
        payload = schema.payload(raw)
        for side, columns in self._undoing(schema):
            row = payload if side is None else payload[side]
            if row is not None:
                for column, undo in columns:
                    row[column] = undo(row[column])
        return msgspec.convert(payload, self._form.value)

    def _undoing_of(self, schema: WriterSchema) -> list[tuple[str | None, list[tuple[str, Undo]]]]:
        """Return each side that holds a row, with those of its columns whose values are not what they stand for."""
        connect = schema.parsed.connect
        undoing = []
        for side in self._form.rows:
            fields = row_fields(connect, side)
            for column, field in fields.items():
                if column in self._types and reads_wrongly(field, self._types[column]):
                    raise ValueError(f"{column}: not what its column takes; the exact path names it")
            columns: list[tuple[str, Undo]] = [
                (column, _plain(field)) for column, field in encoded_fields(fields).items()
            ]
            for column, given in (time_units(fields) or {}).items():
                wanted = self._units.get(column, "us")
                is_time = column in self._types and pa.types.is_timestamp(self._types[column])
                if is_time and wanted != given:
                    columns.append((column, _in_unit(given, wanted)))
            undoing.append((side, columns))
        return [(side, columns) for side, columns in undoing if columns]


def _plain(field: Json) -> Undo:
    return lambda value: plain_value(value, field)


def _in_unit(given: TimeUnit, wanted: TimeUnit) -> Undo:
    return lambda value: in_unit(value, given, wanted) if type(value) is int else value
