"""What is scanned of Avro is what the exact path decodes, whatever the schema, the value and the bytes; and most values are scanned."""

from __future__ import annotations

import pytest
from frame.circumstances import assume
from hypothesis import given
from hypothesis import strategies as st
from inputs.avro_support import DECIMAL, OF_SHOP, SOURCE, Orders, avro, batch, envelope_of, record
from inputs.lines import refuse_unlike_exact, scanned
from local.support import ROOT, UNAVAILABLE, lines_of, plain, shop, spec

pytestmark = pytest.mark.group("compiled")
INTEGERS = st.sampled_from(
    [0, -1, 63, -64, 64, 8191, -8193, 10**17, -(10**18), 2**62, 2**63 - 1, -(2**63)]
) | st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(max_size=5) | st.sampled_from(
    [UNAVAILABLE, 'a"\\\n', "2026-01-31", "2026-01-31T00:00:00Z", "1.50", "NaN"]
)
RAWS = st.binary(max_size=17) | st.just(UNAVAILABLE.encode())
ENUM = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE", "d"]}
LONG = {"type": "long", "connect.version": 1}
TYPES = {
    "int": ({"type": "int", "connect.type": "int16"}, INTEGERS.map(lambda value: value % 2**31)),
    "long": ("long", INTEGERS),
    "float": ("float", st.floats(width=32)),
    "double": ("double", st.floats()),
    "boolean": ("boolean", st.booleans()),
    "string": ("string", TEXTS),
    "bytes": ("bytes", RAWS),
    "fixed": ({"type": "fixed", "name": "Four", "size": 4}, st.binary(min_size=4, max_size=4)),
    "enum": (ENUM, st.sampled_from(ENUM["symbols"])),
    "decimal": (DECIMAL, RAWS),
    "of scale 4": ({"type": "bytes", "logicalType": "decimal", "scale": 4, "precision": 9}, RAWS),
    "date": ({"type": "int", "logicalType": "date"}, st.integers(-800_000, 3_000_000)),
    "ms": ({**LONG, "connect.name": "io.debezium.time.Timestamp"}, INTEGERS),
    "us": ({"type": "long", "logicalType": "timestamp-micros"}, INTEGERS),
    "ns": ({**LONG, "connect.name": "io.debezium.time.NanoTimestamp"}, INTEGERS),
    "zoned": ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, TEXTS),
    "null": ("null", st.none()),
}  # fmt: skip
"""What is read: Avro's types, and their values."""
SKIPPED = {
    "list": ({"type": "array", "items": ["null", "string"]}, st.lists(st.none() | TEXTS, max_size=3)),
    "map": (
        {"type": "map", "values": {"type": "array", "items": "double"}},
        st.dictionaries(TEXTS, st.lists(st.floats(), max_size=2), max_size=2),
    ),
    "record": (record("Inner", {"a": "long", "b": ["null", "boolean"]}), st.fixed_dictionaries({"a": INTEGERS, "b": st.none() | st.booleans()})),
    "union": (["int", "string"], st.integers(0, 5) | TEXTS),
}  # fmt: skip
"""Further types, which are walked over, or leave a schema."""
COLUMNS = [
    "BIGINT", "INT", "TINYINT", "DOUBLE", "FLOAT", "BOOLEAN", "STRING", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(14,2)", "DECIMAL(38,4)", "STRING NOT NULL",
]  # fmt: skip
FITTING = {
    "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING", "enum": "STRING", "decimal": "DECIMAL(14,2)",
    "of scale 4": "DECIMAL(9,4)", "date": "DATE", "ms": "TIMESTAMP_NTZ", "us": "TIMESTAMP", "ns": "TIMESTAMP_NTZ", "zoned": "TIMESTAMP", "null": "INT",
}  # fmt: skip
VALUES = {
    "int": 7, "long": -(10**17), "float": 0.1, "double": 1e300, "boolean": True, "string": "ü", "enum": "BLUE", "decimal": b"\xff\x0c",
    "of scale 4": b"\x00\xff", "date": -1, "ms": -1, "us": 0, "ns": 10**17, "zoned": "2026-01-31T00:00:00Z", "null": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _scan_whatever_there_is():
    assume("compiled")


@st.composite
def tables(draw):
    """A table: its columns' DDL, their Avro types, values of them."""
    ddl, types, values = [], {}, {}
    for number, name in enumerate(
        draw(st.lists(st.sampled_from(sorted(TYPES | SKIPPED)), min_size=1, max_size=4, unique=True))
    ):
        type_, value = (TYPES | SKIPPED)[name]
        wrap = (
            draw(st.sampled_from(["plain", "null first", "null last"]))
            if isinstance(type_, dict | str) and name != "null"
            else "plain"
        )
        if wrap != "plain":
            type_, value = ["null", type_] if wrap == "null first" else [type_, "null"], st.none() | value
        column = f"c{number}"
        types[column], values[column] = type_, value
        if draw(st.integers(0, 5)):
            fitting = FITTING.get(name, "STRING")
            ddl.append(f"{column} {draw(st.sampled_from([fitting, fitting, *COLUMNS]))}")
    return (
        ", ".join(["id BIGINT NOT NULL", *ddl]),
        {"id": "long", **types},
        st.fixed_dictionaries({"id": INTEGERS, **values}),
    )


def envelope(op, before, after, **source):
    return {"op": op, "before": before, "after": after, "source": OF_SHOP | source}


@given(st.data())
def test_any_table_is_staged_as_by_the_exact_path(data):
    form = data.draw(st.sampled_from(["envelope", "retractions", "flattened", "plain", "row beside"]))
    ddl, types, rows = data.draw(tables())
    drawn = data.draw(st.lists(rows, min_size=1, max_size=3))
    if form in ("plain", "row beside"):
        row_in = "row" if form == "plain" else None
        decoding = plain(ddl, format={"type": "plain", "row": row_in}).decoding
        schema = record("Change", {"kind": "string", **({"row": record("Row", types)} if row_in else types)})
        values = [
            {"kind": data.draw(st.sampled_from(["+I", "-D", "?"])), **({"row": row} if row_in else row)}
            for row in drawn
        ]
    elif form == "flattened":
        decoding = spec(ddl).decoding
        schema = record(
            "Row",
            {
                **types,
                "__op": ENUM | {"name": "Op", "symbols": ["c", "u", "d"]},
                "__lsn": "long",
                "__source_ts_ms": "long",
            },
        )
        values = [row | {"__op": data.draw(st.sampled_from("cud")), "__lsn": 5, "__source_ts_ms": 6} for row in drawn]
    else:
        decoding = spec(ddl, order="arrival" if form == "retractions" else {"sequence": ["_lsn"]}).decoding
        schema = envelope_of(types)
        values = [
            envelope(
                data.draw(st.sampled_from("crud")),
                data.draw(st.none() | rows),
                row,
                lsn=data.draw(st.none() | INTEGERS),
            )
            for row in drawn
        ]
    records = [avro(7, schema, value) for value in values]
    other = avro(8, record("Other", {"kind": "string"}), {"kind": "+I"})
    refuse_unlike_exact(decoding, batch([*records, other], {7: schema, 8: record("Other", {"kind": "string"})}))


USUAL = {"id": "long", **{f"c{number}": [TYPES[name][0], "null"] for number, name in enumerate(FITTING)}}
USUAL_DDL = ", ".join(
    ["id BIGINT NOT NULL", *(f"c{number} {ddl}" for number, ddl in enumerate(FITTING.values()))]
).replace("null,", "")
USUAL["c14"] = "null"
ROW = {"id": 1, **{f"c{number}": VALUES[name] for number, name in enumerate(FITTING)}}
EVENT = record(
    "Envelope",
    {
        "before": ["null", record("Value", USUAL)],
        "after": ["null", "Value"],
        "source": record("Source", SOURCE),
        "op": "string",
        **{f"more_{name}": type_ for name, (type_, _) in SKIPPED.items() if name != "union"},
    },
)
MORE = {
    "more_list": [None, "x"],
    "more_map": {"a": [0.5], "ü": []},
    "more_record": {"a": 1, "b": True},
}
UPDATE = envelope("u", ROW, ROW | {"c5": "y"}) | MORE


def test_values_of_every_type_are_scanned():
    records = batch([avro(1, EVENT, UPDATE), avro(1, EVENT, UPDATE | {"before": None})], {1: EVENT})
    decoding = spec(USUAL_DDL).decoding
    assert scanned(decoding, records) == (2, 0)
    refuse_unlike_exact(decoding, records)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 3), st.binary(max_size=3)), min_size=1, max_size=3))
def test_damaged_bytes_are_staged_as_by_the_exact_path(damage):
    value = avro(1, EVENT, UPDATE)
    values = [value]
    for at, cut, instead in damage:
        values.append(value[:at] + instead + value[at + cut :])
    refuse_unlike_exact(spec(USUAL_DDL).decoding, batch(values, {1: EVENT} | _of_other_ids(values)))


def _of_other_ids(values):
    ids = {int.from_bytes(value[1:5], "big") for value in values if value[:1] == b"\0" and len(value) >= 5}
    return {key: {"error": "gone"} for key in ids - {1}}


@pytest.mark.parametrize(
    "text", [b"\xff", b"\xc3", b"\xc3\xa9", b"\xed\xa0\x80", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x8f\x80\x80", b"\x80"]
)  # fmt: skip
@pytest.mark.parametrize("is_read", [True, False])
def test_text_that_is_not_utf8_is_read_as_by_the_exact_path(text, is_read):
    schema = record("Change", {"kind": "string", "row": record("Row", {"id": "long", "v": "bytes"})})
    value = avro(1, schema, {"kind": "+I", "row": {"id": 1, "v": text}})
    written = record("Change", {"kind": "string", "row": record("Row", {"id": "long", "v": "string"})})
    more = ", v STRING" if is_read else ""
    of = plain(f"id BIGINT NOT NULL{more}", ignored_columns=[] if is_read else ["v"])
    refuse_unlike_exact(of.decoding, batch([value], {1: written}))


def test_schema_that_contains_itself_is_left():
    node = record("Node", {"id": "long", "next": ["null", "Node"]})
    decoding = plain("id BIGINT NOT NULL", format={"type": "plain", "row": "kind"}).decoding
    records = batch([avro(1, node, {"id": 1, "next": {"id": 2, "next": None}})], {1: node})
    assert scanned(decoding, records) == (0, 1)
    refuse_unlike_exact(decoding, records)


def test_slice_of_a_batch_is_scanned_at_its_place():
    records = batch(
        [avro(1, EVENT, envelope("u", None, ROW | {"id": key}) | MORE) for key in range(4)], {1: EVENT}
    ).slice(1, 2)
    decoding = spec(USUAL_DDL).decoding
    assert scanned(decoding, records) == (2, 0)
    refuse_unlike_exact(decoding, records)


class Registry:
    def __init__(self):
        self.schemas = {}

    def put(self, subject, schema):
        self.schemas[len(self.schemas) + 1] = schema
        return len(self.schemas)


def test_orders_of_the_shop_are_scanned_by_both_of_their_schemas():
    registry = Registry()
    lines = [line for line in lines_of(ROOT / "data" / "shop" / "capture") if b'"topic": "shop.public.orders"' in line]
    records = [each for each in Orders(registry).records(lines[::5]) if each["value"] is not None]
    of_shop = batch([each["value"] for each in records], registry.schemas, [each["key"] for each in records])
    decoding = shop("orders", topic="t").decoding
    n_taken, n_left = scanned(decoding, of_shop)
    assert (n_taken, n_left) == (len(records), 0)
    refuse_unlike_exact(decoding, of_shop)
