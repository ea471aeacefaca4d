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

from ebbtide.columns import CompiledLoop, row_codes
from ebbtide.columns._codes import _dense, _is_determined_by

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


@pytest.mark.xdist_group("compiled")
@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    "texts",
    [["a", "b", "a", "b"], ["", "", "", ""], ["long enough for words" * 3, "b", "long enough for words" * 3, "b"]],
)
def test_columns_that_others_tell_need_no_codes_of_their_own(fast, texts):
    assume("compiled" if fast else "not compiled")
    for at in range(4):
        for changed in (texts[at], texts[at] + "x", texts[at][:-1] + "y" if texts[at] else "z"):
            given_ = [*texts[:at], changed, *texts[at + 1 :]]
            padded = pa.array(["pad", *given_])[1:]  # not the first of its buffer
            table = pa.table({"a": [5, 900, 5, 900], "b": padded})
            want = as_they_come(np.array([hash((a, b)) for a, b in zip([5, 900, 5, 900], given_, strict=True)]))
            assert as_they_come(row_codes(table, ["a", "b"])) == want


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


@pytest.fixture
def as_python(monkeypatch):
    """Loops are worth compiling, and are run as they are."""
    assume("compiled")
    monkeypatch.setattr(CompiledLoop, "code", property(lambda self: self.loop))


@pytest.mark.parametrize("type_", [pa.string(), pa.binary()], ids=str)
@pytest.mark.parametrize("before", ["", "p", "padding", "p" * 100])
def test_texts_are_told_by_codes_exactly_if_those_of_a_code_are_equal(as_python, type_, before):
    for length in (0, 1, 7, 8, 9, 17):
        text = "abcdefghijklmnopq"[:length]
        rows = [before, text, "other", text, "other"]
        codes = np.array([0, 1, 0, 1])
        assert _is_determined_by(pa.array(rows, type_)[1:], codes)
        for at in range(length):
            changed = text[:at] + "X" + text[at + 1 :]
            assert not _is_determined_by(pa.array([*rows[:3], changed, rows[4]], type_)[1:], codes)
        assert not _is_determined_by(pa.array([*rows[:3], text + "X", rows[4]], type_)[1:], codes)
        assert not _is_determined_by(pa.array([*rows[:4], "others"], type_)[1:], codes)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (pa.array([5, 6, 5, 6]), True),
        (pa.array([5, 6, 5, 7]), False),
        (pa.array([5, 6, 5, None]), False),
        (pa.array([1, 2, 1, 2], pa.timestamp("us")), True),
        (pa.array([1.0, 2.0, 1.0, 2.0]), False),
        (pa.array(["a", "b", "a", None]), False),
        (pa.array([bytes(8), b"b", bytes(7) + b"\x80", b"b"]), False),  # equal as floats
    ],
    ids=str,
)
def test_column_is_told_where_that_is_quick_to_see(as_python, column, told):
    assert _is_determined_by(column, np.array([0, 1, 0, 1])) is told


def test_texts_are_not_compared_where_it_is_not_worth_it():
    assume("not compiled")
    assert not _is_determined_by(pa.array(["a", "a"]), np.array([0, 0]))
    assert _is_determined_by(pa.array([1, 1]), np.array([0, 0]))


@pytest.mark.parametrize("values", [[7, 5, 7, 6], [-3, -5, -3], [0, 10**9, 0, -(10**9)], [4], []])
def test_dense_codes_tell_values_apart(values):
    codes = _dense(np.array(values, np.int64)).tolist()
    assert sorted(set(codes)) == list(range(len(set(values))))
    assert len({*zip(values, codes, strict=True)}) == len(set(values))


def test_codes_of_no_columns_are_none():
    found = row_codes(pa.table({"a": [1]}), [])
    assert (found.tolist(), found.dtype) == ([], np.int64)
