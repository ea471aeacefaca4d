"""Records that tell their place beside their value are what lines say that hold the same records."""

import json

import pytest
from inputs.lines import batch_of, placed_batch_of, staged
from local.support import SHOP, UNAVAILABLE, envelope, lines_of, record, shop, spec

from ebbtide.formats import stored_form

ODD = [
    record(envelope("d", 5) | {"before": None}, 1, key='{"id": 4}'),  # the key alone says which row
    record(None, 2, key='{"id": 4}'),
    record("{", 3, key="k"),
    record("", 4),
    record({"no": "change"}, 6, partition=2),
    record(envelope("c", 7, after={"id": 1, "n": "much"}), 7),
    record(envelope("c", 8, after={"id": 1, "n": 2}), 8),
]


def decoded(decoding, batch):
    rows = staged(decoding, batch)
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in rows.drop_columns(["_raw"]).to_pylist())


@pytest.mark.parametrize("table", ["orders", "customers", "order_items"])
def test_shop_s_records_are_the_same_rows_both_ways(table):
    topic = f'"topic": "shop.public.{table}"'.encode()
    lines = [line for line in lines_of(SHOP / "capture") if topic in line][:3_000]
    decoding = shop(table).decoding
    assert decoded(decoding, placed_batch_of(lines)) == decoded(decoding, batch_of(lines))


def test_odd_records_are_the_same_rows_and_bad_for_the_same_reasons():
    decoding = spec().decoding
    assert decoded(decoding, placed_batch_of(ODD)) == decoded(decoding, batch_of(ODD))


def test_headers_that_name_another_key_are_read_both_ways_and_kept_with_a_bad_record():
    decoding = spec("id BIGINT NOT NULL, v STRING").decoding
    after = {"id": 2, "v": UNAVAILABLE}
    lines = [
        record(envelope("c", 7, after=after), 1, old_key='{"id": 1}'),
        record(envelope("c", 8, after=after), 2, old_key="no key"),
        record(envelope("d", 7, before={"id": 1}), 3, new_key='{"id": 2}'),
    ]
    rows = decoded(decoding, placed_batch_of(lines))
    assert rows == decoded(decoding, batch_of(lines))
    moved = {row["_kind"]: row["_moved_from"] for row in map(json.loads, rows) if row["_moved_from"]}
    of_key = {key: [{"sequence": {"_lsn": 7}, "key": {"id": key}}] for key in (1, 2)}
    assert moved == {"+I": of_key[1], "-D": of_key[2]}
    bad = [record("{", 3, key="k", old_key='{"id": 1}'), record("{", 4, key="k", new_key='{"id": 2}')]
    kept = [json.loads(line)["headers"] for line in stored_form(placed_batch_of(bad)).to_pylist()]
    assert kept == [[["__debezium.oldkey", '{"id": 1}']], [["__debezium.newkey", '{"id": 2}']]]


def test_record_that_is_too_large_still_has_its_place():
    decoding = spec(quarantine={"max_record_bytes": 90}).decoding
    [row] = decoded(decoding, placed_batch_of([record("x" * 91, 5, partition=2)]))
    assert json.loads(row)["_reason"] == "too_large"
    assert json.loads(row)["_origin"] == {"source": "t", "partition": 2, "position": 5}


def test_quarantine_keeps_the_line_that_a_record_would_be():
    assert [json.loads(line) for line in stored_form(placed_batch_of(ODD)).to_pylist()] == [
        json.loads(line) for line in ODD
    ]
    assert stored_form(batch_of([b"{"])).to_pylist() == [b"{"]
