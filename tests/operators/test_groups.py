"""How a partition is cut into groups of whole keys."""

import pyarrow as pa
import pytest

from ebbtide.state_table.deciding import _groups

BATCHES = [
    pa.record_batch({"k": ["a", "b", "c", None] * 2, "n": range(8), "pad": ["x" * 100] * 8}),
    pa.record_batch({"k": pa.array([], pa.string()), "n": pa.array([], pa.int64()), "pad": pa.array([], pa.string())}),
    pa.record_batch({"k": ["b", "d"], "n": [8, 9], "pad": ["x" * 100] * 2}),
]


@pytest.mark.parametrize(("group_bytes", "groups"), [(None, 1), (10**6, 1), (600, 2), (1, 5)])
def test_groups_hold_whole_keys_and_lose_nothing(group_bytes, groups):
    found = [table.to_pylist() for table in _groups(iter(BATCHES), ["k"], group_bytes)]
    assert len(found) == groups
    assert sorted(row["n"] for group in found for row in group) == list(range(10))
    keys = [{row["k"] for row in group} for group in found]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 5


def test_no_rows_make_no_group():
    assert list(_groups(iter(BATCHES[1:2]), ["k"], 1)) == []
