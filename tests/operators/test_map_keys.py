"""Keys of maps: what is one key in one store is one key in all."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local.states import run_with
from servers.store_support import line, stateful

from ebbtide.errors import StatefulFunctionError
from ebbtide.keyed_state import MapStateDescriptor
from ebbtide.operators import RowsStore, StateSpec
from ebbtide.stores import HeapStore, RocksDbStore
from ebbtide.testing import MemoryPipeline

MapState = MapStateDescriptor.kind

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(timedelta(hours=-8))])
FEW_TIMES = st.sampled_from(
    [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 5, tzinfo=UTC),
    ]
)
KEYS = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-2, 2),
    pa.int64(): st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    pa.decimal128(10, 2): st.sampled_from(["1.5", "1.50", "0", "-0.0", "0.00", "1E+2", "100", "-1", "-1.00"]).map(
        Decimal
    ),
    pa.decimal128(38, 30): st.sampled_from(["1E-7", "0.0000001000", "12345678.123456789012345678901234567890"]).map(
        Decimal
    ),
    pa.string(): st.sampled_from(["", "-", "=", "None", "a", "A", "1", "1.0"]),
    pa.binary(): st.sampled_from([b"", b"a", b"61", b"\x00"]),
    pa.date32(): st.sampled_from([date(1, 1, 1), date(1970, 1, 1), date(2026, 1, 31)]),
    pa.timestamp("us"): FEW_TIMES.map(lambda at: at.replace(tzinfo=None)),
    pa.timestamp("us", "UTC"): st.builds(datetime.astimezone, FEW_TIMES, ZONES),
}
NUMBERS = count()


def map_of(store, key=("k",)):
    """A state of a store, at a key."""
    return run_with(MapStateDescriptor("BIGINT"), store, "map", key).states["map"]


@pytest.fixture(scope="module")
def rocksdb(tmp_path_factory):
    store = RocksDbStore(tmp_path_factory.mktemp("db"))
    yield store
    store.close()


@pytest.mark.demand("sum-equality")
@pytest.mark.parametrize("type_", KEYS, ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_stores_agree_on_which_keys_are_equal(rocksdb, type_, data):
    keys = st.none() | KEYS[type_]
    operations = st.tuples(st.sampled_from(["put", "put", "remove", "get", "contains"]), keys)
    script = data.draw(st.lists(operations, min_size=1, max_size=12))
    rows = RowsStore({"map": StateSpec(MapState, pa.int64(), type_)})
    key = (f"k{next(NUMBERS)}",)
    states = [map_of(store, key) for store in (HeapStore(), rocksdb, rows)]
    for number, (name, user_key) in enumerate(script):
        arguments = (user_key, number) if name == "put" else (user_key,)
        results = [getattr(state, name)(*arguments) for state in states]
        rows.flush()
        found = [dict(state.entries()) for state in states]
        assert results[0] == results[1] == results[2], (name, user_key)
        assert found[0] == found[1] == found[2], (name, user_key)
        assert len(rows.rows) == len(found[0]), "an entry is one row"


@pytest.mark.parametrize("key", [0.0, -0.0, 1.0, float("nan"), Decimal("NaN"), ("a", 1.5)], ids=str)
@pytest.mark.parametrize("store", ["heap", "rocksdb", "rows"])
def test_key_that_is_no_exact_value_is_refused_by_every_store(rocksdb, store, key):
    rows = RowsStore({"map": StateSpec(MapState, pa.int64(), pa.int64())})
    state = map_of({"heap": HeapStore(), "rocksdb": rocksdb, "rows": rows}[store])
    for operate in (state.get, state.contains, state.remove, lambda k: state.put(k, 1)):
        with pytest.raises(TypeError, match=r"a map has no key .* allowed: exact types"):
            operate(key)
    assert state.is_empty()


UNFIT = {
    "number for text": (pa.string(), 1),
    "bytes for text": (pa.string(), b"a"),
    "text for bytes": (pa.binary(), "a"),
    "truth for a number": (pa.int64(), True),
    "number for truth": (pa.bool_(), 1),
    "decimal for a number": (pa.int64(), Decimal(1)),
    "number for a decimal": (pa.decimal128(10, 2), 1),
    "time for a day": (pa.date32(), datetime(2026, 1, 1, tzinfo=UTC)),
    "day for a time": (pa.timestamp("us"), date(2026, 1, 1)),
    "time without a zone": (pa.timestamp("us", "UTC"), datetime(2026, 1, 1)),  # noqa: DTZ001
    "time with a zone": (pa.timestamp("us"), datetime(2026, 1, 1, tzinfo=UTC)),
}


@pytest.mark.parametrize("case", UNFIT)
def test_key_of_another_type_than_declared_is_refused_in_rows(case):
    type_, key = UNFIT[case]
    state = map_of(RowsStore({"map": StateSpec(MapState, pa.int64(), type_)}))
    with pytest.raises(TypeError, match=f"map 'map' has no key .* got {type(key).__name__}; allowed: what fits"):
        state.put(key, 1)


@pytest.mark.parametrize(
    ("type_", "key", "name"),
    [
        (pa.int64(), None, "-"),
        (pa.bool_(), True, "=true"),
        (pa.bool_(), False, "=false"),
        (pa.int64(), -5, "=-5"),
        (pa.decimal128(10, 2), Decimal("1.50"), "=1.5"),
        (pa.decimal128(10, 2), Decimal("1E+2"), "=100"),
        (pa.decimal128(10, 2), Decimal("-0.0"), "=0"),
        (pa.decimal128(10, 8), Decimal("1E-7"), "=0.0000001"),
        (pa.string(), "-", "=-"),
        (pa.binary(), b"\x00\xab", "=00ab"),
        (pa.date32(), date(2026, 1, 31), "=2026-01-31"),
        (pa.timestamp("us"), datetime(1970, 1, 1, 0, 0, 1, 5), "=1000005"),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), datetime(1970, 1, 1, 3, tzinfo=timezone(timedelta(hours=3))), "=0"),
    ],
    ids=str,
)
def test_key_is_stored_under_its_name(type_, key, name):
    rows = RowsStore({"map": StateSpec(MapState, pa.int64(), type_)})
    map_of(rows).put(key, 1)
    rows.flush()
    assert rows.rows["_sub"].to_pylist() == [name]


def test_entry_removed_under_an_equal_key_does_not_come_back():
    pipeline = MemoryPipeline(stateful("user_functions:Prices"))
    pipeline.step([line(1, v="1.50")])
    pipeline.step([line(1, v="1.5", kind="-D")])
    pipeline.step([line(1, v="2")])
    assert pipeline.rows() == [{"id": 1, "prices": "2"}]


def test_key_of_another_type_ends_the_step_with_the_key_s_name():
    pipeline = MemoryPipeline(stateful("user_functions:Prices", options={"as_text": True}))
    with pytest.raises(
        StatefulFunctionError, match=r"Prices failed on key \(1,\): TypeError: map 'seen' has no key '1'"
    ):
        pipeline.step([line(1, v="1")])
