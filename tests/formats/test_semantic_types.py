"""Each type that a record's own schema names, in each type of column: the right value, or a bad record that names the type."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from frame.circumstances import assume
from inputs.avro_support import OF_SHOP, avro, batch, envelope_of
from inputs.lines import batch_of, staged
from local.support import envelope, record, spec

from ebbtide.testing import MemoryPipeline

DEBEZIUM, CONNECT = "io.debezium", "org.apache.kafka.connect.data"
NUMBERS = ("INT", "BIGINT", "DOUBLE", "DECIMAL(12,2)")
COLUMNS = (
    *NUMBERS, "BOOLEAN", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "ARRAY<INT>", "STRUCT<a: INT>",
    "MAP<STRING, INT>",
)  # fmt: skip


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(3, "big", signed=True)).decode()


def at(us: int, zone=None) -> datetime:
    return datetime.fromtimestamp(us / 10**6, UTC).replace(tzinfo=zone)


def numbers(value: int, *but: str) -> dict:
    return {type_: value for type_ in NUMBERS if type_ not in but}


def times(value: int, us: int) -> dict:
    return {**numbers(value), "TIMESTAMP": at(us, UTC), "TIMESTAMP_NTZ": at(us)}


TYPES = {
    f"{DEBEZIUM}.time.Date": ("int32", 19_000, {**numbers(19_000), "DATE": date(2022, 1, 8)}),
    f"{CONNECT}.Date": ("int32", 19_000, {**numbers(19_000), "DATE": date(2022, 1, 8)}),
    f"{DEBEZIUM}.time.Year": ("int32", 2016, numbers(2016)),
    f"{DEBEZIUM}.time.Time": ("int32", 5_000, numbers(5_000)),
    f"{CONNECT}.Time": ("int32", 5_000, numbers(5_000)),
    f"{DEBEZIUM}.time.MicroTime": ("int64", 5_000, numbers(5_000)),
    f"{DEBEZIUM}.time.NanoTime": ("int64", 5_000, numbers(5_000)),
    f"{DEBEZIUM}.time.MicroDuration": ("int64", 5_000, numbers(5_000)),
    f"{DEBEZIUM}.time.NanoDuration": ("int64", 5_000, numbers(5_000)),
    f"{DEBEZIUM}.time.Timestamp": ("int64", 5, times(5, 5_000)),
    f"{CONNECT}.Timestamp": ("int64", 5, times(5, 5_000)),
    f"{DEBEZIUM}.time.MicroTimestamp": ("int64", 5, times(5, 5)),
    f"{DEBEZIUM}.time.NanoTimestamp": ("int64", 5_000, times(5_000, 5)),
    f"{DEBEZIUM}.time.ZonedTimestamp": (
        "string",
        "1970-01-01T00:00:01Z",
        {"STRING": "1970-01-01T00:00:01Z", "TIMESTAMP": at(10**6, UTC)},
    ),
    f"{DEBEZIUM}.time.ZonedTime": ("string", "10:00:00Z", {"STRING": "10:00:00Z"}),
    f"{DEBEZIUM}.time.Interval": ("string", "P1Y2M", {"STRING": "P1Y2M"}),
    f"{DEBEZIUM}.time.IsoDate": ("string", "2017-09-15Z", {"DATE": date(2017, 9, 15), "STRING": "2017-09-15Z"}),
    f"{DEBEZIUM}.data.Json": ("string", "{}", {"STRING": "{}"}),
    f"{DEBEZIUM}.data.Enum": ("string", "paid", {"STRING": "paid"}),
    f"{DEBEZIUM}.data.EnumSet": ("string", "a,b", {"STRING": "a,b"}),
    f"{DEBEZIUM}.data.Uuid": ("string", "abcdabcd", {"STRING": "abcdabcd"}),
    f"{DEBEZIUM}.data.Xml": ("string", "<a/>", {"STRING": "<a/>"}),
    f"{DEBEZIUM}.data.Bits": ("bytes", "AQI=", numbers(513)),
    f"{CONNECT}.Decimal": ("bytes", unscaled(85_752), {"DECIMAL(12,2)": Decimal("857.52"), "STRING": "857.52"}),
    f"{DEBEZIUM}.data.VariableScaleDecimal": (
        "struct",
        {"scale": 1, "value": unscaled(85_752)},
        {"DECIMAL(12,2)": Decimal("8575.20"), "STRING": "8575.2"},
    ),
}
"""Logical type to Connect's type, a value as JSON, and what it is in the columns that take it."""
AVRO = {"int32": "int", "int64": "long", "string": "string", "bytes": "bytes"}
IN_AVRO = [name for name, (connect_type, *_) in TYPES.items() if connect_type in AVRO]
DDL = ", ".join(f"c{number} {type_} DEFAULT NULL" for number, type_ in enumerate(COLUMNS))
DECODING = spec(f"id BIGINT NOT NULL, {DDL}").decoding


def judge(records: pa.RecordBatch, name: str) -> None:
    """Hold staged rows to the table above; the record of each has the value in one column."""
    rows = {row["_order"]["position"]: row for row in staged(DECODING, records).to_pylist(maps_as_pydicts="strict")}
    right = TYPES[name][2]
    for number, column in enumerate(COLUMNS):
        row = rows[number]
        found = row[f"c{number}"] if row["_reason"] is None else (row["_reason"], name in row["_detail"])
        assert found == right.get(column, ("wrong_type", True)), (column, row["_detail"])


@pytest.mark.parametrize("name", TYPES)
def test_json_with_a_schema_is_right_or_bad_by_the_type_s_name(name):
    connect_type, value, _ = TYPES[name]
    lines = []
    for number in range(len(COLUMNS)):
        field = {"field": f"c{number}", "type": connect_type, "name": name, "parameters": {"scale": "2"}}
        schema = {"fields": [{"field": "after", "fields": [{"field": "id", "type": "int64"}, field]}]}
        row = {"id": 1, f"c{number}": value}
        lines.append(record({"schema": schema, "payload": envelope("c", 5, after=row)}, number))
    judge(batch_of(lines), name)


@pytest.mark.parametrize("name", IN_AVRO)
def test_avro_is_right_or_bad_by_the_type_s_name_on_both_paths(name):
    connect_type, value, _ = TYPES[name]
    type_ = {"type": AVRO[connect_type], "connect.type": connect_type, "connect.name": name}
    raw = base64.b64decode(value) if connect_type == "bytes" else value
    values, schemas = [], {}
    for number in range(len(COLUMNS)):
        columns = {"id": "long", f"c{number}": {**type_, "connect.parameters": {"scale": "2"}}}
        schemas[number] = envelope_of(columns)
        event = {"before": None, "after": {"id": 1, f"c{number}": raw}, "source": OF_SHOP, "op": "c"}
        values.append(avro(number, schemas[number], event))
    records = batch(values, schemas)
    judge(records, name)
    assume("compiled")
    judge(records, name)


@pytest.mark.parametrize(
    ("type_", "field"),
    [
        ("ARRAY<DATE>", {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Year"}}),
        ("MAP<STRING, DATE>", {"type": "map", "values": {"type": "int32", "name": "io.debezium.time.Year"}}),
        (
            "STRUCT<a: DATE>",
            {"type": "struct", "fields": [{"field": "a", "type": "int32", "name": "io.debezium.time.Year"}]},
        ),
    ],
)
def test_value_within_a_collection_is_held_to_its_own_type(type_, field):
    pipeline = MemoryPipeline(spec(f"id BIGINT NOT NULL, x {type_}"))
    value = [2016] if "ARRAY" in type_ else {"a": 2016}
    schema = {"fields": [{"field": "after", "fields": [{"field": "id"}, {**field, "field": "x"}]}]}
    pipeline.step([record({"schema": schema, "payload": envelope("c", 5, after={"id": 1, "x": value})})])
    assert [each["_reason"] for each in pipeline.quarantine] == ["wrong_type"]


def test_renamed_column_is_held_to_the_schema_under_its_old_name():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, x DATE", columns={"x": {"renamed_from": "y"}}))
    year = {"field": "y", "type": "int32", "name": "io.debezium.time.Year"}
    schema = {"fields": [{"field": "after", "fields": [{"field": "id"}, year]}]}
    pipeline.step([record({"schema": schema, "payload": envelope("c", 5, after={"id": 1, "y": 2016})})])
    [bad] = pipeline.quarantine
    assert bad["_detail"] == (
        "x: got 2016; allowed: a DATE of the years 1 to 9999. BC and infinity are kept by BIGINT, or by STRING if they are text; the record's schema says 'io.debezium.time.Year', which INT takes"
    )


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_part_of_a_microsecond_says_the_way_out(type_):
    zone = "Z" if type_ == "TIMESTAMP" else ""
    pipeline = MemoryPipeline(spec(f"id BIGINT NOT NULL, x {type_}"))
    pipeline.step([record(envelope("c", 5, after={"id": 1, "x": f"2026-01-31T10:00:00.1234567{zone}"}))])
    [bad] = pipeline.quarantine
    assert bad["_detail"].endswith(
        "BC, infinity and parts of a microsecond are kept by BIGINT, or by STRING if they are text"
    )
