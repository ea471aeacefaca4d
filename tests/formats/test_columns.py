import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from ebbtide.formats import Coding

D = Decimal
UTC_US, NTZ = pa.timestamp("us", "UTC"), pa.timestamp("us")
MIN, MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
DECIMAL = pa.decimal128(6, 2)
LISTS, STRUCTS, MAPS = (
    pa.list_(pa.int32()),
    pa.struct([("a", pa.int8()), ("b", DECIMAL)]),
    pa.map_(pa.string(), pa.date32()),
)
DEEP = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.string())))]))
# type, JSON value, typed value
FITTING = [
    *((t, v, v) for bits, t in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64())) for v in (-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1)),
    (pa.int64(), "-9223372036854775808", -(2**63)),
    (pa.int8(), "0", 0),
    (pa.int64(), -9007199254740991.0, -9007199254740991),
    (pa.int32(), D("1.0E3"), 1000),
    (pa.float32(), 0.5, 0.5),
    (pa.float32(), 3, 3.0),
    (pa.float64(), D("0.1"), 0.1),
    (pa.float64(), 1.7976931348623157e308, 1.7976931348623157e308),
    (pa.float64(), "Infinity", math.inf),
    (pa.float32(), "-Infinity", -math.inf),
    (DECIMAL, D("1.5"), D("1.50")),
    (DECIMAL, "-9999.99", D("-9999.99")),
    (DECIMAL, "+0001.500000", D("1.50")),
    (DECIMAL, "15e-1", D("1.50")),
    (DECIMAL, "1E3", D("1000.00")),
    (DECIMAL, "0e999999999", D("0.00")),
    *((DECIMAL, text, D(text)) for text in (".5", "5.", "-.5", "-15e-1", "+15E-1", "-120e-1", "1e-2", "0.0123e2")),
    *((DECIMAL, text, D(text)) for text in ("0.000e5", "-0", "007.50", "0009999.990", "100", "12.34")),
    (DECIMAL, 9999, D("9999.00")),
    (pa.decimal128(38, 0), 10**38 - 1, D(10**38 - 1)),
    (pa.decimal128(38, 38), "0." + "9" * 38, D("0." + "9" * 38)),
    (pa.decimal128(38, 9), D("12345678901234567.123456789"), D("12345678901234567.123456789")),
    (pa.string(), "", ""),
    (pa.string(), "grün \u0000 \U0001f30a", "grün \u0000 \U0001f30a"),
    (pa.bool_(), True, True),
    (pa.bool_(), False, False),
    (pa.binary(), "", b""),
    (pa.binary(), "AP8=", b"\x00\xff"),
    (pa.date32(), 0, date(1970, 1, 1)),
    (pa.date32(), -719_162, date.min),
    (pa.date32(), 2_932_896, date.max),
    (pa.date32(), "2024-02-29", date(2024, 2, 29)),
    (pa.date32(), 1.0, date(1970, 1, 2)),
    (NTZ, D("1.7672256E+15"), datetime(2026, 1, 1)),  # noqa: DTZ001
    (NTZ, MIN, datetime.min),  # noqa: DTZ901
    (NTZ, MAX, datetime.max),  # noqa: DTZ901
    (NTZ, "2024-01-02T03:04:05.678901", datetime(2024, 1, 2, 3, 4, 5, 678901)),  # noqa: DTZ001 - it has no zone
    (UTC_US, 1_000_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    (UTC_US, "2024-01-02T03:04:05Z", datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)),
    (UTC_US, "2024-01-02T03:04:05+02:00", datetime(2024, 1, 2, 1, 4, 5, tzinfo=UTC)),
    (LISTS, [], []),
    (LISTS, [1, None, 3], [1, None, 3]),
    (STRUCTS, {}, {"a": None, "b": None}),
    (STRUCTS, {"b": "1.5", "a": 1}, {"a": 1, "b": D("1.50")}),
    (MAPS, {}, []),
    (MAPS, {"x": 1, "y": None}, [("x", date(1970, 1, 2)), ("y", None)]),
    (pa.map_(NTZ, pa.int8()), {"2024-01-02T03:04:05": 1}, [(datetime(2024, 1, 2, 3, 4, 5), 1)]),  # noqa: DTZ001
    (DEEP, [{"m": {"k": ["v", None]}}, None, {}], [{"m": [("k", ["v", None])]}, None, {"m": None}]),
]  # fmt: skip
UNFIT = [
    *((t, v) for bits, t in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32()), (64, pa.int64())) for v in (-(2 ** (bits - 1)) - 1, 2 ** (bits - 1))),
    *((pa.int64(), v) for v in (1.5, D("1.5"), 2.0**53, math.inf, "01", "1.0", "+1", " 1", "", "9" * 19, True, [])),
    *((pa.float64(), v) for v in (True, "1.5", "nan", 10**400, D("1e400"))),
    *((pa.float32(), v) for v in (3.5e38, D("-1e39"))),
    *((DECIMAL, v) for v in ("10000", "0.001", "1e4", "1e-3", "", ".", "x", "NaN", "1_0", " 1", "1 ", True, 10**50, [])),
    *((DECIMAL, v) for v in ("-", "1e", "1 2", "0x1", "--1", "1e1e1", "1e1234567890", "99999.9", "1e999999999", "-10000")),
    (DECIMAL, "3402.82366920938463463374607431768211456"),  # 2**128, as whose digits Arrow takes none
    *((pa.string(), v) for v in (1, True, {}, [], "\ud800")),
    *((pa.bool_(), v) for v in (0, "true")),
    *((pa.binary(), v) for v in ("A", "AP8", "grün", 1)),
    *((pa.date32(), v) for v in (-719_163, 2_932_897, 2**31, "2024-13-01", "2023-02-29", "x", "", True, 1.5)),
    *((NTZ, v) for v in (MIN - 1, MAX + 1, 2**63, "2024-01-01T00:00:00Z", "x", True, 1.5)),
    *((UTC_US, v) for v in (MIN - 1, MAX + 1, "2024-01-01T00:00:00", {})),
    *((LISTS, v) for v in ("1", {}, [1, "2x"], [2**31], [[1]])),
    *((STRUCTS, v) for v in ([], {"c": 1}, {"a": 128}, {"b": "0.001"})),
    *((MAPS, v) for v in ([], {"x": "y"}, {"\ud800": 1})),
    (DEEP, [{"m": {"k": [1]}}]),
]  # fmt: skip


@pytest.mark.parametrize(("type_", "value", "typed"), FITTING)
def test_convert_value_that_fits_stands_typed_between_nulls(type_, value, typed):
    array, bad = Coding().convert([None, value, None, value], type_)
    assert bad == []
    assert array.type == type_
    assert array.to_pylist() == [None, typed, None, typed]
    array.validate(full=True)


@pytest.mark.parametrize(("type_", "value"), UNFIT)
def test_convert_value_that_does_not_fit_is_named_by_index(type_, value):
    fitting, typed = next((v, t) for k, v, t in FITTING if k == type_)
    array, bad = Coding().convert([fitting, value, None, fitting, value], type_)
    assert bad == [1, 4]
    assert array.to_pylist() == [typed, None, None, typed, None]
    array.validate(full=True)


@pytest.mark.parametrize("type_", sorted({t for t, *_ in FITTING}, key=str), ids=str)
@pytest.mark.parametrize("values", [[], [None], [None, None]], ids=len)
def test_convert_nothing_but_nulls_gives_nulls(type_, values):
    array, bad = Coding().convert(values, type_)
    assert (array.to_pylist(), array.type, bad) == (values, type_, [])


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_convert_nan_text_is_a_float_and_negative_zero_is_zero(type_):
    array, bad = Coding().convert(["NaN", -0.0], type_)
    assert bad == []
    assert math.isnan(array[0].as_py())
    assert math.copysign(1, array[1].as_py()) == 1


@pytest.mark.parametrize(
    ("unit", "ticks", "want"),
    [("ms", 1, 1_000), ("us", 1, 1), ("ns", 1_000, 1), ("ns", -1_000, -1), ("ms", MAX // 1000, MAX - 999)],
)
@pytest.mark.parametrize("type_", [NTZ, UTC_US], ids=str)
def test_convert_timestamp_counts_in_its_unit(unit, ticks, want, type_):
    array, bad = Coding(unit).convert([ticks, None], type_)
    assert (array.cast(pa.int64()).to_pylist(), bad) == ([want, None], [])


@pytest.mark.parametrize(("unit", "ticks"), [("ns", 1), ("ms", MAX // 1000 + 1), ("ms", 2**62)])
def test_convert_timestamp_that_microseconds_cannot_hold_is_unfit(unit, ticks):
    assert Coding(unit).convert([0, ticks], NTZ)[1] == [1]


@pytest.mark.parametrize(("type_", "zone"), [(NTZ, ""), *((UTC_US, zone) for zone in ("Z", "+05:30", "-0800"))])
@pytest.mark.parametrize("digits", [7, 8, 9])
@pytest.mark.parametrize("micros", ["000000", "000001", "120000", "999999"])
def test_zeros_below_a_microsecond_change_no_time(type_, zone, digits, micros):
    usual, more = (f"2026-01-31T10:00:00.{micros:0<{n}}{zone}" for n in (6, digits))
    array, bad = Coding().convert([usual, more, more.replace("T", " ")], type_)
    assert (bad, len(set(array.to_pylist()))) == ([], 1)
    assert Coding().convert([usual, f"{more[:27]}1{zone}"], type_)[1] == [1]


def test_day_may_end_in_z_and_time_without_zone_may_not():
    array, bad = Coding().convert(["0001-01-01Z", "2026-01-31", "2026-01-31+01:00"], pa.date32())
    assert (array.to_pylist(), bad) == ([date(1, 1, 1), date(2026, 1, 31), None], [2])
    assert Coding().convert(["2026-01-31", "2026-01-31Z", "2026-01-31T00:00:00Z"], NTZ)[1] == [1, 2]


def test_convert_type_without_a_json_form_is_refused():
    with pytest.raises(TypeError, match="no JSON form for duration"):
        Coding().convert([1], pa.duration("s"))


@pytest.mark.parametrize(
    ("type_", "make"),
    [
        (NTZ, lambda t: t),
        (pa.list_(NTZ), lambda t: [t]),
        (pa.struct([("t", NTZ)]), lambda t: {"t": t}),
        (pa.map_(pa.string(), NTZ), lambda t: {"k": t}),
    ],
    ids=["alone", "list", "struct", "map"],
)
@pytest.mark.parametrize(("unit", "ticks"), [("ms", 2), ("us", 2_000), ("ns", 2_000_000)])
def test_unit_counts_within_nested_values_too(type_, make, unit, ticks):
    for values in ([make(ticks)], [make(ticks), "bad"]):
        array, _ = Coding(unit).convert(values, type_)
        got = array.to_pylist(maps_as_pydicts="strict")[0]
        assert got == make(datetime(1970, 1, 1, 0, 0, 0, 2000))  # noqa: DTZ001 - it has no zone


@pytest.mark.parametrize(
    ("type_", "values", "want"),
    [
        (pa.date32(), [1, "1970-01-03", None], [date(1970, 1, 2), date(1970, 1, 3), None]),
        (NTZ, [1_000_000, "1970-01-01T00:00:02", None], [datetime(1970, 1, 1, 0, 0, at) for at in (1, 2)] + [None]),  # noqa: DTZ001
    ],
    ids=["date", "timestamp"],
)
def test_numbers_and_text_stand_in_one_column(type_, values, want):
    array, bad = Coding().convert(values, type_)
    assert (array.to_pylist(), bad) == (want, [])
