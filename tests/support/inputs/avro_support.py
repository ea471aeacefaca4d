"""Records as Avro in Confluent's wire format, and the shop's orders coded anew as Debezium's Avro."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa
from fastavro import parse_schema, schemaless_writer

from ebbtide.extend import PLACED_RECORDS
from ebbtide.formats import with_schemas

Json = dict[str, Any]
DECIMAL = {
    "type": "bytes",
    "scale": 2,
    "precision": 14,
    "connect.version": 1,
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "14"},
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "logicalType": "decimal",
}
ORDERS: Json = {
    "order_id": "long",
    "customer_id": ["null", "long"],
    "status": "string",
    "total": ["null", DECIMAL],
    "currency": ["null", "string"],
    "notes": ["null", "string"],
    "placed_at": {"type": "string", "connect.version": 1, "connect.name": "io.debezium.time.ZonedTimestamp"},
    "updated_at": {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"},
    "ship_on": ["null", {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}],
    "meta": ["null", {"type": "string", "connect.version": 1, "connect.name": "io.debezium.data.Json"}],
}
"""The columns of the shop's orders, as Debezium's connector for Postgres has Confluent's converter write them."""
DISCOUNT = {"discount": ["null", DECIMAL]}
"""What was added on the way."""
SOURCE = {
    "version": "string",
    "connector": "string",
    "name": "string",
    "ts_ms": "long",
    "snapshot": ["null", {"type": "string", "connect.parameters": {"allowed": "true,first,last,false,incremental"}}],
    "db": "string",
    "sequence": ["null", "string"],
    "ts_us": ["null", "long"],
    "ts_ns": ["null", "long"],
    "schema": "string",
    "table": "string",
    "txId": ["null", "long"],
    "lsn": ["null", "long"],
    "xmin": ["null", "long"],
    "origin": ["null", "string"],
    "origin_lsn": ["null", "long"],
}


OF_SHOP = {
    "version": "3",
    "connector": "p",
    "name": "s",
    "db": "d",
    "schema": "public",
    "table": "t",
    "ts_ms": 5,
    "lsn": 9,
}
"""Where an event came from."""


class Registers(Protocol):
    """What gives a schema an id."""

    def put(self, subject: str, schema: Any) -> int: ...


def record(name: str, fields: Json, **more: Any) -> Json:
    """A record's schema."""
    listed = [_field(each, type_) for each, type_ in fields.items()]
    return {"type": "record", "name": name, "fields": listed, **more}


def _field(name: str, type_: Any) -> Json:
    is_optional = isinstance(type_, list) and "null" in type_
    return {"name": name, "type": type_, **({"default": None} if is_optional else {})}


def envelope_of(columns: Json) -> Json:
    """The schema of Debezium's events of a table."""
    value = record("Value", columns, **{"connect.name": "shop.public.orders.Value"})
    source = record("Source", SOURCE, namespace="io.debezium.connector.postgresql")
    block = record("block", {"id": "string", "total_order": "long"}, namespace="event")
    fields = {
        "before": ["null", value],
        "after": ["null", "Value"],
        "source": source,
        "transaction": ["null", block],
        "op": "string",
        "ts_ms": ["null", "long"],
        "ts_us": ["null", "long"],
        "ts_ns": ["null", "long"],
    }
    return record("Envelope", fields, namespace="shop.public.orders", **{"connect.name": "shop.public.orders.Envelope"})


def avro(id_: int, schema: Json, value: Any) -> bytes:
    """A value in Confluent's wire format; bytes of decimals are given as such."""
    return coded(id_, parsed(schema), value)


def parsed(schema: Json) -> Any:
    """A schema to code many values by."""
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"logical"'))
    return parse_schema(plain)


def coded(id_: int, schema: Any, value: Any) -> bytes:
    """A value by a schema that is parsed; see `avro`."""
    stream = io.BytesIO(b"\0" + id_.to_bytes(4, "big"))
    stream.seek(5)
    schemaless_writer(stream, schema, value)
    return stream.getvalue()


def unscaled(text: str, scale: int = 2) -> bytes:
    """A decimal as Connect codes it."""
    number = int(Decimal(text).scaleb(scale))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


class Orders:
    """Codes the shop's orders; the schema is another one from when `discount` was added on.

    Args:
        registry: Gets the schemas.
    """

    def __init__(self, registry: Registers) -> None:
        key = record("Key", {"order_id": "long"}, namespace="shop.public.orders")
        values = [envelope_of(ORDERS), envelope_of({**ORDERS, **DISCOUNT})]
        self._key_id = registry.put("orders-key", key)
        self._ids = [registry.put("orders-value", schema) for schema in values]
        self._key = parsed(key)
        self._schemas = [parsed(schema) for schema in values]

    def records(self, lines: Iterable[bytes], partitions: int = 3) -> list[Json]:
        """Lines that hold Kafka records as what a producer takes."""
        found = []
        for line in lines:
            given = json.loads(line)
            key = coded(self._key_id, self._key, json.loads(given["key"])) if given["key"] else None
            value = None if given["value"] is None else self._value(json.loads(given["value"]))
            found.append({"partition": zlib.crc32(key or b"") % partitions, "key": key, "value": value})
        return found

    def _value(self, event: Json) -> bytes:
        rows = [event[side] for side in ("before", "after") if event.get(side) is not None]
        version = int(any("discount" in row for row in rows))
        for row in rows:
            for column in ("total", "discount"):
                if row.get(column) is not None:
                    row[column] = unscaled(row[column])
        return coded(self._ids[version], self._schemas[version], event)


def batch(values: list[bytes], schemas: dict[int, Json], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    """Placed records with the schemas that they name; one that cannot be had is `{"error": ...}`."""
    n = len(values)
    no_headers = [[None] * n, [None] * n]
    columns = [["t"] * n, [0] * n, range(n), values, keys or [None] * n, *no_headers, [0] * n, range(n)]
    placed = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, PLACED_RECORDS, strict=True)], PLACED_RECORDS
    )
    texts = {id_: json.dumps(told if "error" in told else {"schemas": [told]}) for id_, told in schemas.items()}
    return next(with_schemas([placed], lambda ids: texts))
