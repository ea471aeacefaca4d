"""The byte format, and what RocksDB gives back."""

from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.keyed_state import Entry
from ebbtide.stores import RocksDbStore
from ebbtide.stores._rocksdb import codec

LONG = st.integers(-(2**63), 2**63 - 1)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(timedelta(-(10**6)), timedelta(10**6)),
)
KEY = st.one_of(st.text(), LONG, st.dates(), st.tuples(LONG, st.text()))
VALUE = st.recursive(SCALAR, lambda v: st.lists(v) | st.tuples(v, v) | st.dictionaries(KEY, v), max_leaves=8)


def same(a, b):
    return type(a) is type(b) and a == b


def types_in(value):
    """The type of a value, and those of what is in it."""
    if isinstance(value, dict):
        return dict, [types_in(part) for part in value.items()]
    return type(value), [types_in(part) for part in value] if isinstance(value, list | tuple) else []


@given(VALUE)
def test_value_comes_back_with_its_type(value):
    assert same(codec.decode(codec.encode(value)), value)


@given(VALUE, LONG, st.none() | LONG)
def test_entry_comes_back(value, stamp, ttl):
    found = codec.decode_entry(codec.encode_entry(Entry(value, stamp, ttl)))
    assert found == Entry(value, stamp, ttl)
    assert types_in(found.value) == types_in(value)


@given(VALUE, LONG, st.none() | LONG)
def test_entry_of_an_earlier_release_is_read(value, stamp, ttl):
    parts = [codec.encode(part) for part in (stamp, ttl, value)]
    raw = b"".join(len(part).to_bytes(4, "big") + part for part in parts[:2]) + parts[2]
    assert codec.decode_entry(raw) == Entry(value, stamp, ttl)


class Node(NamedTuple):
    """A subclass of a type of the format."""

    row: str


@pytest.mark.parametrize("value", [Node("a"), [Node("a")], OrderedDict(a=1), IntEnum("Kind", "ADD REMOVE").REMOVE])
def test_value_of_a_subclass_comes_back_as_its_base(value):
    found = codec.decode_entry(codec.encode_entry(Entry(value))).value
    assert found == value
    assert codec.decode(codec.encode(value)) == found


@given(LONG, LONG)
def test_integers_sort_as_bytes(a, b):
    assert (codec.encode(a) < codec.encode(b)) == (a < b)


@given(KEY, KEY, st.text(), st.text())
def test_no_key_begins_as_another(a, b, one, two):
    x, y = codec.prefix(one, a), codec.prefix(two, b)
    assert (x == y) == (same(a, b) and one == two)
    assert x == y or not x.startswith(y)


def test_format_stays_what_it_is():
    raw = codec.prefix("n", ("a", 1)) + codec.encode_sub(2)
    assert raw.hex() == "000000016e000000147500000002736100000009698000000000000001698000000000000002"


def test_form_of_entries_stays_what_it_is():
    raw = codec.encode_entry(Entry(("a", 2**64, None), 5))
    assert raw.hex() == "019305c0c7110193a161c70a0249010000000000000000c0"


@pytest.mark.parametrize("encode", [codec.encode, lambda value: codec.encode_entry(Entry([value]))])
def test_type_that_the_format_has_not_is_refused(encode):
    with pytest.raises(TypeError, match=r"cannot hold .*; got set; allowed: None, bool, int"):
        encode({1})


def test_tag_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no such tag"):
        codec.decode(b"?")


def test_states_and_keys_are_apart_and_positions_ascend(tmp_path):
    store = RocksDbStore(tmp_path / "db")
    one, two = store.state("a"), store.state("ab")
    for position in (300, 2, -1, 0):
        one.put("k", position, Entry(position))
    two.put("k", None, Entry("other"))
    one.put("k2", 0, Entry(Decimal("1.50")))
    assert [sub for sub, _ in one.entries("k")] == [-1, 0, 2, 300]
    assert (one.last("k"), one.last("none")) == (300, None)
    assert (sorted(one.all_keys()), list(two.all_keys())) == (["k", "k2"], ["k"])
    one.clear("k")
    store.compact()
    assert (list(one.entries("k")), one.get("k2", 0)) == ([], Entry(Decimal("1.50")))
    assert two.get("k", None) == Entry("other")
    store.close()


@pytest.mark.demand("ttl-restore-times")
def test_what_was_closed_is_there_again(tmp_path):
    store = RocksDbStore(tmp_path / "db")
    store.state("s").put((1, date(2026, 1, 1)), "p", Entry([datetime(2026, 1, 1, tzinfo=UTC), None], 5))
    store.close()
    store = RocksDbStore(tmp_path / "db")
    assert store.state("s").get((1, date(2026, 1, 1)), "p") == Entry([datetime(2026, 1, 1, tzinfo=UTC), None], 5)
    store.close()


def test_store_is_closed_and_opened_again_though_its_keys_were_not_all_passed(tmp_path):
    store = RocksDbStore(tmp_path / "db")
    for number in range(3):
        store.state("s").put(number, None, Entry(number))
    keys = store.state("s").all_keys()
    assert next(keys) == 0
    store.close()
    store = RocksDbStore(tmp_path / "db")
    assert list(store.state("s").all_keys()) == [0, 1, 2]
    store.close()


@pytest.mark.parametrize("n", [0, 1, 99, 100, 101, 200, 250])
def test_each_of_many_keys_is_passed_once_also_while_keys_are_removed(tmp_path, n):
    store = RocksDbStore(tmp_path / "db")
    state = store.state("s")
    store.state("r").put(0, None, Entry(0))
    store.state("t").put(0, None, Entry(0))
    for key in range(n):
        for position in (0, 1):
            state.put(key, position, Entry(key))
    assert list(state.all_keys()) == list(range(n))
    passed = []
    for key in state.all_keys():
        passed.append(key)
        state.clear(key)
    assert passed == list(range(n))
    assert list(state.all_keys()) == []
    store.close()
