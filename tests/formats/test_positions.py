"""The values of a position's fields, and the fields that a spec and a sample name."""

import itertools
import json
import math
import random
from decimal import Decimal

import pytest
from local.support import cut, envelope, spec

from ebbtide.formats import BadRecordError, DebeziumEvent, PositionField
from ebbtide.formats._debezium_envelope import METADATA, ORDERS
from ebbtide.testing import MemoryPipeline

ASCENDING = {
    "number": [0, "00000000000000000009", 10, "11", 12.0, Decimal("7E+3"), float(2**53 - 1), 2**63 - 1],
    "decimal": [0, "999", 1e3, 1001, "1002", 10**18 - 1, 10**18, str(2**64), 10**36 - 1],
    "lsn": ["00000027:00000758:0003", "00000027:00000ac0:0002", "00000028:00000000:0000", "ffffffff:ffffffff:ffff"],
    "gtid": ["3E11FA47-71CA-11E1-9E33-C80AA9429562:9", "3e11fa47:10", "0-1-270", "a:tag:1000"],
    "binlog_file": ["bin.000003", "a.b.7", ".8", "bin.1000000", "bin." + "9" * 18],
    "hlc": [
        "9.0000000000",
        "1767225600000000000.0000000002",
        "1767225600000000000.0000000010",
        "1767225600000000001.0000000000",
    ],
    "timestamp": [
        *("1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000001Z"),
        *("2026-01-01T01:00:00+00:30", "2026-01-01 00:30:00.5", "2262-01-01T00:00:00Z"),
    ],
}
BAD = {
    "number": [-1, 2**63, "1.5", "", True, 1.5, -1.0, float(2**53), math.inf, math.nan, "\u0663", "9" * 5000, ["1"]],
    "decimal": [-1, 10**36, "1" * 37, "1e3", False],
    "lsn": ["", "g", "0x", "1:", -1, "f" * 32, "1:4::0:0", "1/2/3"],
    "gtid": ["", "a", "a:", "1", 5, "a:1x", "a:" + "1" * 19],
    "binlog_file": ["bin.1x", "bin.\u0663", "bin.", "bin", "", "bin." + "1" * 19, 3, ["a.1"]],
    "hlc": ["", "1", "1.2", "1.00000000000", "9" * 19 + ".0000000000", "-1.0000000000", 1.5],
    "timestamp": ["", "2026-01-01", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "2263-01-01T00:00:00Z", 5],
}


@pytest.mark.parametrize("type_", ASCENDING)
def test_numbers_of_values_ascend_as_the_values_do(type_):
    field = PositionField("source.x", type_)
    numbers = [field.read(value) for value in ASCENDING[type_]]
    assert numbers == sorted(set(numbers))
    assert {len(each) for each in numbers} == {len(field.columns)}
    assert all(0 <= number < 2**63 for number in itertools.chain(*numbers))


@pytest.mark.parametrize(("type_", "value"), [(type_, value) for type_, values in BAD.items() for value in values])
def test_value_of_no_such_type_is_named(type_, value):
    with pytest.raises(BadRecordError, match=r"^bad_sequence: source.x: got .*; allowed: "):
        PositionField("source.x", type_).read(value)


def test_lsn_of_postgres_is_the_same_as_text_and_as_a_number():
    field = PositionField("source.lsn", "lsn")
    assert field.read("0/16B3748") == field.read(0x16B3748)
    assert field.read("1/0") == field.read(2**32)


def test_field_is_named_by_its_path_or_as_a_flattened_row_has_it():
    named = [spec(order={"sequence": [name]}).identity["order"] for name in ("source.scn", "__source_scn", "__scn")]
    stated = spec(order={"sequence": [{"field": "source.scn", "type": "decimal"}]})
    assert named == [stated.identity["order"]] * 3


@pytest.mark.parametrize("name", ["_lsn", "source.lsn", "__lsn", "__source_lsn"])
def test_short_name_is_the_field_itself(name):
    own = spec(order={"sequence": [name]})
    assert own.sequence == ("_lsn",)
    assert own.identity["order"] == ["_lsn"]


def test_field_with_another_type_is_another_order():
    stated = [{"field": "source.version", "type": type_} for type_ in ("number", "gtid")]
    of_number, of_gtid = (spec(order={"sequence": [each]}) for each in stated)
    assert of_number.sequence == of_gtid.sequence == ("_version",)
    assert of_number.identity["order"] != of_gtid.identity["order"]


@pytest.mark.parametrize(
    ("sequence", "schema"),
    [
        ("auto", ""),
        (["source.version"], ""),
        (["row.scn"], ""),
        ([{"field": "scn", "type": "number"}], ""),
        (["source.scn", "id"], ""),
        (["source.scn", "__scn"], ""),
        (["source.pos"], ""),
        (["source.scn"], ", _scn_2 INT"),
    ],
)
def test_sequence_that_is_no_position_is_refused(sequence, schema):
    with pytest.raises(ValueError, match=r"order\.sequence|schema: got _scn_2"):
        spec(f"id BIGINT NOT NULL, n INT{schema}", order={"sequence": sequence})


class Log:
    """The log of one connector: changes of a few rows at rising positions, as its envelopes have them."""

    def __init__(self, connector, is_flattened):
        self.connector = connector
        self.is_flattened = is_flattened

    def position(self, at):
        """The position fields of the change at a place in the log."""
        in_transaction = 1 + at % 3
        transaction = at // 3
        lsn = f"{transaction >> 16:08x}:{transaction & 65535:08x}:0001"
        return {
            "postgresql": {"lsn": 2**40 + at},
            "mysql": {"file": f"bin.{99999 + transaction}", "pos": 4 + in_transaction, "row": at % 2},
            "mariadb": {"file": f"mariadb-bin.{99999 + transaction}", "pos": 4 + in_transaction, "row": at % 2},
            "sqlserver": {"commit_lsn": lsn, "change_lsn": lsn[:-4] + "000a", "event_serial_no": in_transaction},
            "oracle": {"scn": str(998 + transaction), "rs_id": f"0x0000a8.{in_transaction:08x}.0010", "ssn": 0},
            "db2": {"commit_lsn": lsn, "change_lsn": f"{at:08x}:0000"},
            "informix": {"commit_lsn": f"{99 + transaction}", "change_lsn": f"{98 + at}"},
            "vitess": {
                "transaction_epoch": 0,
                "transaction_rank": str(2**70 + transaction),
                "total_order": in_transaction,
            },
            "mongodb": {"ts_ms": 1000 * transaction, "ord": in_transaction},
            "ticdc": {"commit_ts": 450000000000000000 + at, "file": "", "pos": 0, "row": 0},
            "yugabytedb": {"commit_time": 10**18 + transaction, "record_time": 98 + at, "lsn": "1:4::0:0"},
        }[self.connector]

    def event(self, op, at, row, before=None):
        """The event of a change."""
        position = self.position(at)
        part = "transaction" if self.connector == "vitess" else "source"
        if self.is_flattened:
            fields = {f"__{part}_{name}": value for name, value in position.items()}
            return {**(row or before), "__op": op, "__connector": self.connector, "__table": "t", **fields}
        event = envelope(op, None, before=before, after=row, connector=self.connector, table="t", ts_ms=1000 * at)
        del event["source"]["lsn"]
        event.setdefault(part, {}).update(position)
        return event

    def history(self, draw, n):
        """Some changes of two rows, and the rows at the end."""
        rows, events = {}, []
        for at in range(n):
            key = draw.choice([1, 2])
            before = rows.get(key)
            if before and draw.random() < 0.3:
                del rows[key]
                events.append(self.event("d", at, None, before))
            else:
                rows[key] = {"id": key, "n": at}
                events.append(self.event("u" if before else "c", at, rows[key], before))
        return events, [rows[key] for key in sorted(rows)]


@pytest.mark.parametrize("is_flattened", [False, True], ids=["envelope", "flattened"])
@pytest.mark.parametrize("connector", ORDERS)
def test_any_arrival_cut_and_redelivery_gives_the_rows_of_the_source(connector, is_flattened):
    draw = random.Random(f"{connector}{is_flattened}")
    events, expected = Log(connector, is_flattened).history(draw, 24)
    origin = DebeziumEvent.of(events[0])
    pipeline = MemoryPipeline(spec(order={"sequence": [*origin.sequence]}, source={"path": "in", "records": "value"}))
    arrived = [*events, *draw.sample(events, 8)]
    draw.shuffle(arrived)
    for part in cut(arrived, [draw.randrange(32) for _ in range(3)]):
        pipeline.step(map(json.dumps, part))
    assert pipeline.quarantine == []
    assert pipeline.rows() == expected
    assert pipeline.metrics["conflicts"] == 0


@pytest.mark.parametrize("connector", ["sqlserver", "oracle"])
def test_snapshot_row_without_the_fields_of_a_change_stands_before_the_changes_of_its_commit(connector):
    log = Log(connector, is_flattened=False)
    snapshot = log.event("r", 3, {"id": 1, "n": 0})
    for name in ("change_lsn", "event_serial_no", "rs_id", "ssn"):
        if name in snapshot["source"]:
            snapshot["source"][name] = None
    update = log.event("u", 4, {"id": 1, "n": 4})
    sequence = [*DebeziumEvent.of(update).sequence]
    for events in itertools.permutations([snapshot, update, log.event("c", 2, {"id": 1, "n": 2})]):
        pipeline = MemoryPipeline(spec(order={"sequence": sequence}, source={"path": "in", "records": "value"}))
        for event in events:
            pipeline.step([json.dumps(event)])
        assert (pipeline.rows(), pipeline.quarantine) == ([{"id": 1, "n": 4}], [])


FORMS = {
    PositionField("source.commit_lsn", "lsn"): (
        "0000002a:00000ac0:0002",
        "0000002A.00000ac1:0003",
        "2a:ac:2",
        "0/16B3748",
        "0x2a",
        "f" * 31,
    ),
    PositionField("source.scn", "decimal"): ("998", "0000000000000000000001", "1" * 36, "9" * 18, "9" * 19),
    PositionField("source.event_serial_no", "number"): ("7", "0" * 18, "9223372036854775807"),
}
NO_FORM = ("", "x", "2a::2", ":2", "f" * 40, "\u0663", "\u00e9" * 11, "-1", "1.5")


@pytest.mark.parametrize("field", FORMS, ids=lambda field: field.path)
@pytest.mark.parametrize("seed", range(4))
def test_positions_of_many_forms_in_one_step_are_those_that_they_are_alone(field, seed):
    chance = random.Random(seed)
    texts = [chance.choice([*FORMS[field], FORMS[field][0], *NO_FORM]) for _ in range(30)]
    want, n_bad = [], 0
    for text in texts:
        try:
            want.append(field.read(text))
        except BadRecordError:
            n_bad += 1
    events = []
    for key, text in enumerate(texts):
        event = envelope("c", 1, after={"id": key, "n": key})
        event["source"] = {"db": "d", field.path.removeprefix("source."): text}
        events.append(json.dumps(event))
    pipeline = MemoryPipeline(spec(order={"sequence": [field.path]}, source={"path": "in", "records": "value"}))
    pipeline.step(events)
    stored = sorted(pipeline.state.to_pylist(), key=lambda row: row["id"])
    assert [tuple(row["_sequence"][column] for column in field.columns) for row in stored] == want
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["bad_sequence"] * n_bad


@pytest.mark.parametrize("n", [3, 400], ids=["one by one", "scanned"])
def test_empty_text_in_a_snapshot_row_is_a_field_that_it_lacks(n):
    # As Flink CDC writes the file of a binary log.
    changes = [envelope("c", None, after={"id": i, "n": 1}, file="bin.000003", pos=4, row=i) for i in range(n)]
    read = [envelope("r", None, after={"id": i, "n": 0}, file="", pos=0, row=0) for i in range(2 * n)]
    pipeline = MemoryPipeline(
        spec(order={"sequence": ["_file", "_pos", "_row"]}, source={"path": "in", "records": "value"})
    )
    pipeline.step([json.dumps(event) for event in [*changes, *read]])
    assert {(row["id"] < n, row["n"]) for row in pipeline.rows()} == {(True, 1), (False, 0)}
    pipeline.step([json.dumps(envelope("u", None, after={"id": 0, "n": 2}, file="", pos=5, row=0))])
    assert [row["_reason"] for row in pipeline.quarantine] == ["bad_sequence"]


def test_change_without_a_field_of_its_position_is_bad():
    pipeline = MemoryPipeline(spec(order={"sequence": ["source.scn"]}, source={"path": "in", "records": "value"}))
    pipeline.step([json.dumps(envelope("c", 1, after={"id": 1, "n": 1}))])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["null_sequence"]


def test_metadata_of_a_flattened_row_is_no_column():
    source = {"path": "in", "records": "value"}
    pipeline = MemoryPipeline(spec(source=source, schema_evolution_mode="quarantine"))
    for name in (*METADATA, "__source_anything", "__transaction_anything"):
        pipeline.step([json.dumps({"id": 1, "n": 2, name: None} | {"__op": "c", "__lsn": 5})])
    assert (pipeline.rows(), pipeline.quarantine) == ([{"id": 1, "n": 2}], [])


def test_column_of_the_table_that_begins_with_two_underscores_is_one():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, __v INT, __lsn INT", source={"path": "in", "records": "value"}))
    pipeline.step([json.dumps({"id": 1, "__v": 2, "__op": "c", "__lsn": 5})])
    assert pipeline.rows() == [{"id": 1, "__v": 2, "__lsn": 5}]


def test_unknown_field_that_begins_with_two_underscores_is_an_unknown_column():
    pipeline = MemoryPipeline(spec(source={"path": "in", "records": "value"}, schema_evolution_mode="quarantine"))
    pipeline.step([json.dumps({"id": 1, "n": 2, "__v": 2, "__op": "c", "__lsn": 5})])
    assert [bad["_reason"] for bad in pipeline.quarantine] == ["unknown_column"]


def test_enriched_changefeed_of_cockroachdb_is_ordered_by_its_hybrid_clock():
    """Two changes of one nanosecond differ in the digits behind the point."""

    def event(op, clock, row):
        source = {"origin": "cockroachdb", "table_name": "t", "primary_keys": ["id"], "ts_hlc": clock}
        return json.dumps({"op": op, "before": None, "after": row, "source": source, "ts_ns": 1})

    changes = [
        event("c", "1767225600000000000.0000000000", {"id": 1, "n": 1}),
        event("u", "1767225600000000000.0000000002", {"id": 1, "n": 2}),
        event("u", "1767225600000000000.0000000010", {"id": 1, "n": 3}),
        event("c", "999999999999999999.0000000000", {"id": 2, "n": 4}),
        event("u", "1767225600000000000.0000000001", {"id": 2, "n": 5}),
    ]
    for order in itertools.permutations(changes):
        pipeline = MemoryPipeline(
            spec(
                source={"path": "in", "records": "value"},
                order={"sequence": [{"field": "source.ts_hlc", "type": "hlc"}]},
            )
        )
        pipeline.step(order[:3])
        pipeline.step(order[3:])
        assert (pipeline.rows(), [row["_reason"] for row in pipeline.quarantine]) == (
            [{"id": 1, "n": 3}, {"id": 2, "n": 5}],
            [],
        )
