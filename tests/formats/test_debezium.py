import base64
import json
from decimal import Decimal

import pyarrow as pa
import pytest
from support import cut, envelope, record, spec

from ebbtide.formats.debezium import DebeziumDecoder
from ebbtide.formats.format import UNAVAILABLE, BadRecordError, DecodedChange, unavailable_form
from ebbtide.model.changelog import TRUNCATE, RowKind
from ebbtide.testing import MemoryPipeline

DECODER = DebeziumDecoder(("id",))
RETRACT = DebeziumDecoder(("id",), retract=True)
OLD, NEW = {"id": 1, "n": 1}, {"id": 1, "n": 2}
N, B, A, D = RowKind  # new, update before, update after, delete


def parts(changes: list[DecodedChange]) -> list[tuple]:
    return [(c.kind, c.row, c.op, *c.position, c.event_ms) for c in changes]


@pytest.mark.parametrize(
    ("decoder", "op", "before", "after", "want"),
    [
        (DECODER, "c", None, NEW, [(N, NEW)]),
        (DECODER, "r", None, NEW, [(N, NEW)]),
        (DECODER, "u", None, NEW, [(A, NEW)]),
        (DECODER, "u", OLD, NEW, [(A, NEW)]),
        (DECODER, "d", OLD, None, [(D, OLD)]),
        (DECODER, "t", None, None, [(TRUNCATE, None)]),
        (RETRACT, "c", None, NEW, [(N, NEW)]),
        (RETRACT, "u", OLD, NEW, [(B, OLD), (A, NEW)]),
        (RETRACT, "d", OLD, None, [(D, OLD)]),
    ],
)
def test_envelope_of_each_operation_gives_its_changes(decoder, op, before, after, want):
    value = envelope(op, 5, before=before, after=after, ts_ms=9)
    assert parts(decoder.changes(value, None)) == [(kind, row, op, 5, 9) for kind, row in want]


MESSAGE = {
    "op": "m",
    "ts_ms": 1,
    "source": {"lsn": 5, "ts_ms": 1, "schema": "", "table": ""},
    "message": {"transactional": True, "prefix": "audit", "content": "YQ=="},
}
MESSAGE_SCHEMA = {"type": "struct", "fields": [{"field": "op"}, {"field": "source"}, {"field": "message"}]}


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["_lsn"]}], ids=["arrival", "sequence"])
@pytest.mark.parametrize("table", [None, "orders"])
@pytest.mark.parametrize(
    "message",
    [MESSAGE, {"schema": MESSAGE_SCHEMA, "payload": MESSAGE}, {"op": "m"}, {"__op": "m", "id": 1, "n": 2}],
    ids=["envelope", "with schema", "bare", "flattened"],
)
def test_logical_decoding_message_is_skipped_and_counted_as_a_tombstone_is(order, table, message):
    pipeline = MemoryPipeline(spec(order=order, source={"path": "in", "table": table}))
    created = envelope("c", 6, after=OLD, schema="public", table="orders")
    pipeline.step([record(message, 0, key={"prefix": "audit"}), record(created, 1)])
    assert (pipeline.rows(), pipeline.quarantine, pipeline.metrics["tombstones"]) == ([OLD], [], 1)


@pytest.mark.parametrize("after", [{"id": 2, "n": 1}, {"id": "1", "n": 1}])
def test_update_that_changes_the_key_deletes_the_old_one_and_keeps_its_row(after):
    gone, moved = DECODER.changes(envelope("u", 5, before=OLD, after=after), None)
    assert (gone.kind, gone.row, gone.old_row) == (B, OLD, None)
    assert (moved.kind, moved.row, moved.old_row) == (A, after, OLD)


LINE = {"id": 1, "line": 1, "n": 1, "v": "long"}
OF_LINES = "id BIGINT, line INT, n INT, v STRING", ["id", "line"]


@pytest.mark.parametrize("change", [{"id": 2}, {"line": 2}, {"id": 2, "line": 2}])
@pytest.mark.parametrize("cuts", [[], [1]], ids=["one step", "two steps"])
def test_change_of_a_part_of_the_key_moves_the_row_with_the_values_not_sent(change, cuts):
    moved = LINE | change | {"n": 2}
    update = envelope("u", 2, before=LINE, after=moved | {"v": UNAVAILABLE})
    pipeline = MemoryPipeline(spec(*OF_LINES))
    other = LINE | {"line": 7, "v": "other"}
    for step in cut([envelope("c", 1, after=LINE), envelope("c", 1, after=other), update], cuts):
        pipeline.step([record(value, at) for at, value in enumerate(step)])
    assert pipeline.rows() == sorted([moved, other], key=lambda row: (row["id"], row["line"]))


@pytest.mark.parametrize("absent", [{"id": None}, {"line": None}])
def test_update_whose_before_lacks_a_part_of_the_key_is_one_change(absent):
    changes = DebeziumDecoder(("id", "line")).changes(envelope("u", 5, before=LINE | absent, after=LINE), None)
    assert [(c.kind, c.row) for c in changes] == [(A, LINE)]


BY_EVENT = {"ttl": "1d", "time_characteristic": "EVENT_TIME"}
DAY_US = 86_400_000_000


@pytest.mark.parametrize("own", [False, True], ids=["of the source", "of a column"])
@pytest.mark.parametrize("op", ["d", "move", "flattened"])
def test_delete_expires_from_its_own_event_time_on(op, own):
    source = {"path": "in"}
    by_event = spec("id BIGINT, n INT, at TIMESTAMP", ttl=BY_EVENT, source=source, event_time="at" if own else None)
    old, ts_ms = {"id": 1, "n": 1, "at": 3 * DAY_US}, 3 * 86_400_000
    value = {
        "d": envelope("d", 2, before=old, ts_ms=ts_ms),
        "move": envelope("u", 2, before=old, after=old | {"id": 2}, ts_ms=ts_ms),
        "flattened": old | {"__op": "d", "__lsn": 2, "__source_ts_ms": ts_ms},
    }[op]
    pipeline = MemoryPipeline(by_event)
    pipeline.step([record(value)])
    stamps = {entry["id"]: entry["_stamp_ms"] for entry in pipeline.state.to_pylist() if entry["_tombstone"]}
    assert (stamps, pipeline.quarantine) == ({1: ts_ms}, [])


@pytest.mark.parametrize("before", [{}, {"n": 1}, {"id": None, "n": 1}])
def test_update_whose_before_has_no_key_is_one_change(before):
    [only] = DECODER.changes(envelope("u", 5, before=before, after=NEW), None)
    assert (only.kind, only.row) == (A, NEW)


@pytest.mark.parametrize(
    "key", ['{"id": 1}', '{"schema": {"fields": []}, "payload": {"id": 1}}'], ids=["bare", "with schema"]
)
def test_delete_without_before_goes_by_the_key_of_the_record(key):
    [only] = DECODER.changes(envelope("d", 5), key)
    assert (only.kind, only.row) == (D, {"id": 1})


@pytest.mark.parametrize("key", [None, "", "null", "7", "[1]", "{oops", '{"payload": 7}', "[" * 100_000])
def test_delete_without_before_and_key_is_bad(key):
    with pytest.raises(BadRecordError, match="missing_before"):
        DECODER.changes(envelope("d", 5), key)


@pytest.mark.parametrize("old", [envelope("u", 5, before=OLD, after={"id": 2, "n": 2}), envelope("d", 5, before=OLD)])
def test_old_key_leaves_the_sink(old):
    pipeline = MemoryPipeline(spec())
    pipeline.step([record(envelope("c", 1, after=OLD), 0), record(old, 1)])
    assert [row["id"] for row in pipeline.rows()] == ([2] if old["after"] else [])


@pytest.mark.parametrize(
    ("extra", "want"),
    [
        ({"__op": "c"}, [(N, NEW, "c")]),
        ({"__op": "u", "__deleted": "false"}, [(A, NEW, "u")]),
        ({"__op": "d", "__deleted": "true"}, [(D, NEW, "d")]),
        ({"__deleted": "true"}, [(D, NEW, "d")]),
    ],
)
def test_flattened_row_gives_its_change_without_the_added_fields(extra, want):
    value = NEW | extra | {"__lsn": 5, "__source_ts_ms": 9}
    assert parts(DECODER.changes(value, None)) == [(*change, 5, 9) for change in want]


def connect(fields, payload, *, flat=False):
    row = {"type": "struct", "field": "after", "fields": fields}
    return {"schema": {"type": "struct", "fields": fields if flat else [row]}, "payload": payload}


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(9, "big", signed=True)).decode()


FIELDS = [
    {"field": "total", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
    {"field": "any", "name": "io.debezium.data.VariableScaleDecimal"},
    {"field": "at", "name": "io.debezium.time.Timestamp"},
    {"field": "ns", "name": "io.debezium.time.NanoTimestamp"},
    {"field": "us", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "id"},
]
ROW = {"id": 1, "total": unscaled(-150), "any": {"scale": 3, "value": unscaled(7)}, "at": 1, "ns": 1000, "us": 1}


@pytest.mark.parametrize("flat", [False, True])
def test_record_with_schema_says_what_decimals_and_times_mean(flat):
    payload = ROW | {"__op": "c", "__lsn": 5} if flat else envelope("c", 5, after=ROW)
    [only] = DECODER.changes(connect(FIELDS, payload, flat=flat), None)
    assert (only.row["total"], only.row["any"], only.row["id"]) == ("-1.50", "0.007", 1)
    assert only.units == {"at": "ms", "ns": "ns", "us": "us"}


def test_records_with_and_without_schema_stand_in_one_step():
    pipeline = MemoryPipeline(
        spec("id BIGINT, total DECIMAL(6,2), at TIMESTAMP_NTZ, ns TIMESTAMP_NTZ", source={"path": "in"})
    )
    bare = {"id": 2, "total": 1.5, "at": 1_000, "ns": 1}
    pipeline.step([record(connect(FIELDS, envelope("c", 1, after=ROW)), 0), record(envelope("c", 2, after=bare), 1)])
    first, second = pipeline.rows()
    assert (first["total"], second["total"]) == (Decimal("-1.50"), Decimal("1.50"))
    assert (first["at"], first["ns"]) == (second["at"], second["ns"])
    assert first["at"].microsecond == 1000


@pytest.mark.parametrize("value", [None, UNAVAILABLE, unavailable_form(pa.binary())])
def test_decimal_that_was_not_sent_is_left_alone(value):
    [only] = DECODER.changes(connect(FIELDS, envelope("c", 5, after={"total": value})), None)
    assert only.row == {"total": value}


@pytest.mark.parametrize(
    ("table", "source", "taken"),
    [
        ("orders", {"schema": "public", "table": "orders"}, True),
        ("public.orders", {"schema": "public", "table": "orders"}, True),
        ("old.orders", {"schema": "public", "table": "orders"}, False),
        ("orders", {"schema": "public", "table": "customers"}, False),
        (None, {}, True),
    ],
)
@pytest.mark.parametrize("flat", [False, True])
def test_event_of_another_table_gives_no_change(table, source, taken, flat):
    value = (
        NEW | {"__op": "c"} | {f"__{k}": v for k, v in source.items()}
        if flat
        else envelope("c", 5, after=NEW, **source)
    )
    assert len(DebeziumDecoder(("id",), table=table).changes(value, None)) == taken


@pytest.mark.parametrize(
    ("type_", "form"),
    [
        ("STRING", UNAVAILABLE),
        ("BINARY", base64.b64encode(UNAVAILABLE.encode()).decode()),
        ("ARRAY<STRING>", [UNAVAILABLE]),
        ("ARRAY<INT>", [UNAVAILABLE]),
    ],
)
@pytest.mark.parametrize("null", ["", " NOT NULL"])
def test_value_that_was_not_sent_keeps_the_last_known_one(type_, form, null):
    known = {"STRING": ("long", "long"), "BINARY": ("AP8=", b"\x00\xff"), "ARRAY<STRING>": (["a"], ["a"])}
    sent, typed = known.get(type_, ([1], [1]))
    pipeline = MemoryPipeline(spec(f"id BIGINT, n INT, v {type_}{null}"))
    pipeline.step([record(envelope("c", 1, after=OLD | {"v": sent}), 0)])
    pipeline.step([record(envelope("u", 2, after=NEW | {"v": form}), 1)])
    assert pipeline.rows() == [NEW | {"v": typed}]
    assert pipeline.quarantine == []


@pytest.mark.parametrize(
    "type_", [pa.int64(), pa.decimal128(6, 2), pa.struct([("a", pa.int8())]), pa.date32()], ids=str
)
def test_type_that_is_always_sent_has_no_unavailable_form(type_):
    assert unavailable_form(type_) is None


def test_arrival_mode_retracts_the_whole_row_before():
    pipeline = MemoryPipeline(spec(order="arrival"))
    moves = [
        envelope("c", None, after=OLD),
        envelope("u", None, before=OLD, after=NEW),
        envelope("d", None, before=OLD),
    ]
    pipeline.step([record(value, at) for at, value in enumerate(moves)])
    assert pipeline.rows() == [NEW]
    assert pipeline.metrics["unmatched"] == 1


def test_key_of_a_record_is_read_from_the_line():
    pipeline = MemoryPipeline(spec())
    deleted = record(envelope("d", 2), 1, key=json.dumps({"id": 1}))
    pipeline.step([record(envelope("c", 1, after=NEW), 0), deleted, record(None, 2, key=json.dumps({"id": 1}))])
    assert (pipeline.rows(), pipeline.quarantine, pipeline.metrics["tombstones"]) == ([], [], 1)


def test_key_with_its_schema_is_read_by_it():
    fields = [{"field": "id", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}]
    key = json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {"id": unscaled(2**63)}})
    [only] = DECODER.changes(envelope("d", 5), key)
    assert only.row == {"id": str(2**63)}


@pytest.mark.parametrize(
    ("before", "key"), [(None, None), (None, {"id": 1}), ({"id": 1}, {"id": 1})], ids=["none", "key", "image of key"]
)
@pytest.mark.parametrize("op", ["u", "d"])
def test_arrival_mode_quarantines_a_row_before_that_is_no_more_than_its_key(op, before, key):
    pipeline = MemoryPipeline(spec(order="arrival"))
    after = NEW if op == "u" else None
    line = record(envelope(op, None, before=before, after=after), 1, key=key and json.dumps(key))
    pipeline.step([record(envelope("c", None, after=OLD), 0), line])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["missing_before"]
    assert "REPLICA IDENTITY FULL" in pipeline.quarantine[0]["_detail"]
    assert pipeline.rows() == [OLD]


def test_arrival_mode_takes_a_key_for_the_whole_row_where_the_table_has_no_other_columns():
    pipeline = MemoryPipeline(spec("id BIGINT", order="arrival"))
    pipeline.step([record(envelope("c", None, after={"id": 1}), 0), record(envelope("d", None, before={"id": 1}), 1)])
    assert (pipeline.rows(), pipeline.quarantine) == ([], [])


def test_sequence_mode_deletes_by_the_key_alone():
    pipeline = MemoryPipeline(spec())
    pipeline.step([record(envelope("c", 1, after=NEW), 0), record(envelope("d", 2, before={"id": 1}), 1)])
    assert (pipeline.rows(), pipeline.quarantine) == ([], [])


def test_old_row_of_a_changed_key_may_lack_what_is_not_null():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, n INT NOT NULL"))
    pipeline.step([record(envelope("u", 2, before={"id": 1}, after={"id": 2, "n": 2}))])
    assert (pipeline.rows(), pipeline.quarantine) == ([{"id": 2, "n": 2}], [])
