"""Any record is decoded as by the exact path, also columns that hold bytes."""

from __future__ import annotations

import json

import pytest
from frame.circumstances import assume
from frame.thinned import thinned
from hypothesis import example, given
from hypothesis import strategies as st
from inputs.lines import batch_of, refuse_unlike_exact, scanned, staged
from local.support import envelope, plain, record, spec
from oracles.any_records import JSON, MODES, TEXTS, VALUES, line_of, neighbour, paths, replaced, spec_of

from ebbtide.formats._decoding import _with_unknown
from ebbtide.formats._scan_decoder import ScanDecoder

pytestmark = pytest.mark.group("compiled")

NEW_KEY = "__debezium.newkey"
OLD_KEY = "__debezium.oldkey"
MOST_IGNORED = 100

SCHEMA = "id BIGINT NOT NULL, n INT, notes STRING"
ROWS = {"id": 1, "n": 2, "notes": "x"}


@pytest.fixture(autouse=True)
def _scan_whatever_there_is():
    assume("compiled")


@pytest.mark.parametrize(("form", "mode"), thinned(MODES[1:], 2))
@given(st.data())
def test_any_record_is_staged_as_by_the_exact_path(form, mode, data):
    lines = [neighbour(form, 1001)]
    for _ in range(data.draw(st.integers(1, 3))):
        value = VALUES[form]
        for _ in range(data.draw(st.integers(0, 2))):
            value = replaced(value, data.draw(st.sampled_from(paths(value))), data.draw(JSON))
        key = data.draw(st.none() | TEXTS)
        if value is not None:  # a tombstone may have a second row, which the exact path does not make
            lines.append(line_of(form, value, key))
    refuse_unlike_exact(spec_of(form, mode).decoding, batch_of(lines), wall_ms=10**12)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=3), st.integers(0, 200))
@example([b"\xff"], 60)
def test_damaged_bytes_are_staged_as_by_the_exact_path(damage, at):
    line = neighbour("update", 1)
    lines = [line, *(line[:at] + each + line[at + len(each) :] for each in damage)]
    refuse_unlike_exact(spec_of("update", "log").decoding, batch_of(lines))


def test_unknown_columns_are_learnt_from_the_records_that_have_them():
    decoding = spec(SCHEMA).decoding
    lines = [record(envelope("c", 5, after=ROWS | {"more": 1, "with, comma": 2, "": 3}), 1)]
    lines += [record(envelope("c", 6, after=ROWS | {"id": 2, "more": 1}), 2)]
    learnt = _with_unknown(frozenset({"known"}), staged(decoding, lines))
    assert learnt == {"known", "more", "with", " comma"}  # a name with a comma is not told apart
    refuse_unlike_exact(decoding, batch_of(lines * 2))


def test_not_so_many_unknown_columns_are_learnt_that_reading_them_costs_more():
    wide = ROWS | {f"c{number}": 1 for number in range(MOST_IGNORED + 1)}
    rows = staged(spec(SCHEMA).decoding, [record(envelope("c", 5, after=wide), 1)])
    assert _with_unknown(frozenset(), rows) == set()


def test_decimals_written_as_floats_keep_their_digits():
    decoding = spec("id BIGINT NOT NULL, price DECIMAL(20,17)").decoding
    lines = [
        record(envelope("c", 5, after={"id": 1, "price": 0}), 1).replace(
            '\\"price\\": 0', '\\"price\\": 0.12345678901234567'
        )
    ]
    [row] = staged(decoding, lines).to_pylist()
    assert str(row["price"]) == "0.12345678901234567"


@pytest.mark.parametrize("names", [{"kind": 'a"b'}, {"kind": "same", "row": "same"}, {"position": ["p", "p"]}])
def test_names_that_cannot_be_scanned_are_read_exactly(names):
    decoding = plain(SCHEMA, format={"type": "plain"} | names).decoding
    assert ScanDecoder.of(decoding) == []


def test_column_whose_name_cannot_be_scanned_is_read_exactly():
    decoding = spec('id BIGINT NOT NULL, `a"b` INT').decoding
    assert ScanDecoder.of(decoding) == []
    lines = [record(envelope("c", 5, after={"id": 1, 'a"b': 3}), 1)]
    [row] = staged(decoding, lines).to_pylist()
    assert row['a"b'] == 3


def test_plain_row_beside_its_kind_may_have_columns_of_those_names():
    decoding = plain("id BIGINT NOT NULL, kind STRING", format={"type": "plain", "row": None}).decoding
    refuse_unlike_exact(decoding, batch_of([json.dumps({"kind": "+I", "id": 1})]))


def test_bare_value_that_has_the_name_of_a_header_is_scanned():
    lines = [json.dumps({"kind": "+I", "row": ROWS | {"notes": name}}) for name in (OLD_KEY, NEW_KEY)]
    decoding = plain(SCHEMA).decoding
    assert scanned(decoding, batch_of(lines)) == (2, 0)
    refuse_unlike_exact(decoding, batch_of(lines))
