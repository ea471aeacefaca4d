"""A schema that many records have is parsed once, and each is read as if it were alone."""

from __future__ import annotations

import json

import pytest
from frame.circumstances import assume
from hypothesis import given
from hypothesis import strategies as st
from inputs.avro_support import DECIMAL, OF_SHOP, avro, batch, envelope_of
from inputs.lines import batch_of
from local.support import spec
from oracles.any_records import JSON, VALUES, paths, replaced, spec_of

from ebbtide.formats import Decoding, stored_form

USUAL = VALUES["with schema"]
DAMAGE = st.sampled_from(["", "}", " ", "X", ',"payload":{}}', ',"schema":{}}', "\ufeff", ' "payload":{'])


@pytest.fixture(autouse=True)
def _decode_exactly():
    assume("not compiled")


def rows_of(decoding: Decoding, values) -> list[str]:
    """Rows by the exact path, without the places and the bytes of their records."""
    rows = decoding._decode_exactly(values, 7, None)
    rows = rows.drop_columns(["_order", "_origin", "_raw"])
    return sorted(map(repr, rows.to_pylist(maps_as_pydicts="strict")))


def bare(mode):
    of = spec_of("with schema", mode)
    return of.model_copy(update={"source": of.source.model_copy(update={"records": "value"})}).decoding


@pytest.mark.parametrize("mode", ["log", "arrival"])
@given(st.data())
def test_value_with_a_schema_is_read_in_a_batch_as_alone(mode, data):
    lines = [json.dumps(USUAL, separators=(",", ":"))] * 2
    for _ in range(data.draw(st.integers(1, 3))):
        value = replaced(USUAL, data.draw(st.sampled_from(paths(USUAL))), data.draw(JSON))
        text = json.dumps(value, separators=(",", ":"))
        at = data.draw(st.sampled_from([len(text), len(text) - 1, text.find('"payload":') + len('"payload":')]))
        lines += [text, text[:at] + data.draw(DAMAGE) + text[at:], text[:at] + data.draw(DAMAGE)]
    values = [line.encode("utf-8", "replace") for line in lines]
    decoding = bare(mode)
    alone = [row for value in values for row in rows_of(decoding, batch_of([value]))]
    assert rows_of(decoding, batch_of(values)) == sorted(alone)


COLUMNS = {
    "id": "long",
    "d": ["null", "double"],
    "price": ["null", DECIMAL],
    "raw": ["null", "bytes"],
    "t": ["null", "string"],
}
OF_COLUMNS = "id BIGINT NOT NULL, d DOUBLE, price DECIMAL(14,2), raw BINARY, t STRING"
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "d": st.none() | st.floats(),
        "price": st.none() | st.binary(max_size=9),
        "raw": st.none() | st.binary(max_size=3),
        "t": st.none() | st.text(max_size=3),
    }
)


@pytest.mark.parametrize("ddl", [OF_COLUMNS, "id BIGINT NOT NULL, d DECIMAL(20,10), t INT, raw STRING"])
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_avro_is_read_as_the_json_with_schema_that_connect_would_write(ddl, rows):
    decoding = spec(ddl).decoding
    schema = envelope_of(COLUMNS)
    values = [avro(1, schema, {"before": None, "after": row, "source": OF_SHOP, "op": "c"}) for row in rows]
    records = batch(values, {1: schema})
    as_json = batch_of(stored_form(records).to_pylist())
    assert rows_of(decoding, records) == rows_of(decoding, as_json)
