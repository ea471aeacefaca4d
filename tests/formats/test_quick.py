"""What is decoded quickly is what the exact path decodes, whatever stands in a record."""

from __future__ import annotations

import json

import pytest
from frame.thinned import thinned
from hypothesis import example, given
from hypothesis import strategies as st
from inputs.lines import batch_of, refuse_unlike_exact, staged, taken_quickly
from local.support import envelope, plain, record, spec
from oracles.any_records import JSON, MODES, TEXTS, VALUES, line_of, neighbour, paths, replaced, spec_of

from ebbtide.formats._quick import QuickDecoder

NEW_KEY = "__debezium.newkey"
OLD_KEY = "__debezium.oldkey"
MOST_IGNORED = 100


SCHEMA = "id BIGINT NOT NULL, n INT, notes STRING"


@pytest.mark.parametrize(("form", "mode"), thinned(MODES[1:], 2))
@given(st.data())
def test_any_record_is_staged_as_by_the_exact_path(form, mode, data):
    lines = [neighbour(form, 1001)]
    for _ in range(data.draw(st.integers(1, 3))):
        value = VALUES[form]
        for _ in range(data.draw(st.integers(0, 2))):
            value = replaced(value, data.draw(st.sampled_from(paths(value))), data.draw(JSON))
        lines.append(line_of(form, value, data.draw(st.none() | TEXTS)))
    refuse_unlike_exact(spec_of(form, mode).decoding, batch_of(lines), wall_ms=10**12)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=3), st.integers(0, 200))
@example([b"\xff"], 60)
def test_damaged_bytes_are_staged_as_by_the_exact_path(damage, at):
    line = neighbour("update", 1)
    lines = [line, *(line[:at] + each + line[at + len(each) :] for each in damage)]
    refuse_unlike_exact(spec_of("update", "log").decoding, batch_of(lines))


ROWS = {"id": 1, "n": 2, "notes": "x"}
PLAIN_RECORDS = {
    "insert": envelope("c", 5, after=ROWS),
    "snapshot": envelope("r", 5, after=ROWS),
    "update": envelope("u", 5, before=None, after=ROWS),
    "update with its old row": envelope("u", 5, before=ROWS | {"n": 1}, after=ROWS),
    "delete": envelope("d", 5, before={"id": 1, "n": 0, "notes": ""}),
    "unsent": envelope("u", 5, after=ROWS | {"notes": "__debezium_unavailable_value"}),
}


@pytest.mark.parametrize("name", PLAIN_RECORDS)
def test_plain_records_are_taken_quickly(name):
    assert taken_quickly(spec(SCHEMA).decoding, batch_of([record(PLAIN_RECORDS[name], 1)])) == (1, 0)


def test_records_of_another_topic_are_neither_taken_nor_left():
    decoding = spec(SCHEMA, source={"path": "in", "topic": "others"}).decoding
    assert taken_quickly(decoding, batch_of([record(PLAIN_RECORDS["insert"], 1)])) == (0, 0)


def test_retraction_takes_both_rows_of_an_update_and_leaves_one_that_is_only_a_key():
    decoding = spec(SCHEMA, order="arrival").decoding
    whole = record(PLAIN_RECORDS["update with its old row"], 1)
    key_only = record(envelope("u", 5, before={"id": 1}, after=ROWS), 2)
    assert taken_quickly(decoding, batch_of([whole, key_only])) == (2, 1)
    refuse_unlike_exact(decoding, batch_of([whole, key_only]))


def test_unknown_columns_are_learnt_from_the_records_that_have_them():
    decoding = spec(SCHEMA).decoding
    lines = [record(envelope("c", 5, after=ROWS | {"more": 1, "with, comma": 2, "": 3}), 1)]
    lines += [record(envelope("c", 6, after=ROWS | {"id": 2, "more": 1}), 2)]
    first = QuickDecoder.of(decoding)
    learnt = first.learning(decoding._decode_exactly(batch_of(lines), 7, None))
    rows, left = learnt.decode(batch_of(lines), 7, None)
    assert (len(rows), left.num_rows) == (1, 1)  # a name with a comma is not told apart
    assert rows["_ignored"].to_pylist() == ["more"]
    assert learnt.learning(decoding._decode_exactly(batch_of(lines[1:]), 7, None)) is learnt
    refuse_unlike_exact(decoding, batch_of(lines * 2))


def test_not_so_many_unknown_columns_are_learnt_that_reading_them_costs_more():
    decoding = spec(SCHEMA).decoding
    wide = ROWS | {f"c{number}": 1 for number in range(MOST_IGNORED + 1)}
    first = QuickDecoder.of(decoding)
    assert (
        first.learning(decoding._decode_exactly(batch_of([record(envelope("c", 5, after=wide), 1)]), 7, None)) is first
    )


def test_decimals_written_as_floats_keep_their_digits():
    decoding = spec("id BIGINT NOT NULL, price DECIMAL(20,17)").decoding
    lines = [
        record(envelope("c", 5, after={"id": 1, "price": 0}), 1).replace(
            '\\"price\\": 0', '\\"price\\": 0.12345678901234567'
        )
    ]
    [row] = staged(decoding, lines).to_pylist()
    assert str(row["price"]) == "0.12345678901234567"


@pytest.mark.parametrize("row", ["row", None])
@pytest.mark.parametrize("position", [[], ["seq"], ["part", "seq"]])
def test_plain_changes_are_taken_quickly_with_their_places(row, position):
    of = plain(SCHEMA, format={"type": "plain", "row": row, "position": position})
    values = {"part": 4, "seq": 5} if position else {}
    own = ROWS if row is None else {"row": ROWS}
    lines = [json.dumps({"kind": kind, **own, **values}) for kind in ("+I", "-U", "+U", "-D")]
    lines = lines if len(position) != 1 else [line.replace('"part": 4, ', "") for line in lines]
    decoding = of.decoding
    assert taken_quickly(decoding, batch_of(lines)) == (4, 0)
    refuse_unlike_exact(decoding, batch_of(lines))


@pytest.mark.parametrize("names", [{"kind": 'a"b'}, {"kind": "same", "row": "same"}, {"position": ["p", "p"]}])
def test_names_that_cannot_be_read_quickly_are_read_exactly(names):
    decoding = plain(SCHEMA, format={"type": "plain"} | names).decoding
    assert QuickDecoder.of(decoding) is None


def test_column_whose_name_cannot_be_read_quickly_is_read_exactly():
    decoding = spec('id BIGINT NOT NULL, `a"b` INT').decoding
    assert QuickDecoder.of(decoding) is None
    lines = [record(envelope("c", 5, after={"id": 1, 'a"b': 3}), 1)]
    [row] = staged(decoding, lines).to_pylist()
    assert row['a"b'] == 3


def test_plain_row_beside_its_kind_may_have_columns_of_those_names():
    decoding = plain("id BIGINT NOT NULL, kind STRING", format={"type": "plain", "row": None}).decoding
    refuse_unlike_exact(decoding, batch_of([json.dumps({"kind": "+I", "id": 1})]))


def test_bare_value_that_has_the_name_of_a_header_is_taken_quickly():
    lines = [json.dumps({"kind": "+I", "row": ROWS | {"notes": name}}) for name in (OLD_KEY, NEW_KEY)]
    decoding = plain(SCHEMA).decoding
    assert taken_quickly(decoding, batch_of(lines)) == (2, 0)
    refuse_unlike_exact(decoding, batch_of(lines))
