"""Rows are found by key exactly, whatever their hashes."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.columns import key_hashes
from ebbtide.delta import KeyIndex
from ebbtide.delta import _key_lookup as key_lookup

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])


def table(keys):
    return pa.table({"a": [a for a, _ in keys], "b": [b for _, b in keys], "n": range(len(keys))}, SCHEMA)


def coarse(rows, key):
    """Hashes that many keys share."""
    return np.array([(a or 0) % 3 for a in rows["a"].to_pylist()], np.uint64)


KEYS = st.tuples(st.none() | st.integers(0, 9), st.none() | st.sampled_from("xyz"))


class InMemory:
    """Rows that need no file."""

    def __init__(self, rows):
        self.rows = rows

    def take(self, numbers, names):
        return self.rows.select(names).take(pa.array(numbers))


@pytest.mark.parametrize("hashes", [key_hashes, coarse])
def test_find_gives_the_rows_of_the_keys_and_no_other(monkeypatch, hashes):
    monkeypatch.setattr(key_lookup, "key_hashes", hashes)

    @given(st.lists(KEYS, max_size=20), st.sets(KEYS, max_size=8))
    def holds(stored, asked):
        rows, own, positions = KeyIndex.in_hash_order(table(stored), ["a", "b"])
        index = KeyIndex(own, positions, InMemory(rows))
        wanted = table(sorted(asked, key=str)).select(["a", "b"])
        own = hashes(wanted, ["a", "b"])
        order = np.argsort(own, kind="stable")
        wanted, own = wanted.take(pa.array(order)), own[order]
        rows, which = index.find(wanted, own)
        found = sorted(zip(index.positions[rows].tolist(), which.tolist(), strict=True))
        keys = [tuple(row.values()) for row in wanted.to_pylist()]
        assert found == sorted((at, keys.index(key)) for at, key in enumerate(stored) if key in keys)

    holds()
