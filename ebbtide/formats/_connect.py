"""Kafka Connect's schemas in records: the fields of a row, and the coding of their values.

| logical type | JSON | becomes |
|---|---|---|
| `org.apache.kafka.connect.data.Decimal` | base64 of the unscaled number, the scale in the schema | a decimal's text |
| `io.debezium.data.VariableScaleDecimal` | `{"scale", "value": base64}` | a decimal's text |
| `io.debezium.data.Bits` | base64, the lowest byte first | an integer |
| `io.debezium.time.*Timestamp` | an integer | the integer; the type's name gives its unit |
| the same within arrays, maps and structs | an integer | microseconds |

Logical types that exist only in Avro keep their Avro names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ebbtide.formats._columns import TimeUnit
from ebbtide.formats._encodings import read_bits, read_decimal, read_variable_decimal
from ebbtide.formats._format import BadRecordError, DecodedChange, Json, TimeUnits, shortened, under_new_names
from ebbtide.formats._unavailable import DEFAULT, Unavailable

Fields = dict[str, Json]
"""Column to its field in the schema; empty if a record has no schema."""
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
_PER_SECOND: dict[TimeUnit, int] = {
    "ms": 10**3,
    "us": 10**6,
    "ns": 10**9,
}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_ENCODED = frozenset(
    {
        DECIMAL,
        "io.debezium.data.VariableScaleDecimal",
        "io.debezium.data.Bits",
    }
)
"""Logical types whose values are encoded."""
_COLLECTIONS = ("array", "map", "struct")
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
    **dict.fromkeys((*_DAYS, "io.debezium.time.IsoDate"), "DATE"),
    **dict.fromkeys(("io.debezium.time.ZonedTimestamp", "io.debezium.time.IsoTimestamp"), "TIMESTAMP"),
    **dict.fromkeys(("io.debezium.time.Year", "io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), "INT"),
    **dict.fromkeys(("io.debezium.time.MicroTime", "io.debezium.time.NanoTime"), "BIGINT"),
    **dict.fromkeys(("io.debezium.time.MicroDuration", "io.debezium.time.NanoDuration"), "BIGINT"),
    **dict.fromkeys(_UNITS, "TIMESTAMP_NTZ"),
    **dict.fromkeys(("timestamp-millis", "timestamp-micros", "timestamp-nanos"), "TIMESTAMP"),  # instants
}
"""Logical types to column types. Any other text stays text; other types, such as bits, are uncertain."""
MOST_PRECISE = 38
"""Maximum digits of a decimal column."""


def has_schema(value: Json) -> bool:
    """Return whether a value comes with its schema: `{"schema": ..., "payload": ...}`."""
    return len(value) == 2 and "schema" in value and "payload" in value


class SharedSchema(dict[str, Any]):
    """A schema that many records have, parsed once.

    Attributes:
        rows: Field that holds a row to the row's fields, once asked for.
    """

    def __init__(self, schema: Json) -> None:
        super().__init__(schema)
        self.rows: dict[str | None, Fields] = {}


class RowFields(Fields):
    """The fields of a row in a schema, and what follows from them for each record."""

    @cached_property
    def units(self) -> TimeUnits | None:
        """See `time_units`."""
        units: TimeUnits = {}
        for column, field in self.items():
            logical_type = field.get("name")
            if logical_type in _UNITS:
                units[column] = _UNITS[logical_type]
        return units or None

    @cached_property
    def schema(self) -> ConnectSchema:
        """The `RecordSchema` of the records."""
        return ConnectSchema(self)

    @cached_property
    def coded(self) -> Fields:
        """The fields whose values `plain_value` may change or refuse."""
        return {
            column: field
            for column, field in self.items()
            if field.get("name") in _ENCODED or field.get("type") in _COLLECTIONS
        }


def row_fields(schema: Any, within: str | None = "after") -> Fields:
    """Find the row's fields in a Connect schema.

    Args:
        schema: Schema of the whole value.
        within: The field that holds the row; without such a field the value is the row itself.

    Raises:
        BadRecordError: It is not a Connect schema.
    """
    if not isinstance(schema, SharedSchema):
        return _row_fields(schema, within)
    if within not in schema.rows:
        schema.rows[within] = _row_fields(schema, within)
    return schema.rows[within]


def _row_fields(schema: Any, within: str | None) -> Fields:
    try:
        fields = fields_of(schema)
        if within in fields:
            fields = fields_of(fields[within])
        for field in fields.values():
            logical_type = field.get("name")
            hash(logical_type)  # looked up later: an unhashable one is refused here
    except (KeyError, TypeError, AttributeError) as error:
        raise BadRecordError.of(
            "bad_schema",
            "schema",
            got=shortened(schema),
            allowed="a Kafka Connect schema with fields",
        ) from error
    return RowFields(fields)


def fields_of(schema: Any) -> Fields:
    """Return the fields of a struct's schema by name."""
    fields = schema["fields"]
    return {field["field"]: field for field in fields}


def time_units(fields: Fields) -> TimeUnits | None:
    """Return the units of integer times by column, from logical types; None if no logical type gives one."""
    return fields.units if isinstance(fields, RowFields) else None


def schema_of(fields: Fields) -> ConnectSchema | None:
    """Return the schema of records with these fields; None if they have no schema."""
    return fields.schema if fields and isinstance(fields, RowFields) else None


@dataclass(frozen=True)
class ConnectSchema:
    """The `RecordSchema` of a record with a Connect schema.

    Args:
        fields: Fields of its row.
    """

    fields: Fields

    def type_of(self, column: str) -> str | None:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        if field is None:
            return None
        return _type_of(field)

    def reads_wrongly(self, column: str, type_: pa.DataType, *, is_coded: bool) -> bool:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        if field is None:
            return False
        return reads_wrongly(field, type_, is_coded=is_coded)

    def has_bytes(self, column: str) -> bool:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        return field is not None and has_bytes(field)

    def described(self, column: str) -> str:
        """See `RecordSchema`."""
        field = self.fields.get(column)
        if field is None:
            return ""
        connect_type = field.get("type")
        name = shortened(field.get("name") or connect_type)
        fitting = _type_of(field)
        if not fitting and isinstance(connect_type, str):
            fitting = _TYPES.get(connect_type, "")
        takes = f", which {fitting} takes" if fitting else ""
        return f"; the record's schema says {name}{takes}"

    def renamed(self, new_names: Mapping[str, str]) -> ConnectSchema:
        """See `RecordSchema`."""
        renamed = under_new_names(self.fields, new_names)
        return ConnectSchema(renamed)


def _type_of(field: Json) -> str:
    """Return the column type of a field, as DDL; empty if uncertain."""
    logical_type = field.get("name")
    if logical_type == DECIMAL:
        return _decimal_type(field.get("parameters") or {})
    if logical_type is not None:
        return _LOGICAL_TYPES.get(logical_type) or ("STRING" if field.get("type") == "string" else "")
    type_ = field.get("type")
    if not isinstance(type_, str):
        return ""
    return _TYPES.get(type_, "")


def has_bytes(field: Json) -> bool:
    """Return whether a field is or contains bytes."""
    if field.get("type") == "bytes":
        return True
    inner_fields = [inner for inner in _within(field) if isinstance(inner, dict)]
    return any(map(has_bytes, inner_fields))


def reads_wrongly(field: Json, type_: pa.DataType, *, is_coded: bool = False) -> bool:
    """Return whether a column would silently misread a field's values.

    DATE reads any integer as a day and TIMESTAMP as a time. BINARY reads a text by an encoding that the schema does not give.
    Values that a column refuses anyway, such as an integer in a STRING, are not checked here.

    Args:
        field: The field in the record's schema.
        type_: Type of the column.
        is_coded: The spec gives the encoding of the column's bytes.
    """
    logical_type = field.get("name")
    connect_type = field.get("type")
    has_logical_type = logical_type is not None
    is_text = connect_type == "string"
    # Compared one by one, not looked up: a logical type may be any JSON value.
    is_encoded = logical_type in tuple(_ENCODED)
    if pa.types.is_date(type_):
        is_other_type = has_logical_type and logical_type not in _DAYS
        return is_other_type and not is_text
    if pa.types.is_timestamp(type_):
        is_other_type = has_logical_type and logical_type not in tuple(_UNITS)
        return is_other_type and not is_text
    if pa.types.is_binary(type_):
        return is_encoded or (is_text and not is_coded)
    if pa.types.is_decimal(type_):
        return connect_type == "bytes" and not is_encoded
    inner_fields = _typed_within(field, type_)
    return any(reads_wrongly(inner, inner_type, is_coded=is_coded) for inner, inner_type in inner_fields)


def _typed_within(field: Json, type_: pa.DataType) -> list[tuple[Json, pa.DataType]]:
    """Return the inner fields of a collection or a struct, each with its type in the column."""
    pairs: list[tuple[Any, pa.DataType]] = []
    if pa.types.is_list(type_):
        items = field.get("items")
        pairs.append((items, type_.value_type))
    elif pa.types.is_map(type_):
        values = field.get("values")
        pairs.append((values, type_.item_type))
    elif pa.types.is_struct(type_):
        types = {column.name: column.type for column in type_}
        for inner in _within(field):
            name = inner.get("field") if isinstance(inner, dict) else None
            if isinstance(name, str) and name in types:
                pairs.append((inner, types[name]))
    return [(inner, inner_type) for inner, inner_type in pairs if isinstance(inner, dict)]


def _decimal_type(parameters: Json) -> str:
    """Return the type of a decimal by its schema's parameters; the precision is a parameter of Debezium."""
    try:
        precision = int(parameters["connect.decimal.precision"])
        scale = int(parameters["scale"])
    except (KeyError, TypeError, ValueError):
        return ""
    is_decimal = 0 <= scale <= precision <= MOST_PRECISE
    if not is_decimal or precision == 0:
        return ""
    return f"DECIMAL({precision},{scale})"


def plain_row(
    value: Any,
    side: str,
    fields: Fields,
    unavailable: Unavailable,
) -> Json | None:
    """Return a row with its logical types decoded.

    Args:
        value: The row in the record; None for null.
        side: Name of the field that holds it, for errors.
        fields: The record's schema.
        unavailable: Recognizes unsent values, which have no logical type.

    Raises:
        BadRecordError: It is not an object, or its values do not have the form that the schema gives.
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
    coded = fields.coded if isinstance(fields, RowFields) else fields
    row = dict(value)
    try:
        for column, cell in value.items():
            if column in coded and not unavailable.is_mark(cell):
                row[column] = plain_value(cell, coded[column])
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        detail = f"{side}: {error}; allowed: values in the form that the record's schema gives"
        raise BadRecordError("schema_mismatch", detail) from error
    return row


def key_row(key: str | None) -> Json | None:
    """Read a record's key, with or without a schema, as a row of the key's columns; None if it is not a row."""
    row, _ = read_key(key)
    return row


def read_key(key: str | None) -> tuple[Json | None, Fields]:
    """Read a record's key as a row, with the fields of its schema; None if it is not a row."""
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
    return plain_row(row, "key", fields, DEFAULT), fields


def with_key(change: DecodedChange, key: str, names: Sequence[str]) -> DecodedChange:
    """Return a change whose row has the columns of its key: those that it lacks are taken from the record's key.

    Args:
        change: The change.
        key: The record's key.
        names: Names of the key's columns.
    """
    row = change.row
    if row is None or row.keys() >= set(names):
        return change
    of_key, fields = read_key(key)
    taken = {name: cell for name, cell in (of_key or {}).items() if name in names and name not in row}
    if not taken:
        return change
    units = {**(time_units(fields) or {}), **(change.units or {})}
    own = change.schema.fields if isinstance(change.schema, ConnectSchema) else {}
    schema = schema_of(RowFields({**fields, **own})) or change.schema
    return replace(change, row={**taken, **row}, units=units or None, schema=schema)


def encoded_fields(fields: Fields) -> Fields:
    """Return the fields whose values are or contain encoded values."""
    return {column: field for column, field in fields.items() if _is_encoded(field)}


def _is_encoded(field: Json) -> bool:
    if field.get("name") in _ENCODED:
        return True
    # Times within a collection are converted here, whole columns by the column's unit.
    for inner in _within(field):
        is_time = inner.get("name") in _UNITS
        if is_time or _is_encoded(inner):
            return True
    return False


def _within(field: Json) -> list[Json]:
    """Return the inner fields of a collection or a struct."""
    inner = [field[part] for part in ("items", "values") if part in field]
    return [*inner, *field.get("fields", ())]


def plain_value(value: Any, field: Json) -> Any:
    """Decode decimals and bits; other values are returned unchanged and read by the column's type.

    Args:
        value: The value in the record.
        field: Its field in the schema.
    """
    logical_type = field.get("name")
    if value is None:
        return value
    if logical_type == "io.debezium.data.VariableScaleDecimal":
        number = read_variable_decimal(value)
        return str(number)
    if isinstance(value, list | dict):
        return _plain_collection(value, field)
    if isinstance(value, str):
        return _plain_text(value, field)
    return value


def _plain_text(value: str, field: Json) -> Any:
    logical_type = field.get("name")
    if logical_type == DECIMAL:
        parameters = field["parameters"]
        scale = int(parameters["scale"])
        number = read_decimal(value, scale)
        return str(number)
    if logical_type == "io.debezium.data.Bits":
        return read_bits(value)
    return value


def _plain_collection(value: list[Any] | Json, field: Json) -> Any:
    """Decode the values within arrays, maps and structs."""
    type_ = field.get("type")
    if isinstance(value, list):
        if type_ != "array":
            return value
        items = field["items"]
        return [_plain_inner(item, items) for item in value]
    if type_ == "map":
        values = field["values"]
        return {name: _plain_inner(item, values) for name, item in value.items()}
    if type_ == "struct":
        fields = fields_of(field)
        row = {}
        for name, item in value.items():
            own = fields.get(name, {})
            row[name] = _plain_inner(item, own)
        return row
    return value


def _plain_inner(value: Any, field: Json) -> Any:
    logical_type = field.get("name") or ""
    unit = _UNITS.get(logical_type)
    if unit is not None and type(value) is int:
        return in_unit(value, unit, "us")
    return plain_value(value, field)


def in_unit(time: int, given: TimeUnit, wanted: TimeUnit) -> int:
    """Return a time in another unit.

    Raises:
        ValueError: it is not a whole number of that unit.

    Example:
        >>> in_unit(7, "ms", "us")
        7000
    """
    # In integers: a float would lose the nanoseconds of today's times.
    scaled = time * _PER_SECOND[wanted]
    number, rest = divmod(scaled, _PER_SECOND[given])
    if rest:
        raise ValueError(f"a time in {given} that is not a whole number of {wanted}")
    return number
