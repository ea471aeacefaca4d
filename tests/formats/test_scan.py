"""What is scanned is what the exact path decodes, whatever stands in a record; and most records are scanned."""

from __future__ import annotations

import contextlib
import copy
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from frame.circumstances import assume
from frame.thinned import thinned
from hypothesis import example, given
from hypothesis import strategies as st
from inputs.lines import batch_of, refuse_unlike_exact, scanned
from local.support import ROOT, UNAVAILABLE, change, envelope, lines_of, plain, record, shop, spec
from oracles.any_records import JSON, TEXTS, paths, replaced

from ebbtide.columns import CompiledLoop
from ebbtide.extend import PLACED_RECORDS
from ebbtide.formats._scan_decoder import ScanDecoder

pytestmark = pytest.mark.group("compiled")
SCHEMA = """id BIGINT NOT NULL, n INT, d DOUBLE, f FLOAT, price DECIMAL(6,2), name STRING NOT NULL, flag BOOLEAN, born DATE,
at TIMESTAMP, local TIMESTAMP_NTZ, small TINYINT, more STRING DEFAULT 'none', less INT DEFAULT NULL"""
ROW = {
    "id": 7, "n": 1, "d": 0.5, "f": 0.1, "price": "1.50", "name": "x", "flag": True, "born": 9, "at": "2026-01-01T00:00:00Z",
    "local": 1, "small": -3, "more": 'a"b\n', "less": 4,
}  # fmt: skip
UPDATE = envelope("u", 5, before=ROW, after=ROW | {"n": 2}, ts_ms=3, schema="public", table="t", sequence='[null,"1"]')
TOMBSTONE = json.dumps({"topic": "t", "partition": 0, "offset": 1, "key": None, "value": None})
OF_SQLSERVER = {
    "commit_lsn": "00000027:00000758:0005",
    "change_lsn": "00000027:00000758:0003",
    "event_serial_no": 2,
    "ts_ms": 3,
}
BY_COMMIT = ["source.commit_lsn", "source.change_lsn", "source.event_serial_no"]
OF_MARIADB = {"file": "bin.000003", "pos": 4, "row": 0, "table": "t", "db": "d"}
TYPES = {
    "id": ("int64", None), "n": ("int32", None), "d": ("double", None), "f": ("float", None), "name": ("string", None), "flag": ("boolean", None),
    "price": ("bytes", "org.apache.kafka.connect.data.Decimal"), "born": ("int32", "io.debezium.time.Date"),
    "at": ("string", "io.debezium.time.ZonedTimestamp"), "local": ("int64", "io.debezium.time.Timestamp"),
    "small": ("int16", None), "more": ("string", None), "less": ("int32", None),
}  # fmt: skip
FIELDS_OF_ROW = [
    {"field": field, "type": type_, **({"name": name} if name else {}), "parameters": {"scale": "2"}}
    for field, (type_, name) in TYPES.items()
]
ENCODED_ROW = ROW | {"price": "AJY="}  # 1.50


def with_schema(payload, *rows):
    """A record as Connect writes it where schemas are on; the fields of some rows in its schema."""
    fields = [{"field": row, "type": "struct", "fields": FIELDS_OF_ROW} for row in rows] or FIELDS_OF_ROW
    return {"schema": {"type": "struct", "fields": fields}, "payload": payload}


OF_EVENT = {
    "__op": "u",
    "__lsn": 5,
    "__source_ts_ms": 3,
    "__deleted": "false",
    "__table": "t",
    "__schema": "public",
    "__source_more": [{}],
}
SPECS = {
    "bare, flattened": spec(SCHEMA, source={"path": "in", "records": "value"}),
    "flattened, table, schema": spec(SCHEMA, source={"path": "in", "table": "t"}),
    "flattened, binary log": spec(SCHEMA, order={"sequence": ["_file", "_pos", "_row"]}),
    "flattened, delete": spec(SCHEMA, source={"path": "in", "table": "t"}),
    "flattened, own column": spec(SCHEMA + ", __v INT, __source_scn STRING", order={"sequence": ["source.scn"]}),
    "row's sequence": spec(SCHEMA, order={"sequence": ["n"]}),
    "flattened, row's sequence": spec(SCHEMA, order={"sequence": ["n", "small"]}),
    "sqlserver": spec(SCHEMA, order={"sequence": BY_COMMIT}),
    "sqlserver, snapshot": spec(SCHEMA, order={"sequence": BY_COMMIT}),
    "transactions": spec(SCHEMA, order={"sequence": ["source.gtid", "transaction.total_order"]}),
    "stated": spec(
        SCHEMA,
        order={"sequence": [{"field": "source.at", "type": "timestamp"}, {"field": "source.n", "type": "decimal"}]},
    ),
    "debezium, schema": spec(SCHEMA),
    "bare, schema": spec(SCHEMA, source={"path": "in", "records": "value"}),
    "plain, schema": plain(SCHEMA),
    "plain, row beside, schema": plain(SCHEMA, format={"type": "plain", "row": None}),
    "debezium": spec(SCHEMA),
    "table": spec(SCHEMA, source={"path": "in", "table": "t"}),
    "binary log": spec(SCHEMA, order={"sequence": ["_file", "_pos", "_row"]}),
    "event time": spec(SCHEMA, event_time="born", quarantine={"max_event_time_ahead": "1h"}),
    "bare": spec(SCHEMA, source={"path": "in", "records": "value"}),
    "plain": plain(SCHEMA),
    "plain, deletes by key": plain(SCHEMA, order={"sequence": ["n"]}),
    "plain, row beside": plain(SCHEMA, format={"type": "plain", "row": None}),
}
ENCODED_UPDATE = UPDATE | {"before": ENCODED_ROW, "after": ENCODED_ROW | {"n": 2}}
VALUES = {
    "bare, flattened": ROW | OF_EVENT,
    "flattened, table, schema": with_schema(ENCODED_ROW | OF_EVENT),
    "flattened, binary log": ROW | {"__op": "c", "__file": "bin.000003", "__source_pos": 4, "__pos": 9, "__row": 0},
    "flattened, delete": ROW | {"__deleted": "true", "__lsn": 5},
    "flattened, own column": ROW | {"__v": 1, "__op": "u", "__source_scn": "1001", "__commit_scn": "9"},
    "row's sequence": UPDATE,
    "flattened, row's sequence": ROW | OF_EVENT,
    "sqlserver": envelope("u", 1, before=ROW, after=ROW | {"n": 2}) | {"source": OF_SQLSERVER},
    "sqlserver, snapshot": envelope("r", 1, after=ROW)
    | {"source": OF_SQLSERVER | {"change_lsn": None, "event_serial_no": None}},
    "transactions": envelope("u", 1, after=ROW)
    | {"source": {"gtid": "a-b:23"}, "transaction": {"id": "1", "total_order": "7"}},
    "stated": envelope("u", 1, after=ROW) | {"source": {"at": "2026-01-01T00:00:00.123456789Z", "n": 10**17}},
    "debezium, schema": with_schema(ENCODED_UPDATE, "before", "after"),
    "bare, schema": with_schema(ENCODED_UPDATE, "before", "after"),
    "plain, schema": with_schema({"kind": "+I", "row": ENCODED_ROW}, "row"),
    "plain, row beside, schema": with_schema({"kind": "-U", **ENCODED_ROW}),
    "debezium": UPDATE,
    "table": UPDATE,
    "binary log": envelope("d", None, before=ROW, **OF_MARIADB),
    "event time": UPDATE,
    "bare": UPDATE | {"transaction": {"id": "1", "of": [1, {"a": []}, "\\"]}},
    "plain": {"kind": "+I", "row": ROW},
    "plain, deletes by key": {"kind": "-D", "row": ROW},
    "plain, row beside": {"kind": "-U", **ROW},
}

NESTED = """id BIGINT NOT NULL, tags ARRAY<STRING>, prices ARRAY<DECIMAL(6,2)>, grid ARRAY<ARRAY<INT>> DEFAULT NULL,
place STRUCT<x: DOUBLE, y: DOUBLE, at: TIMESTAMP> NOT NULL, legs ARRAY<STRUCT<n: INT, w: STRING, more: MAP<STRING, BIGINT>>>,
rates MAP<STRING, FLOAT>, days MAP<STRING, ARRAY<DATE>>, name STRING"""
NESTED_ROW = {
    "id": 7, "tags": ["a", None, 'b"\n]', ""], "prices": [1, "2.50"], "grid": [[1, 2], [], None, [3]],
    "place": {"x": 1, "y": -0.5, "at": "2026-01-01T00:00:00Z"}, "legs": [{"n": 1, "w": "{", "more": {"k": 5}}, None, {}, {"w": None}],
    "rates": {"a": 1.5, "b": None, "}": 2}, "days": {"d": [1, "2026-01-01"], "e": []}, "name": "x",
}  # fmt: skip
NESTED_TYPES = {
    "id": {"type": "int64"}, "tags": {"type": "array", "items": {"type": "string"}}, "grid": {"type": "array", "items": {"type": "array", "items": {"type": "int32"}}},
    "place": {"type": "struct", "fields": [{"field": "x", "type": "double"}, {"field": "at", "type": "string", "name": "io.debezium.time.ZonedTimestamp"}]},
    "rates": {"type": "map", "keys": {"type": "string"}, "values": {"type": "float"}},
    "days": {"type": "map", "values": {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}}}, "name": {"type": "string"},
}  # fmt: skip
FIELDS_OF_NESTED = [{"field": name, **type_} for name, type_ in NESTED_TYPES.items()]
SPECS |= {
    "bare, retractions": spec(SCHEMA, source={"path": "in", "records": "value"}, order="arrival"),
    "bare, flattened, retractions": spec(SCHEMA, source={"path": "in", "records": "value"}, order="arrival"),
    "bare, schema, retractions": spec(SCHEMA, source={"path": "in", "records": "value"}, order="arrival"),
    "plain, place": plain(SCHEMA, format={"type": "plain", "position": ["part", "seq"]}),
    "plain, row beside, place": plain(SCHEMA, format={"type": "plain", "row": None, "position": ["seq"]}),
    "nested": plain(NESTED),
    "bare, nested": spec(NESTED, source={"path": "in", "records": "value"}),
    "plain, nested, schema": plain(NESTED, format={"type": "plain", "row": None}, order={"sequence": ["id"]}),
}
VALUES |= {
    "bare, retractions": UPDATE,
    "bare, flattened, retractions": ROW | OF_EVENT | {"__op": "c"},
    "bare, schema, retractions": VALUES["bare, schema"],
    "plain, place": {"kind": "+I", "row": ROW, "part": 2**31, "seq": 0, "more": [1]},
    "plain, row beside, place": {"kind": "-D", "seq": 10**17, **ROW},
    "nested": {"kind": "+I", "row": NESTED_ROW},
    "bare, nested": envelope("u", 5, before=NESTED_ROW, after=NESTED_ROW, ts_ms=3),
    "plain, nested, schema": {
        "schema": {"type": "struct", "fields": FIELDS_OF_NESTED},
        "payload": {"kind": "+I", **NESTED_ROW},
    },
}
MARKS = st.sampled_from(
    [UNAVAILABLE, [UNAVAILABLE], [[UNAVAILABLE]], {UNAVAILABLE: UNAVAILABLE}, list(UNAVAILABLE.encode()),
     {"x": -99999999, "y": -99999999.0}, {"x": -9.9999999e7, "y": -99999999}, {"x": -99999999, "y": 1}]
)  # fmt: skip


@pytest.fixture(autouse=True)
def _scan_whatever_there_is():
    assume("compiled")


def line_of(name, value, key=None):
    has_envelope = SPECS[name].format.type == "debezium" and not name.startswith("bare")
    return (record(json.dumps(value), 1, key=key) if has_envelope else json.dumps(value)).encode("utf-8", "replace")


@pytest.mark.parametrize("name", SPECS)
def test_record_of_the_form_is_scanned(name):
    decoding = SPECS[name].decoding
    records = batch_of([line_of(name, VALUES[name])] * 2)
    n_changes = 2 if VALUES[name].get("payload", VALUES[name]).get("op") == "u" and decoding.format.retract else 1
    assert scanned(decoding, records) == (2 * n_changes, 0)
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize("name", thinned(SPECS, 2))
@given(st.data())
def test_any_record_is_staged_as_by_the_exact_path(name, data):
    lines = [line_of(name, VALUES[name])]
    for _ in range(data.draw(st.integers(1, 3))):
        value = copy.deepcopy(VALUES[name])
        for _ in range(data.draw(st.integers(0, 2))):
            value = replaced(value, data.draw(st.sampled_from(paths(value))), data.draw(JSON | MARKS))
        lines.append(line_of(name, value, data.draw(st.none() | TEXTS)))
    refuse_unlike_exact(SPECS[name].decoding, batch_of(lines), wall_ms=10**12)


TYPES_WITHIN = st.recursive(
    st.sampled_from(["STRING", "INT", "BIGINT", "DOUBLE", "FLOAT", "BOOLEAN", "DATE", "TIMESTAMP", "DECIMAL(6,2)"]),
    lambda inner: (
        inner.map(lambda type_: f"ARRAY<{type_}>")
        | inner.map(lambda type_: f"MAP<STRING, {type_}>")
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda types: (
                "STRUCT<" + ", ".join(f"{name}: {type_}" for name, type_ in zip("xyz", types, strict=False)) + ">"
            )
        )
    ),
    max_leaves=4,
)
SCALARS_WITHIN = {
    "STRING": ["", "a", 'b"\\\n', "ü", "]}"], "INT": [0, -7, 2**31], "BIGINT": [1, 10**18], "DOUBLE": [0.5, -0.0, 3, 1e300], "FLOAT": [1.1, 1e39],
    "BOOLEAN": [True, False], "DATE": [1, "2026-01-31", "x"], "TIMESTAMP": [1, "2026-01-31T00:00:00Z"], "DECIMAL(6,2)": [1, "1.50", "1e1", 1.5, "12345"],
}  # fmt: skip


def values_within(type_):
    """Values of a nested type, and now and then of another."""
    if pa.types.is_list(type_):
        fitting = st.lists(values_within(type_.value_type), max_size=3)
    elif pa.types.is_map(type_):
        fitting = st.dictionaries(st.sampled_from(["a", "x", "y", "ü", ""]), values_within(type_.item_type), max_size=3)
    elif pa.types.is_struct(type_):
        fitting = st.fixed_dictionaries({}, optional={field.name: values_within(field.type) for field in type_})
    else:
        fitting = st.sampled_from(next(SCALARS_WITHIN[name] for name in SCALARS_WITHIN if type_of(name) == type_))
    return st.one_of(fitting, fitting, fitting, fitting, st.none(), MARKS, JSON)


def type_of(ddl):
    return plain(f"id BIGINT NOT NULL, v {ddl}").decoding.columns.field("v").type


@given(st.data())
def test_values_of_any_nested_type_are_staged_as_by_the_exact_path(data):
    decoding = plain(f"id BIGINT NOT NULL, v {data.draw(TYPES_WITHIN)}").decoding
    values = data.draw(st.lists(values_within(decoding.columns.field("v").type), min_size=1, max_size=4))
    lines = [change("+I", id=number, v=value) for number, value in enumerate(values)]
    spaced = json.dumps(json.loads(lines[0]), separators=(" \t, ", " : "))
    refuse_unlike_exact(decoding, batch_of([*lines, spaced.encode("utf-8", "replace")]))


@pytest.mark.parametrize(
    "row",
    [
        {"rates": '{"a":1,"a":2}'}, {"rates": '{"a":1,"\\u0061":2}'}, {"place": '{"x":1,"x":2}'}, {"place": '{"x":1,"more":2}'}, {"grid": "[[1,[]]]"},
        {"tags": "[1]"}, {"tags": '{"a":"b"}'}, {"prices": "[1.5]"}, {"legs": '[{"n":99999999999}]'}, {"grid": "[" * 33 + "]" * 33}, {"legs": "[[]]"},
    ],
)  # fmt: skip
def test_nested_value_that_is_unusual_or_does_not_fit_leaves_its_record(row):
    decoding = SPECS["nested"].decoding
    fine = line_of("nested", VALUES["nested"]).decode()
    [(name, text)] = row.items()
    odd = fine.replace(f'"{name}": {json.dumps(NESTED_ROW[name])}', f'"{name}": {text}')
    assert odd != fine
    assert scanned(decoding, batch_of([fine, odd]))[1] > 0
    refuse_unlike_exact(decoding, batch_of([fine, odd]))


def test_text_that_was_not_sent_is_scanned_and_named():
    decoding = spec("id BIGINT NOT NULL, a STRING NOT NULL, b STRING").decoding
    rows = [
        {"id": 1, "a": UNAVAILABLE, "b": UNAVAILABLE},
        {"id": 2, "a": "x", "b": UNAVAILABLE},
        {"id": 3, "a": "x", "b": "y"},
    ]
    records = batch_of([record(envelope("u", 5, after=row), 1) for row in rows])
    staged, left = ScanDecoder.of(decoding)[0].decode(records, 7, None)
    assert (staged["_unavailable"].to_pylist(), left.num_rows) == ([["a", "b"], ["b"], None], 0)
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize(
    "name",
    ["bare, schema", "plain, schema", "plain, row beside, schema", "flattened, table, schema", "plain, nested, schema"],
)
@given(st.data())
def test_any_schema_of_all_records_is_read_as_by_the_exact_path(name, data):
    value = copy.deepcopy(VALUES[name])
    of_schema = [path for path in paths(value) if path[:1] == ("schema",)]
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(of_schema))
        logical = st.sampled_from([*(each for each in TYPES.values() if each[1]), ("bytes", "io.debezium.data.Bits")])
        found = data.draw(
            JSON | logical.map(lambda pair: pair[1]) | st.sampled_from(["id", "price", "more", "payload"])
        )
        with contextlib.suppress(LookupError, TypeError):  # an earlier one has taken it away
            value = replaced(value, path, found)
    other = replaced(
        value, data.draw(st.sampled_from([each for each in paths(value) if each[:1] == ("payload",)])), data.draw(JSON)
    )
    refuse_unlike_exact(SPECS[name].decoding, batch_of([line_of(name, each) for each in (value, value, other)]))


def test_retraction_comes_before_the_row_of_its_update_and_goes_with_it():
    decoding = SPECS["bare, retractions"].decoding
    updates = [
        envelope("u", 5, before=ROW, after=ROW | {"n": 2}),
        envelope("u", 5, before={"id": 7}, after=ROW),
        envelope("u", 5, before=ROW, after=ROW | {"n": "x"}),
        envelope("u", 5, before=ROW, after=ROW | {"name": UNAVAILABLE}),
        envelope("d", 5, before=ROW),
        envelope("d", 5, before={"id": 7}),
    ]
    records = batch_of([json.dumps(update) for update in updates])
    rows, left = ScanDecoder.of(decoding)[0].decode(records, 7, None)
    kinds = [(tuple(row["_order"].values())[-1], row["_kind"], row["n"]) for row in rows.to_pylist()]
    assert kinds == [(0, "-U", 1), (0, "+U", 2), (4, "-D", 1)]
    assert left["line"].to_pylist() == [1, 2, 3, 5]
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize("name", ["row's sequence", "flattened, row's sequence"])
def test_delete_whose_sequence_is_in_its_old_row_is_left(name):
    deleted = {
        "row's sequence": envelope("d", 5, before=ROW, ts_ms=3, schema="public", table="t"),
        "flattened, row's sequence": ROW | OF_EVENT | {"__op": "d", "__deleted": "true"},
    }
    records = batch_of([line_of(name, each) for each in (VALUES[name], deleted[name], VALUES[name])])
    assert scanned(SPECS[name].decoding, records) == (2, 1)
    refuse_unlike_exact(SPECS[name].decoding, records)


def test_decimal_that_cannot_be_read_in_a_row_that_does_not_count_leaves_its_record():
    decoding = SPECS["bare, schema"].decoding
    stale = copy.deepcopy(VALUES["bare, schema"])
    stale["payload"]["before"]["price"] = "?"
    records = batch_of([line_of("bare, schema", each) for each in (VALUES["bare, schema"], stale)])
    assert scanned(decoding, records) == (1, 1)
    refuse_unlike_exact(decoding, records)


def test_records_of_another_schema_than_the_first_are_left():
    decoding = SPECS["plain, schema"].decoding
    records = batch_of([line_of("plain, schema", VALUES["plain, schema"]), line_of("plain", VALUES["plain"])])
    assert scanned(decoding, records) == (1, 1)
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize(
    "name", ["bare", "debezium", "plain", "bare, schema", "plain, schema", "bare, flattened", "nested"]
)
@given(st.lists(st.binary(max_size=4) | st.sampled_from([b'"', b"\\", b"}", b",", b"]", b"0"]), max_size=3), st.data())
def test_damaged_bytes_are_staged_as_by_the_exact_path(name, damage, data):
    line = line_of(name, VALUES[name])
    lines = [line] * 2
    for each in damage:
        at = data.draw(st.integers(0, len(line)))
        cut = data.draw(st.integers(0, 3))
        lines.append(line[:at] + each + line[at + cut :])
    refuse_unlike_exact(SPECS[name].decoding, batch_of(lines))


@pytest.mark.parametrize("table", ["customers", "orders", "price_list"])
def test_capture_of_the_shop_is_staged_as_by_the_exact_path_and_mostly_scanned(table):
    lines = lines_of(ROOT / "data" / "shop" / "capture")[:4000]
    decoding = shop(table).decoding
    refuse_unlike_exact(decoding, batch_of(lines))
    n_taken, n_left = scanned(decoding, batch_of(lines))
    assert n_taken > n_left


OF_TEXTS = plain(
    "id BIGINT NOT NULL, a DOUBLE DEFAULT NULL, b STRING DEFAULT NULL",
    format={"type": "plain", "row": None},
    ignored_columns=["x", "z"],
).decoding
HEAD = '{"kind":"+I","id":7,'
USUAL = [
    '"a":1}', '"a": -12 , "b":null }', r'"b":"\"\\\/\b\f\n\r\tü"}', '"a":999999999999999999}', '"a":1000000000000000000}', '"a":1.5e-3}',
    r'"b":"\u0041\u00e9\u20AC\uD83D\ude00\u0000z"}',
]  # fmt: skip
ODD = [
    '"a":1', '"a":1}}', '"a":1} x', '"a":1,}', ',"a":1}', '"a" 1}', '"a":}', '"a":1 "b":"x"}', '"a":1,"a":1}', '"a":01}', '"a":-}', '"a":-0}',
    '"a":1.}', '"a":.5}', '"a":1e}', '"a":+1}', '"a":NaN}', '"a":nul}', '"a":true}', '"b":"x}', '"b":"\\x"}', r'"b":"\uD83D"}', r'"b":"\uD83D\n"}', r'"b":"\uD83Dx"}', r'"b":"\uD83D\u0041"}', r'"b":"\uDE00"}', r'"b":"\u00g0"}', r'"b":"\u00', '"b":"\n"}',
    '"\\u0061":1}', '"a":[1]}', '"a":{}}', '"x":[1,]}', '"x":[}]', '"x":{]}', '"x":' + "[" * 40 + "]" * 40 + "}", '"x":' + "1" * 1001 + "}",
    '"x":[{"y":[]},[1,"]",{}]],"a":1,"z":{"a":3}}', '"b":"\\', '"b":"\\"', "'a':1}", '"a":tru', '"a":1}\x00',
]  # fmt: skip


@pytest.mark.parametrize("text", USUAL)
def test_text_of_a_record_is_scanned_and_read_as_by_the_exact_path(text):
    records = batch_of([HEAD + text] * 2)
    assert scanned(OF_TEXTS, records) == (2, 0)
    refuse_unlike_exact(OF_TEXTS, records)


@pytest.mark.parametrize("line", ["", " ", "[]", "1", "null", *(HEAD + text for text in ODD)])
def test_text_that_is_not_json_or_unusual_is_read_as_by_the_exact_path(line):
    refuse_unlike_exact(OF_TEXTS, batch_of([HEAD + USUAL[0], line, HEAD + USUAL[0]]))


@given(st.lists(st.text(st.sampled_from('{}[]":,\\ntrue0123-.eabdx \t')), max_size=4))
@example(['"x":{"x":["a",{}]},"a":-1.5E+3}'])
def test_any_text_behind_a_key_is_read_as_by_the_exact_path(texts):
    refuse_unlike_exact(OF_TEXTS, batch_of([HEAD + text for text in texts]))


@pytest.mark.parametrize("number", [10**18, 2**63 - 1, -(2**63) + 1])
def test_integer_of_nineteen_digits_is_scanned_in_a_column_and_in_a_list(number):
    decoding = plain("id BIGINT NOT NULL, a ARRAY<BIGINT>").decoding
    records = batch_of([change("+I", id=number, a=[number, -1])] * 2)
    assert scanned(decoding, records) == (2, 0)
    refuse_unlike_exact(decoding, records)
    for beyond in (2**63, 9 * 10**18 + 9 * 10**17, 10**19, -(2**63) - 1, -(2**63)):
        refuse_unlike_exact(decoding, batch_of([change("+I", id=1, a=[beyond]), change("+I", id=beyond, a=[number])]))


@given(st.text(st.characters(), max_size=8))
def test_any_text_written_with_escapes_is_read_as_by_the_exact_path(text):
    written = json.dumps(text)
    refuse_unlike_exact(OF_TEXTS, batch_of([f'{HEAD}"b":{written}}}', f'{HEAD}"x":[{written}]}}']))


def test_slice_of_a_batch_is_scanned_at_its_place():
    records = batch_of([HEAD + f'"a":{number}}}' for number in range(4)]).slice(1, 2)
    assert scanned(OF_TEXTS, records) == (2, 0)
    refuse_unlike_exact(OF_TEXTS, records)


FEW = {"id": 1, "n": 2, "notes": "x"}


def of_orders(op, lsn, **rows):
    return envelope(op, lsn, table="orders", **rows)


LEFT = {
    "key change": record(of_orders("u", 5, before=FEW | {"id": 9}, after=FEW), 1),
    "header of an old key": record(of_orders("u", 5, after=FEW), 1, old_key='{"id": 9}'),
    "header of a new key": record(of_orders("d", 5, before=FEW), 1, new_key='{"id": 9}'),
    "header of an old key in escapes": record(of_orders("u", 5, after=FEW), 1, old_key="1").replace(
        "oldkey", r"oldke\u0079"
    ),
    "truncate": record(of_orders("t", 5), 1),
    "null in writing": record("null", 1),
    "delete by its key": record(of_orders("d", 5), 1, key='{"id": 1}'),
    "unknown column": record(of_orders("c", 5, after=FEW | {"more": 1}), 1),
    "missing column": record(of_orders("c", 5, after={"id": 1, "n": 2}), 1),
    "wrong type": record(of_orders("c", 5, after=FEW | {"n": "1x"}), 1),
    "null key": record(of_orders("c", 5, after=FEW | {"id": None}), 1),
    "no position": record(of_orders("c", None, after=FEW), 1),
    "flattened, with an envelope's fields": record(of_orders("c", 5, after=FEW) | FEW | {"__op": "c", "__lsn": 5}, 1),
    "flattened by its deletion": record(of_orders("c", 5, after=FEW) | {"__deleted": None}, 1),
    "no source": record(of_orders("c", 5, after=FEW) | {"source": None}, 1),
    "old row of another type": record(of_orders("u", 5, before=FEW | {"id": True}, after=FEW), 1),
    "blank": " ",
    "too large": record(of_orders("c", 5, after=FEW | {"notes": "x" * 2000}), 1),
    "of another table": record(envelope("c", 5, after=FEW, table="others"), 1),
}


@pytest.mark.parametrize("name", LEFT)
def test_record_that_is_not_of_the_form_is_left(name):
    of = spec("id BIGINT NOT NULL, n INT, notes STRING", source={"path": "in", "table": "orders"})
    decoding = replace(of.decoding, max_record_bytes=1000)
    fine = record(of_orders("u", 5, before=FEW, after=FEW | {"n": 3}), 1)
    records = batch_of([fine, LEFT[name], fine])
    assert scanned(decoding, records) == (2, 1)
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize("source", [{}, {"source": None}, {"source": 1}])
def test_envelope_without_a_source_is_left_where_no_position_is_needed(source):
    decoding = spec(SCHEMA, source={"path": "in", "records": "value"}, order={"sequence": ["id"]}).decoding
    without = {name: value for name, value in UPDATE.items() if name != "source"}
    records = batch_of([json.dumps(UPDATE), json.dumps(without | source)])
    assert scanned(decoding, records)[1] == 1
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize(
    ("number", "n_left"), [(16777217.000000001, 0), (1e-50, 0), (3.4028235e38, 0), (3.5e38, 1), (1e39, 1)]
)
def test_float_is_rounded_as_by_the_exact_path_and_left_where_it_is_out_of_range(number, n_left):
    decoding = plain("id BIGINT NOT NULL, f FLOAT").decoding
    records = batch_of([change("+I", id=1, f=number), change("+I", id=2, f=0.5)])
    assert scanned(decoding, records) == (2 - n_left, n_left)
    refuse_unlike_exact(decoding, records)


@pytest.mark.parametrize("value", [{"n": 2**40}, {"born": "2026-13-01"}, {"at": 3 * 10**17}])
def test_value_out_of_its_columns_range_leaves_the_batch_of(value):
    decoding = spec(SCHEMA).decoding
    records = batch_of([record(UPDATE, 1), record(envelope("c", 5, after=ROW | value), 1)])
    assert scanned(decoding, records) == (0, 2)
    refuse_unlike_exact(decoding, records)


def test_records_of_another_topic_are_neither_scanned_nor_left():
    decoding = spec(SCHEMA, source={"path": "in", "topic": "others"}).decoding
    assert scanned(decoding, batch_of([record(UPDATE, 1), TOMBSTONE])) == (0, 0)


def test_unknown_columns_are_named_once_they_are_learnt():
    decoding = spec(SCHEMA).decoding
    line = record(envelope("c", 5, after=ROW | {"new": 1, "other": [2]}), 1)
    [first, second] = [batch_of([line] * 3)] * 2
    rows = pa.Table.from_batches(decoding.decode([first, second], step=7, wall_ms=None))
    assert set(rows["_ignored"].to_pylist()) == {"new,other"}
    refuse_unlike_exact(decoding, batch_of([line] * 2))
    learnt, left = ScanDecoder.of(decoding, ["new", "other"])[0].decode(batch_of([line]), 7, None)
    assert (learnt["_ignored"].to_pylist(), left.num_rows) == (["new,other"], 0)


@pytest.mark.parametrize("names", [["more"], ["less", "more"]])
def test_unknown_columns_of_some_records_are_named_with_these(names):
    decoding = plain().decoding
    rows = [{}, {"more": 1}, dict.fromkeys(names, 1)]
    records = batch_of([change("+I", id=1, n=1, **row) for row in rows])
    learnt, left = ScanDecoder.of(decoding, names)[0].decode(records, 7, None)
    assert (learnt["_ignored"].to_pylist(), left.num_rows) == ([None, "more", ",".join(names)], 0)


def test_placed_records_are_scanned_with_their_places():
    decoding = spec(SCHEMA).decoding
    value = json.dumps(UPDATE).encode()
    columns = [["t"] * 3, [0] * 3, range(3), [value, None, value], [None] * 3, [None, None, b"{}"], [None] * 3]
    records = pa.record_batch([*columns, [2] * 3, [7, 8, 9]], schema=PLACED_RECORDS)
    rows, left = ScanDecoder.of(decoding)[0].decode(records, 7, None)
    places = {row["_kind"]: row["_origin"] for row in rows.to_pylist()}
    at = {"source": "t", "partition": 2}
    assert places == {"+U": at | {"position": 7}, "tombstone": at | {"position": 8}}
    assert left["offset"].to_pylist() == [9]
    refuse_unlike_exact(decoding, records)


def test_the_little_that_a_process_reads_is_not_scanned(monkeypatch):
    monkeypatch.setattr(ScanDecoder, "n_seen", 0)
    asked = []
    monkeypatch.setattr(CompiledLoop, "pays", lambda rows, kept_from: asked.append(kept_from) or rows >= 500)
    left = []
    for n in (300, 300, 20):
        [scan, _] = ScanDecoder.of(spec(SCHEMA).decoding)
        left.append(scan.decode(batch_of([record(UPDATE, 1)] * n), 7, None)[1].num_rows)
    assert left == [300, 0, 20]
    wide = ", ".join(f"c{number} INT" for number in range(99))
    [scan] = ScanDecoder.of(plain(f"id BIGINT NOT NULL, {wide}").decoding)
    scan.decode(batch_of([change("+I", id=1)]), 7, None)
    assert (asked[0], asked[-1]) == (3_846, 500)  # a wide row saves more


def test_source_whose_records_are_mostly_left_is_scanned_no_more():
    [scan, _] = ScanDecoder.of(spec(SCHEMA).decoding)
    scan.decode(batch_of([record(UPDATE, 1), LEFT["truncate"], LEFT["no position"]]), 7, None)
    assert scan.decode(batch_of([record(UPDATE, 1)]), 7, None)[1].num_rows == 1


@pytest.mark.parametrize(
    ("type_", "encoding", "value"),
    [
        ("BINARY", None, "+/8="),
        ("BINARY", "hex", "fbff"),
        ("ARRAY<BINARY>", None, ["+/8=", None]),
        ("STRUCT<a: BINARY, b: INT>", None, {"a": "+/8=", "b": 1}),
        ("DECIMAL(20,0)", "unsigned", -5),
        ("BIGINT", "bits", "AQI="),
        ("INT", "bits", True),
        ("DECIMAL(6,2)", "precise", "AU74"),
        ("DECIMAL(6,2)", "precise", {"scale": 2, "value": "AU74"}),
    ],
)
def test_bytes_and_encoded_values_are_scanned_too(type_, encoding, value):
    encodings = {"v": encoding} if encoding else {}
    decoding = spec(f"id BIGINT NOT NULL, v {type_}", format={"type": "debezium", "encodings": encodings}).decoding
    values = [value, None, UNAVAILABLE, value]
    records = batch_of([record(envelope("u", 5, after={"id": 1, "v": each}), 1) for each in values])
    assert scanned(decoding, records) == (4, 0)
    refuse_unlike_exact(decoding, records)
