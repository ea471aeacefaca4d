"""Avro schemas as Kafka Connect's, and Avro values as the JSON that Connect would have written of them.

| Avro | Connect | JSON |
|---|---|---|
| `connect.name`, `connect.parameters`, `connect.type` | name, parameters, type | as that says |
| `logicalType: decimal` | `org.apache.kafka.connect.data.Decimal` | base64 of the unscaled number |
| other logical types | their Avro name | as they are: integers, text |
| bytes, fixed | bytes | base64 |
| float, double | float, double | a number; "NaN", "Infinity", "-Infinity" |
| enum | string | text |
| a union of null and one type | that type, optional | null or the value |
| other unions, types within themselves | a type that is not certain | the value |
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from typing import Any

from fastavro import parse_schema

from ebbtide.formats.format import Json

AsJson = Callable[[Any], Any]
"""Turns a value as it was read into its JSON; may change it in place."""
Walked = tuple[Json, AsJson | None]
"""Connect's schema of a type, and what makes JSON of its values; None where they are JSON."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"
UNCERTAIN: Json = {"type": "", "optional": True}
"""Connect's schema of what has no certain one."""
_LOGICAL = "logical_type"
"""What `logicalType` is called here: fastavro would make objects of the values."""
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
        schemas: It, after those that it refers to, as JSON.

    Raises:
        fastavro.schema.SchemaParseException, UnknownType: it is none.
    """

    def __init__(self, schemas: Sequence[Any]) -> None:
        self._named: dict[str, Any] = {}
        self._under_way: set[str] = set()
        self._walked: dict[str, Walked] = {}
        self._compound: dict[str, Callable[[Json], Walked]] = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": self._map,
        }
        for schema in schemas:
            self.avro = parse_schema(_without_logical_types(schema), self._named)
        self.connect, self.as_json = self._walk(self.avro)

    def _walk(self, avro: Any) -> Walked:
        """Return Connect's schema of a type, and what makes JSON of its values; None where they are JSON."""
        if isinstance(avro, list):
            return self._union(avro)
        if isinstance(avro, str):
            named = self._named.get(avro)
            return _primitive({"type": avro}) if named is None else self._walk(named)
        type_ = avro["type"]
        is_inner = isinstance(type_, dict | list) or type_ in self._named
        if is_inner:
            return self._walk(type_)
        compound = self._compound.get(type_, _primitive)
        return compound(avro)

    def _array(self, avro: Json) -> Walked:
        items, as_json = self._walk(avro["items"])
        return {**_described(avro), "items": items}, as_json and json_form

    def _map(self, avro: Json) -> Walked:
        values, as_json = self._walk(avro["values"])
        return {**_described(avro), "values": values}, as_json and json_form

    def _union(self, branches: list[Any]) -> Walked:
        others = [branch for branch in branches if branch != "null"]
        walked = [self._walk(branch) for branch in others]
        if len(walked) == 1:
            [(connect, as_json)] = walked
            return {**connect, "optional": len(others) < len(branches)}, as_json
        is_json = all(as_json is None for _, as_json in walked)
        return UNCERTAIN, None if is_json else json_form

    def _record(self, avro: Json) -> Walked:
        name = avro["name"]
        if name in self._walked:
            return self._walked[name]
        if name in self._under_way:
            return UNCERTAIN, json_form
        self._under_way.add(name)
        fields = []
        changing: list[tuple[str, AsJson]] = []
        for field in avro["fields"]:
            connect, as_json = self._walk(field["type"])
            fields.append({**connect, "field": field["name"]})
            if as_json is not None:
                changing.append((field["name"], as_json))
        self._under_way.discard(name)
        self._walked[name] = {**_described(avro), "fields": fields}, _of_record(changing) if changing else None
        return self._walked[name]


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
        return {name: json_form(each) for name, each in value.items()}
    if isinstance(value, list):
        return [json_form(each) for each in value]
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
    return _described(avro), json_form if avro["type"] in _WITHOUT_JSON else None


def _described(avro: Json) -> Json:
    """Return a type by Connect's names, without what is in it."""
    type_ = avro["type"]
    connect_type = avro.get("connect.type") or _CONNECT_TYPES.get(type_, type_)
    described: Json = {"type": connect_type, "optional": False}
    logical = avro.get(_LOGICAL)
    name = avro.get("connect.name") or logical
    parameters = avro.get("connect.parameters")
    if name == "decimal":
        name = DECIMAL
    if name == DECIMAL and not parameters:
        parameters = {"scale": str(avro.get("scale", 0)), "connect.decimal.precision": str(avro.get("precision"))}
    if isinstance(name, str):
        described["name"] = name
    if isinstance(parameters, dict):
        described["parameters"] = parameters
    return described


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            _LOGICAL if name == "logicalType" else name: _without_logical_types(each) for name, each in schema.items()
        }
    if isinstance(schema, list):
        return [_without_logical_types(each) for each in schema]
    return schema
