"""States against the reference, step by step, over every combination of their options, on every store."""

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.state_walk import COMBINATIONS, KINDS, walk

from ebbtide.operators import RowsStore, StateSpec
from ebbtide.stores import HeapStore, RocksDbStore


def over(combinations):
    return pytest.mark.parametrize("combination", combinations, ids=lambda c: "-".join(map(str, c)).replace(" ", "-"))


each_combination = over(COMBINATIONS)
some_combinations = over(COMBINATIONS[::7])
"""Each value of each option several times: 7 divides the number of no option's values. A store knows nothing of the options."""


def rows_store():
    specs = {name: StateSpec(kind, pa.int64(), pa.string() if name == "map" else None) for name, kind in KINDS.items()}
    return RowsStore(specs)


@each_combination
@pytest.mark.demand("ttl-updates", "ttl-clocks")
def test_states_do_as_the_reference(combination):
    walk(combination, HeapStore(), random.Random(repr(combination)), 150)


@some_combinations
@pytest.mark.demand("ttl-backends")
def test_states_in_rows_do_as_the_reference(combination):
    walk(combination, rows_store(), random.Random(f"rows {combination!r}"), 15)


@some_combinations
@pytest.mark.demand("ttl-backends")
def test_states_in_rocksdb_do_as_the_reference(combination, tmp_path):
    store = RocksDbStore(tmp_path / "db")
    walk(combination, store, random.Random(f"rocksdb {combination!r}"), 15)
    store.close()


@pytest.mark.model
@each_combination
def test_states_do_as_the_reference_for_long(combination):
    walk(combination, HeapStore(), random.Random(f"long {combination!r}"), 20_000)


@pytest.mark.model
@each_combination
def test_states_in_rows_do_as_the_reference_for_long(combination):
    walk(combination, rows_store(), random.Random(f"long rows {combination!r}"), 300)


@pytest.mark.model
@each_combination
def test_states_in_rocksdb_do_as_the_reference_for_long(combination, tmp_path):
    store = RocksDbStore(tmp_path / "db")
    walk(combination, store, random.Random(f"long rocksdb {combination!r}"), 300)
    store.close()


@settings(max_examples=200)
@given(rng=st.randoms(use_true_random=False), combination=st.sampled_from(COMBINATIONS), steps=st.integers(1, 30))
def test_states_do_as_the_reference_and_failures_shrink(rng, combination, steps):
    walk(combination, HeapStore(), rng, steps)
