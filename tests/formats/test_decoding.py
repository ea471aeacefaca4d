"""What decoding stages: every column of a row, and the places of records that change nothing."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from inputs import lines
from inputs.lines import batch_of
from local.support import UNAVAILABLE, change, envelope, plain, record, spec

from ebbtide.changelog import RowKind
from ebbtide.formats import DecodedChange, Decoding

SCHEMA = "id BIGINT NOT NULL, n INT, notes STRING"


def staged(of, *values, wall_ms=None):
    """The staged rows, as they come: good ones, bad ones, those that change nothing."""
    records = batch_of(values, part=3, first=10)
    return lines.staged(of.decoding, records, step=7, wall_ms=wall_ms).to_pylist()


def test_change_is_staged_with_all_that_is_known_of_it():
    value = envelope("u", 5, after={"id": 1, "n": 2, "notes": UNAVAILABLE, "more": 1, "also": 2}, ts_ms=99)
    [row] = staged(spec(SCHEMA), record(value, 4, partition=2))
    assert row == {
        "id": 1,
        "n": 2,
        "notes": None,
        "_kind": "+U",
        "_op": "u",
        "_unavailable": ["notes"],
        "_event_ms": 99,
        "_order": {"step": 7, "part": 3, "position": 10},
        "_origin": {"source": "t", "partition": 2, "position": 4},
        "_sequence": {"_lsn": 5},
        "_moved_from": None,
        "_reason": None,
        "_detail": None,
        "_raw": None,
        "_ignored": "also,more",
        "_types": None,
        "_snapshot": None,
        "_source_log": None,
    }


def test_bad_record_is_staged_with_its_bytes_and_nothing_of_its_row():
    line = record(envelope("c", 5, after={"id": None, "n": 2, "notes": "x"}), 4)
    [row] = staged(spec(SCHEMA), line)
    assert {name for name, value in row.items() if value is not None} == {
        *("_kind", "_order", "_origin", "_reason", "_detail", "_raw")
    }
    assert (row["_kind"], row["_raw"], row["_order"]["position"]) == ("bad", line.encode(), 10)
    assert row["_detail"].startswith("id: got null; allowed: ")


def test_bad_record_that_does_not_name_its_place_has_no_kind():
    [row] = staged(spec(SCHEMA), "{")
    assert (row["_kind"], row["_origin"]) == (None, {"source": "f", "partition": 0, "position": 10})


def kinds(rows):
    return [(row["_kind"], row["_order"]["position"]) for row in rows]


OF_A_TABLE = {"path": "in", "table": "orders"}
OTHER = envelope("c", 1, after={"id": 1, "n": 1, "notes": "x"}, table="others")


@pytest.mark.parametrize("order", ["arrival", {"sequence": ["_lsn"]}], ids=["arrival", "sequence"])
def test_record_that_changes_nothing_is_staged_with_its_place(order):
    of = spec(SCHEMA, order=order, source=OF_A_TABLE)
    rows = staged(of, record(None, 1), "", record(OTHER, 3), record({"op": "m"}, 4))
    assert kinds(rows) == [("tombstone", 10), ("skipped", 12), ("not_row", 13)]
    assert {row["_origin"]["position"] for row in rows if row["_kind"] != "skipped"} == {1, 4}


def test_line_of_white_space_is_none():
    assert staged(spec(SCHEMA), "", " \t", b"\r") == []


def test_record_of_another_topic_is_not_staged_and_one_without_a_topic_is_bad():
    of = spec(SCHEMA, source={"path": "in", "topic": "t"})
    value = envelope("c", 1, after={"id": 1, "n": 1, "notes": "x"})
    rows = staged(of, record(value, 1, topic="u"), record(value, 2), record(value, 3).replace('"t"', "7"))
    assert [(row["_reason"], row["_origin"]["position"]) for row in rows] == [(None, 2), ("not_a_record", 12)]


def test_kind_that_is_not_taken_is_staged_as_a_tombstone():
    decoding = replace(plain(SCHEMA).decoding, kinds=frozenset({"+I", "+U"}))
    values = [change(kind, id=1, n=1, notes="x") for kind in ("+I", "-U", "+U", "-D")]
    rows = lines.staged(decoding, batch_of(values, first=10)).to_pylist()
    assert kinds(rows) == [("+I", 10), ("+U", 12), ("tombstone", 11), ("tombstone", 13)]


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_record_is_too_large_by_one_byte(size):
    line = change("+I", id=1, n=1, notes="x")
    of = plain(SCHEMA, quarantine={"max_record_bytes": len(line) + size})
    assert [row["_reason"] for row in staged(of, line)] == [None if size >= 0 else "too_large"]


def test_record_whose_two_halves_are_bad_is_staged_once_with_its_first_reason():
    of = spec(SCHEMA, order="arrival")
    value = envelope("u", 1, before={"id": None, "n": 1, "notes": "x"}, after={"id": 1, "n": "x", "notes": "x"})
    [row] = staged(of, record(value))
    assert (row["_reason"], row["_detail"].startswith("n: got 'x'; allowed: int32")) == ("wrong_type", True)


def test_good_half_of_a_bad_record_is_not_staged():
    value = envelope("u", 1, before={"id": 1, "n": 1, "notes": "x"}, after={"id": 1, "n": "x", "notes": "x"})
    rows = staged(spec(SCHEMA, order="arrival"), record(value), record(OTHER, 1))
    assert [(row["_kind"], row["_reason"]) for row in rows] == [("+I", None), ("bad", "wrong_type")]


def test_truncate_is_staged_without_a_row():
    [row] = staged(spec("id BIGINT NOT NULL, n INT NOT NULL"), record(envelope("t", 5, ts_ms=9)))
    assert (row["_kind"], row["_op"], row["id"], row["_sequence"], row["_reason"]) == (
        "T",
        "t",
        None,
        {"_lsn": 5},
        None,
    )


def test_delete_by_sequence_carries_its_key_sequence_and_event_time_alone():
    of = spec("id BIGINT NOT NULL, at INT, n INT NOT NULL, t TIMESTAMP", order={"sequence": ["at"]}, event_time="t")
    before = {"id": 1, "at": 5, "n": 7, "t": 9_000}
    [row] = staged(of, record(envelope("d", None, before=before)))
    assert (row["id"], row["at"], row["n"], row["_event_ms"], row["_sequence"]) == (1, 5, None, 9, {"at": 5})


def test_changed_key_is_staged_with_the_old_key_and_its_own_sequence():
    old, new = {"id": 1, "n": 1, "notes": "x"}, {"id": 2, "n": 1, "notes": "x"}
    gone, moved = staged(spec(SCHEMA), record(envelope("u", 5, before=old, after=new)))
    assert (gone["_kind"], gone["id"], gone["_moved_from"]) == ("-U", 1, None)
    assert (moved["_kind"], moved["id"]) == ("+U", 2)
    assert moved["_moved_from"] == [{"sequence": {"_lsn": 5}, "key": {"id": 1}}]


@pytest.mark.parametrize(
    ("type_", "sent", "ms"),
    [
        ("TIMESTAMP", 1_999, 1),
        ("TIMESTAMP_NTZ", -1_999, -1),
        ("TIMESTAMP", "2026-01-01T00:00:00.0019Z", 1_767_225_600_001),
        ("DATE", 1, 86_400_000),
    ],
)
def test_event_time_of_a_column_is_in_whole_milliseconds(type_, sent, ms):
    of = plain(f"id BIGINT NOT NULL, t {type_}", event_time="t")
    assert [row["_event_ms"] for row in staged(of, change("+I", id=1, t=sent))] == [ms]


@pytest.mark.parametrize(("wall_ms", "event_ms", "bad"), [(10, 110, 0), (10, 111, 1), (None, 10**12, 0)])
def test_event_time_may_be_ahead_by_so_much_and_no_more(wall_ms, event_ms, bad):
    of = spec(SCHEMA, quarantine={"max_event_time_ahead": "100ms"})
    value = envelope("c", 1, after={"id": 1, "n": 1, "notes": "x"}, ts_ms=event_ms)
    rows = staged(of, record(value), wall_ms=wall_ms)
    assert [row["_reason"] for row in rows] == ["event_time_ahead" if bad else None]
    assert [row["_detail"] for row in rows] == ["event time: got 111 ms; allowed: up to 110 ms" if bad else None]


@pytest.mark.parametrize("sent", ["absent", None])
def test_default_stands_in_for_a_column_that_is_absent_and_not_for_null(sent):
    row = {"id": 1} | ({} if sent else {"n": None})
    [found] = staged(plain("id BIGINT NOT NULL, n INT DEFAULT 7"), change("+I", **row))
    assert found["n"] == (7 if sent else None)


def test_columns_that_are_absent_are_told_from_those_of_other_records():
    rows = staged(
        plain("id BIGINT NOT NULL, n INT"), change("+I", id=1, n=1), change("+I", id=2), change("+I", id=3, n=3)
    )
    assert [(row["id"], row["n"], row["_reason"]) for row in rows] == [
        *((1, 1, None), (3, 3, None), (None, None, "missing_column"))
    ]


def with_unit(offset, at, unit=None):
    names = {"ms": "io.debezium.time.Timestamp", "us": "io.debezium.time.MicroTimestamp"}
    value = envelope("c", offset + 1, after={"id": offset, "at": at, "to": 0 if at == "x" else at})
    if unit is None:
        return record(value, offset)
    fields = [{"field": "id"}, {"field": "at", "name": names[unit]}, {"field": "to"}]
    return record({"schema": {"fields": [{"field": "after", "fields": fields}]}, "payload": value}, offset)


def test_record_s_own_unit_goes_before_the_spec_s_in_its_own_columns_alone():
    of = spec(
        "id BIGINT NOT NULL, at TIMESTAMP_NTZ, to TIMESTAMP_NTZ",
        format={"type": "debezium", "time_units": {"at": "ns", "to": "ms"}},
    )
    rows = staged(
        of,
        with_unit(0, 2, "ms"),
        with_unit(1, 3_000, "us"),
        with_unit(2, 4_000_000),
        with_unit(3, "x", "ms"),
        with_unit(4, "x", "us"),
    )
    rows.sort(key=lambda row: row["_order"]["position"])
    good, bad = [row for row in rows if not row["_reason"]], [row for row in rows if row["_reason"]]
    assert [round(row["at"].microsecond) for row in good] == [2_000, 3_000, 4_000]
    assert [row["to"].second * 1_000_000 + row["to"].microsecond for row in good][:2] == [2_000, 3_000_000]
    assert [(row["_origin"]["position"], row["_detail"][:11]) for row in bad] == [
        (3, "at: got 'x'"),
        (4, "at: got 'x'"),
    ]


@pytest.mark.parametrize("more", [{}, {"more": 1}])
def test_each_column_of_a_place_in_the_log_is_staged(more):
    value = envelope("u", None, after={"id": 1, "n": 1} | more, file="bin.000012", pos=4, row=5)
    [row] = staged(spec(order={"sequence": ["_file", "_pos", "_row"]}), record(value))
    assert row["_sequence"] == {"_file": 12, "_pos": 4, "_row": 5}


class Collects:
    """A format that says whether cycles are collected while it decodes."""

    def scanned(self, row):
        return ()

    def changes(self, value, key, old_key=None):
        if "id" not in value:
            raise KeyError
        return [DecodedChange(RowKind.INSERT, value | {"n": gc.isenabled()})]


@pytest.mark.parametrize("was_on", [True, False])
def test_collector_of_cycles_is_off_while_records_are_decoded_and_then_as_it_was_before(was_on):
    decoding = Decoding(pa.schema([("id", pa.int64()), ("n", pa.bool_())]), ("id",), Collects())
    try:
        gc.enable() if was_on else gc.disable()
        [row] = lines.staged(decoding, ['{"id": 1}']).to_pylist()
        assert (row["n"], gc.isenabled()) == (False, was_on)
        with pytest.raises(KeyError):
            lines.staged(decoding, ["{}"])
        assert gc.isenabled() is was_on
    finally:
        gc.enable()


def test_names_of_ignored_columns_can_be_stored_whatever_they_are():
    [row] = staged(plain("id BIGINT NOT NULL"), json.dumps({"kind": "+I", "row": {"id": 1, "\ud800": 1, "\u00e9": 2}}))
    assert row["_ignored"] == "\u00e9,'\\ud800'"


def test_old_key_is_read_as_the_key_is():
    of = spec(
        "id DECIMAL(20,0) NOT NULL, at TIMESTAMP_NTZ NOT NULL, line INT NOT NULL",
        ["id", "at", "line"],
        format={"type": "debezium", "encodings": {"id": "unsigned"}, "time_units": {"at": "ms"}},
    )
    old = {"id": -1, "at": 1, "line": 3}
    *_, moved = staged(of, record(envelope("u", 5, before=old, after=old | {"id": 7})))
    [[change_]] = [moved["_moved_from"]]
    assert change_["key"] == {"id": 2**64 - 1, "at": moved["at"], "line": 3}
    assert (moved["id"], moved["at"].microsecond) == (7, 1000)


CODED = spec(
    "id BIGINT, big DECIMAL(20,0) DEFAULT 0, flags BIGINT DEFAULT 0",
    format={"type": "debezium", "encodings": {"big": "unsigned", "flags": "bits"}},
)


@pytest.mark.parametrize(
    ("column", "sent", "number"),
    [
        *(("big", sent, number) for sent, number in ((-1, 2**64 - 1), (-(2**63), 2**63), (0, 0), (1, 1), ("-1", -1))),
        *(("big", sent, "wrong_type") for sent in (True, "?")),
        *(
            ("flags", sent, n)
            for sent, n in ((True, 1), (False, 0), ("AQI=", 513), ("2AE=", 472), (-1, -1), (None, None))
        ),
        *(("flags", sent, "wrong_type") for sent in ("?", "A?Q=")),
    ],
)
def test_coded_integer_is_read_in_its_column_and_what_is_none_is_bad(column, sent, number):
    row, beside = staged(
        CODED, *(record(envelope("c", 1, after={"id": at, column: value}), at) for at, value in enumerate([sent, 1]))
    )
    row, beside = sorted((row, beside), key=lambda each: each["_origin"]["position"])
    assert row["_reason"] or row[column] == number
    assert (row["_reason"] or number, beside[column]) == (number, 1)


def test_place_of_a_kafka_record_is_read_to_the_ends_of_its_ranges():
    value = envelope("c", 1, after={"id": 1, "n": 1, "notes": "x"})
    [row] = staged(spec(SCHEMA), record(value, 2**63 - 1, partition=2**31 - 1))
    assert row["_origin"] == {"source": "t", "partition": 2**31 - 1, "position": 2**63 - 1}
    [row] = staged(spec(SCHEMA), record(value, 2**63, partition=4))
    assert row["_detail"].startswith(f"got topic 't', partition 4, offset {2**63}; allowed: ")


@pytest.mark.parametrize(("sent", "shown"), [("x" * 78, "'" + "x" * 78 + "'"), ("x" * 79, "'" + "x" * 76 + "...")])
def test_long_value_is_shown_by_its_head(sent, shown):
    [row] = staged(spec(SCHEMA), record(envelope("c", 1, after=GOOD | {"n": sent})))
    assert row["_detail"].startswith(f"n: got {shown}; allowed: ")


def bad_of(of, *values, **more):
    """(reason, detail) of the only bad record."""
    [(reason, detail)] = [(row["_reason"], row["_detail"]) for row in staged(of, *values, **more) if row["_reason"]]
    return reason, detail


GOOD = {"id": 1, "n": 1, "notes": "x"}
KAFKA = {"topic": "t", "partition": 0, "offset": 1, "key": None}
WITH_TTL = {"ttl": {"ttl": "1d", "time_characteristic": "EVENT_TIME"}}


@pytest.mark.parametrize(
    ("of", "value", "reason", "said"),
    [
        (spec(SCHEMA), json.dumps(KAFKA), "not_a_record", "value: got nothing; allowed: the record's value as text"),
        (spec(SCHEMA), json.dumps(KAFKA | {"value": {}}), "not_a_record", "value: got dict; allowed: the record's"),
        (spec(SCHEMA), record(envelope("c", 1, after={"id": 1, "n": 1})), "missing_column", "notes: the record has no"),
        (spec(SCHEMA), record(envelope("u", None, after=GOOD)), "null_sequence", "_lsn: got null; allowed: a value in"),
        (spec("id BIGINT, n INT NOT NULL"), record(envelope("c", 1, after={"id": 1, "n": None})), "null_value", "n: got null; allowed: a value"),
        (spec(SCHEMA, **WITH_TTL), record(envelope("c", 1, after=GOOD, ts_ms=None)), "null_event_time", "event time: got null; allowed: a time"),
        (plain(SCHEMA, quarantine={"max_record_bytes": 9}), change("+I", **GOOD), "too_large", "got more than 9 bytes; allowed: up to 9"),
    ],
)  # fmt: skip
def test_reason_and_detail_say_what_was_got_and_what_is_allowed(of, value, reason, said):
    found, detail = bad_of(of, value)
    assert (found, detail[: len(said)]) == (reason, said)


def test_truncate_is_bad_where_only_rows_are_taken():
    decoding = replace(spec(SCHEMA).decoding, truncates=False)
    values = [record(envelope("t", 1)), record(envelope("c", 2, after=GOOD), 1)]
    rows = lines.staged(decoding, values).to_pylist()
    assert [row["_reason"] for row in rows] == [None, "truncate"]
    assert rows[1]["_detail"].startswith("got TRUNCATE; allowed: changes of rows")


PLACED = plain(SCHEMA, format={"type": "plain", "position": ["part", "seq"]})


@pytest.mark.parametrize(
    ("change_", "kind", "reason"),
    [
        ({"kind": "+I", "row": GOOD}, "+I", None),
        ({"kind": "+X", "row": GOOD}, "bad", "unknown_kind"),
        ({"kind": "+I", "row": GOOD | {"id": None}}, "bad", "null_key"),
    ],
)
def test_record_that_names_its_place_has_it_whether_good_or_bad(change_, kind, reason):
    [row] = staged(PLACED, json.dumps(change_ | {"part": 4, "seq": 9}))
    assert row["_origin"] == {"source": "", "partition": 4, "position": 9}
    assert (row["_kind"], row["_reason"]) == (kind, reason)


def test_retraction_by_a_column_carries_its_whole_row_and_a_delete_does_not():
    of = plain(SCHEMA, order={"sequence": ["n"]})
    rows = staged(of, change("-U", **GOOD), change("-D", **GOOD))
    assert [(row["_kind"], row["n"], row["notes"]) for row in rows] == [("-U", 1, "x"), ("-D", 1, None)]


@pytest.mark.parametrize("key", [7, {"id": 1}, None])
def test_key_that_is_no_text_is_none(key):
    [row] = staged(spec(SCHEMA), json.dumps(KAFKA | {"key": key, "value": json.dumps(envelope("d", 1))}))
    assert row["_reason"] == "missing_before"


def test_record_with_exact_numbers_is_judged_by_the_clock_too():
    of = spec("id BIGINT, n DECIMAL(6,2)", quarantine={"max_event_time_ahead": "100ms"})
    rows = [envelope("c", 1, after={"id": 1, "n": 1.25}, ts_ms=ts_ms) for ts_ms in (110, 111, None)]
    found = staged(of, *(record(row, at) for at, row in enumerate(rows)), wall_ms=10)
    assert [(row["_origin"]["position"], row["_reason"]) for row in found] == [
        (0, None),
        (2, None),
        (1, "event_time_ahead"),
    ]


def test_value_that_was_not_sent_is_known_by_the_form_of_its_type():
    of = spec("id BIGINT NOT NULL, n INT DEFAULT 5, notes STRING DEFAULT 'd', tags ARRAY<STRING>")
    rows = [{"id": 1, "tags": ["a"]}, {"id": 2, "notes": UNAVAILABLE, "n": 1, "tags": [UNAVAILABLE]}]
    first, second = staged(of, *(record(envelope("u", 1, after=row), row["id"]) for row in rows))
    assert (first["n"], first["notes"], first["tags"], first["_unavailable"]) == (5, "d", ["a"], None)
    assert (second["n"], second["notes"], second["tags"], second["_unavailable"]) == (1, None, None, ["notes", "tags"])


def test_missing_value_leaves_its_column_null_and_the_others_typed():
    of = spec("id BIGINT NOT NULL, n INT, at DATE")
    rows = staged(
        of, *(record(envelope("c", 1, after={"id": at, "n": at} | more), at) for at, more in enumerate(({"at": 1}, {})))
    )
    assert [(row["n"], row["_reason"]) for row in rows] == [(0, None), (None, "missing_column")]


@pytest.mark.parametrize("offsets", [[0], [0, 1]])
def test_unit_that_all_records_give_is_taken_for_the_whole_column(offsets):
    of = spec(
        "id BIGINT NOT NULL, at TIMESTAMP_NTZ, to TIMESTAMP_NTZ",
        format={"type": "debezium", "time_units": {"to": "ms"}},
    )
    rows = staged(of, *(with_unit(offset, 2, "ms") for offset in offsets))
    assert {(row["at"].microsecond, row["to"].microsecond) for row in rows} == {(2000, 2000)}


def test_unit_of_the_spec_is_taken_where_no_record_gives_one():
    of = spec(
        "id BIGINT NOT NULL, at TIMESTAMP_NTZ, to TIMESTAMP_NTZ",
        format={"type": "debezium", "time_units": {"to": "ms"}},
    )
    [row] = staged(of, with_unit(0, 2))
    assert (row["at"].microsecond, row["to"].microsecond) == (2, 2000)


def test_byte_order_mark_before_a_record_is_no_part_of_it():
    mark = "\ufeff"
    good = [change("+I", id=key, n=1, notes=mark) for key in range(3)]
    rows = staged(plain(SCHEMA), mark + good[0], good[1], mark, mark + mark + good[2], " " + mark + " ")
    found = sorted((row["id"], row["notes"], row["_reason"]) for row in rows)
    assert found == [(0, mark, None), (1, mark, None), (2, mark, None)]
    rows = staged(spec(SCHEMA), record(mark + json.dumps(envelope("c", 1, after={"id": 1, "n": 1, "notes": "x"}))))
    assert [(row["id"], row["_reason"]) for row in rows] == [(1, None)]
