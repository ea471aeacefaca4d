"""Hashes of keys: equal exactly for equal keys, and never changed."""

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.columns import key_hashes, row_codes

TEXTS = st.text(max_size=20) | st.sampled_from(["", "a", "a\0", "a" * 8, "a" * 9, "é" * 8])
COLUMNS = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.int16(): st.integers(-3, 3),
    pa.bool_(): st.booleans(),
    pa.string(): TEXTS,
    pa.binary(): st.binary(max_size=20),
    pa.float64(): st.floats(),
    pa.decimal128(20, 2): st.decimals(-(10**17), 10**17, places=2),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.list_(pa.int32()): st.lists(st.integers(0, 2), max_size=2),
}


@pytest.mark.parametrize("type_", COLUMNS, ids=str)
def test_hashes_are_equal_exactly_where_keys_are(type_):
    @given(st.lists(st.tuples(st.none() | COLUMNS[type_], st.integers(0, 1)), max_size=30))
    def holds(rows):
        values = [value for value, _ in rows]
        table = pa.table({"a": pa.array(values, type_), "b": pa.array([b for _, b in rows], pa.int8())})
        codes, hashes = row_codes(table, ["a", "b"]), key_hashes(table, ["a", "b"])
        pairs = set(zip(codes.tolist(), hashes.tolist(), strict=True))
        assert len(pairs) == len(set(codes.tolist())) == len(set(hashes.tolist()))

    holds()


@given(st.lists(TEXTS, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_hash_of_a_key_does_not_depend_on_its_neighbours(texts, start, n):
    column = pa.array(texts, pa.string())
    numbers = pa.array([Decimal(len(text)) for text in texts], pa.decimal128(9, 0))
    table = pa.table({"a": column, "n": numbers})
    whole = key_hashes(table, ["a", "n"])
    assert key_hashes(table.slice(start, n), ["a", "n"]).tolist() == whole[start : start + n].tolist()


def test_order_of_the_columns_counts():
    table = pa.table({"a": [1, 2], "b": [2, 1]})
    first, second = key_hashes(table, ["a", "b"])
    assert first != second
    assert key_hashes(table, ["b", "a"]).tolist() == [second, first]


def test_hashes_never_change():
    table = pa.table(
        {
            "a": pa.array([1, -1], pa.int64()),
            "b": ["", "a text of some length"],
            "c": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "d": pa.array([date(2026, 1, 1), None]),
            "e": pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC")),
            "f": [0.0, float("nan")],
            "g": [True, None],
            "h": pa.array([b"\x00", b"\x00\x00"]),
        }
    )
    one_by_one = {name: key_hashes(table, [name]).tolist() for name in table.column_names}
    assert one_by_one == KNOWN
    assert key_hashes(table, table.column_names).tolist() == KNOWN_TOGETHER


def test_widened_integer_has_the_hash_that_it_had():
    narrow, wide = pa.table({"a": pa.array([1, -7], pa.int32())}), pa.table({"a": pa.array([1, -7], pa.int64())})
    assert key_hashes(narrow, ["a"]).tolist() == key_hashes(wide, ["a"]).tolist()


def test_hashes_spread_over_their_first_bits():
    numbers = key_hashes(pa.table({"a": np.arange(64_000)}), ["a"])
    in_each = np.bincount((numbers >> np.uint64(58)).astype(int), minlength=64)
    assert in_each.min() > 800
    assert in_each.max() < 1200


KNOWN = {
    "a": [10257114587443610966, 2442277658713457816],
    "b": [4295609322031115183, 5079249594956057844],
    "c": [17552031747482605092, 1665446142678143899],
    "d": [18385826958068080624, 1665446142678143899],
    "e": [7965710915901535923, 1665446142678143899],
    "f": [0, 18013905776921634229],
    "g": [10257114587443610966, 1665446142678143899],
    "h": [16581908762299271353, 7923888429905624990],
}
KNOWN_TOGETHER = [9510000981723238706, 2860611194942320809]
