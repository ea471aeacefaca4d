import base64
import json
from decimal import Decimal

import pytest
from local.support import UNAVAILABLE, cut, envelope, record, spec

from ebbtide.changelog import TRUNCATE, RowKind
from ebbtide.formats import BadRecordError, DebeziumDecoder, DecodedChange
from ebbtide.testing import MemoryPipeline

NOT_A_ROW = "not_a_row"


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
def test_logical_decoding_message_is_passed_over_and_counted(order, table, message):
    pipeline = MemoryPipeline(spec(order=order, source={"path": "in", "table": table}))
    created = envelope("c", 6, after=OLD, schema="public", table="orders")
    pipeline.step([record(message, 0, key={"prefix": "audit"}), record(created, 1)])
    assert (pipeline.rows(), pipeline.quarantine) == ([OLD], [])
    assert (pipeline.metrics["not_rows"], pipeline.metrics["tombstones"]) == (1, 0)


@pytest.mark.parametrize("after", [{"id": 2, "n": 1}, {"id": "1", "n": 1}])
def test_update_that_changes_the_key_deletes_the_old_one_and_keeps_its_row(after):
    gone, moved = DECODER.changes(envelope("u", 5, before=OLD, after=after), None)
    assert (gone.kind, gone.row, gone.other_row) == (B, OLD, None)
    assert (moved.kind, moved.row, moved.other_row) == (A, after, OLD)


@pytest.mark.parametrize(
    ("old_key", "v", "other_row"),
    [
        ('{"id": 1}', UNAVAILABLE, {"id": 1}),
        ('{"schema": {"type": "struct", "fields": []}, "payload": {"id": 1}}', UNAVAILABLE, {"id": 1}),
        ('{"id": 1}', "whole", {"id": 1}),
        ('{"id": 2}', UNAVAILABLE, None),
        ('{"other": 1}', UNAVAILABLE, None),
        ("Struct{id=1}", UNAVAILABLE, None),
        (None, UNAVAILABLE, None),
    ],
)
def test_created_row_is_followed_to_its_old_key(old_key, v, other_row):
    [created] = DECODER.changes(envelope("c", 5, after={"id": 2, "v": v}), None, old_key)
    assert (created.kind, created.other_row) == (N, other_row)


@pytest.mark.parametrize(("new_key", "other_row"), [('{"id": 2}', {"id": 2}), ('{"id": 1}', None), (None, None)])
def test_deleted_row_is_followed_to_its_new_key(new_key, other_row):
    [deleted] = DECODER.changes(envelope("d", 5, before=OLD), None, new_key)
    assert (deleted.kind, deleted.row, deleted.other_row) == (D, OLD, other_row)


def test_deleted_row_that_is_taken_back_by_its_content_is_not_followed():
    [deleted] = DebeziumDecoder(("id",), (), retract=True).changes(envelope("d", 5, before=OLD), None, '{"id": 2}')
    assert deleted.other_row is None


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


@pytest.mark.parametrize("value", [None, UNAVAILABLE, base64.b64encode(UNAVAILABLE.encode()).decode()])
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
        ("public.orders", {"table": "orders"}, True),
        ("public.orders", {"table": "customers"}, False),
        ("order", {"table": "orders"}, False),
        ("orders", {"db": "shop", "table": "orders"}, True),
        ("shop.orders", {"db": "shop", "table": "orders"}, True),
        ("orders.shop", {"db": "shop", "table": "orders"}, False),
        ("shop", {"db": "shop", "table": "orders"}, False),
        ("shop.orders", {"schema": "other", "db": "shop", "table": "orders"}, False),
        (None, {"table": "others"}, True),
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


def test_old_row_of_a_changed_key_may_lack_what_is_not_null():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, n INT NOT NULL"))
    pipeline.step([record(envelope("u", 2, before={"id": 1}, after={"id": 2, "n": 2}))])
    assert (pipeline.rows(), pipeline.quarantine) == ([{"id": 2, "n": 2}], [])


def refused(decoder, value, key=None):
    """(reason, detail) of a record that is bad."""
    with pytest.raises(BadRecordError) as found:
        decoder.changes(value, key)
    return found.value.reason, found.value.detail


def flattened(**more):
    return NEW | {"__op": "c", "__lsn": 5, "__source_ts_ms": 9} | more


@pytest.mark.parametrize(("deleted", "kind", "op"), [("true", D, "d"), ("false", "+I", "c")])
def test_flattened_row_without_an_operation_is_a_delete_if_it_says_so_else_the_row_as_it_is_now(deleted, kind, op):
    value = NEW | {"__deleted": deleted, "__lsn": 5}
    assert [(c.kind, c.op) for c in DECODER.changes(value, None)] == [(kind, op)]


@pytest.mark.parametrize(("decoder", "deleted"), [(DECODER, True), (RETRACT, "false")])
def test_flattened_row_without_an_operation_is_bad_where_it_does_not_say_what_it_replaces(decoder, deleted):
    value = NEW | {"__deleted": deleted, "__lsn": 5}
    assert refused(decoder, value) == ("unknown_operation", "op: got None; allowed: c, r, u, d, t")


def test_row_and_key_that_their_schema_does_not_fit_are_named():
    decimal = [{"field": "id", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}]
    for value, key, side in (
        (connect(decimal, {"id": "?"} | {"__op": "c"}, flat=True), None, "row"),
        (connect(decimal, envelope("c", 5, after={"id": "?"})), None, "after"),
        (connect(decimal, envelope("d", 5, before={"id": "?"})), None, "before"),
        (envelope("d", 5), json.dumps({"schema": {"fields": decimal}, "payload": {"id": "?"}}), "key"),
    ):
        reason, detail = refused(DECODER, value, key)
        assert (reason, detail.partition(":")[0]) == ("schema_mismatch", side)
        assert detail.endswith("; allowed: values in the form that the record's schema gives")


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize(("ts_ms", "lsn"), [(7, -(2**63) + 7), (0, -(2**63)), (-5, -(2**63)), (None, -(2**63))])
def test_snapshot_row_without_a_place_stands_below_all_by_its_time(flat, ts_ms, lsn):
    value = (
        flattened(__op="r", __lsn=None, __source_ts_ms=ts_ms) if flat else envelope("r", None, after=NEW, ts_ms=ts_ms)
    )
    assert parts(DECODER.changes(value, None)) == [(N, NEW, "r", lsn, ts_ms)]


def test_place_of_a_change_has_each_column_of_the_sequence_in_its_order():
    decoder = DebeziumDecoder(("id",), sequence=("_ts_ms", "n", "_file", "_pos", "_row", "_lsn"))
    source = {"file": "a.b.000012", "pos": 4, "row": 0, "ts_ms": 9}
    [only] = decoder.changes(envelope("u", None, after=NEW, **source), None)
    assert only.position == (9, 12, 4, 0, None)
    assert DebeziumDecoder(("id",), sequence=("n",)).changes(envelope("u", 5, after=NEW), None)[0].position == ()


def test_flattened_row_that_names_no_table_is_of_the_table_asked_for():
    assert len(DebeziumDecoder(("id",), table="shop.orders").changes(flattened(), None)) == 1


def test_fields_of_what_is_no_change_are_named_the_first_eight():
    reason, detail = refused(DECODER, dict.fromkeys("ihgfedcba"))
    assert (reason, detail.partition(";")[0]) == ("not_a_change", "got fields ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']")


@pytest.mark.parametrize(
    ("number", "scale", "text"), [(150, 2, "1.50"), (-150, 2, "-1.50"), (0, 0, "0"), (7, -2, "7E+2"), (-1, 3, "-0.001")]
)
def test_unscaled_decimal_is_read_exactly(number, scale, text):
    row = {"any": {"scale": scale, "value": unscaled(number)}}
    [only] = DECODER.changes(connect(FIELDS, envelope("c", 5, after=row)), None)
    assert only.row == {"any": text}


def test_bits_stand_with_the_lowest_byte_first():
    fields = [{"field": "flags", "name": "io.debezium.data.Bits"}, {"field": "id"}]
    rows = [{"id": 1, "flags": flags} for flags in ("AQI=", None, True)]
    found = [DECODER.changes(connect(fields, envelope("c", 5, after=row)), None)[0].row["flags"] for row in rows]
    assert found == [0x0201, None, True]


BY_TIME = DebeziumDecoder(("id",), sequence=("at", "_lsn"))
FILLED = [{"at": None}, {"at": 0}, {"at": ""}, {"at": False}, {"at": "1970-01-01T00:00:00Z"}, {"at": 0, "n": None}]


@pytest.mark.parametrize("filler", FILLED)
def test_row_before_that_is_filled_up_gives_no_sequence(filler):
    before, after = {"id": 1} | filler, {"id": 2, "at": 7, "n": 1}
    [deleted] = BY_TIME.changes(envelope("d", 5, before=before), None)
    assert deleted.row == {"id": 1}
    gone, _ = BY_TIME.changes(envelope("u", 5, before=before, after=after), None)
    assert gone.row == before | {"at": 7}


@pytest.mark.parametrize("before", [{"id": 1, "at": 5}, {"id": 1, "at": 0, "n": 3}, {"id": 1, "at": "1970-01-02"}])
def test_row_before_that_is_whole_keeps_its_own_sequence(before):
    [deleted] = BY_TIME.changes(envelope("d", 5, before=before), None)
    gone, moved = BY_TIME.changes(envelope("u", 5, before=before, after={"id": 2, "at": 7}), None)
    assert (deleted.row, gone.row, moved.other_row) == (before, before, before)


def test_row_that_lacks_the_sequence_leaves_its_old_key_without_one():
    gone, _ = BY_TIME.changes(envelope("u", 5, before={"id": 1}, after={"id": 2, "n": 1}), None)
    assert gone.row == {"id": 1}


@pytest.mark.parametrize(("before", "op"), [({"id": 1}, "u"), (None, "u"), ({"id": 1}, "d"), (None, "d")])
def test_retraction_without_its_row_says_what_it_got_and_what_to_do(before, op):
    decoder = DebeziumDecoder(("id",), retract=True, columns=("id", "n"))
    reason, detail = refused(decoder, envelope(op, 5, before=before, after=NEW if op == "u" else None))
    assert reason == "missing_before"
    assert detail.startswith(f"before: got {before!r}; allowed: the whole row, which op '{op}' needs")
    assert "Next: order: {sequence: ...} or upsert" in detail
    assert "Oracle: supplemental logging" in detail


@pytest.mark.parametrize("before", [{"id": 1, "n": None}, {"n": 2}])
def test_retraction_with_any_other_column_is_taken_for_whole(before):
    decoder = DebeziumDecoder(("id",), retract=True, columns=("id", "n", "m"))
    assert [c.row for c in decoder.changes(envelope("d", 5, before=before), None)] == [before]


@pytest.mark.parametrize("op", ["d", "u", "c"])
def test_every_change_of_a_record_has_its_units_place_and_time(op):
    fields = [{"field": "at", "name": "org.apache.kafka.connect.data.Timestamp"}, {"field": "id"}]
    before, after = {"id": 1, "at": 1}, {"id": 2, "at": 2}
    sides = {"d": {"before": before}, "u": {"before": before, "after": after}, "c": {"after": after}}[op]
    for decoder in (DECODER, RETRACT):
        changes = decoder.changes(connect(fields, envelope(op, 5, ts_ms=9, **sides)), None)
        assert {(c.op, c.position, c.event_ms, c.units["at"]) for c in changes} == {(op, (5,), 9, "ms")}
    assert DECODER.changes(envelope("c", 5, after=NEW), None)[0].units is None


@pytest.mark.parametrize("after", [{"id": 1}, {"id": 1, "n": 9}])
def test_update_that_keeps_its_key_or_brings_no_row_before_is_one_change(after):
    for before in (None, {}, {"n": 1}, {"id": None, "n": 1}, {"id": 1, "n": 2}):
        [only] = DECODER.changes(envelope("u", 5, before=before, after=after), None)
        assert (only.kind, only.row, only.other_row) == (A, after, None)


@pytest.mark.parametrize("message", [MESSAGE, {"__op": "m", "id": 1}])
def test_message_is_a_change_of_a_kind_of_its_own(message):
    assert DebeziumDecoder(("id",), table="orders").changes(message, None) == [DecodedChange(NOT_A_ROW, None)]


def test_file_of_a_log_is_named_where_it_is_bad():
    by_file = DebeziumDecoder(("id",), sequence=("_file", "_pos"))
    for value, name in ((envelope("c", None, after=NEW, file="x"), "source.file"), (flattened(__file="x"), "__file")):
        assert refused(by_file, value) == (
            "bad_sequence",
            f"{name}: got 'x'; allowed: a name that ends in . and a number",
        )


def test_flattened_update_has_no_row_before_to_retract():
    assert refused(RETRACT, flattened(__op="u"))[0] == "missing_before"


def test_column_that_its_schema_has_not_is_read_as_it_is():
    [only] = DECODER.changes(connect([{"field": "id"}], envelope("c", 5, after=NEW)), None)
    assert only.row == NEW
