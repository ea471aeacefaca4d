import itertools
import math
import struct
import sys
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from frame.circumstances import assume
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.columns import row_codes

OTHER_NAN = struct.unpack("d", struct.pack("Q", 0x7FF8000000000001))[0]
MAP = pa.map_(pa.string(), pa.int32())


@pytest.mark.parametrize(
    ("type_", "values", "codes"),
    [
        (pa.int64(), [2**63 - 1, -(2**63), None, 2**63 - 1, None], [0, 1, 2, 0, 2]),
        (pa.string(), ["", None, "a", "", "A"], [0, 1, 2, 0, 3]),
        (pa.bool_(), [True, False, None, True], [0, 1, 2, 0]),
        (pa.binary(), [b"", b"\x00", None, b""], [0, 1, 2, 0]),
        (pa.date32(), [date(1970, 1, 1), None, date(1970, 1, 1)], [0, 1, 0]),
        (pa.decimal128(4, 2), [Decimal("1.50"), Decimal("1.5"), Decimal("1.51")], [0, 0, 1]),
        (pa.float64(), [math.nan, OTHER_NAN, None, 0.0, -0.0, math.inf, -math.inf, None], [0, 0, 1, 2, 2, 3, 4, 1]),
        (pa.float64(), [math.inf, -math.inf, sys.float_info.max, -sys.float_info.max], [0, 1, 2, 3]),
        (pa.float64(), [None, None], [0, 0]),
        (pa.list_(pa.int32()), [None, None], [0, 0]),
        (pa.float32(), [math.nan, 0.1, None, 0.1, 0.0, -0.0], [0, 1, 2, 1, 3, 3]),
        (pa.float64(), [1.0, 2.0, 1.0], [0, 1, 0]),
        (pa.list_(pa.int32()), [[1], [], None, [None], [1], []], [0, 1, 2, 3, 0, 1]),
        (pa.list_(pa.string()), [["a', 'b"], ["a", "b"], ["None"], [None]], [0, 1, 2, 3]),
        (pa.struct([("a", pa.int8())]), [{"a": 1}, {"a": None}, None, {"a": 1}], [0, 1, 2, 0]),
        (MAP, [[("k", 1)], [], None, [("k", None)], [("k", 1)]], [0, 1, 2, 3, 0]),
    ],
    ids=str,
)
def test_row_codes_of_one_column_are_equal_exactly_for_equal_values(type_, values, codes):
    column = pa.array(values, type_)
    assert row_codes(pa.table({"c": column}), ["c"]).tolist() == codes
    assert row_codes(pa.table({"c": pa.chunked_array([column[:2], column[2:]])}), ["c"]).tolist() == codes


def test_row_codes_of_several_columns_tell_rows_apart():
    table = pa.table({"a": ["x", "x", None, None, "x"], "b": ["1", None, "1", None, "1"], "c": [1, 1, 1, 1, 2]})
    assert as_they_come(row_codes(table, ["a", "b"])) == [0, 1, 2, 3, 0]
    assert as_they_come(row_codes(table, ["a", "b", "c"])) == [0, 1, 2, 3, 4]
    assert as_they_come(row_codes(table, ["a"])) == [0, 0, 1, 1, 0]


def test_rows_are_told_apart_where_pairs_of_codes_pass_32_bits():
    assume("not compiled")
    numbers = range(2**16 + 1)
    table = pa.table({"a": list(map(str, numbers)), "b": [str(number % 2**16) for number in numbers]})
    assert len(set(row_codes(table, ["a", "b"]).tolist())) == len(numbers)


def as_they_come(codes):
    seen = {}
    return [seen.setdefault(code, len(seen)) for code in codes.tolist()]


@pytest.mark.group("compiled")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 17])
@pytest.mark.parametrize(("type_", "before"), [(pa.string(), "p"), (pa.string(), "p" * 100), (pa.binary(), b"")])
def test_columns_that_others_tell_need_no_codes_of_their_own(fast, length, type_, before):
    assume("compiled" if fast else "not compiled")
    text = "abcdefghijklmnopq"[:length]
    texts = [text, "other", text, "other"]
    changes = [text, text + "X", *(text[:at] + "X" + text[at + 1 :] for at in range(length))]
    for at, changed in itertools.product(range(4), changes):
        given_ = [*texts[:at], changed, *texts[at + 1 :]]
        padded = pa.array([before, *given_], type_)[1:]  # not the first of its buffer
        table = pa.table({"a": [5, 900, 5, 900], "b": padded})
        want = as_they_come(np.array([hash(pair) for pair in zip([5, 900, 5, 900], given_, strict=True)]))
        assert as_they_come(row_codes(table, ["a", "b"])) == want


@pytest.mark.group("compiled")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    "column",
    [
        pa.array([5, 6, 5, 6]),
        pa.array([5, 6, 5, 7]),
        pa.array([5, 6, 5, None]),
        pa.array([1.0, 2.0, 1.0, 2.0]),
        pa.array(["a", "b", "a", None]),
        pa.array([bytes(8), b"b", bytes(7) + b"\x80", b"b"]),  # equal as floats
    ],
    ids=str,
)
def test_column_beside_another_tells_what_that_does_not(fast, column):
    assume("compiled" if fast else "not compiled")
    rows = [*zip([1, 2, 1, 2], column.to_pylist(), strict=True)]
    found = row_codes(pa.table({"a": [1, 2, 1, 2], "b": column}), ["a", "b"])
    assert as_they_come(found) == as_they_come(np.array([rows.index(row) for row in rows]))


@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), pa.string(), pa.list_(pa.int8()), MAP], ids=str)
def test_row_codes_of_no_rows_are_none(type_):
    assert row_codes(pa.table({"a": pa.array([], type_), "b": pa.array([], type_)}), ["a", "b"]).tolist() == []


CELLS = st.tuples(
    st.none() | st.integers(-2, 2), st.none() | st.floats(width=32), st.none() | st.text("ab,", max_size=2)
)


@given(st.lists(CELLS, max_size=12))
def test_row_codes_are_dense_and_those_of_equality(rows):
    table = pa.Table.from_pylist(
        [dict(zip("abc", row, strict=True)) for row in rows],
        pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string())]),
    )
    codes = row_codes(table, ["a", "b", "c"]).tolist()
    same = {repr(row): code for row, code in zip(rows, codes, strict=True)}
    assert [same[repr(row)] for row in rows] == codes
    assert sorted(set(codes)) == list(range(len(same)))


def test_codes_of_no_columns_are_none():
    found = row_codes(pa.table({"a": [1]}), [])
    assert (found.tolist(), found.dtype) == ([], np.int64)
