"""Translates Avro schemas to Kafka Connect's, and Avro values to the JSON that Connect would write.

| Avro | Connect | JSON |
|---|---|---|
| `connect.name`, `connect.parameters`, `connect.type` | name, parameters, type | of that type |
| `logicalType: decimal` | `org.apache.kafka.connect.data.Decimal` | base64 of the unscaled number |
| other logical types | their Avro name | unchanged: integers, text |
| bytes, fixed | bytes | base64 |
| float, double | float, double | a number; "NaN", "Infinity", "-Infinity" |
| enum | string | text |
| a union of null and one type | that type, optional | null or the value |
| other unions, recursive types | an uncertain type | the value |
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

from fastavro import parse_schema

from ebbtide.formats._format import Json

AsJson = Callable[[Any], Any]
"""Converts a value from fastavro to JSON; may change it in place."""
Walked = tuple[Json, AsJson | None]
"""Connect's schema of a type, and the conversion of its values to JSON; None if they are JSON already."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
UNCERTAIN: Json = {"type": "", "optional": True}
"""Connect's schema of an uncertain type."""
_LOGICAL = "logical_type"
"""Name that replaces `logicalType`: with that name, fastavro would convert the values to objects."""
_CONNECT_TYPES = {
    "int": "int32",
    "long": "int64",
    "fixed": "bytes",
    "enum": "string",
    "record": "struct",
    "error": "struct",
    "null": "",
}
_WITHOUT_JSON = ("bytes", "fixed", "float", "double")
"""Types whose values are not always JSON."""


class ParsedSchema:
    """A writer's schema.

    Args:
        schemas: The schema as JSON, referenced schemas first.

    Attributes:
        avro: The schema in Avro's form.
        named: Its named types.
        connect: The schema in Connect's form.
        as_json: The conversion of its values to JSON; None if they are JSON already.

    Raises:
        fastavro.schema.SchemaParseException, UnknownType: it is not an Avro schema.
    """

    def __init__(self, schemas: Sequence[Any]) -> None:
        self.named: dict[str, Any] = {}
        self._under_way: set[str] = set()
        self._walked: dict[str, Walked] = {}
        self._compound: dict[str, Callable[[Json], Walked]] = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": self._map,
        }
        for schema in schemas:
            plain = _without_logical_types(schema)
            self.avro = parse_schema(plain, self.named)
        self.connect, self.as_json = self._walk(self.avro)

    def _walk(self, avro: Any) -> Walked:
        """Translate a type."""
        if isinstance(avro, list):
            return self._union(avro)
        if isinstance(avro, str):
            named = self.named.get(avro)
            if named is None:
                return _primitive({"type": avro})
            return self._walk(named)
        type_ = avro["type"]
        is_inner = isinstance(type_, dict | list) or type_ in self.named
        if is_inner:
            return self._walk(type_)
        compound = self._compound.get(type_, _primitive)
        return compound(avro)

    def _array(self, avro: Json) -> Walked:
        items, as_json = self._walk(avro["items"])
        described = _described(avro)
        described["items"] = items
        return described, as_json and json_form

    def _map(self, avro: Json) -> Walked:
        values, as_json = self._walk(avro["values"])
        described = _described(avro)
        described["values"] = values
        return described, as_json and json_form

    def _union(self, branches: list[Any]) -> Walked:
        types = [branch for branch in branches if branch != "null"]
        walked = [self._walk(type_) for type_ in types]
        # A union of null and one type is that type, optional; Connect has no form for any other union.
        if len(walked) == 1:
            [(connect, as_json)] = walked
            is_optional = len(types) < len(branches)
            described = connect | {"optional": is_optional}
            return described, as_json
        needs_conversion = any(as_json is not None for _, as_json in walked)
        return UNCERTAIN, json_form if needs_conversion else None

    def _record(self, avro: Json) -> Walked:
        name = avro["name"]
        if name in self._walked:
            return self._walked[name]
        if name in self._under_way:
            # The record contains itself: its schema would be infinite.
            return UNCERTAIN, json_form
        self._under_way.add(name)
        fields = []
        changing: list[tuple[str, AsJson]] = []
        for field in avro["fields"]:
            field_name = field["name"]
            connect, as_json = self._walk(field["type"])
            fields.append(connect | {"field": field_name})
            if as_json is not None:
                changing.append((field_name, as_json))
        self._under_way.discard(name)
        described = _described(avro)
        described["fields"] = fields
        as_json_record = _of_record(changing) if changing else None
        walked = described, as_json_record
        self._walked[name] = walked
        return walked


def json_form(value: Any) -> Any:
    """Return a value as JSON.

    Example:
        >>> json_form([b"a", 1.5, float("inf")])
        ['YQ==', 1.5, 'Infinity']
    """
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else _special(value)
    if isinstance(value, dict):
        return {name: json_form(item) for name, item in value.items()}
    if isinstance(value, list):
        return [json_form(item) for item in value]
    return value


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _of_record(changing: Sequence[tuple[str, AsJson]]) -> AsJson:
    def as_json(record: Any) -> Any:
        if record is not None:
            for name, of_field in changing:
                record[name] = of_field(record[name])
        return record

    return as_json


def _primitive(avro: Json) -> Walked:
    described = _described(avro)
    is_json = avro["type"] not in _WITHOUT_JSON
    return described, None if is_json else json_form


def _described(avro: Json) -> Json:
    """Return a type by Connect's names, without its inner types."""
    type_ = avro["type"]
    by_default = _CONNECT_TYPES.get(type_, type_)
    described: Json = {
        "type": avro.get("connect.type") or by_default,
        "optional": False,
    }
    logical = avro.get(_LOGICAL)
    name = avro.get("connect.name") or logical
    parameters = avro.get("connect.parameters")
    if name == "decimal":
        name = DECIMAL
    if name == DECIMAL and not parameters:
        scale = avro.get("scale", 0)
        precision = avro.get("precision")
        parameters = {
            "scale": str(scale),
            "connect.decimal.precision": str(precision),
        }
    if isinstance(name, str):
        described["name"] = name
    if isinstance(parameters, dict):
        described["parameters"] = parameters
    return described


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        renamed = {}
        for name, value in schema.items():
            new_name = _LOGICAL if name == "logicalType" else name
            renamed[new_name] = _without_logical_types(value)
        return renamed
    if isinstance(schema, list):
        return [_without_logical_types(item) for item in schema]
    return schema
