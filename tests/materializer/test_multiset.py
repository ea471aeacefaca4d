"""The ordered multiset: its strategies agree, cost what the FLIP says, and leave nothing behind."""

import random
from collections import Counter
from decimal import Decimal
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.reference import Histories

from ebbtide.changelog import RowKind
from ebbtide.columns import equality_key
from ebbtide.keyed_state import Entry
from ebbtide.materializer import OrderedMultiset, SinkUpsertMaterializer, Strategy
from ebbtide.stores import HeapStore, RocksDbStore

OPERATIONS = st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 3)), max_size=40)
TIMED = st.lists(
    st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 2), st.integers(0, 120), st.integers(0, 40)), max_size=30
)
STRATEGIES = st.sampled_from(Strategy)


def by_first(row):
    return row[0]


def make(store, strategy, *, unique=False, **more):
    thresholds = {"high": 3, "low": 1} if strategy is Strategy.ADAPTIVE else {}
    return OrderedMultiset(
        store, strategy, identify=by_first if unique else equality_key, replaces=unique, **thresholds | more
    )


def stamped(multiset, **clock):
    return [(element.row, element.stamp_ms) for element in multiset.elements("k", **clock)]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("unique", [False, True])
@given(TIMED, st.sets(st.integers(0, 29)))
@pytest.mark.demand("sum-sweep", "sum-sweep-middle")
def test_sweeps_change_nothing_that_is_read_and_leave_only_what_lives(strategy, unique, operations, swept_after):
    """A history that is swept now and then does as one that is not; clocks and stamps rise."""
    swept_store = HeapStore()
    swept = make(swept_store, strategy, unique=unique, ttl_ms=50)
    plain = make(HeapStore(), strategy, unique=unique, ttl_ms=50)
    now_ms = 0
    for number, (adds, key, value, _, moves) in enumerate(operations):
        now_ms += moves
        row = (value, number) if unique else (value,)
        did = [
            each.add(key, row, stamp_ms=now_ms, now_ms=now_ms) if adds else each.remove(key, row, now_ms=now_ms)
            for each in (swept, plain)
        ]
        assert did[0] == did[1]
        if number in swept_after:
            swept.sweep(now_ms=now_ms)
            assert swept.sweep(now_ms=now_ms) == 0
        assert [swept.elements(k, now_ms=now_ms) for k in (0, 1)] == [plain.elements(k, now_ms=now_ms) for k in (0, 1)]
    live = sum(len(plain.elements(key, now_ms=now_ms)) for key in (0, 1))
    stored = sum(len(swept.elements(key, now_ms=-1)) for key in (0, 1))
    assert swept.sweep(now_ms=now_ms) <= stored - live
    if strategy is not Strategy.LEGACY:
        assert sum(len(swept.elements(key, now_ms=-1)) for key in (0, 1)) == live
    swept.sweep(now_ms=now_ms + 50)
    assert [list(swept_store.state(name).all_keys()) for name in ("history", "rows", "nodes")] == [[], [], []]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.demand("sum-sweep")
def test_sweep_in_rocksdb_leaves_nothing_of_what_has_expired(strategy, tmp_path):
    store = RocksDbStore(tmp_path / "db")
    multiset = make(store, strategy, ttl_ms=50)
    for number in range(200):
        multiset.add(number % 20, (number % 3,), stamp_ms=number, now_ms=number)
    assert multiset.sweep(now_ms=249) > 0
    assert [list(store.state(name).all_keys()) for name in ("history", "rows", "nodes")] == [[], [], []]
    store.close()


class Walk:
    """Rows beside a list."""

    def __init__(self, unique):
        self.unique, self.rows, self.n = unique, {0: [], 1: []}, count()

    def step(self, multiset, adds, key, number):
        row, rows = (number, next(self.n)) if self.unique else (number,), self.rows[key]
        at = next((i for i, each in enumerate(rows) if each[0] == number), None)
        if adds:
            assert multiset.add(key, row) == (not rows)
            if self.unique and at is not None:
                rows[at] = row
            else:
                rows.append(row)
        elif at is None:
            assert multiset.remove(key, row) is None
        else:
            was_last = at == len(rows) - 1
            del rows[at]
            assert multiset.remove(key, row) == (was_last, rows[-1] if rows else None)
        assert [each.row for each in multiset.elements(key)] == rows


@given(st.booleans(), st.lists(st.tuples(STRATEGIES, OPERATIONS), max_size=4))
@pytest.mark.demand("sum-history", "sum-links", "sum-upsert-key", "sum-primitive")
def test_rows_are_those_of_a_list_whatever_the_strategy_and_its_changes(unique, phases):
    walk, store = Walk(unique), HeapStore()
    for strategy, operations in phases:
        multiset = make(store, strategy, unique=unique)
        for operation in operations:
            walk.step(multiset, *operation)


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.demand("sum-restart")
def test_rocksdb_keeps_rows_over_a_restart_and_a_change_of_strategy(tmp_path, unique):
    walk = Walk(unique)
    for seed, strategy in enumerate([*Strategy, *reversed(Strategy)]):
        store = RocksDbStore(tmp_path)
        multiset = make(store, strategy, unique=unique)
        for n in range(40):
            walk.step(multiset, (n * 7 + seed) % 5 < 3, n % 2, (n * 11 + seed) % 4)
        store.close()


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.demand("sum-backend-change")
def test_rows_copied_from_one_store_into_another_go_on_there(tmp_path, strategy, unique):
    walk, heap, rocksdb = Walk(unique), HeapStore(), RocksDbStore(tmp_path)
    operations = [((n * 7) % 5 < 3, n % 2, (n * 11) % 4) for n in range(60)]
    multiset = make(heap, strategy, unique=unique)
    for operation in operations:
        walk.step(multiset, *operation)
    for name in ("history", "rows", "nodes"):
        source, target = heap.state(name), rocksdb.state(name)
        for key in source.all_keys():
            for sub, entry in source.entries(key):
                target.put(key, sub, entry)
    multiset = make(rocksdb, strategy, unique=unique)
    for operation in operations:
        walk.step(multiset, *operation)
    rocksdb.close()


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.demand("sum-empty")
def test_emptied_keys_leave_nothing(strategy, unique):
    store = HeapStore()
    multiset = make(store, strategy, unique=unique)
    for n in range(10):
        multiset.add("k", (n,))
    assert stored(store) > 0
    for n in (3, 9, 0, 1, 8, 5, 2, 4, 7, 6):
        assert multiset.remove("k", (n,)) is not None
    assert stored(store) == 0


def stored(store):
    states = [store.state(name) for name in ("history", "rows", "nodes")]
    return sum(len(list(state.all_keys())) for state in states)


class Counting:
    """A store that counts its calls."""

    def __init__(self, store, counts):
        self.inner, self.counts = store, counts

    def state(self, name):
        return Counting(self.inner.state(name), self.counts)

    def __getattr__(self, name):
        call = getattr(self.inner, name)
        if name in ("get", "put", "remove"):
            self.counts[name] += 1
        return call


@pytest.mark.parametrize(("strategy", "more_puts"), [(Strategy.MAP, 0), (Strategy.ADAPTIVE, 1)])
@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.parametrize("rows", [20, 2000])
@pytest.mark.demand("sum-cost", "sum-memory")
def test_linked_nodes_take_no_more_accesses_than_the_flip_says(strategy, more_puts, unique, rows):
    """FLIP-544, "Complexity analysis": 7 reads and 3 writes at worst, however long the history; counting its length is one more."""
    counts, worst, rng = Counter(), Counter(), random.Random(rows)
    multiset = make(Counting(HeapStore(), counts), strategy, unique=unique, **{} if not more_puts else {"low": 2})
    for n in range(rows):
        multiset.add("k", (n % (rows // 2) if not unique else n,))
    for n in range(4 * rows):
        counts.clear()
        number = rng.randrange(rows)
        if n % 2:
            multiset.add("k", (number, n) if unique else (number % (rows // 2),))
        else:
            multiset.remove("k", (number, n) if unique else (number % (rows // 2),))
        worst |= counts
    assert worst["get"] <= 5, "two fewer than it says"
    assert 3 <= worst["put"] <= 3 + more_puts


@pytest.mark.parametrize("unique", [False, True])
@pytest.mark.demand("sum-short")
def test_short_adaptive_history_takes_the_accesses_of_a_list(unique):
    took = []
    for strategy in (Strategy.VALUE, Strategy.ADAPTIVE):
        counts = Counter()
        multiset = OrderedMultiset(Counting(HeapStore(), counts), strategy, replaces=unique)
        for n in range(60):
            change = multiset.add if n % 12 < 6 else multiset.remove
            change("k", (n % 6,))
        took.append(counts)
    assert took[0] == took[1] == {"get": 60, "put": 55, "remove": 5}


@pytest.mark.parametrize("rows", [1, 10, 500])
@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.demand("sum-space")
def test_linked_history_has_at_most_two_entries_a_row(rows, equal):
    store = HeapStore()
    multiset = OrderedMultiset(store, Strategy.MAP)
    for n in range(rows):
        multiset.add("k", (0 if equal else n,))
    entries = sum(len(list(store.state(name).entries("k"))) for name in ("history", "rows", "nodes"))
    assert entries == (rows + 1 if equal else 2 * rows)


@pytest.mark.demand("sum-adaptive")
def test_adaptive_history_changes_its_form_at_the_thresholds():
    store = HeapStore()
    multiset, forms = OrderedMultiset(store, Strategy.ADAPTIVE, high=4, low=2), []
    for n in range(5):
        multiset.add("k", (n,))
        forms.append(form(store))
    for n in range(5):
        multiset.remove("k", (n,))
        forms.append(form(store))
    assert forms == ["list"] * 3 + ["nodes"] * 4 + ["list"] * 2 + [None]
    assert stored(store) == 0, "what was linked is gone"


def form(store):
    found = store.state("history").get("k", None)
    return None if found is None else "list" if isinstance(found.value, list) else "nodes"


@pytest.mark.demand("sum-thresholds-restart")
def test_other_thresholds_hold_from_the_next_change_after_a_restart():
    store, forms = HeapStore(), []
    for high, low, added in ((9, 1, 3), (3, 1, 1), (9, 5, 1)):
        multiset = OrderedMultiset(store, Strategy.ADAPTIVE, high=high, low=low)
        before = form(store)
        for n in range(added):
            multiset.add("k", (n,))
        forms.append((before, form(store)))
    assert forms == [(None, "list"), ("list", "nodes"), ("nodes", "list")]


@pytest.mark.demand("sum-thresholds", "sum-default")
def test_default_thresholds_are_those_of_the_store(tmp_path):
    for store, high, low in ((HeapStore(), 12, 8), (RocksDbStore(tmp_path), 10, 6)):
        multiset = OrderedMultiset(store)
        for n in range(high):
            assert form(store) in (None, "list")
            multiset.add("k", (n,))
        for n in range(high - low):
            assert form(store) == "nodes"
            multiset.remove("k", (n,))
        assert form(store) == "list"


@pytest.mark.parametrize("thresholds", [{"high": 8}, {"low": 12}, {"high": 5, "low": 5}, {"high": 5, "low": -1}])
@pytest.mark.demand("sum-option")
def test_thresholds_that_do_not_fit_are_refused(thresholds):
    with pytest.raises(
        ValueError, match=r"threshold_low must be below threshold_high; got low .*; allowed: 0 <= low < high"
    ):
        OrderedMultiset(HeapStore(), Strategy.ADAPTIVE, **thresholds)


@given(st.booleans(), TIMED)
@pytest.mark.demand("sum-ttl", "sum-consistent")
def test_rows_expire_each_by_its_own_time_whatever_the_strategy(unique, operations):
    """Event times in any order; LEGACY has one clock for the whole history and is Flink's."""
    histories = Histories(["k"], 100, upsert_key=["n"] if unique else [])
    every = [
        SinkUpsertMaterializer(make(HeapStore(), strategy, unique=unique, ttl_ms=100))
        for strategy in Strategy
        if strategy is not Strategy.LEGACY
    ]
    now = 0
    for v, (adds, key, number, stamp, wait) in enumerate(operations):
        now += wait
        row = {"k": key, "n": number, "v": v if unique else 0}
        before = len(histories.emitted)
        histories.expire(now)
        histories.apply("+I" if adds else "-D", row, now - 100 + stamp, now)
        want = [kind for kind, _ in histories.emitted[before:]]
        for each in every:
            out = each.process(
                RowKind("+I" if adds else "-D"), key, (number, row["v"]), stamp_ms=now - 100 + stamp, now_ms=now
            )
            assert ([out.kind.value] if out else []) == want


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.demand("sum-upsert-key")
def test_row_takes_the_place_of_the_one_with_its_upsert_key_and_else_comes_last(strategy):
    multiset = make(HeapStore(), strategy, unique=True)
    for row in ((1, "old"), (2, "other"), (3, "newest"), (1, "new"), (4, "last")):
        multiset.add("k", row)
    assert [row for row, _ in stamped(multiset)] == [(1, "new"), (2, "other"), (3, "newest"), (4, "last")]


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.demand("sum-multiset")
def test_retraction_takes_the_oldest_of_equal_rows(strategy):
    multiset = make(HeapStore(), strategy)
    for stamp_ms, row in enumerate("aba"):
        multiset.add("k", (row,), stamp_ms=stamp_ms)
    assert multiset.remove("k", ("a",)) == (False, ("a",))
    assert stamped(multiset) == [(("b",), 1), (("a",), 2)]
    assert multiset.remove("k", ("a",)) == (True, ("b",))


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("store", ["heap", "rocksdb"])
@pytest.mark.demand("sum-equality")
def test_retraction_finds_an_equal_row_in_each_store_also_after_a_restart(tmp_path, strategy, store):
    opened = HeapStore() if store == "heap" else RocksDbStore(tmp_path)
    rows = [(Decimal("1.50"), float("nan"), None), (-0.0, ["x"], {"p": 1, "q": 2})]
    equal = [(Decimal("1.5"), float("nan"), None), (0.0, ["x"], {"q": 2, "p": 1})]
    multiset = make(opened, strategy)
    for row in rows:
        multiset.add("k", row)
    if store == "rocksdb":
        opened.close()
        opened = RocksDbStore(tmp_path)
    multiset = make(opened, strategy)
    assert multiset.remove("k", (Decimal("1.51"), float("nan"), None)) is None
    assert [multiset.remove("k", row) is not None for row in equal] == [True, True]
    assert stored(opened) == 0
    if store == "rocksdb":
        opened.close()


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.demand("sum-retract")
def test_place_of_a_retracted_row_decides_what_is_emitted(strategy):
    process = SinkUpsertMaterializer(make(HeapStore(), strategy)).process
    for row in "abc":
        process(RowKind.INSERT, "k", (row,))
    emitted = [process(RowKind.DELETE, "k", (row,)) for row in "bca"]
    assert emitted == [None, (RowKind.UPDATE_AFTER, ("a",)), (RowKind.DELETE, ("a",))]


@pytest.mark.demand("sum-multiset")
def test_equal_rows_are_kept_apart_unless_they_are_to_replace_each_other():
    multiset = OrderedMultiset(HeapStore())
    assert (multiset.add("k", ("a",)), multiset.add("k", ("a",))) == (True, False)
    assert stamped(multiset) == [(("a",), 0)] * 2


@pytest.mark.demand("sum-old-state", "sum-links")
def test_linked_nodes_are_stored_as_ever():
    store = HeapStore()
    multiset = OrderedMultiset(store, Strategy.MAP)
    for number, row in enumerate("aba"):
        multiset.add("k", (row,), stamp_ms=number)
    assert {name: dict(store.state(name).entries("k")) for name in ("history", "rows", "nodes")} == {
        "history": {None: Entry(((0, 1), (("a",), 2, (1, 0), None), 2, None))},
        "rows": {("a",): Entry((0, 0, 1)), ("b",): Entry((1, 0, 0))},
        "nodes": {(0, 0): Entry((("a",), 0, None, (1, 0))), (1, 0): Entry((("b",), 1, (0, 0), (0, 1)))},
    }


@pytest.mark.demand("sum-old-state", "sum-stamp")
def test_list_is_stored_as_ever_with_the_time_of_its_last_write():
    store = HeapStore()
    multiset = OrderedMultiset(store, Strategy.VALUE, ttl_ms=10)
    changes = [("add", "a", 3), ("add", "b", 4), ("add", "c", 4), ("remove", "c", 5), ("remove", "x", 13)]
    for name, row, now_ms in changes:
        more = {"stamp_ms": now_ms} if name == "add" else {}
        getattr(multiset, name)("k", (row,), now_ms=now_ms, **more)
        assert store.state("history").get("k", None).stamp_ms == now_ms
    assert store.state("history").get("k", None).value == [[("b",), 4]]


@pytest.mark.parametrize("strategy", [Strategy.VALUE, Strategy.MAP, Strategy.ADAPTIVE])
@pytest.mark.demand("ttl-unified")
def test_row_is_shown_up_to_the_end_of_its_own_time(strategy):
    multiset = make(HeapStore(), strategy, ttl_ms=10)
    for row, stamp_ms in (("a", 0), ("b", 5), ("c", 3)):
        multiset.add("k", (row,), stamp_ms=stamp_ms)
    shown = {now: [each.row[0] for each in multiset.elements("k", now_ms=now)] for now in (9, 10, 12, 13, 14, 15)}
    assert shown == {9: ["a", "b", "c"], 10: ["b", "c"], 12: ["b", "c"], 13: ["b"], 14: ["b"], 15: []}


@pytest.mark.demand("sum-legacy-ttl")
def test_legacy_shows_all_rows_up_to_the_end_of_the_last_change():
    multiset, shown = make(HeapStore(), Strategy.LEGACY, ttl_ms=10), []
    for row, now in (("a", 0), ("b", 5)):
        multiset.add("k", (row,), now_ms=now)
        shown.append([len(multiset.elements("k", now_ms=now + wait)) for wait in (9, 10)])
    multiset.remove("k", ("a",), now_ms=14)
    shown.append([len(multiset.elements("k", now_ms=14 + wait)) for wait in (9, 10)])
    assert shown == [[1, 0], [2, 0], [1, 0]]


@pytest.mark.demand("sum-consistent")
@pytest.mark.parametrize("strategy", [Strategy.VALUE, Strategy.MAP, Strategy.ADAPTIVE])
@pytest.mark.parametrize(
    ("rows", "retracted", "removed", "left"),
    [
        ([("a", 5), ("b", 0)], "x", None, "a"),
        ([("a", 5), ("a", 0)], "x", None, "a"),
        ([("a", 5), ("a", 5), ("a", 0)], "x", None, "aa"),
        ([("a", 0), ("b", 5)], "a", None, "b"),
        ([("a", 0), ("b", 5)], "b", (True, None), ""),
        ([("a", 0), ("a", 5)], "a", (True, None), ""),
        ([("c", 5), ("a", 0), ("b", 5)], "a", None, "cb"),
        ([("a", 0), ("a", 5), ("b", 5)], "a", (False, ("b",)), "b"),
    ],
)
def test_retraction_finds_no_row_that_has_expired(strategy, rows, retracted, removed, left):
    store = HeapStore()
    multiset = make(store, strategy, ttl_ms=10, **{"high": 2, "low": 0} if strategy is Strategy.ADAPTIVE else {})
    for row, stamp_ms in rows:
        multiset.add("k", (row,), stamp_ms=stamp_ms)
    assert multiset.remove("k", (retracted,), now_ms=10) == removed
    assert [each.row[0] for each in multiset.elements("k", now_ms=10)] == list(left)
    for row in left:
        assert multiset.remove("k", (row,), now_ms=10) is not None
    assert stored(store) == 0


@pytest.mark.demand("sum-no-row")
@pytest.mark.parametrize("strategy", Strategy)
def test_retraction_without_a_row_writes_nothing(strategy):
    counts = Counter()
    multiset = make(Counting(HeapStore(), counts), strategy, **{"low": 0} if strategy is Strategy.ADAPTIVE else {})
    for row in "abc":
        multiset.add("k", (row,))
    counts.clear()
    for key, row in (("k", "x"), ("other", "a")):
        assert multiset.remove(key, (row,)) is None
    assert counts["put"] == 0


@pytest.mark.parametrize("strategy", [Strategy.VALUE, Strategy.MAP])
@pytest.mark.parametrize("is_newest", [True, False])
@pytest.mark.demand("sum-upsert-key")
def test_row_that_takes_the_place_of_another_has_its_own_time(strategy, is_newest):
    multiset = make(HeapStore(), strategy, unique=True, ttl_ms=10)
    multiset.add("k", (1, "old"))
    if not is_newest:
        multiset.add("k", (2, "other"))
    multiset.add("k", (1, "new"), stamp_ms=5)
    assert stamped(multiset, now_ms=10) == [((1, "new"), 5)]


@pytest.mark.demand("sum-restart")
def test_history_follows_a_change_of_strategy_with_its_next_change_and_keeps_its_times():
    store = HeapStore()
    for strategy, want in ((Strategy.VALUE, "list"), (Strategy.MAP, "nodes"), (Strategy.LEGACY, "list")):
        multiset = OrderedMultiset(store, strategy, ttl_ms=10)
        if strategy is Strategy.VALUE:
            multiset.add("k", ("a",), stamp_ms=7, now_ms=3)
        multiset.remove("k", ("x",), now_ms=8)
        assert form(store) == want
        assert stamped(multiset, now_ms=16) == [(("a",), 7)]


@pytest.mark.demand("sum-old-state")
def test_length_of_a_history_that_was_stored_without_it_is_counted():
    store, forms = HeapStore(), []
    for n in range(5):
        OrderedMultiset(store, Strategy.MAP).add("k", (n,))
    multiset = OrderedMultiset(store, Strategy.ADAPTIVE, high=6, low=2, ttl_ms=1)
    for n in range(3):
        multiset.remove("k", (n,))
        forms.append(form(store))
    assert forms == ["nodes", "nodes", "list"]


def test_adaptive_history_with_the_lowest_threshold_begins_as_a_list_and_is_none_again():
    store, forms = HeapStore(), []
    multiset = OrderedMultiset(store, Strategy.ADAPTIVE, high=2, low=0)
    for change in (multiset.add, multiset.add, multiset.remove, multiset.remove):
        change("k", ("a",))
        forms.append(form(store))
    assert forms == ["list", "nodes", "nodes", None]


@pytest.mark.demand("sum-insert")
def test_what_is_given_no_time_is_of_time_0():
    multiset = OrderedMultiset(HeapStore(), ttl_ms=1)
    materializer = SinkUpsertMaterializer(multiset)
    assert [materializer.process(RowKind.INSERT, "k", (row,)).kind for row in "ab"] == ["+I", "+U"]
    assert multiset.add("k", ("c",)) is False
    assert stamped(multiset) == [((row,), 0) for row in "abc"]
    assert multiset.remove("k", ("c",)) == (True, ("b",))
