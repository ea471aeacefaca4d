"""The columnar kernel: compiled or not, it emits what the materializer emits record by record."""

import numpy as np
import pytest
from frame.circumstances import assume
from frame.limits import limits
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.changelog import RowKind
from ebbtide.columns import equality_key
from ebbtide.materializer import OrderedMultiset, SinkUpsertMaterializer, Strategy
from ebbtide.operators._arrival import kernel
from ebbtide.stores import HeapStore

INSERT, UPDATE, DELETE = 1, 2, 3


pytestmark = pytest.mark.group("compiled")
EVENTS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), st.booleans()), max_size=30)
KINDS = {INSERT: "+I", UPDATE: "+U", DELETE: "-D"}


def coded(events):
    key, like, adds = (np.array([e[i] for e in events], dtype=int) for i in range(3))
    return key, key * 3 + like, adds.astype(bool)


@given(EVENTS, st.booleans())
def test_kernel_emits_what_the_materializer_emits(events, replaces):
    key, like, adds = coded(events)
    rows = OrderedMultiset(
        HeapStore(), Strategy.LEGACY, identify=(lambda row: row[0]) if replaces else equality_key, replaces=replaces
    )
    materializer = SinkUpsertMaterializer(rows)
    found = kernel.materialize(key, like, adds, replaces=replaces)
    for t, (k, i, add) in enumerate(zip(key.tolist(), like.tolist(), adds.tolist(), strict=True)):
        row = (i, t) if replaces else (i,)
        out = materializer.process(RowKind("+I" if add else "-D"), k, row)
        assert KINDS.get(int(found.outcome[t])) == (out.kind.value if out else None)
        if out:
            source = int(found.source[t])
            assert out.row == ((int(like[source]), source) if replaces else (int(like[source]),))
    live = [len(rows.elements(k)) for k in range(2)]
    assert [int(found.alive[key == k].sum()) for k in range(2)] == live


@given(EVENTS, st.booleans(), st.booleans(), st.booleans(), st.integers(0, 30))
def test_compiled_and_plain_give_the_same(events, replaces, waits, first, n_stored):
    given_ = {"replaces": replaces, "keep_unmatched": waits, "first": first, "n_stored": min(n_stored, len(events))}
    with limits():
        assume("not compiled")
        plain = kernel.materialize(*coded(events), **given_)
    with limits():
        assume("compiled")
        fast = kernel.materialize(*coded(events), **given_)
    for one, other in zip(plain, fast, strict=True):
        assert one.tolist() == other.tolist()
        assert one.dtype == other.dtype


@pytest.mark.demand("sum-cost")
def test_history_walked_to_its_end_and_back_is_linear():
    """Rows retracted oldest first, newest first, and from the middle."""
    n = 200_000
    for order in (np.arange(n), np.arange(n)[::-1], np.random.default_rng(3).permutation(n)):
        like = np.concatenate([np.arange(n), order])
        adds = np.concatenate([np.ones(n, bool), np.zeros(n, bool)])
        found = kernel.materialize(np.zeros(2 * n, int), like, adds)
        assert found.outcome[-1] == DELETE
        assert not found.alive.any()
