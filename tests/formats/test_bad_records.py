"""Every kind of bad record is set apart with its reason, its place and its bytes; the good ones around it go on."""

import base64
import json
import math
import re
from decimal import Decimal
from functools import cache

import pytest
from inputs.lines import staged
from local.support import ROOT, change, envelope, plain, record, spec

from ebbtide import UpsertPipeline
from ebbtide.testing import MemoryPipeline

pytestmark = pytest.mark.usefixtures("scanned_or_not")

TYPES = {
    "n": "INT",
    "total": "DECIMAL(6,2)",
    "flag": "BOOLEAN",
    "f": "FLOAT",
    "d": "DOUBLE",
    "born": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "blob": "BINARY",
    "tags": "ARRAY<INT>",
    "pair": "STRUCT<a: INT>",
    "rates": "MAP<STRING, INT>",
}
SCHEMA = "id BIGINT NOT NULL, name STRING NOT NULL, " + ", ".join(f"{n} {t} DEFAULT NULL" for n, t in TYPES.items())
HOUR = 3_600_000


@cache
def pipeline_spec(name: str) -> UpsertPipeline:
    return {
        "debezium": lambda: spec(SCHEMA, quarantine={"max_record_bytes": 20_000}),
        "known columns": lambda: spec(SCHEMA, schema_evolution_mode="quarantine"),
        "arrival": lambda: spec(SCHEMA, order="arrival"),
        "ahead": lambda: spec(SCHEMA, quarantine={"max_event_time_ahead": "1h"}),
        "event ttl": lambda: spec(SCHEMA, ttl={"ttl": "1d", "time_characteristic": "EVENT_TIME"}),
        "plain": lambda: plain(SCHEMA),
        "placed": lambda: plain(SCHEMA, format={"type": "plain", "position": ["part", "seq"]}),
        "by column": lambda: plain(SCHEMA, order={"sequence": ["n"]}),
        "own event time": lambda: plain(SCHEMA, event_time="born", quarantine={"max_event_time_ahead": "1h"}),
    }[name]()


def good(kind: str, at: int) -> str:
    row = {"id": at, "name": f"row {at}", "n": at}
    if pipeline_spec(kind).format.type == "debezium":
        return record(envelope("c", at, after=row), at)
    return json.dumps({"kind": "+I", "row": row, "part": 0, "seq": at})


def row(**values):
    return {"id": 7, "name": "bad", **values}


def raw(value) -> bytes:
    """A record as it stands, at the place of the bad one."""
    return (value if isinstance(value, str) else record(value, 1)).encode()


def created(**values) -> bytes:
    return raw(envelope("c", 1, after=row(**values)))


def kafka(**fields) -> bytes:
    return json.dumps({"topic": "t", "partition": 0, "offset": 1, "key": None, "value": "{}"} | fields).encode()


def inner(text: str) -> bytes:
    return kafka(value=text)


def with_schema(fields, after) -> bytes:
    after_field = {"field": "after", "type": "struct", "fields": fields}
    return raw({"schema": {"type": "struct", "fields": [after_field]}, "payload": envelope("c", 1, after=row(**after))})


def unscaled_of(n_bytes) -> str:
    return base64.b64encode(bytes(n_bytes)).decode()


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


DECIMAL = {"field": "total", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
LINE, KAFKA, PLACED = ("f", 0, 1), ("t", 0, 1), ("", 0, 1)
# kind: pipeline, reason, origin, bytes
KINDS = {
    # the line
    "json that is none": ("debezium", "bad_json", LINE, b"{nothing}"),
    "json cut off": ("debezium", "bad_json", LINE, created()[:-9]),
    "json objects without a line between them": ("debezium", "bad_json", LINE, created() + b" " + created()),
    "integer as a text that is none": ("debezium", "wrong_type", KAFKA, created(n="007")),
    "integer as a float": ("debezium", "wrong_type", KAFKA, created(n=2.5)),
    "date before the year 1": ("debezium", "wrong_type", KAFKA, created(born=-735_233)),
    "infinity of a time": ("debezium", "wrong_type", KAFKA, created(at="infinity")),
    "json with text after it": ("debezium", "bad_json", LINE, created() + b"}"),
    "bytes that are not utf-8": ("debezium", "not_utf8", LINE, b'{"topic": "\xff\xfe"}'),
    "nan constant": ("debezium", "bad_json", LINE, b'{"topic": NaN}'),
    "infinity constant": ("plain", "bad_json", LINE, b'{"kind": "+I", "row": {"id": 7, "d": -Infinity}}'),
    "integer of 5,000 digits": ("plain", "bad_json", LINE, b'{"kind": "+I", "row": {"id": ' + b"1" * 5000 + b"}}"),
    "array line": ("debezium", "not_an_object", LINE, b"[1, 2]"),
    "number line": ("debezium", "not_an_object", LINE, b"17"),
    "nested 2,000 deep": ("debezium", "too_deep", LINE, b'{"a": ' + nested(2000).encode() + b"}"),
    "larger than allowed": ("debezium", "too_large", LINE, created(name="x" * 20_000)),
    # the Kafka record
    "no topic": ("debezium", "not_a_record", LINE, b'{"partition": 0, "offset": 1, "value": null}'),
    "topic with a lone surrogate": ("debezium", "not_a_record", LINE, kafka(topic="\ud800")),
    "partition a string": ("debezium", "not_a_record", LINE, kafka(partition="0")),
    "partition a boolean": ("debezium", "not_a_record", LINE, kafka(partition=False)),
    "partition of 2^31": ("debezium", "not_a_record", LINE, kafka(partition=2**31)),
    "offset below 0": ("debezium", "not_a_record", LINE, kafka(offset=-1)),
    "offset of 2^63": ("debezium", "not_a_record", LINE, kafka(offset=2**63)),
    "no value": ("debezium", "not_a_record", KAFKA, b'{"topic": "t", "partition": 0, "offset": 1}'),
    "value an object": ("debezium", "not_a_record", KAFKA, kafka(value={})),
    # the value
    "value not json": ("debezium", "bad_json", KAFKA, inner("{oops")),
    "value with a nan constant": ("debezium", "bad_json", KAFKA, inner('{"op": "c", "after": {"d": NaN}}')),
    "value an array": ("debezium", "not_an_object", KAFKA, inner("[]")),
    "value nested 2,000 deep": ("debezium", "too_deep", KAFKA, inner('{"op": ' + nested(2000) + "}")),
    "no operation": ("debezium", "not_a_change", KAFKA, raw({"before": None, "after": row()})),
    "operation unknown": ("debezium", "unknown_operation", KAFKA, raw(envelope("x", 1, after=row()))),
    "operation an array": ("debezium", "unknown_operation", KAFKA, raw(envelope(["c"], 1, after=row()))),
    "operation null in a flattened row": ("debezium", "unknown_operation", KAFKA, raw(row(__op=None, __lsn=1))),
    "no source": ("debezium", "missing_source", KAFKA, raw({"op": "c", "before": None, "after": row()})),
    "source not an object": ("debezium", "missing_source", KAFKA, raw({"op": "c", "after": row(), "source": "pg"})),
    "delete without before": ("debezium", "missing_before", KAFKA, raw(envelope("d", 1))),
    "update without before": ("arrival", "missing_before", KAFKA, raw(envelope("u", 1, after=row()))),
    "update without after": ("debezium", "missing_after", KAFKA, raw(envelope("u", 1, before=row()))),
    "create without after": ("debezium", "missing_after", KAFKA, raw(envelope("c", 1))),
    "after not an object": ("debezium", "not_a_row", KAFKA, raw(envelope("c", 1, after=[1]))),
    "before not an object": ("debezium", "not_a_row", KAFKA, raw(envelope("u", 1, before="x", after=row()))),
    "log position a string": ("debezium", "bad_sequence", KAFKA, raw(envelope("c", "x", after=row()))),
    "log position a fraction": ("debezium", "bad_sequence", KAFKA, raw(envelope("c", 1.5, after=row()))),
    "log position below 0": ("debezium", "bad_sequence", KAFKA, raw(envelope("c", -1, after=row()))),
    "log position of 2^63": ("debezium", "bad_sequence", KAFKA, raw(envelope("c", 2**63, after=row()))),
    "log position of a flattened row a string": ("debezium", "bad_sequence", KAFKA, raw(row(__op="c", __lsn="x"))),
    "log position of a flattened row below 0": ("debezium", "bad_sequence", KAFKA, raw(row(__op="c", __lsn=-1))),
    "log position null in an update": ("debezium", "null_sequence", KAFKA, raw(envelope("u", None, after=row()))),
    "event time a string": ("debezium", "bad_event_time", KAFKA, raw(envelope("c", 1, after=row(), ts_ms="noon"))),
    "event time of 2^63": ("debezium", "bad_event_time", KAFKA, raw(envelope("c", 1, after=row(), ts_ms=2**63))),
    "event time below -2^63": ("debezium", "bad_event_time", KAFKA, raw(envelope("c", 1, after=row(), ts_ms=-(2**63) - 1))),
    "event time a boolean": ("debezium", "bad_event_time", KAFKA, raw(envelope("c", 1, after=row(), ts_ms=True))),
    "event time a float": ("debezium", "bad_event_time", KAFKA, raw(envelope("c", 1, after=row(), ts_ms=1.0))),
    "event time of a flattened row a string": ("debezium", "bad_event_time", KAFKA, raw(row(__op="c", __lsn=1, __source_ts_ms="noon"))),
    "event time too far ahead": ("ahead", "event_time_ahead", KAFKA, raw(envelope("c", 1, after=row(), ts_ms=HOUR + 1))),
    "event time null": ("event ttl", "null_event_time", KAFKA, raw(envelope("c", 1, after=row(), ts_ms=None))),
    "payload not an object": ("debezium", "not_a_change", KAFKA, raw({"schema": {"fields": []}, "payload": 1})),
    "connect schema null": ("debezium", "bad_schema", KAFKA, raw({"schema": None, "payload": envelope("c", 1, after=row())})),
    "connect schema of a number for its type": ("debezium", "bad_schema", KAFKA, raw({"schema": {"type": 7}, "payload": {}})),
    "connect schema without fields": ("debezium", "bad_schema", KAFKA, raw({"schema": {}, "payload": {}})),
    "connect schema with a list for a name": ("debezium", "bad_schema", KAFKA, with_schema([{"field": "n", "name": []}], {})),
    "unscaled decimal not base64": ("debezium", "schema_mismatch", KAFKA, with_schema([DECIMAL], {"total": "?!"})),
    "unscaled decimal without a scale": ("debezium", "schema_mismatch", KAFKA, with_schema([DECIMAL | {"parameters": {}}], {"total": "AQ=="})),
    "unscaled decimal with other characters": ("debezium", "schema_mismatch", KAFKA, with_schema([DECIMAL], {"total": "A?Q=="})),
    "unscaled decimal of 1,025 bytes": ("debezium", "schema_mismatch", KAFKA, with_schema([DECIMAL], {"total": unscaled_of(1025)})),
    # the row
    "key null": ("debezium", "null_key", KAFKA, created(id=None)),
    "key a string": ("debezium", "wrong_type", KAFKA, created(id="7x")),
    "null in a not null column": ("debezium", "null_value", KAFKA, created(name=None)),
    "column missing": ("debezium", "missing_column", KAFKA, raw(envelope("c", 1, after={"id": 7}))),
    "column unknown": ("known columns", "unknown_column", KAFKA, created(more=1)),
    "key missing": ("debezium", "missing_column", KAFKA, raw(envelope("c", 1, after={"name": "bad"}))),
    "both halves of a changed key": ("debezium", "wrong_type", KAFKA, raw(envelope("u", 1, before={"id": "7"}, after={"id": "8", "name": 1}))),
    # the type: int, boolean
    "int above its range": ("debezium", "wrong_type", KAFKA, created(n=2**31)),
    "int below its range": ("debezium", "wrong_type", KAFKA, created(n=-(2**31) - 1)),
    "bigint above its range": ("debezium", "wrong_type", KAFKA, created(id=2**63)),
    "fraction in an int column": ("debezium", "wrong_type", KAFKA, created(n=1.5)),
    "float that may have lost digits in a bigint column": ("debezium", "wrong_type", KAFKA, created(id=2.0**53)),
    "boolean in an int column": ("debezium", "wrong_type", KAFKA, created(n=True)),
    "number in a boolean column": ("debezium", "wrong_type", KAFKA, created(flag=1)),
    # decimal, float
    "decimal with too many digits": ("debezium", "wrong_type", KAFKA, created(total="12345.00")),
    "decimal to be rounded": ("debezium", "wrong_type", KAFKA, created(total="1.005")),
    "decimal number to be rounded": ("debezium", "wrong_type", KAFKA, created(total=1.005)),
    "decimal with a huge exponent": ("debezium", "wrong_type", KAFKA, created(total="1e999999999")),
    "decimal that is text": ("debezium", "wrong_type", KAFKA, created(total="ten")),
    "decimal nan": ("debezium", "wrong_type", KAFKA, created(total="NaN")),
    "decimal of other digits": ("debezium", "wrong_type", KAFKA, created(total="\u0661\u0662")),
    "boolean in a decimal column": ("debezium", "wrong_type", KAFKA, created(total=True)),
    "float out of range": ("debezium", "wrong_type", KAFKA, created(f=1e39)),
    "double out of range": ("plain", "wrong_type", LINE, b'{"kind": "+I", "row": {"id": 7, "name": "bad", "d": 1e400}}'),
    "text in a double column": ("debezium", "wrong_type", KAFKA, created(d="1.5")),
    "boolean in a double column": ("debezium", "wrong_type", KAFKA, created(d=True)),
    # date, timestamp
    "date that is text": ("debezium", "wrong_type", KAFKA, created(born="yesterday")),
    "date with no such day": ("debezium", "wrong_type", KAFKA, created(born="2023-02-29")),
    "date beyond the year 9999": ("debezium", "wrong_type", KAFKA, created(born=2_932_897)),
    "timestamp above int64": ("debezium", "wrong_type", KAFKA, created(local=2**63)),
    "timestamp beyond the year 9999": ("debezium", "wrong_type", KAFKA, created(local=253_402_300_800_000_000)),
    "timestamp without its zone": ("debezium", "wrong_type", KAFKA, created(at="2024-01-01T00:00:00")),
    "timestamp with a zone too many": ("debezium", "wrong_type", KAFKA, created(local="2024-01-01T00:00:00Z")),
    "timestamp a fraction": ("debezium", "wrong_type", KAFKA, created(at=1.5)),
    # string, binary, nested
    "number in a string column": ("debezium", "wrong_type", KAFKA, created(name=1)),
    "object in a string column": ("debezium", "wrong_type", KAFKA, created(name={"a": 1})),
    "lone surrogate": ("debezium", "wrong_type", KAFKA, created(name="\ud800")),
    "binary that is not base64": ("debezium", "wrong_type", KAFKA, created(blob="?")),
    "array with a wrong element": ("debezium", "wrong_type", KAFKA, created(tags=[1, "2x"])),
    "object in an array column": ("debezium", "wrong_type", KAFKA, created(tags={"a": 1})),
    "struct with an unknown field": ("debezium", "wrong_type", KAFKA, created(pair={"b": 1})),
    "value not sent within a struct": ("debezium", "value_not_sent", KAFKA, created(pair={"a": "__debezium_unavailable_value"})),
    "value not sent by arrival": ("arrival", "value_not_sent", KAFKA, created(name="__debezium_unavailable_value")),
    "map with a wrong value": ("debezium", "wrong_type", KAFKA, created(rates={"a": "b"})),
    # plain changelogs
    "kind unknown": ("plain", "unknown_kind", LINE, change("+X", **row()).encode()),
    "kind missing": ("plain", "unknown_kind", LINE, b'{"row": {"id": 7}}'),
    "kind an object": ("plain", "unknown_kind", LINE, b'{"kind": {}, "row": {"id": 7}}'),
    "row not an object": ("plain", "not_a_row", LINE, b'{"kind": "+I", "row": [7]}'),
    "row missing": ("plain", "not_a_row", LINE, b'{"kind": "+I"}'),
    "position below 0": ("placed", "bad_position", LINE, json.dumps({"kind": "+I", "row": row(), "part": 0, "seq": -1}).encode()),
    "position missing": ("placed", "bad_position", LINE, json.dumps({"kind": "+I", "row": row(), "part": 0}).encode()),
    "key null at a position": ("placed", "null_key", PLACED, json.dumps({"kind": "+I", "row": row(id=None), "part": 0, "seq": 1}).encode()),
    "sequence column null": ("by column", "null_sequence", LINE, change("+I", **row(n=None)).encode()),
    "event time column too far ahead": ("own event time", "event_time_ahead", LINE, change("+I", **row(born=1)).encode()),
}  # fmt: skip

# What every detail says: which field, what was got, what is allowed.
SAYS = {
    "bad_event_time": r"(source\.|__source_)ts_ms: got .+; allowed: an integer of 64 bits",
    "bad_json": r".+; allowed: one JSON object( a line\. Next: .+)?",
    "bad_position": r"seq: got (-1|None); allowed: an integer from 0",
    "bad_schema": r"schema: got .+; allowed: a Kafka Connect schema .+",
    "bad_sequence": r"(source\.|__)lsn: got .+; allowed: an integer from 0 to 2\^63 - 1",
    "event_time_ahead": r"event time: got \d+ ms; allowed: up to 3600000 ms",
    "missing_after": r"after: got null; allowed: the row, which op '[cu]' needs",
    "missing_before": r"before: got (null|None); allowed: the (whole )?row, which op '[du]' needs.*",
    "missing_column": r"(id|name): .+; allowed: a value, or a DEFAULT .+",
    "missing_source": r"source: got .+; allowed: an object .+",
    "not_a_change": r"(payload: )?got .+; allowed: .+",
    "not_a_record": r"(value: )?got .+; allowed: .+",
    "not_a_row": r"(after|before|row): got .+; allowed: an object.*",
    "not_an_object": r"got .+; allowed: one JSON object( a line\. Next: .+)?",
    "not_utf8": r"invalid start byte at byte 11; allowed: UTF-8",
    "null_event_time": r"event time: got null; allowed: a time.*",
    "null_key": r"id: got null; allowed: a value in every key column",
    "null_sequence": r"(_lsn|n): got null; allowed: a value in every column of the sequence",
    "null_value": r"name: got null; allowed: a value, as the schema says NOT NULL",
    "schema_mismatch": r"after: .+; allowed: values in the form .+",
    "too_deep": r"nested too deep; allowed: .+",
    "too_large": r"got more than 20000 bytes; allowed: up to 20000",
    "unknown_kind": r"kind: got .+; allowed: \+I, -U, \+U, -D",
    "unknown_column": r"got 'more'; allowed: columns of the schema, ignored_columns",
    "unknown_operation": r"op: got .+; allowed: c, r, u, d, t",
    "value_not_sent": r"(name|pair): got .+; allowed: (whole rows|the mark) .+",
    "wrong_type": r"\w+: got .{1,80}; allowed: [a-z]+.*",
}


OF_REGISTRIES = ("bad_avro", "no_magic_byte", "no_registry", "unknown_schema")
"""Of records that only a topic has: see `test_avro`."""


def run(name: str, *bad: bytes) -> MemoryPipeline:
    pipeline = MemoryPipeline(pipeline_spec(name))
    pipeline.step([good(name, 0), *bad, good(name, 2)], file="f", now_ms=0)
    return pipeline


@cache
def good_rows(name: str) -> str:
    """The rows without a bad record between them; as text, since they are shared."""
    pipeline = MemoryPipeline(pipeline_spec(name))
    pipeline.step([good(name, 0), b"", good(name, 2)], file="f")
    assert [r["id"] for r in pipeline.rows()] == [0, 2]
    assert not pipeline.quarantine
    return repr(pipeline.rows())


@pytest.mark.parametrize("kind", KINDS)
def test_bad_record_between_good_ones_is_set_apart_alone(kind):
    name, reason, origin, data = KINDS[kind]
    rows = staged(pipeline_spec(name).decoding, [good(name, 0), data, good(name, 2)], wall_ms=0).to_pylist()
    [bad], others = ([row for row in rows if (row["_reason"] is None) is is_good] for is_good in (False, True))
    assert [row["id"] for row in others] == [0, 2]
    assert re.fullmatch(SAYS[reason], bad["_detail"])
    assert (bad["_reason"], bad["_raw"], tuple(bad["_origin"].values())) == (reason, data, origin)


@pytest.mark.parametrize("name", sorted({name for name, *_ in KINDS.values()}))
def test_bad_records_of_every_kind_in_one_step_are_quarantined_and_the_good_ones_go_on(name):
    bad = [(data, reason) for of, reason, _, data in KINDS.values() if of == name]
    pipeline = run(name, *(data for data, _ in bad))
    assert repr(pipeline.rows()) == good_rows(name)
    assert sorted((entry["_raw"], entry["_reason"]) for entry in pipeline.quarantine) == sorted(bad)


def test_every_reason_on_the_page_occurs_among_the_kinds():
    page = (ROOT / "docs" / "how-to" / "bad-records.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`.+?) \|", page, re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    # The first is no fault of a record; the others are of one format, or of one setting, and have tests of their own.
    elsewhere = {"transform_failed", "bad_deleted", "missing_table", "truncate", "retraction", *OF_REGISTRIES}
    assert listed - elsewhere == {kind[1] for kind in KINDS.values()}


@pytest.mark.parametrize("depth", [100, 190, 210, 300, 500, 700, 900, 960, 990, 1500])
def test_value_nested_to_any_depth_is_quarantined(depth):
    data = inner(json.dumps(envelope("c", 1, after=row(name=0))).replace('"name": 0', f'"name": {nested(depth)}'))
    pipeline = run("debezium", data)
    assert repr(pipeline.rows()) == good_rows("debezium")
    [entry] = pipeline.quarantine
    assert (entry["_reason"] in ("wrong_type", "too_deep"), entry["_raw"]) == (True, data)


def test_record_of_64_mib_is_too_large_and_keeps_its_bytes():
    data = created(name="x" * 64 * 2**20)
    pipeline = MemoryPipeline(spec(SCHEMA))
    pipeline.step([good("debezium", 0), data, good("debezium", 2)])
    assert [r["id"] for r in pipeline.rows()] == [0, 2]
    [entry] = pipeline.quarantine
    assert (entry["_reason"], entry["_raw"]) == ("too_large", data)


def test_decimal_number_keeps_every_digit():
    number = "12345678901234567.123456789"
    pipeline = MemoryPipeline(
        spec("id BIGINT, w DECIMAL(38,9), l ARRAY<DECIMAL(38,9)>, s STRUCT<w: DECIMAL(38,9)>, d DOUBLE")
    )
    after = f'{{"id":1,"w":{number},"l":[{number}],"s":{{"w":{number}}},"d":0.1}}'
    pipeline.step([record(f'{{"op":"c","after":{after},"source":{{"lsn":1}}}}')])
    exact = Decimal(number)
    assert pipeline.rows() == [{"id": 1, "w": exact, "l": [exact], "s": {"w": exact}, "d": 0.1}]


def test_unscaled_decimal_of_1024_bytes_is_read():
    pipeline = MemoryPipeline(pipeline_spec("debezium"))
    pipeline.step([with_schema([DECIMAL], {"total": unscaled_of(1024)})])
    assert [r["total"] for r in pipeline.rows()] == [0]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", -0.0, "null"])
def test_double_takes_what_floats_have(text):
    value = None if text == "null" else text
    pipeline = MemoryPipeline(pipeline_spec("debezium"))
    pipeline.step([created(d=value, f=value)])
    [got] = pipeline.rows()
    for at in (got["d"], got["f"]):
        assert at is None if value is None else struct_of(at) == struct_of(float(text) + 0.0)


def struct_of(number: float) -> tuple[bool, float, float]:
    return (
        math.isnan(number),
        0.0 if math.isnan(number) else number,
        math.copysign(1, number) * (not math.isnan(number)),
    )


@pytest.mark.parametrize("column", ["id", "line"])
@pytest.mark.parametrize("order", ["arrival", {"sequence": ["_lsn"]}], ids=["arrival", "sequence"])
@pytest.mark.parametrize("op", ["c", "d"])
def test_null_in_any_column_of_the_key_is_quarantined(column, order, op):
    pipeline = MemoryPipeline(spec("id BIGINT, line INT, n INT", ["id", "line"], order=order))
    good, bad = {"id": 1, "line": 1, "n": 1}, {"id": 1, "line": 1, "n": 1, column: None}
    sides = {"before": bad} if op == "d" else {"after": bad}
    pipeline.step([record(envelope("c", 1, after=good), 0), record(envelope(op, 2, **sides), 1)])
    assert pipeline.rows() == [good]
    assert [entry["_reason"] for entry in pipeline.quarantine] == ["null_key"]


@pytest.mark.parametrize("column", ["n", "m"])
def test_null_in_any_column_of_the_sequence_is_quarantined(column):
    pipeline = MemoryPipeline(plain("id BIGINT, n INT, m INT", order={"sequence": ["n", "m"]}))
    pipeline.step([change("+I", **{"id": 1, "n": 1, "m": 1, column: None})])
    assert [entry["_reason"] for entry in pipeline.quarantine] == ["null_sequence"]
