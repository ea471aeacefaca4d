"""When two rows are equal, by equality key, by codes of columns, and in a store."""

from decimal import Decimal

import pyarrow as pa
import pytest

from ebbtide.changelog import RowKind
from ebbtide.columns import equality_key, map_key, row_codes
from ebbtide.stores._rocksdb import codec

NAN = float("nan")
CASES = [
    (pa.int64(), None, None, True),
    (pa.int64(), 0, None, False),
    (pa.float64(), NAN, -NAN, True),
    (pa.float64(), NAN, None, False),
    (pa.float64(), 0.0, -0.0, True),
    (pa.float64(), -0.0, -0.0, True),
    (pa.float32(), NAN, NAN, True),
    (pa.decimal128(10, 2), Decimal("1.0"), Decimal("1.00"), True),
    (
        pa.decimal128(38, 10),
        Decimal("1234567890123456789012345678.0000000001"),
        Decimal(1234567890123456789012345678),
        False,
    ),
    (pa.string(), "", None, False),
    (pa.list_(pa.float64()), [NAN, 0.0], [NAN, 0.0], True),
    (pa.list_(pa.float64()), [0.0], [-0.0], True),
    (pa.list_(pa.int64()), [1, 2], [2, 1], False),
    (pa.list_(pa.int64()), [], None, False),
    (pa.struct([("a", pa.float64())]), {"a": NAN}, {"a": NAN}, True),
    (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
]


@pytest.mark.parametrize(("type_", "left", "right", "equal"), CASES, ids=lambda value: str(value)[:20])
def test_rows_are_equal_alike_everywhere(type_, left, right, equal):
    column = pa.array([[*v.items()] if pa.types.is_map(type_) else v for v in (left, right)], type_)
    codes = row_codes(pa.table({"c": column}), ["c"])
    assert (codes[0] == codes[1]) == equal
    one, other = equality_key([left]), equality_key([right])
    assert (one == other, hash(one) == hash(other)) == (equal, equal) or not equal
    assert (one == other) == equal
    assert (codec.encode(one) == codec.encode(other)) == equal


def test_what_no_column_gives_is_refused():
    with pytest.raises(TypeError, match=r"a row cannot hold .*; got set; allowed: values of a Spark"):
        equality_key([{1}])


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("1.50", "1.5"),
        ("1.00", "1"),
        ("-1.50", "-1.5"),
        ("1E+2", "100"),
        ("-0.0", "0"),
        ("0.10", "0.1"),
        ("100", "100"),
    ],
)
def test_decimal_that_is_a_key_is_written_in_one_way_and_keeps_its_sign(key, text):
    assert str(map_key(Decimal(key))) == text
    assert str(map_key((Decimal(key),))[0]) == text


def test_key_of_a_type_of_its_own_is_taken_as_it_is():
    assert map_key(RowKind.INSERT) is RowKind.INSERT


@pytest.mark.parametrize(("key", "type_"), [(1.0, "float"), (Decimal("NaN"), "Decimal"), ((1, NAN), "float")])
def test_inexact_key_is_refused_with_its_type(key, type_):
    with pytest.raises(TypeError, match=f"a map has no key .*; got {type_}; allowed: exact types"):
        map_key(key)
