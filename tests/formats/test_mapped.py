"""Records of any tool, by a map: what is read of them, what is bad."""

import json
import random
from decimal import Decimal

import pytest
from frame.circumstances import assume
from inputs.lines import staged
from inputs.tool_records import SCHEMA, WRITERS, history, lines, records
from pydantic import ValidationError

from ebbtide import UpsertPipeline
from ebbtide.formats import TOOLS, BadRecordError, MappedDecoder
from ebbtide.spec import MappedFormat
from ebbtide.testing import MemoryPipeline

BY_KEY = {"order": "upsert"}


def spec(format_, schema=SCHEMA, **fields):
    source = {"path": "in", "records": "value"} | fields.pop("source", {})
    return UpsertPipeline(
        name="t",
        source=source,
        format=format_,
        schema=schema,
        key=["id"],
        order=fields.pop("order", "arrival"),
        **fields,
    )


def played(format_, values, schema=SCHEMA, **fields):
    pipeline = MemoryPipeline(spec(format_, schema, **fields))
    pipeline.step([value if isinstance(value, str) else json.dumps(value) for value in values])
    return pipeline


def decoder(**fields):
    given = {
        "type": "mapped",
        "operation": {"field": "op", "insert": ["I", 2], "update": ["U"], "delete": ["D"], "ignore": ["X"]},
    }
    return MappedDecoder(MappedFormat.model_validate(given | fields).map, key=("id",))


def kinds(changes):
    return [(str(change.kind), change.row) for change in changes]


ORDERS = {
    "upsert": {"order": "upsert"},
    "arrival": {},
    "arrival by key": {"materializer": {"upsert_key": ["id"]}},
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", WRITERS)
def test_history_of_each_tool_leaves_the_rows_of_its_table(name, order):
    writer = WRITERS[name]
    is_refused = order == "arrival" and TOOLS[writer.format].before is None
    if is_refused:
        with pytest.raises(ValidationError, match=r"order: got arrival; allowed: upsert, or materializer\.upsert_key"):
            spec({"type": writer.format})
        return
    for seed in range(3):
        written, rows = records(writer, seed)
        pipeline = played({"type": writer.format}, lines(written), **ORDERS[order])
        assert (pipeline.rows(), pipeline.quarantine) == (rows, [])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name, writer in WRITERS.items() if writer.sequence])
def test_history_by_its_positions_is_right_in_any_order_with_repeats_and_cuts(name, seed):
    writer = WRITERS[name]
    written, rows = records(writer, seed)
    draw = random.Random(seed)
    delivered = lines(written) + draw.sample(lines(written), 20)
    draw.shuffle(delivered)
    pipeline = MemoryPipeline(spec({"type": writer.format}, order={"sequence": list(writer.sequence)}))
    while delivered:
        n = draw.randint(1, len(delivered))
        pipeline.step(delivered[:n])
        del delivered[:n]
    assert (pipeline.rows(), pipeline.quarantine) == (rows, [])


def test_snapshot_row_without_a_position_ranks_below_changes_and_by_its_time_among_such_rows():
    fields = {
        "type": "mapped",
        "operation": {"field": "op", "insert": ["I"], "snapshot": ["R"], "delete": ["D"]},
        "position": [{"field": "meta.lsn", "type": "lsn"}],
        "event_time": {"field": "at"},
    }
    values = [
        {"op": "R", "id": 1, "v": "read", "at": 9},
        {"op": "R", "id": 2, "v": "later", "at": 9},
        {"op": "R", "id": 2, "v": "earlier", "at": 7},
        {"op": "I", "id": 1, "v": "changed", "at": 5, "meta": {"lsn": "0/16B3748"}},
        {"op": "D", "id": 3, "v": "", "at": 5, "meta": {"lsn": "0/16B3749"}},
        {"op": "R", "id": 3, "v": "read", "at": 9},
    ]
    for ordered in (values, values[::-1]):
        pipeline = played(fields, ordered, schema="id BIGINT, v STRING", order={"sequence": ["meta.lsn"]})
        assert pipeline.rows() == [{"id": 1, "v": "changed"}, {"id": 2, "v": "later"}]
    lacking = played(
        fields,
        [{"op": "I", "id": 1, "v": "a", "at": 1}],
        schema="id BIGINT, v STRING",
        order={"sequence": ["meta.lsn"]},
    )
    assert [record["_reason"] for record in lacking.quarantine] == ["null_sequence"]


def test_position_has_a_type_or_is_known_to_the_map():
    assert spec({"type": "mapped", "position": ["meta.lsn"]}, order={"sequence": ["meta.lsn"]}).sequence == (
        "_meta_lsn",
    )
    typed = {"sequence": [{"field": "meta.lsn", "type": "number"}]}
    assert spec({"type": "mapped"}, order=typed).sequence == ("_meta_lsn",)
    with pytest.raises(
        ValidationError, match=r"order\.sequence: got meta\.lsn; allowed: .*\{field: meta\.version, type: number\}"
    ):
        spec({"type": "mapped"}, order={"sequence": ["meta.lsn"]})
    with pytest.raises(
        ValidationError, match=r"got xid; allowed: .*fields of the records: position, xoffset; or any other"
    ):
        spec({"type": "maxwell"}, order={"sequence": ["xid"]})


@pytest.mark.parametrize(
    ("word", "fields", "made"),
    [
        ("I", {}, [("+I", {"id": 1})]),
        (2, {}, [("+I", {"id": 1})]),
        ("U", {}, [("+U", {"id": 1})]),
        ("D", {}, [("-D", {"id": 1})]),
        ("X", {}, [("not_a_row", None)]),
    ],
)
def test_words_say_what_happened(word, fields, made):
    assert kinds(decoder().changes({"op": word, "id": 1, **fields}, None)) == made


def test_unknown_word_is_bad_with_those_that_are_known():
    for word in ("u", None, 1, True, ["I"]):
        with pytest.raises(BadRecordError, match=r"unknown_operation: op: got .*; allowed: I, 2, U, D, X"):
            decoder().changes({"op": word, "id": 1}, None)


def test_record_without_the_field_is_what_null_means():
    of_loads = decoder(operation={"field": "Op", "insert": ["I", None], "delete": ["D"]})
    assert kinds(of_loads.changes({"id": 1}, None)) == [("+I", {"id": 1})]


def test_update_that_changes_the_key_deletes_the_old_key():
    of_old = decoder(row="data", before="old")
    moved = {"op": "U", "data": {"id": 2, "v": "b"}, "old": {"id": 1}}
    assert kinds(of_old.changes(moved, None)) == [("-U", {"id": 1, "v": "b"}), ("+U", {"id": 2, "v": "b"})]
    kept = {"op": "U", "data": {"id": 2, "v": "b"}, "old": {"v": "a"}}
    assert kinds(of_old.changes(kept, None)) == [("+U", {"id": 2, "v": "b"})]
    unknown = {"op": "U", "data": {"id": 2, "v": "b"}}
    assert kinds(of_old.changes(unknown, None)) == [("+U", {"id": 2, "v": "b"})]


def test_update_by_arrival_retracts_the_whole_old_row_or_is_bad():
    fields = {"operation": {"field": "op", "insert": ["I"], "update": ["U"]}, "row": "data", "before": "old"}
    pipeline = played(
        {"type": "mapped", **fields},
        [
            {"op": "I", "data": {"id": 1, "v": "a"}},
            {"op": "U", "data": {"id": 1, "v": "b"}, "old": {"v": "a"}},
            {"op": "U", "data": {"id": 1, "v": "c"}},
        ],
        schema="id BIGINT, v STRING",
    )
    assert (pipeline.rows(), pipeline.metrics["unmatched"]) == ([{"id": 1, "v": "b"}], 0)
    assert [record["_reason"] for record in pipeline.quarantine] == ["missing_before"]


def test_rows_of_an_array_are_changes_in_their_order():
    of_arrays = decoder(row="data", before="old")
    value = {"op": "U", "data": [{"id": 1, "v": "b"}, {"id": 3}], "old": [{"v": "a"}, {"id": 2}]}
    assert kinds(of_arrays.changes(value, None)) == [("+U", {"id": 1, "v": "b"}), ("-U", {"id": 2}), ("+U", {"id": 3})]
    with pytest.raises(BadRecordError, match="got 2 rows and 1 rows before them"):
        of_arrays.changes(value | {"old": [{}]}, None)


@pytest.mark.parametrize("row", [None, "x", 1, [1], [None]])
def test_row_that_is_no_object_is_bad(row):
    with pytest.raises(BadRecordError, match=r"not_a_row: data\.row: got"):
        decoder(row="data.row").changes({"op": "I", "data": {"row": row}}, None)


IMAGES = {"type": "mapped", "row": "after", "before": "before", "position": ["pos"]}


@pytest.mark.parametrize("n", [2, 400], ids=["one by one", "scanned"])
def test_row_that_was_and_is_not_is_deleted_where_nothing_names_the_operation(n):
    created = [{"before": None, "after": {"id": i, "n": 0}, "pos": i} for i in range(2 * n)]
    deleted = [{"before": {"id": i, "n": 0}, "after": None, "pos": 2 * n + i} for i in range(n)]
    read = [*deleted, *created, {"resolved": "1767225601000000000.0000000000"}]
    pipeline = played(IMAGES, read, "id BIGINT NOT NULL, n INT", order={"sequence": ["pos"]})
    assert [row["id"] for row in pipeline.rows()] == list(range(n, 2 * n))
    assert pipeline.quarantine == []


@pytest.mark.parametrize("n", [2, 400], ids=["one by one", "scanned"])
def test_columns_of_the_key_that_a_row_lacks_are_those_of_the_records_key(n):
    pipeline = MemoryPipeline(
        spec({"type": "mapped"}, "id BIGINT NOT NULL, n INT", order="upsert", source={"records": "kafka"})
    )
    kafka = []
    for value in ({"n": 1}, {"id": -1, "n": 2}):  # a row's own column comes first
        for i in range(n):
            place = {"topic": "t", "partition": 0, "offset": len(kafka)}
            kafka.append({**place, "key": json.dumps({"id": i}), "value": json.dumps(value)})
    pipeline.step(list(map(json.dumps, kafka)))
    assert sorted((row["id"], row["n"]) for row in pipeline.rows()) == [(-1, 2), *((i, 1) for i in range(n))]


def test_delete_takes_its_row_from_before_where_it_has_none():
    assert kinds(decoder(row="new", before="old").changes({"op": "D", "new": None, "old": {"id": 1}}, None)) == [
        ("-D", {"id": 1})
    ]


@pytest.mark.parametrize(
    ("mark", "is_deleted"),
    [
        *((mark, True) for mark in (True, 1, "1", "true", "2026-01-01T00:00:00Z")),
        *((mark, False) for mark in (False, 0, "false", "", None)),
    ],
)
def test_mark_of_a_deleted_row(mark, is_deleted):
    of_marks = decoder(operation=None, deleted="gone")
    [change] = of_marks.changes({"id": 1, "gone": mark}, None)
    assert (change.kind, change.row) == ("-D" if is_deleted else "+U", {"id": 1})


@pytest.mark.parametrize("mark", ["no", 2, 1.5, {}, []])
def test_mark_that_is_none_is_bad(mark):
    with pytest.raises(BadRecordError, match="bad_deleted: gone"):
        decoder(operation=None, deleted="gone").changes({"id": 1, "gone": mark}, None)


def test_field_of_the_map_is_a_column_where_the_schema_has_it():
    fields = {"type": "mapped", "operation": {"field": "op", "insert": ["I"]}}
    assert played(fields, [{"op": "I", "id": 1}], schema="id BIGINT, op STRING", **BY_KEY).rows() == [
        {"id": 1, "op": "I"}
    ]


def test_other_tables_are_left_out_and_a_record_without_a_table_is_bad():
    fields = {"type": "mapped", "operation": {"field": "op", "insert": ["I"], "ignore": ["DDL"]}, "table": ["db", "t"]}
    values = [
        {"op": "I", "id": 1, "db": "shop", "t": "orders"},
        {"op": "I", "id": 2, "db": "shop", "t": "users"},
        {"op": "I", "id": 3, "t": "orders"},
        {"op": "DDL"},
    ]
    for wanted in ("orders", "shop.orders"):
        pipeline = played(fields, values, schema="id BIGINT", source={"table": wanted}, **BY_KEY)
        assert pipeline.rows() == [{"id": 1}]
        assert (pipeline.metrics["other_tables"], pipeline.metrics["not_rows"]) == (1, 1)
        assert [record["_reason"] for record in pipeline.quarantine] == ["missing_table"]
    with pytest.raises(ValidationError, match=r"source\.table"):
        spec({"type": "mapped"}, source={"table": "orders"})


@pytest.mark.parametrize(
    ("time", "unit", "ms"),
    [
        (1, "s", 1000),
        ("7", "ms", 7),
        (1_999, "us", 1),
        (-1, "us", -1),
        (447984084414103554, "tso", 1708923661858),
        ("2024-10-28T21:37:01.127470Z", "ms", 1730151421127),
        ("2024-10-28 21:37:01", "ms", 1730151421000),
        ("2024-10-28T23:37:01+02:00", "ms", 1730151421000),
        (None, "ms", None),
    ],
)
def test_event_time(time, unit, ms):
    of_times = decoder(event_time={"field": "at", "unit": unit})
    [change] = of_times.changes({"op": "I", "id": 1, "at": time}, None)
    assert change.event_ms == ms


@pytest.mark.parametrize("time", ["soon", 1.5, True, [], 2**80])
def test_event_time_that_is_none_is_bad(time):
    with pytest.raises(BadRecordError, match="bad_event_time: at: got"):
        decoder(event_time={"field": "at", "unit": "ms"}).changes({"op": "I", "id": 1, "at": time}, None)


@pytest.mark.parametrize(
    ("tool", "coding", "text", "type_", "value"),
    [
        *(("canal", None, text, "BIGINT", number) for text, number in (("9223372036854775807", 2**63 - 1), ("-7", -7))),
        ("canal", None, "1e3", "DOUBLE", 1000.0),
        ("canal", None, "0", "BOOLEAN", False),
        ("canal", None, "1.10", "DECIMAL(6,2)", Decimal("1.10")),
        ("canal", None, "\u0005ÿ", "BINARY", b"\x05\xff"),
        ("canal", "hex", "deadbeef", "BINARY", b"\xde\xad\xbe\xef"),
        ("canal", "base64", "3q2+7w==", "BINARY", b"\xde\xad\xbe\xef"),
        ("ticdc", None, "3q2+7w==", "BINARY", b"\xde\xad\xbe\xef"),
        ("ticdc", "hex", "deadbeef", "BINARY", b"\xde\xad\xbe\xef"),
        ("canal", None, "12x", "BIGINT", "wrong_type"),
    ],
)
def test_text_of_a_tool_is_read_by_its_column_as_the_tool_writes_it_or_as_the_spec_says(
    tool, coding, text, type_, value
):
    changes, _ = history(0, 1)
    record = WRITERS[tool].write(changes[0])
    record["data"] = {"id": "1", "b": text} if tool == "ticdc" else [{"id": "1", "b": text}]
    format_ = {"type": tool} | ({"encodings": {"b": coding}} if coding else {})
    pipeline = played(format_, [record], schema=f"id BIGINT, b {type_}", **BY_KEY)
    found = [row["b"] for row in pipeline.rows()] + [bad["_reason"] for bad in pipeline.quarantine]
    assert found == [value]


def test_time_with_its_zone_beside_it_is_read_as_ticdc_writes_it():
    changes, _ = history(0, 1)
    rows = [
        {"id": "1", "at": {"location": "Asia/Shanghai", "value": "2026-01-31 12:00:00.5"}},
        {"id": "2", "at": {"location": "Nowhere", "value": "2026-01-31 12:00:00"}},
    ]
    values = [WRITERS["ticdc"].write(changes[0]) | {"data": row} for row in rows]
    pipeline = played({"type": "ticdc"}, values, schema="id BIGINT, at TIMESTAMP", **BY_KEY)
    [row] = pipeline.rows()
    assert row["at"].isoformat() == "2026-01-31T04:00:00.500000+00:00"
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["wrong_type"]


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        ("int(11)", "BIGINT"),
        ("bigint(20) unsigned", "DECIMAL(20,0)"),
        ("tinyint(1)", "SMALLINT"),
        ("decimal", ""),
        ("decimal(65,2)", ""),
        ("enum('a','b')", "STRING"),
        ("datetime(6)", "TIMESTAMP_NTZ"),
        ("varbinary(16)", "BINARY"),
        ("double", "DOUBLE"),
        ("point", ""),
        ("", ""),
    ],
)
def test_columns_of_mysql_s_types(given, type_):
    changes, _ = history(0, 1)
    record = WRITERS["canal"].write(changes[0]) | {"mysqlType": {"v": given}}
    [change] = MappedDecoder(TOOLS["canal"], key=("id",)).changes(record, None)
    assert change.schema.type_of("v") == type_


def test_times_without_a_zone_are_utc_where_the_spec_says_so():
    values = [{"op": "I", "id": 1, "at": "2026-01-01 10:05:00.5"}]
    fields = {"type": "mapped", "operation": {"field": "op", "insert": ["I"]}}
    bad = played(fields, values, schema="id BIGINT, at TIMESTAMP", **BY_KEY)
    assert [record["_reason"] for record in bad.quarantine] == ["wrong_type"]
    [row] = played(fields | {"time_zone": "UTC"}, values, schema="id BIGINT, at TIMESTAMP", **BY_KEY).rows()
    assert row["at"].isoformat() == "2026-01-01T10:05:00.500000+00:00"


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ({"field": "op"}, "values of insert"),
        ({"field": "op", "insert": ["I"], "delete": ["I"]}, "each value once"),
        ({"insert": ["I"]}, "operation"),
        ({"field": "op", "inserts": ["I"]}, "did you mean 'insert'"),
    ],
)
def test_operation_that_says_nothing_is_refused(operation, said):
    with pytest.raises(ValidationError, match=said):
        spec({"type": "mapped", "operation": operation})


ODD = {
    "no row": {"data": None},
    "row of text": {"data": "x"},
    "unknown word": {"type": "frob"},
    "word that is none": {"type": True},
    "no word": {"type": None},
    "another table": {"table": "users"},
    "no table": {"table": None},
    "DDL": {"type": "table-drop"},
    "old of text": {"old": "x"},
    "old with the key": {"old": {"id": 2**53 + 1}},
    "a new key": {"old": {"id": 5}},
    "time that is none": {"ts": "soon"},
    "unknown column": {"data": {"id": 1, "v": "a", "n": 1, "total": "1.00", "more": [1]}},
    "amount as a number": {"data": {"id": 1, "v": "a", "n": 1, "total": 10.10}},
    "wrong type": {"data": {"id": "x", "v": "a", "n": 1, "total": "1.00"}},
    "no column": {"data": {"id": 1}},
}


@pytest.mark.parametrize("order", ["upsert", "arrival"])
def test_records_are_the_same_scanned_and_on_the_exact_path(order):
    written, _ = records(WRITERS["maxwell"], seed=2, n=40)
    common = next(record for record in written if record["type"] == "update")
    odd = [common | fields for fields in ODD.values()]
    values = [json.dumps(record) for record in [*written, *odd]]
    of_orders = spec({"type": "maxwell"}, source={"table": "orders"}, order=order)

    def decoded():
        return sorted(
            staged(of_orders.decoding, values).to_pylist(),
            key=lambda row: (row["_order"]["position"], str(row["_kind"])),
        )

    exact = decoded()
    assume("compiled")
    assert exact == decoded()


@pytest.mark.parametrize("way", ["compiled", "not compiled"])
def test_columns_beside_marks_within_objects_are_the_row(way):
    assume(way)
    fields = {"type": "mapped", "operation": {"field": "meta.op", "insert": ["I"]}}
    pipeline = played(fields, [{"meta": {"op": "I"}, "id": 1}, {"id": 2}], schema="id BIGINT", **BY_KEY)
    assert pipeline.rows() == [{"id": 1}]
    assert [record["_reason"] for record in pipeline.quarantine] == ["unknown_operation"]


CONNECT = {
    "type": "struct",
    "fields": [
        {"field": "op", "type": "string"},
        {"field": "data", "type": "struct", "fields": [
            {"field": "id", "type": "int64"},
            {"field": "at", "type": "int64", "name": "io.debezium.time.Timestamp"},
        ]},
    ],
}  # fmt: skip


def test_record_with_connect_s_schema_is_read_by_it():
    fields = {"type": "mapped", "operation": {"field": "op", "insert": ["I"]}, "row": "data"}
    value = {"schema": CONNECT, "payload": {"op": "I", "data": {"id": 1, "at": 1_500}}}
    [row] = played(fields, [value], schema="id BIGINT, at TIMESTAMP_NTZ", **BY_KEY).rows()
    assert row["at"].isoformat() == "1970-01-01T00:00:01.500000"
    own = {"type": "mapped", "operation": {"field": "op", "insert": ["I", None]}}
    assert kinds(MappedDecoder(MappedFormat.model_validate(own).map).changes({"schema": 1, "payload": {}}, None)) == [
        ("+I", {"schema": 1, "payload": {}})
    ]
