"""Avro by a registry's schemas: what each type becomes, and bytes that fit no schema."""

import json
from datetime import date, datetime
from decimal import Decimal

import pytest
from frame.circumstances import assume
from hypothesis import given
from hypothesis import strategies as st
from inputs.avro_support import DECIMAL, OF_SHOP, avro, batch, envelope_of, record, unscaled
from inputs.lines import staged
from local.support import plain, spec

from ebbtide.formats import stored_form

at = datetime.fromisoformat
NAMED = {"type": "long", "connect.version": 1}
VARIABLE = record(
    "VariableScaleDecimal",
    {"scale": "int", "value": "bytes"},
    namespace="io.debezium.data",
    **{"connect.name": "io.debezium.data.VariableScaleDecimal"},
)
TYPES = {
    # Avro's type, the column's, a value, what it becomes
    "small": ({"type": "int", "connect.type": "int16"}, "SMALLINT", 7, 7),
    "ratio": ("double", "DOUBLE", float("-inf"), float("-inf")),
    "real": (["null", "float"], "FLOAT", 0.5, 0.5),
    "flag": ("boolean", "BOOLEAN", True, True),
    "raw": ("bytes", "BINARY", b"\xff\x00", b"\xff\x00"),
    "price": (DECIMAL, "DECIMAL(14,2)", unscaled("-12.34"), Decimal("-12.34")),
    "amount": (VARIABLE, "DECIMAL(10,3)", {"scale": 3, "value": unscaled("1.234", 3)}, Decimal("1.234")),
    "born": ({"type": "int", "logicalType": "date"}, "DATE", 1, date(1970, 1, 2)),
    "in_ms": ({**NAMED, "connect.name": "io.debezium.time.Timestamp"}, "TIMESTAMP_NTZ", 1_500, at("1970-01-01T00:00:01.500")),
    "in_us": ({"type": "long", "logicalType": "timestamp-micros"}, "TIMESTAMP_NTZ", 7, at("1970-01-01T00:00:00.000007")),
    "in_ns": ({**NAMED, "connect.name": "io.debezium.time.NanoTimestamp"}, "TIMESTAMP_NTZ", 7_000, at("1970-01-01T00:00:00.000007")),
    "guid": ({"type": "string", "logicalType": "uuid"}, "STRING", "0f", "0f"),
    "color": ({"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}, "STRING", "BLUE", "BLUE"),
    "bits": ({"type": "bytes", "connect.name": "io.debezium.data.Bits"}, "INT", b"\x01\x02", 513),
    "tags": ({"type": "array", "items": DECIMAL}, "ARRAY<DECIMAL(14,2)>", [unscaled("0.01")], [Decimal("0.01")]),
    "times": ({"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}, "MAP<STRING, TIMESTAMP_NTZ>", {"a": 1}, [("a", at("1970-01-01T00:00:00.001"))]),
    "inner": (record("Inner", {"x": DECIMAL}), "STRUCT<x: DECIMAL(14,2)>", {"x": unscaled("5.00")}, {"x": Decimal("5.00")}),
}  # fmt: skip
COLUMNS = {"id": "long", **{name: avro_type for name, (avro_type, *_) in TYPES.items()}}
SCHEMA = "id BIGINT, " + ", ".join(f"{name} {type_}" for name, (_, type_, *_) in TYPES.items())
ROW = {"id": 1, **{name: value for name, (_, _, value, _) in TYPES.items()}}


def envelope(row, op="c"):
    return {"before": None, "after": row, "source": OF_SHOP, "op": op}


def test_types_of_avro_become_those_of_columns():
    decoding = spec(schema=SCHEMA, key=["id"], order={"sequence": ["_lsn"]}).decoding
    schema = envelope_of(COLUMNS)
    records = batch([avro(1, schema, envelope(ROW))], {1: schema})
    exact = staged(decoding, records)
    assert exact["_detail"].to_pylist() == [None]
    [found] = exact.select(list(TYPES)).to_pylist()
    assert found == {name: value for name, (_, _, _, value) in TYPES.items()}


def test_units_of_the_spec_give_way_to_the_schema_s_and_rest_below_them_is_bad():
    fields = {"format": {"type": "debezium", "time_units": {"at": "ms"}}, "order": {"sequence": ["_lsn"]}}
    decoding = spec(schema="id BIGINT, at TIMESTAMP_NTZ", key=["id"], **fields).decoding
    schema = envelope_of({"id": "long", "at": {**NAMED, "connect.name": "io.debezium.time.NanoTimestamp"}})
    records = batch([avro(1, schema, envelope({"id": 1, "at": ns})) for ns in (3_000_000, 3_000, 3)], {1: schema})
    rows = staged(decoding, records)
    assert rows["at"].to_pylist() == [at("1970-01-01T00:00:00.003"), at("1970-01-01T00:00:00.000003"), None]
    assert rows["_reason"].to_pylist() == [None, None, "wrong_type"]


def test_key_tells_which_row_a_delete_is_of_and_the_quarantine_keeps_json():
    decoding = spec().decoding
    schema, key = envelope_of({"id": "long", "n": ["null", "int"]}), record("Key", {"id": "long"})
    delete = avro(1, schema, envelope(None, "d"))
    keys = [avro(2, key, {"id": 4}), b'{"id": 5}', avro(3, key, {"id": 6})]
    records = batch([delete] * 3, {1: schema, 2: key, 3: {"error": "gone"}}, keys)
    rows = staged(decoding, records)
    assert rows["id"].to_pylist() == [4, 5, None]
    kept = json.loads(stored_form(records)[0].as_py())
    assert json.loads(kept["value"])["payload"]["op"] == "d"
    assert json.loads(kept["key"])["payload"] == {"id": 4}


def test_columns_that_the_schema_lacks_are_told_with_the_types_of_avro():
    decoding = spec(schema_evolution_mode="evolve").decoding
    schema = envelope_of({"id": "long", "n": ["null", "int"], "price": ["null", DECIMAL], "at": {"type": "long", "logicalType": "timestamp-millis"}})  # fmt: skip
    rows = staged(decoding, batch([avro(1, schema, envelope({"id": 1, "n": 1, "price": None, "at": 1}))], {1: schema}))
    assert json.loads(rows["_types"][0].as_py()) == {"at": "TIMESTAMP", "price": "DECIMAL(14,2)"}


@pytest.mark.parametrize("row", ["row", None])
def test_plain_rows_in_avro(row):
    decoding = plain(schema="id BIGINT, price DECIMAL(14,2)", key=["id"], format={"type": "plain", "row": row}).decoding
    columns = {"id": "long", "price": DECIMAL}
    schema = record("Change", {"kind": "string", **(columns if row is None else {"row": record("Row", columns)})})
    values = {"id": 1, "price": unscaled("7.50")}
    value = avro(1, schema, {"kind": "+I", **(values if row is None else {"row": values})})
    records = batch([value], {1: schema})
    rows = staged(decoding, records)
    assert rows.select(["id", "price"]).to_pylist() == [{"id": 1, "price": Decimal("7.50")}]
    assume("compiled")
    assert staged(decoding, records).equals(rows)


def test_schemas_that_are_none_or_cannot_be_had_are_named():
    decoding = spec().decoding
    schemas = {1: {"error": "no schema 1"}, 2: {"type": "recrd"}, 3: "string"}
    values = [avro(id_, "string", "x") for id_ in schemas] + [b"\0\0", b""]
    rows = staged(decoding, batch(values, schemas))
    assert rows["_reason"].to_pylist() == [
        "unknown_schema",
        "unknown_schema",
        "bad_schema",
        "no_magic_byte",
        "no_magic_byte",
    ]
    assert rows["_detail"][0].as_py() == "no schema 1"


def test_type_within_itself_is_no_column_and_is_read_all_the_same():
    tree = record("Tree", {"raw": "bytes", "next": ["null", "Tree"]})
    schema = envelope_of({"id": "long", "n": ["null", "int"], "tree": tree})
    decoding = spec(schema_evolution_mode="evolve").decoding
    row = {"id": 1, "n": 2, "tree": {"raw": b"a", "next": {"raw": b"b", "next": None}}}
    rows = staged(decoding, batch([avro(1, schema, envelope(row))], {1: schema}))
    assert (rows["n"].to_pylist(), rows["_types"].to_pylist()) == ([2], ['{"tree": ""}'])


@given(st.data())
def test_bytes_that_are_damaged_become_rows_or_are_bad_and_end_nothing(data):
    decoding = spec(schema=SCHEMA, key=["id"], order={"sequence": ["_lsn"]}).decoding
    schema = envelope_of(COLUMNS)
    whole = avro(1, schema, envelope(ROW))
    at = data.draw(st.integers(5, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + data.draw(st.integers(0, 3)) :]
    assert len(staged(decoding, batch([damaged], {1: schema}))) <= 1
