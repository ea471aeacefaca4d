"""Bytes as text: base64 in two alphabets and hex, by the spec, by the record's own schema, or by what the text can be."""

from __future__ import annotations

import base64
import json

import pytest
from frame.circumstances import assume
from hypothesis import example, given
from hypothesis import strategies as st
from inputs.avro_support import OF_SHOP, avro, batch, envelope_of
from inputs.lines import staged
from local.support import change, envelope, plain, record, spec

from ebbtide.testing import MemoryPipeline

WRITE = {
    "base64": lambda raw: base64.b64encode(raw).decode(),
    "base64url": lambda raw: base64.urlsafe_b64encode(raw).decode(),
    "hex": lambda raw: raw.hex(),
}
SCHEMA = "id BIGINT NOT NULL, b BINARY"
CODED = st.sampled_from(list(WRITE))


@pytest.fixture(params=["compiled", "not compiled"])
def _on_both_paths(request):
    assume(request.param)


def bytes_of(text, *, schema=SCHEMA, **coding):
    """What the sink has of a value, and why its record is bad."""
    pipeline = MemoryPipeline(spec(schema, format={"type": "debezium", **coding}))
    pipeline.step([record(envelope("c", 1, after={"id": 1, "b": text}))])
    return [row["b"] for row in pipeline.rows()], [bad["_detail"] for bad in pipeline.quarantine]


@given(st.binary(max_size=9), CODED)
def test_bytes_are_read_as_they_are_written_where_the_spec_says_how(raw, encoding):
    assert bytes_of(WRITE[encoding](raw), encodings={"b": encoding}) == ([raw], [])


@example(b"\xde\xad\xbe\xef", "hex")
@example(bytes.fromhex("fbffbf"), "base64url")
@given(st.binary(max_size=9), CODED)
def test_bytes_without_a_stated_encoding_are_right_or_refused(raw, encoding):
    rows, details = bytes_of(WRITE[encoding](raw))
    assert rows in ([raw], [])
    assert len(rows) + len(details) == 1
    if encoding == "hex" and raw:
        assert rows == []
    for detail in details:
        assert "encodings: {b: base64}}, base64url or hex" in detail


@pytest.mark.usefixtures("_on_both_paths")
def test_hex_digits_in_letters_of_both_cases_are_base64():
    assert bytes_of("1aFF") == ([b"\xd5\xa1E"], [])


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("hex", "abc"),
        ("hex", "de ad"),
        ("hex", "zz"),
        ("base64", "-_-_"),
        ("base64url", "+/+/"),
        (None, "+_-/"),
        (None, "a"),
    ],
)
@pytest.mark.usefixtures("_on_both_paths")
def test_text_in_another_encoding_is_refused(encoding, text):
    rows, [detail] = bytes_of(text, encodings={"b": encoding} if encoding else {})
    assert rows == []
    says = f"binary as {encoding}, as format.encodings says" if encoding else "binary as base64 that is not hex, too"
    assert f"b: got '{text}'; allowed: {says}" in detail


@pytest.mark.usefixtures("_on_both_paths")
def test_bytes_within_a_column_are_of_its_encoding():
    of = spec(
        "id BIGINT NOT NULL, l ARRAY<BINARY>, s STRUCT<a: BINARY>",
        format={"type": "debezium", "encodings": {"l": "hex", "s": "hex"}},
    )
    pipeline = MemoryPipeline(of)
    pipeline.step([record(envelope("c", 1, after={"id": 1, "l": ["cafe", None], "s": {"a": "00"}}))])
    assert pipeline.rows() == [{"id": 1, "l": [b"\xca\xfe", None], "s": {"a": b"\x00"}}]


def connect(type_, text):
    fields = [{"field": "id", "type": "int64"}, {"field": "b", "type": type_}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    return record({"schema": schema, "payload": envelope("c", 1, after={"id": 1, "b": text})})


def test_schema_of_the_record_goes_first_and_a_text_needs_the_spec():
    unstated, stated = spec(SCHEMA), spec(SCHEMA, format={"type": "debezium", "encodings": {"b": "hex"}})
    want = {
        ("bytes", "unstated"): [b"q\xa7\xde"],
        ("bytes", "stated"): [b"q\xa7\xde"],
        ("string", "unstated"): [],
        ("string", "stated"): [b"\xca\xfe"],
    }
    for (type_, name), rows in want.items():
        pipeline = MemoryPipeline(unstated if name == "unstated" else stated)
        pipeline.step([connect(type_, "cafe")])
        assert [row["b"] for row in pipeline.rows()] == rows, (type_, name)
        for bad in pipeline.quarantine:
            assert "the record's schema says 'string', which STRING takes. Next: " in bad["_detail"]


def test_records_with_and_without_a_schema_in_one_step_are_read_each_by_its_own():
    pipeline = MemoryPipeline(spec(SCHEMA, key=["b"], format={"type": "debezium", "encodings": {"b": "hex"}}))
    bare = envelope("c", 2, after={"id": 2, "b": "cafe"})
    pipeline.step([connect("bytes", "cafe"), record(bare, 1)])
    assert {row["id"]: row["b"] for row in pipeline.rows()} == {1: b"q\xa7\xde", 2: b"\xca\xfe"}


@pytest.mark.usefixtures("_on_both_paths")
def test_text_in_avro_is_read_by_the_spec_and_bytes_as_they_are():
    schema = envelope_of({"id": "long", "b": "string", "raw": "bytes"})
    values = [{"id": n, "b": text, "raw": b"\x01"} for n, text in enumerate(["cafe", "", "xx"])]
    records = batch(
        [avro(1, schema, {"before": None, "after": row, "source": OF_SHOP, "op": "c"}) for row in values], {1: schema}
    )
    found = []
    for encodings in ({"b": "hex", "raw": "hex"}, {}):
        of = spec(f"{SCHEMA}, raw BINARY", format={"type": "debezium", "encodings": encodings})
        rows = staged(of.decoding, records).to_pylist()
        found.append(sorted((row["id"], row["b"], row["raw"]) for row in rows if row["_reason"] is None))
    assert found == [[(0, b"\xca\xfe", b"\x01"), (1, b"", b"\x01")], []]


@pytest.mark.usefixtures("_on_both_paths")
def test_key_and_default_of_bytes_are_of_the_column_s_encoding():
    format_ = {"type": "debezium", "encodings": {"k": "hex", "b": "hex"}}
    of = spec("k BINARY NOT NULL, n INT, b BINARY DEFAULT 'cafe'", key=["k"], format=format_)
    pipeline = MemoryPipeline(of)
    pipeline.step(
        [
            record(envelope("c", 1, after={"k": "dead", "n": 1})),
            record(envelope("c", 2, after={"k": "beef", "n": 1}), 1),
        ]
    )
    pipeline.step([record(envelope("d", 3, before={"k": "DEAD"}), 2)])
    assert pipeline.rows() == [{"k": b"\xbe\xef", "n": 1, "b": b"\xca\xfe"}]


def test_plain_rows_have_the_same_encodings():
    pipeline = MemoryPipeline(plain(SCHEMA, format={"type": "plain", "encodings": {"b": "hex"}}))
    pipeline.step([change("+I", id=1, b="cafe")])
    assert pipeline.rows() == [{"id": 1, "b": b"\xca\xfe"}]


@pytest.mark.parametrize(
    ("column", "encoding"),
    [("b STRING", "hex"), ("b BINARY", "precise"), ("b BINARY", "bits"), ("b BINARY DEFAULT 'zz'", "hex")],
)
def test_encoding_that_does_not_fit_its_column_is_refused(column, encoding):
    with pytest.raises(ValueError, match=r"format\.encodings|defaults that fit"):
        spec(f"id BIGINT NOT NULL, {column}", format={"type": "debezium", "encodings": {"b": encoding}})


def test_base64_may_be_stated_later_and_hex_may_not():
    given = {encoding: spec(SCHEMA, format={"type": "debezium", "encodings": {"b": encoding}}) for encoding in WRITE}
    unstated = json.loads(json.dumps(spec(SCHEMA).identity))
    misfits = {encoding: of.misfits(unstated) for encoding, of in given.items()}
    assert misfits == {"base64": [], "base64url": [], "hex": ["format"]}
