"""Columns that the schema lacks: left out, refused, or told with their types."""

import json

import pyarrow as pa
import pytest
from inputs.lines import batch_of
from local.support import UNAVAILABLE, change, envelope, plain, spec

from ebbtide.formats import agreed, type_of_value
from ebbtide.model import BatchSummary
from ebbtide.runtime._bad_rows import columns_taken_in

pytestmark = pytest.mark.usefixtures("scanned_or_not")


def decoded(of, *lines):
    """Decode lines one batch each, so that what one teaches is used for the next."""
    decoding = of.decoding
    batches = []
    for number, line in enumerate(lines):
        text = line if isinstance(line, str) else json.dumps(line)
        batches.append(batch_of([text], first=number))
    return pa.Table.from_batches(decoding.decode(batches, step=1, wall_ms=None), decoding.schema)


def summary(of, *lines):
    rows = decoded(of, *lines)
    return BatchSummary.from_json(BatchSummary.to_json(of.decoding.summarize(rows, tracks_offsets=False)))


def reasons(rows):
    return [(row["_reason"], row["_detail"]) for row in rows.to_pylist() if row["_reason"]]


MORE = (change("+I", id=1, n=1, more=5), change("+I", id=2, n=2, more=6), change("+I", id=3, n=3))


def test_columns_are_left_out_and_told_by_default():
    found = summary(plain(), *MORE)
    assert (found.counts.changes, found.counts.bad, found.ignored, found.types) == (3, 0, {"more"}, {})


def test_records_with_unknown_columns_are_bad_where_they_are_refused():
    for mode in ("quarantine", "fail"):
        rows = decoded(plain(schema_evolution_mode=mode), *MORE)
        reason = ("unknown_column", "got 'more'; allowed: columns of the schema, ignored_columns")
        assert reasons(rows) == [reason, reason]


def test_detail_shows_no_value_of_an_unknown_column():
    personal = plain(schema_evolution_mode="quarantine", columns={"n": {"personal": True}})
    [(_, detail)] = reasons(decoded(personal, change("+I", id=1, n=1, phone="555-1234")))
    assert "phone" in detail
    assert "555" not in detail


@pytest.mark.parametrize("mode", ["ignore", "evolve", "quarantine", "fail"])
def test_columns_that_are_left_out_on_purpose_bother_nobody(mode):
    found = summary(plain(schema_evolution_mode=mode, ignored_columns=["more"]), *MORE)
    assert (found.counts.changes, found.counts.bad, found.ignored, found.types) == (3, 0, set(), {})


def test_delete_by_sequence_needs_no_more_than_its_key():
    of = spec(schema_evolution_mode="quarantine", source={"path": "in", "records": "value"})
    rows = decoded(of, envelope("d", 5, before={"id": 1, "n": 1, "more": 1}))
    assert reasons(rows) == []


def test_types_are_told_where_columns_are_taken_in():
    of = plain(schema_evolution_mode="evolve")
    row = {"b": True, "i": 1, "f": 1.5, "s": "x", "o": {"x": 1}, "nothing": None, "big": 2**70, "unsent": UNAVAILABLE}
    other = {"i": 2.5, "s": 7, "nothing": None}
    found = summary(of, change("+I", id=1, n=1, **row), change("+I", id=2, n=2, **other))
    assert columns_taken_in(of, found) == {"b": "BOOLEAN", "f": "DOUBLE", "i": "DOUBLE"}
    assert found.ignored == set(row), "all others are told"
    assert columns_taken_in(plain(), found) == {}


def test_schema_of_a_record_tells_its_types():
    of = spec(schema_evolution_mode="evolve", source={"path": "in", "records": "value"})
    fields = [
        {"field": "id", "type": "int64"},
        {"field": "n", "type": "int32"},
        {"field": "small", "type": "int16"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "bits", "type": "bytes", "name": "io.debezium.data.Bits"},
        {
            "field": "price",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "8"},
        },
    ]
    after = {"id": 1, "n": 1, "small": 3, "day": 20000, "at": 1, "bits": "AQ==", "price": "AJY="}
    schema = {"fields": [{"field": "after", "fields": fields}, {"field": "op"}]}
    found = summary(of, {"schema": schema, "payload": envelope("c", 5, after=after)})
    taken = columns_taken_in(of, found)
    assert taken == {"small": "SMALLINT", "day": "DATE", "at": "TIMESTAMP_NTZ", "price": "DECIMAL(8,2)"}


def test_names_that_are_reserved_or_differ_in_case_alone_are_not_taken_in():
    of = plain(schema_evolution_mode="evolve")
    found = BatchSummary(types={name: frozenset({"BIGINT"}) for name in ("_step", "N", "x", "X", "a`b")})
    assert columns_taken_in(of, found) == {"X": "BIGINT", "a`b": "BIGINT"}


def test_bounds_of_what_is_certain():
    assert type_of_value(-(2**63)) == "BIGINT"
    assert type_of_value(-(2**63) - 1) == ""
    assert agreed({"STRING", ""}) is None


def test_renamed_column_is_read_under_its_old_name_whatever_records_came_before():
    of = plain("id BIGINT NOT NULL, n INT DEFAULT 0", columns={"n": {"renamed_from": "m"}})
    both = change("+I", id=1, n=1, m=9)
    old = change("+I", id=2, m=2)
    rows = decoded(of, both, old, both, old, change("+I", id=3))
    assert rows["n"].to_pylist() == [1, 2, 1, 2, 0]
    assert rows["_ignored"].null_count == 5
    with pytest.raises(ValueError, match="columns that the schema lacks"):
        plain("id BIGINT NOT NULL, n INT", columns={"n": {"renamed_from": "m"}}, ignored_columns=["m"])


def test_names_that_cannot_be_attributes_are_left_out_too():
    of = plain(ignored_columns=['a"b', "c"])
    rows = decoded(of, change("+I", id=1, n=1, **{'a"b': 1, "c": 2}), change("+I", id=2, n=2, c=2))
    assert (len(rows), rows["_ignored"].null_count) == (2, 2)
