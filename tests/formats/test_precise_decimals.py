"""Decimals of `decimal.handling.mode=precise` in records without a schema: base64, whose scale is the column's."""

from __future__ import annotations

import base64
import json
from decimal import Decimal

import pytest
from frame.circumstances import assume
from hypothesis import example, given
from hypothesis import strategies as st
from inputs.lines import batch_of, scanned, staged
from local.support import envelope, plain, record, spec
from pydantic import ValidationError

from ebbtide.testing import MemoryPipeline

SCHEMA = "id BIGINT NOT NULL, total DECIMAL(10,2)"
PRECISE = {"type": "debezium", "encodings": {"total": "precise"}}
WITH_OPTION = spec(SCHEMA, format=PRECISE)
DECODING = WITH_OPTION.decoding


def unscaled(number: int) -> str:
    size = number.bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def line_of(total) -> str:
    return record(envelope("c", 5, after={"id": 1, "total": total}))


def totals_of(pipeline, *totals):
    """What becomes of records, one for each value: the total, or why it is bad."""
    lines = [record(envelope("c", 5, after={"id": n, "total": total}), n) for n, total in enumerate(totals)]
    pipeline.step(lines)
    by_id = {row["id"]: row["total"] for row in pipeline.rows()}
    bad = iter(pipeline.quarantine)
    return [by_id[n] if n in by_id else next(bad)["_detail"] for n in range(len(totals))]


@pytest.mark.parametrize("value", ["AU74", "/w==", {"scale": 1, "value": "AU74"}])
@pytest.mark.parametrize("make", [spec, plain])
def test_base64_for_a_decimal_is_bad_and_names_the_option(make, value):
    pipeline = MemoryPipeline(make(SCHEMA))
    row = {"id": 1, "total": value}
    pipeline.step([record(envelope("c", 5, after=row))] if make is spec else [json.dumps({"kind": "+I", "row": row})])
    [bad] = pipeline.quarantine
    assert bad["_reason"] == "wrong_type"
    assert "decimal.handling.mode=precise format: {type: debezium, encodings: {total: precise}}" in bad["_detail"]


def test_text_is_a_number_without_the_option_and_base64_with_it():
    assert totals_of(MemoryPipeline(spec(SCHEMA)), "1234", "12.50") == [Decimal(1234), Decimal("12.50")]
    pipeline = MemoryPipeline(WITH_OPTION)
    values = ["AU74", "1234", "/w==", "AA==", None, 7, {"scale": 1, "value": "AU74"}]
    found = [Decimal("857.52"), Decimal("-26588.24"), Decimal("-0.01"), Decimal(0), None, Decimal(7), Decimal("8575.2")]
    assert totals_of(pipeline, *values) == found


@pytest.mark.parametrize(
    "value", ["12.50", "12", "", "AU7", "AU74 ", {"scale": 3, "value": "AU74"}, {"scale": "1", "value": "AU74"}, {}, []]
)
def test_value_that_is_not_base64_or_has_more_digits_is_bad_with_the_option(value):
    [detail] = totals_of(MemoryPipeline(WITH_OPTION), value)
    assert detail.endswith("allowed: base64 of a decimal that fits decimal128(10, 2), as format.encodings says precise")


@given(st.integers(-(10**11), 10**11))
@example(10**10 - 1)
@example(10**10)
@example(-(10**10))
@example(2**15)
@example(-(2**15))
def test_any_unscaled_number_is_read_to_the_precision_of_its_column(number):
    batch = batch_of([line_of(unscaled(number))])
    quickly = staged(DECODING, batch)
    exactly = DECODING._decode_exactly(batch, 1, 0)
    fits = abs(number) < 10**10
    for found in (quickly, exactly):
        assert found["total"].to_pylist() == [Decimal(number).scaleb(-2) if fits else None]
        assert found["_reason"].to_pylist() == [None if fits else "wrong_type"]


def test_base64_with_the_option_is_scanned():
    assume("compiled")
    assert scanned(DECODING, batch_of([line_of("AU74")])) == (1, 0)


def test_default_is_a_number_and_a_record_s_own_schema_goes_first():
    pipeline = MemoryPipeline(spec("id BIGINT NOT NULL, total DECIMAL(10,0) DEFAULT '1234'", format=PRECISE))
    name = "org.apache.kafka.connect.data.Decimal"
    field = {"field": "total", "type": "bytes", "name": name, "parameters": {"scale": "0"}}
    schema = {"fields": [{"field": "after", "fields": [{"field": "id"}, field]}]}
    event = envelope("c", 5, after={"id": 1, "total": unscaled(1234)})
    pipeline.step([record({"schema": schema, "payload": event}, 0), record(envelope("c", 5, after={"id": 2}), 1)])
    assert [row["total"] for row in pipeline.rows()] == [Decimal(1234), Decimal(1234)]


@pytest.mark.parametrize("with_schema", [False, True])
def test_key_of_a_deleted_row_is_read_as_its_row_is(with_schema):
    """The number is one whose text is base64 too: 1234."""
    key = {"total": unscaled(1234)}
    if with_schema:
        name = "org.apache.kafka.connect.data.Decimal"
        field = {"field": "total", "type": "bytes", "name": name, "parameters": {"scale": "0"}}
        key = {"schema": {"fields": [field]}, "payload": key}
    pipeline = MemoryPipeline(spec("total DECIMAL(10,0) NOT NULL, id BIGINT", ["total"], format=PRECISE))
    pipeline.step([record(envelope("c", 5, after={"id": 1, "total": unscaled(1234)}), 0)])
    assert pipeline.rows() == [{"total": Decimal(1234), "id": 1}]
    pipeline.step([record(envelope("d", 6), 1, key=json.dumps(key))])
    assert (pipeline.rows(), pipeline.quarantine) == ([], [])


@pytest.mark.parametrize("type_", ["BIGINT", "STRING"])
def test_option_is_of_decimal_columns(type_):
    with pytest.raises(
        ValidationError, match=r"format.encodings: got total; allowed: (for precise,|integer or) DECIMAL"
    ):
        spec(f"id BIGINT NOT NULL, total {type_}", format=PRECISE)
