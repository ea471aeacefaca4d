"""Values that were not sent: each form of the mark, in each type of a schema, on each path; and values that are like it, and are data."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from hashlib import md5
from typing import Any

import pyarrow as pa
import pytest
from frame.circumstances import assume
from hypothesis import given
from hypothesis import strategies as st
from inputs.avro_support import DECIMAL, OF_SHOP, avro, batch, envelope_of
from inputs.avro_support import record as avro_record
from inputs.lines import staged
from local.support import UNAVAILABLE, envelope, plain, record, spec

from ebbtide.ddl import type_ddl
from ebbtide.formats import Coding, Unavailable
from ebbtide.testing import MemoryPipeline

pytestmark = pytest.mark.group("compiled")
PLACEHOLDERS = [UNAVAILABLE, "__nicht_gesendet_é__", "hex:00ff10deadbeef00aa", "-"]
SCHEMA = """id BIGINT NOT NULL, n INT, t STRING, i BIGINT, flag BOOLEAN, price DECIMAL(10,2), x DOUBLE, day DATE, at TIMESTAMP,
local TIMESTAMP_NTZ, raw BINARY, texts ARRAY<STRING>, raws ARRAY<BINARY>, ints ARRAY<INT>, longs ARRAY<BIGINT>, doubles ARRAY<DOUBLE>,
prices ARRAY<DECIMAL(10,2)>, days ARRAY<DATE>, times ARRAY<TIMESTAMP_NTZ>, flags ARRAY<BOOLEAN>, tags MAP<STRING, STRING>,
place STRUCT<wkb: BINARY, srid: INT>, point STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>, pair STRUCT<a: STRING, b: ARRAY<INT>>"""
TYPES = {field.name: field.type for field in spec(SCHEMA).table.columns if field.name not in ("id", "n")}
ROW: dict[str, Any] = {
    "id": 7, "n": 1, "t": "long", "i": 5, "flag": True, "price": "1.50", "x": 0.5, "day": 9, "at": "2026-01-01T00:00:00Z", "local": 1,
    "raw": "AP8=", "texts": ["a"], "raws": ["AP8="], "ints": [7, 8], "longs": [2**40], "doubles": [0.5], "prices": ["1.50"], "days": [1],
    "times": [1], "flags": [True], "tags": {"k": "v"}, "place": {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": 4326},
    "point": {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}, "pair": {"a": "x", "b": [1]},
}  # fmt: skip
GEOMETRY = "AQEAACDmEAAAAAAA/IPXl8EAAAD8g9eXwQ=="
GEOGRAPHY = base64.b64encode(bytes.fromhex("0101000020E61000000C21E7FDFF7F66401842CEFBFF7F5640")).decode()
POINT = base64.b64encode(struct.pack("<BIdd", 1, 1, -99999999, -99999999)).decode()


def marks(placeholder: str) -> dict[str, list[Any]]:
    """What a connector writes in each column, written down again from its documents."""
    raw = Unavailable(placeholder).raw
    text = raw.decode("utf-8", "replace")
    numbers = [byte - 256 if byte > 127 else byte for byte in raw]
    coded = [base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), raw.hex()]
    one_each = [base64.b64encode(bytes([byte])).decode() for byte in raw]
    spelt: dict[str, list[Any]] = {
        "ints": [numbers],
        "longs": [numbers],
        "days": [numbers],
        "times": [numbers],
        "doubles": [[float(number) for number in numbers]],
        "prices": [numbers, one_each, [{"scale": 0, "value": coded} for coded in one_each]],
    }
    if len(raw) > 8:
        spelt["prices"].append([round(number / 100, 2) for number in numbers])
    found = {name: [text, *spelt.get(name, [])] for name in TYPES}
    found["t"].append(json.dumps({text: text}, separators=(",", ":"), ensure_ascii=False))
    found["raw"] += coded
    found["texts"] += [[text], [str(uuid.UUID(bytes=md5(raw, usedforsecurity=False).digest(), version=3))]]
    found["raws"] += [[each] for each in coded]
    found["tags"].append({text: text})
    found["place"] += [{"wkb": GEOMETRY, "srid": 4326}, {"wkb": GEOGRAPHY, "srid": 4326}]
    found["point"].append({"x": -99999999.0, "y": -99999999.0, "wkb": POINT, "srid": None})
    return found


def likenesses(placeholder: str) -> dict[str, list[Any]]:
    """Values that are like a mark, and are data."""
    raw = Unavailable(placeholder).raw
    text = raw.decode("utf-8", "replace")
    numbers = [byte - 256 if byte > 127 else byte for byte in raw]
    other = [*numbers[:-1], numbers[-1] ^ 1]
    found: dict[str, list[Any]] = {
        "t": [text + "x", "x" + text, text[:-1], f" {text}", json.dumps({text: "x"})],
        "raw": [base64.b64encode(raw + b"!").decode(), ""],
        "texts": [[text, text], [text, "x"], [], [None]],
        "ints": [other, [*numbers, 0], numbers[:-1], []],
        "longs": [other, [*numbers, 0]],
        "doubles": [[float(number) for number in other]],
        "days": [other],
        "flags": [[True] * len(raw)],
        "tags": [{text: "x"}, {"x": text}, {text: text, "x": "y"}, {}],
        "place": [{"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": -1}],
        "point": [{"x": -99999999.0, "y": 0.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None}],
    }
    if placeholder == "-":  # a short placeholder's codings are texts that a value may have
        found["t"] += ["LQ==", "2d"]
    return found


def typed(value: Any, type_: pa.DataType) -> Any:
    if "decimal" in str(type_):  # of numbers every digit counts
        value = json.loads(json.dumps(value), parse_float=str)
    array, misfits = Coding().convert([value], type_)
    assert misfits == []
    return array[0].as_py()


def decoded(of, lines, path):
    """Staged rows, by one of the paths."""
    assume("compiled" if path == "scanned" else "not compiled")
    return {row["id"]: row for row in staged(of.decoding, lines).to_pylist()}


def forms_of(row):
    yield record(envelope("u", 5, after=row), row["id"])
    yield record(row | {"__op": "u", "__lsn": 5}, row["id"])


@pytest.mark.parametrize("path", ["scanned", "exact"])
@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_every_mark_in_every_type_on_every_path_is_known_and_what_is_like_it_is_data(placeholder, path):
    of = spec(SCHEMA, format={"type": "debezium", "unavailable_value": placeholder})
    wanted = {}
    lines = []
    for is_mark, columns in ((True, marks(placeholder)), (False, likenesses(placeholder))):
        for name, values in columns.items():
            for value in values:
                for form in range(2):
                    key = len(wanted)
                    wanted[key] = (name, value, is_mark)
                    lines.append(list(forms_of(ROW | {"id": key, name: value}))[form])
    found = decoded(of, lines, path)
    for key, (name, value, is_mark) in wanted.items():
        row = found[key]
        assert row["_reason"] is None, row["_detail"]
        assert row["_unavailable"] == ([name] if is_mark else None), (name, value)
        assert row[name] == (None if is_mark else typed(value, TYPES[name])), (name, value)
        assert row["t" if name != "t" else "raw"] is not None


CONNECT = {
    "t": {"type": "string"}, "raw": {"type": "bytes"}, "ints": {"type": "array", "items": {"type": "int32"}},
    "days": {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}},
    "times": {"type": "array", "items": {"type": "int64", "name": "io.debezium.time.Timestamp"}},
    "price": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    "prices": {"type": "array", "items": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}},
    "local": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "tags": {"type": "map", "values": {"type": "string"}},
    "place": {"type": "struct", "name": "io.debezium.data.geometry.Geometry", "fields": [{"field": "wkb", "type": "bytes"}, {"field": "srid", "type": "int32"}]},
}  # fmt: skip


@pytest.mark.parametrize("path", ["scanned", "exact"])
def test_mark_in_a_record_with_a_schema_is_not_decoded_by_it(path):
    columns = {name: values for name, values in marks(UNAVAILABLE).items() if name in CONNECT}
    fields = [{"field": "id", "type": "int64"}, *({"field": name} | field for name, field in CONNECT.items())]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    names = ", ".join(f"{name} {ddl}" for name, ddl in ddl_of(columns))
    wanted = [(name, value) for name, values in columns.items() for value in values]
    lines = []
    for key, (name, value) in enumerate(wanted):
        row = {"id": key, **dict.fromkeys(columns), name: value}
        lines.append(record({"schema": schema, "payload": envelope("u", 5, after=row)}, key))
    found = decoded(spec(f"id BIGINT NOT NULL, {names}"), lines, path)
    for key, (name, value) in enumerate(wanted):
        assert (found[key]["_detail"], found[key]["_unavailable"]) == (None, [name]), (name, value)


def ddl_of(names):
    return [(name, type_ddl(TYPES[name])) for name in names]


@pytest.mark.parametrize("path", ["compiled", "not compiled"])
def test_mark_in_avro_is_known(path):
    assume(path)
    raw = UNAVAILABLE.encode()
    geometry = avro_record("Geometry", {"wkb": "bytes", "srid": ["null", "int"]})
    values = {
        "t": ("string", UNAVAILABLE),
        "raw": ("bytes", raw),
        "texts": ({"type": "array", "items": "string"}, [UNAVAILABLE]),
        "raws": ({"type": "array", "items": "bytes"}, [raw]),
        "ints": ({"type": "array", "items": "int"}, list(raw)),
        "longs": ({"type": "array", "items": "long"}, list(raw)),
        "prices": ({"type": "array", "items": DECIMAL}, [bytes([byte]) for byte in raw]),
        "times": ({"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}, list(raw)),
        "tags": ({"type": "map", "values": "string"}, {UNAVAILABLE: UNAVAILABLE}),
        "place": (geometry, {"wkb": base64.b64decode(GEOMETRY), "srid": 4326}),
    }
    schema = envelope_of({"id": "long", **{name: type_ for name, (type_, _) in values.items()}})
    row = {"id": 1, **{name: value for name, (_, value) in values.items()}}
    records = batch([avro(1, schema, {"before": None, "after": row, "source": OF_SHOP, "op": "u"})], {1: schema})
    decoding = spec("id BIGINT NOT NULL, " + ", ".join(f"{name} {ddl}" for name, ddl in ddl_of(values))).decoding
    [found] = staged(decoding, records).to_pylist()
    assert found["_unavailable"] == list(values)


NESTED = [
    ("s STRUCT<a: STRING, b: INT>", {"a": UNAVAILABLE, "b": 1}),
    ("s STRUCT<a: STRUCT<b: STRING>>", {"a": {"b": UNAVAILABLE}}),
    ("s ARRAY<STRUCT<a: STRING>>", [{"a": "x"}, {"a": UNAVAILABLE}]),
    ("s MAP<STRING, STRUCT<a: STRING>>", {"k": {"a": UNAVAILABLE}}),
]


@pytest.mark.parametrize(("column", "value"), NESTED)
def test_mark_in_a_field_of_a_struct_is_refused(column, value):
    pipeline = MemoryPipeline(spec(f"id BIGINT NOT NULL, {column}"))
    pipeline.step([record(envelope("u", 5, after={"id": 1, "s": value}))])
    assert [(bad["_reason"], pipeline.rows()) for bad in pipeline.quarantine] == [("value_not_sent", [])]


ANY_ROW = st.fixed_dictionaries({name: st.integers(0, 9) for name in TYPES})


@given(st.lists(ANY_ROW, min_size=1, max_size=4), st.sampled_from(PLACEHOLDERS), st.data())
def test_sink_shows_the_last_value_that_was_sent(updates, placeholder, data):
    pipeline = MemoryPipeline(spec(SCHEMA, format={"type": "debezium", "unavailable_value": placeholder}))
    of_mark, of_data = marks(placeholder), likenesses(placeholder)
    shown = {name: typed(ROW[name], type_) for name, type_ in TYPES.items()}
    pipeline.step([record(envelope("c", 1, after=ROW))])
    for number, update in enumerate(updates):
        row = {"id": 7, "n": number}
        for name, choice in update.items():
            if choice < 6:
                row[name] = data.draw(st.sampled_from(of_mark[name]))
            else:
                row[name] = data.draw(st.sampled_from([*of_data.get(name, []), ROW[name]]))
                shown[name] = typed(row[name], TYPES[name])
        pipeline.step([record(envelope("u", 2 + number, after=row), 1 + number)])
        assert pipeline.quarantine == []
        assert pipeline.rows() == [{"id": 7, "n": number, **shown}]


def test_by_arrival_the_row_before_has_the_value_and_without_it_the_record_is_bad():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, n INT, v STRING, l ARRAY<INT>", order="arrival"))
    old = {"id": 1, "n": 1, "v": "long", "l": [1]}
    left_out = {"id": 1, "n": 2, "v": UNAVAILABLE, "l": list(UNAVAILABLE.encode())}
    pipeline.step([record(envelope("c", None, after=old), 0)])
    pipeline.step([record(envelope("u", None, before=old, after=left_out), 1)])
    assert pipeline.rows() == [old | {"n": 2}]
    pipeline.step([record(envelope("u", None, before=left_out, after=left_out | {"n": 3}), 2)])
    pipeline.step([record(envelope("d", None, before=left_out), 3)])
    assert pipeline.rows() == [old | {"n": 2}]
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["value_not_sent"] * 2


def test_by_arrival_a_plain_row_that_leaves_a_value_out_is_bad():
    pipeline = MemoryPipeline(plain("id BIGINT NOT NULL, v STRING"))
    pipeline.step(['{"kind": "+I", "row": {"id": 1, "v": "__debezium_unavailable_value"}}'])
    assert [bad["_detail"].partition(":")[0] for bad in pipeline.quarantine] == ["v"]
    assert pipeline.rows() == []


def test_mark_says_nothing_of_the_type_of_a_column_that_the_schema_lacks():
    of = spec(
        "id BIGINT NOT NULL",
        schema_evolution_mode="evolve",
        format={"type": "debezium", "unavailable_value": "none sent"},
    )
    row = {"id": 1, "a": "none sent", "b": list(b"none sent"), "c": {"none sent": "none sent"}, "d": UNAVAILABLE}
    [found] = staged(of.decoding, [record(envelope("u", 5, after=row))]).to_pylist()
    assert json.loads(found["_types"]) == {"a": None, "b": None, "c": None, "d": "STRING"}


@pytest.mark.parametrize("placeholder", ["", "hex:", "hex:0", "hex:zz"])
def test_placeholder_that_is_none_is_refused(placeholder):
    with pytest.raises(ValueError, match="a text, or hex: and bytes in hex"):
        spec(format={"type": "debezium", "unavailable_value": placeholder})
