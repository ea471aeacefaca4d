"""Kafka Connect's schemas, where records carry them: which fields a row has, and how their values are written.

| logical type | JSON | becomes |
|---|---|---|
| `org.apache.kafka.connect.data.Decimal` | base64 of the unscaled number, the scale in the schema | a decimal's text |
| `io.debezium.data.VariableScaleDecimal` | `{"scale", "value": base64}` | a decimal's text |
| `io.debezium.data.Bits` | base64, the lowest byte first | an integer |
| `io.debezium.time.*Timestamp` | an integer | stays; the type's name gives its unit |
| the same within arrays, maps and structs | an integer | microseconds |

The logical types of Avro that Connect has none for stand under their Avro names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ebbtide.formats.columns import TimeUnit
from ebbtide.formats.encodings import read_bits, read_decimal, read_variable_decimal
from ebbtide.formats.format import UNAVAILABLE, UNAVAILABLE_BYTES, BadRecordError, Json, TimeUnits, shortened

Fields = dict[str, Json]
"""Column to its field in the schema; empty where a record has no schema."""
_UNITS: dict[str, TimeUnit] = {
    "io.debezium.time.Timestamp": "ms",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-millis": "ms",
    "local-timestamp-micros": "us",
    "local-timestamp-nanos": "ns",
}
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date", "date")
_PER_SECOND: dict[TimeUnit, int] = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_ENCODED = frozenset(
    {
        "org.apache.kafka.connect.data.Decimal",
        "io.debezium.data.VariableScaleDecimal",
        "io.debezium.data.Bits",
    }
)
"""Logical types whose values are not what they stand for."""
_TYPES = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "float32": "FLOAT",
    "double": "DOUBLE",
    "float64": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
}
"""Connect's types to columns."""
_LOGICAL_TYPES = {
    **dict.fromkeys(_DAYS, "DATE"),
    "io.debezium.time.ZonedTimestamp": "TIMESTAMP",
    **dict.fromkeys(("io.debezium.time.Year", "io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), "INT"),
    **dict.fromkeys(("io.debezium.time.MicroTime", "io.debezium.time.NanoTime"), "BIGINT"),
    **dict.fromkeys(("io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"), "BIGINT"),
    **dict.fromkeys(_UNITS, "TIMESTAMP_NTZ"),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros", "timestamp-nanos"), "TIMESTAMP"),  # instants
    **dict.fromkeys(("io.debezium.data.Json", "io.debezium.data.Enum", "io.debezium.data.Uuid", "uuid"), "STRING"),
}
"""Logical types to columns; those with a form of their own, such as bits, are not certain."""
MOST_PRECISE = 38
"""Digits of a decimal that a column takes."""


def has_schema(value: Json) -> bool:
    """Return whether a value comes with its schema: `{"schema": ..., "payload": ...}`."""
    return value.keys() == {"schema", "payload"}


def row_fields(schema: Any, within: str | None = "after") -> Fields:
    """Find the row's fields in a Connect schema.

    Args:
        schema: Of the whole value.
        within: The field that holds the row; where there is none, the value is the row itself.

    Raises:
        BadRecordError: It is not a Connect schema.
    """
    try:
        fields = _by_name(schema)
        if within in fields:
            fields = _by_name(fields[within])
        for field in fields.values():
            logical_type = field.get("name")
            hash(logical_type)  # looked up later: a list there is refused here
    except (KeyError, TypeError, AttributeError) as error:
        raise BadRecordError.of(
            "bad_schema",
            "schema",
            got=shortened(schema),
            allowed="a Kafka Connect schema with fields",
        ) from error
    return fields


def _by_name(schema: Any) -> Fields:
    fields = schema["fields"]
    return {field["field"]: field for field in fields}


def time_units(fields: Fields) -> TimeUnits | None:
    """Return what integers mean in the columns whose logical type says so; None where none does."""
    units: TimeUnits = {}
    for column, field in fields.items():
        logical_type = field.get("name")
        if logical_type in _UNITS:
            units[column] = _UNITS[logical_type]
    return units or None


@dataclass(frozen=True)
class ConnectSchema:
    """The `RecordSchema` of a record with a schema of Connect's.

    Args:
        fields: Of its row.
    """

    fields: Fields

    def type_of(self, column: str) -> str | None:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        return None if field is None else _type_of(field)

    def reads_wrongly(self, column: str, type_: pa.DataType) -> bool:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        return field is not None and reads_wrongly(field, type_)

    def described(self, column: str) -> str:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        if field is None:
            return ""
        connect_type = field.get("type")
        name = shortened(field.get("name") or connect_type)
        plain_type = _TYPES.get(connect_type) if isinstance(connect_type, str) else None
        fitting = _type_of(field) or plain_type
        takes = f", which {fitting} takes" if fitting else ""
        return f"; the record's schema says {name}{takes}"

    def renamed(self, new_names: Mapping[str, str]) -> ConnectSchema:
        """See `RecordSchema`."""
        return ConnectSchema({new_names.get(name, name): field for name, field in self.fields.items()})


def _type_of(field: Json) -> str:
    """Return the type that a field stands for, as DDL; empty where it is not certain."""
    logical_type = field.get("name")
    if logical_type == "org.apache.kafka.connect.data.Decimal":
        return _decimal_type(field.get("parameters") or {})
    if logical_type is not None:
        return _LOGICAL_TYPES.get(logical_type, "")
    type_ = field.get("type")
    return _TYPES.get(type_, "") if isinstance(type_, str) else ""


def reads_wrongly(field: Json, type_: pa.DataType) -> bool:
    """Return whether a column would take a field's values for something that they are not.

    An integer is a day to DATE and a time to TIMESTAMP, whatever it counts; a text is base64 to BINARY. What a column
    refuses by itself, such as an integer in a STRING, is left to it.

    Args:
        field: In the record's own schema.
        type_: The column's type.
    """
    logical_type = field.get("name")
    connect_type = field.get("type")
    is_text = connect_type == "string"
    if pa.types.is_date(type_):
        return logical_type not in (None, *_DAYS) and not is_text
    if pa.types.is_timestamp(type_):
        return logical_type not in (None, *_UNITS) and not is_text
    if pa.types.is_binary(type_):
        return logical_type in tuple(_ENCODED) or (is_text and logical_type is not None)
    if pa.types.is_decimal(type_):
        return connect_type == "bytes" and logical_type not in tuple(_ENCODED)
    return any(reads_wrongly(inner, inner_type) for inner, inner_type in _typed_within(field, type_))


def _typed_within(field: Json, type_: pa.DataType) -> list[tuple[Json, pa.DataType]]:
    """Return the fields of what a collection or a struct holds, each with its type in the column."""
    if pa.types.is_list(type_):
        pairs = [(field.get("items"), type_.value_type)]
    elif pa.types.is_map(type_):
        pairs = [(field.get("values"), type_.item_type)]
    elif pa.types.is_struct(type_):
        by_name = {each.name: each.type for each in type_}
        inner = [each for each in _within(field) if isinstance(each, dict) and isinstance(each.get("field"), str)]
        pairs = [(each, by_name[each["field"]]) for each in inner if each["field"] in by_name]
    else:
        pairs = []
    return [(each, inner_type) for each, inner_type in pairs if isinstance(each, dict)]


def _decimal_type(parameters: Json) -> str:
    """Return the type of a decimal whose schema gives its digits; the precision is Debezium's own parameter."""
    try:
        precision = int(parameters["connect.decimal.precision"])
        scale = int(parameters["scale"])
    except (KeyError, TypeError, ValueError):
        return ""
    is_decimal = 0 <= scale <= precision <= MOST_PRECISE and precision > 0
    return f"DECIMAL({precision},{scale})" if is_decimal else ""


def plain_row(value: Any, side: str, fields: Fields) -> Json | None:
    """Return a row with its logical types undone.

    Args:
        value: The row as it stands in the record; null is none.
        side: Where it stands, for messages.
        fields: The record's own schema.

    Raises:
        BadRecordError: It is not an object, or its values are not in the form that the schema gives.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRecordError.of(
            "not_a_row",
            side,
            got=shortened(value),
            allowed="an object or null",
        )
    if not fields:
        return value
    row: Json = {}
    try:
        for column, cell in value.items():
            if column in fields:
                field = fields[column]
                row[column] = plain_value(cell, field)
            else:
                row[column] = cell
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        detail = f"{side}: {error}; allowed: values in the form that the record's schema gives"
        raise BadRecordError("schema_mismatch", detail) from error
    return row


def key_row(key: str | None) -> Json | None:
    """Read a record's key, with or without its schema, as a row of the key's columns; None if it is none."""
    row, _ = read_key(key)
    return row


def read_key(key: str | None) -> tuple[Json | None, Fields]:
    """Read a record's key as a row, None if it is none, and its fields by its own schema."""
    fields: Fields = {}
    try:
        row = json.loads(key or "null")
    except (ValueError, RecursionError):
        return None, fields
    if isinstance(row, dict) and "payload" in row:
        if "schema" in row:
            fields = row_fields(row["schema"])
        row = row["payload"]
    if not isinstance(row, dict):
        return None, fields
    return plain_row(row, "key", fields), fields


def encoded_fields(fields: Fields) -> Fields:
    """Return the fields whose values are not always what they stand for."""
    return {column: field for column, field in fields.items() if _is_encoded(field)}


def _is_encoded(field: Json) -> bool:
    if field.get("name") in _ENCODED:
        return True
    return any(_is_encoded(inner) or inner.get("name") in _UNITS for inner in _within(field))


def _within(field: Json) -> list[Json]:
    """Return the fields of what a collection or a struct holds."""
    inner = [field[part] for part in ("items", "values") if part in field]
    return [*inner, *field.get("fields", ())]


def plain_value(value: Any, field: Json) -> Any:
    """Undo Connect's encoding of decimals and bits; other values are read by the column's type.

    Args:
        value: As it stands in the record.
        field: Its field in the schema.
    """
    logical_type = field.get("name")
    if value is None or value in (UNAVAILABLE, UNAVAILABLE_BYTES):
        return value
    if logical_type == "io.debezium.data.VariableScaleDecimal":
        number = read_variable_decimal(value)
        return str(number)
    if isinstance(value, list | dict):
        return _plain_collection(value, field)
    return _plain_text(value, field) if isinstance(value, str) else value


def _plain_text(value: str, field: Json) -> Any:
    logical_type = field.get("name")
    if logical_type == "org.apache.kafka.connect.data.Decimal":
        scale = int(field["parameters"]["scale"])
        number = read_decimal(value, scale)
        return str(number)
    if logical_type == "io.debezium.data.Bits":
        return read_bits(value)
    return value


def _plain_collection(value: list[Any] | Json, field: Json) -> Any:
    """Undo what stands within arrays, maps and structs."""
    type_ = field.get("type")
    if isinstance(value, list):
        return [_plain_inner(each, field["items"]) for each in value] if type_ == "array" else value
    if type_ == "map":
        return {name: _plain_inner(each, field["values"]) for name, each in value.items()}
    if type_ == "struct":
        fields = _by_name(field)
        return {name: _plain_inner(each, fields.get(name, {})) for name, each in value.items()}
    return value


def _plain_inner(value: Any, field: Json) -> Any:
    unit = _UNITS.get(field.get("name") or "")
    if unit is not None and type(value) is int:
        return in_unit(value, unit, "us")
    return plain_value(value, field)


def in_unit(time: int, given: TimeUnit, wanted: TimeUnit) -> int:
    """Return a time in another unit.

    Raises:
        ValueError: it is not a whole number of these.

    Example:
        >>> in_unit(7, "ms", "us")
        7000
    """
    number, rest = divmod(time * _PER_SECOND[wanted], _PER_SECOND[given])
    if rest:
        raise ValueError(f"a time in {given} that is no whole number of {wanted}")
    return number
