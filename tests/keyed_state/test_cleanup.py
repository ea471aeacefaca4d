"""What deletes expired entries: timers, looking at some keys per access, full snapshots."""

from datetime import timedelta

import pytest
from local.states import run_with

from ebbtide.keyed_state import (
    CleanupConfig,
    CompactionFilter,
    Entry,
    FunctionRun,
    IncrementalCleanup,
    ListStateDescriptor,
    MapStateDescriptor,
    StatefulFunction,
    StateTtlConfig,
    TimeCharacteristic,
    UpdateType,
    ValueStateDescriptor,
    compact,
)
from ebbtide.stores import HeapStore, RocksDbStore

TEN = timedelta(milliseconds=10)
UNASKED = CleanupConfig(background=False)
BY_TIMERS = CleanupConfig(background=False, timers=True)


def ms(n):
    return timedelta(milliseconds=n)


def make(kind, ttl=TEN, cleanup=UNASKED, **config):
    """A state, what its key and clocks are, and its run."""
    run = run_with(kind("BIGINT", StateTtlConfig(ttl=ttl, cleanup=cleanup, **config)))
    return run.states["s"], run.context, run


def timed(kind, ttl=TEN, **config):
    """A state, what its key and clocks are, and its timers."""
    state, at, run = make(kind, ttl, BY_TIMERS, **config)
    return state, at, run.ttl_timers["s"]


def cleaned(run, **incremental):
    """The same state, which accesses clean from now on."""
    ttl = run.states["s"].ttl.model_copy(
        update={"cleanup": CleanupConfig(incremental=IncrementalCleanup(**incremental))}
    )
    return run.restored(HeapStore(), {"s": ttl})


@pytest.mark.demand("ttl-timers")
def test_timers_do_as_the_flips_worked_example():
    state, at, timers = timed(ValueStateDescriptor, ms(16), update_type=UpdateType.ON_READ_AND_WRITE)
    state.update("A")
    assert timers.armed == {"a": 16}
    at.now_ms = 2
    state.update("A")
    at.now_ms = 15
    assert state.get() == "A"
    assert timers.armed == {"a": 16}, "one timer per key"
    assert timers.advance() == []
    at.now_ms = 16
    assert timers.advance() == [(16, "a", 31)]
    assert state.raw.get("a", None) == Entry("A", 15)
    at.now_ms = 31
    assert timers.advance() == [(31, "a", None)]
    assert list(state.raw.all_keys()) == []


@pytest.mark.demand("ttl-timers-create")
def test_timer_of_an_entry_that_lives_from_its_creation_deletes_it_whatever_is_written_and_read():
    state, at, timers = timed(ValueStateDescriptor, ms(16), update_type=UpdateType.ON_CREATE)
    for at.now_ms in (0, 2, 15):
        state.update(at.now_ms)
        assert (state.get(), timers.armed) == (at.now_ms, {"a": 16})
    at.now_ms = 16
    assert timers.advance() == [(16, "a", None)]
    assert list(state.raw.all_keys()) == []


@pytest.mark.demand("ttl-timers-clocks")
def test_timers_go_by_the_watermark_where_entries_do():
    state, at, timers = timed(ValueStateDescriptor, time_characteristic=TimeCharacteristic.EVENT_TIME)
    at.event_ms, at.watermark_ms = 100, 90
    state.update(1)
    at.now_ms, at.watermark_ms = 10**6, 109
    assert timers.advance() == []
    at.watermark_ms = 110
    assert timers.advance() == [(110, "a", None)]


def by_snapshot(state, run):
    return run.restored(HeapStore(), {"s": state.ttl}).states["s"]


def by_compaction(state, run):
    compact(state)
    return state


def by_access(state, run):
    key, run.context.key = run.context.key, "another"
    state.get("p")
    run.context.key = key
    return state


@pytest.mark.parametrize(
    ("how", "cleanup"),
    [
        (by_snapshot, CleanupConfig(full_snapshot=True, background=False)),
        (by_compaction, CleanupConfig(compaction_filter=CompactionFilter(), background=False)),
        (by_access, CleanupConfig(incremental=IncrementalCleanup(), background=False)),
    ],
)
@pytest.mark.demand("ttl-cleanup-clocks")
def test_each_cleanup_goes_by_the_watermark_where_entries_do(how, cleanup):
    state, at, run = make(MapStateDescriptor, cleanup=cleanup, time_characteristic=TimeCharacteristic.EVENT_TIME)
    at.watermark_ms = 0
    for at.event_ms, name in ((100, "p"), (101, "q")):
        state.put(name, 1)
    at.now_ms = 10**6
    left = []
    for at.watermark_ms in (109, 110, 111):
        left.append([name for name, _ in how(state, run).raw.entries("a")])
    assert left == [["p", "q"], ["q"], []]


@pytest.mark.demand("ttl-elements")
def test_timers_delete_each_element_at_its_own_end():
    state, at, timers = timed(ListStateDescriptor)
    for at.now_ms, value in ((0, "x"), (4, "y"), (4, "z")):
        state.add(value)
    at.now_ms = 10
    assert timers.advance() == [(10, "a", 14)]
    assert [entry.value for _, entry in state.raw.entries("a")] == ["y", "z"]
    at.now_ms = 20
    assert timers.advance() == [(14, "a", None)]


def test_timer_is_armed_anew_at_the_first_end_of_those_left():
    state, at, timers = timed(ListStateDescriptor)
    for value, own_ms in (("x", 10), ("y", 50), ("z", 30), ("w", 100)):
        state.add(value, ttl=ms(own_ms))
    fired = []
    for at.now_ms in (10, 30, 50, 100):
        fired += timers.advance()
    assert fired == [(10, "a", 30), (30, "a", 50), (50, "a", 100), (100, "a", None)]


def test_timers_for_one_time_fire_in_the_order_in_which_they_were_armed():
    state, at, timers = timed(ValueStateDescriptor)
    for at.key in ("c", "a", "b"):
        state.update("x")
    at.now_ms = 10
    assert [key for _, key, _ in timers.advance()] == ["c", "a", "b"]


def test_timer_for_the_largest_long_fires_and_what_has_no_time_has_no_timer():
    state, at, timers = timed(ListStateDescriptor, timedelta.max)
    state.add("short", ttl=ms(10))
    state.add("long")
    state.raw.put("a", 2, Entry("without time"))
    fired = []
    for at.now_ms in (10, 2**63 - 2, 2**63 - 1):
        fired += timers.advance()
    assert fired == [(10, "a", 2**63 - 1), (2**63 - 1, "a", None)]
    assert [entry.value for _, entry in state.raw.entries("a")] == ["without time"]


def test_timer_of_a_shorter_time_per_put_comes_first():
    state, at, timers = timed(MapStateDescriptor, ms(100))
    state.put("p", 1)
    state.put("q", 2, ttl=ms(5))
    assert timers.armed == {"a": 5}
    at.now_ms = 5
    assert timers.advance() == [(5, "a", 100)]


@pytest.mark.parametrize("to", [HeapStore, RocksDbStore])
@pytest.mark.demand("ttl-timers-restore", "sum-backend-change")
def test_timers_fire_over_a_snapshot_that_was_restored(to, tmp_path):
    state, at, run = make(MapStateDescriptor, cleanup=BY_TIMERS)
    for at.now_ms, name in ((0, "p"), (4, "q")):
        state.put(name, 1)
    store = to() if to is HeapStore else to(tmp_path / "db")
    again = run.restored(store, {"s": state.ttl})
    for again.context.now_ms, left in ((9, ["p", "q"]), (10, ["q"]), (14, [])):
        list(again.advance())
        assert [sub for sub, _ in again.states["s"].raw.entries("a")] == left


@pytest.mark.demand("ttl-timers-restore")
def test_timers_fire_over_a_store_that_was_opened_again(tmp_path):
    declared = ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=TEN, cleanup=BY_TIMERS))
    store = RocksDbStore(tmp_path / "db")
    run_with(declared, store).states["s"].update(1)
    store.close()
    store = RocksDbStore(tmp_path / "db")
    run = run_with(declared, store)
    assert run.ttl_timers["s"].armed == {"a": 10}
    run.context.now_ms = 10
    list(run.advance())
    assert list(run.states["s"].raw.all_keys()) == []
    store.close()


@pytest.mark.demand("ttl-precedence")
def test_user_timers_are_apart_and_come_after_those_of_the_ttl():
    store = HeapStore()
    run = run_with(ValueStateDescriptor("BIGINT"), store)
    at, timers = run.context, run.timers
    timers.register(7)
    timers.register(7)
    timers.register(5, TimeCharacteristic.EVENT_TIME)
    timers.register(9)
    timers.delete(9)
    assert timers.due() == []
    stored = dict(store.state("@timers").entries("a"))
    assert stored == {("PROCESSING_TIME", 7): Entry(True), ("EVENT_TIME", 5): Entry(True)}
    at.now_ms, at.watermark_ms = 7, 5
    assert timers.due() == [(5, TimeCharacteristic.EVENT_TIME), (7, TimeCharacteristic.PROCESSING_TIME)]


@pytest.mark.demand("ttl-incremental", "ttl-cleanup-change")
def test_incremental_cleanup_goes_round_all_keys():
    state, at, run = make(ValueStateDescriptor)
    for key in range(10):
        at.key = key
        state.update(key)
    at.now_ms = 10
    run = cleaned(run, cleanup_size=3)
    state, at = run.states["s"], run.context
    at.key = "other"
    left = []
    for _ in range(4):
        state.get()
        left.append(len(list(state.raw.all_keys())))
    assert left == [7, 4, 1, 0]
    assert at.counts["expired"] == 10


@pytest.mark.demand("ttl-incremental")
def test_incremental_cleanup_goes_on_behind_keys_that_live_and_starts_over():
    state, at, run = make(ValueStateDescriptor)
    for at.key, at.now_ms in ((1, 5), (2, 5), (3, 0), (4, 0), (5, 5)):
        state.update("x")
    at.key, at.now_ms = "other", 10
    run = cleaned(run, cleanup_size=2)
    state, at = run.states["s"], run.context
    left = []
    for _ in range(3):
        state.get()
        left.append(list(state.raw.all_keys()))
    assert left == [[1, 2, 3, 4, 5], [1, 2, 5], [1, 2, 5]]
    at.now_ms = 15
    for _ in range(2):
        state.get()
    assert list(state.raw.all_keys()) == []


@pytest.mark.parametrize(
    ("kind", "access"),
    [
        (ValueStateDescriptor, lambda state: state.get()),
        (ValueStateDescriptor, lambda state: state.update(1)),
        (ValueStateDescriptor, lambda state: state.clear()),
        (ListStateDescriptor, lambda state: state.get()),
        (ListStateDescriptor, lambda state: state.add(1)),
        (ListStateDescriptor, lambda state: state.add_all([])),
        (ListStateDescriptor, lambda state: state.update([1])),
        (MapStateDescriptor, lambda state: state.get("p")),
        (MapStateDescriptor, lambda state: state.contains("p")),
        (MapStateDescriptor, lambda state: state.put("p", 1)),
        (MapStateDescriptor, lambda state: state.put_all({})),
        (MapStateDescriptor, lambda state: state.remove("p")),
        (MapStateDescriptor, lambda state: state.is_empty()),
        (MapStateDescriptor, lambda state: state.entries()),
    ],
)
@pytest.mark.demand("ttl-incremental-access")
def test_every_access_cleans_a_few_keys(kind, access):
    state, at, run = make(kind)
    for at.key in range(4):
        {"value": lambda: state.update(1), "list": lambda: state.add(1), "map": lambda: state.put("q", 1)}[
            kind.__name__[:-15].lower()
        ]()
    run = cleaned(run, cleanup_size=3)
    state, at = run.states["s"], run.context
    at.now_ms, at.key = 10, "another"
    access(state)
    assert len(set(state.raw.all_keys()) - {"another"}) == 1


@pytest.mark.demand("ttl-incremental-rocksdb", "ttl-rocksdb-compaction")
def test_rocksdb_cleans_incrementally_where_it_is_asked_to_and_not_by_default(tmp_path):
    left = []
    for number, asked in enumerate((CleanupConfig(), CleanupConfig(incremental=IncrementalCleanup()))):
        store = RocksDbStore(tmp_path / str(number))
        run = run_with(ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=TEN, cleanup=asked)), store)
        state, at = run.states["s"], run.context
        for at.key in range(3):
            state.update(1)
        at.key, at.now_ms = "another", 10
        state.get()
        left.append(len(list(state.raw.all_keys())))
        store.close()
    assert left == [3, 0]


@pytest.mark.demand("ttl-incremental")
def test_incremental_cleanup_loses_no_key_that_comes_or_goes_on_its_round():
    """Loose consistency: a key of a round that has come, gone or been renewed since is as it is now."""
    state, at, run = make(ValueStateDescriptor)
    for at.key in range(6):
        state.update(1)
    run = cleaned(run, cleanup_size=2)
    state, at = run.states["s"], run.context
    at.now_ms, at.key = 9, 0
    state.get()  # looks at 0 and 1
    at.key = 2
    state.clear()  # removes 2, looks at 2 and 3
    at.key = 5
    state.update(2)  # looks at 4 and 5, renews 5
    at.key = "new"
    state.update(3)
    at.now_ms = 10
    for _ in range(6):
        state.get()
    assert sorted(map(str, state.raw.all_keys())) == ["5", "new"]


@pytest.mark.demand("ttl-incremental")
def test_every_record_cleans_though_nothing_is_accessed():
    class Idle(StatefulFunction):
        output = "n BIGINT"
        kept = ValueStateDescriptor(
            "BIGINT",
            StateTtlConfig(
                ttl=ms(10),
                cleanup=CleanupConfig(incremental=IncrementalCleanup(cleanup_size=2, run_for_every_record=True)),
            ),
        )
        quiet = ListStateDescriptor("BIGINT", StateTtlConfig(ttl=ms(10), cleanup=CleanupConfig(background=False)))

        def process(self, key, rows, ctx):
            return ()

    run = FunctionRun(Idle(), HeapStore())
    for key in range(4):
        run.context.key = (key,)
        run.states["kept"].update(key)
        run.states["quiet"].add(key)
    run.context.now_ms = 10
    for _ in range(2):
        list(run.process(("x",), []))
    assert list(run.states["kept"].raw.all_keys()) == []
    assert len(list(run.states["quiet"].raw.all_keys())) == 4, "with background off nothing cleans unasked"


@pytest.mark.parametrize("store", ["heap", "rocksdb"])
@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.demand("ttl-snapshot", "ttl-snapshot-rocksdb")
def test_full_snapshot_leaves_every_expired_element_out_where_it_cleans(cleans, store, tmp_path):
    cleanup = CleanupConfig(full_snapshot=cleans, background=False)
    opened = HeapStore() if store == "heap" else RocksDbStore(tmp_path / "db")
    run = run_with(ListStateDescriptor("BIGINT", StateTtlConfig(ttl=TEN, cleanup=cleanup)), opened)
    state, at = run.states["s"], run.context
    for at.now_ms, value in ((5, "live"), (0, "dead"), (6, "live too")):
        state.add(value)
    at.now_ms = 10
    again = run.restored(HeapStore(), {"s": state.ttl}).states["s"]
    kept = [entry.value for _, entry in again.raw.entries("a")]
    assert kept == (["live", "live too"] if cleans else ["live", "dead", "live too"]), "Flink drops leading ones only"
    assert len(list(state.raw.entries("a"))) == 3
    if store == "rocksdb":
        opened.close()


@pytest.mark.demand("ttl-compaction")
def test_compaction_drops_what_has_expired_by_a_clock_asked_now_and_then():
    filters = CleanupConfig(compaction_filter=CompactionFilter(query_time_after_num_entries=2), background=False)
    state, at, _ = make(MapStateDescriptor, cleanup=filters)

    class Counting(type(at)):
        __slots__ = ()
        asked = 0

        def __getattribute__(self, name):
            if name == "now_ms":
                Counting.asked += 1
            return super().__getattribute__(name)

    at.__class__ = Counting
    state.put_all(dict.fromkeys("pqrst", 1))
    at.now_ms = 5
    state.put("t", 2)
    at.now_ms = 10
    Counting.asked = 0
    assert compact(state) == 4
    assert Counting.asked == 1 + 3, "at the start, then once for every two of five entries"
    assert [sub for sub, _ in state.raw.entries("a")] == ["t"]
    at.now_ms = 15
    assert compact(state) == 1
    assert at.counts == {"expired": 5}


@pytest.mark.parametrize(
    ("ttl", "dropped"),
    [
        ({}, 1),
        ({"cleanup": CleanupConfig(background=False)}, 0),
        ({"cleanup": CleanupConfig(background=False, compaction_filter=CompactionFilter())}, 1),
        (None, 0),
    ],
)
def test_compaction_drops_where_it_is_asked_to_and_only_there(ttl, dropped):
    run = run_with(ValueStateDescriptor("STRING", None if ttl is None else StateTtlConfig(ttl=ms(10), **ttl)))
    state, at = run.states["s"], run.context
    state.update("x")
    at.now_ms = 10
    assert (compact(state), len(list(state.raw.all_keys()))) == (dropped, 1 - dropped)


@pytest.mark.demand("ttl-precedence")
def test_run_fires_ttl_timers_before_the_users():
    class Rings(StatefulFunction):
        output = "kept STRING"
        kept = ValueStateDescriptor(
            "STRING", StateTtlConfig(ttl=ms(10), cleanup=CleanupConfig(timers=True, background=False))
        )

        def process(self, key, rows, ctx):
            self.kept.update("x")
            ctx.timers.register(ctx.now_ms + 10)
            return ()

        def on_timer(self, key, time_ms, ctx):
            yield {"kept": self.kept.raw.get(key, None)}

    run = FunctionRun(Rings(), HeapStore())
    assert list(run.process(("a",), [])) == []
    run.context.now_ms = 9
    assert list(run.advance()) == []
    run.context.now_ms = 10
    assert list(run.advance()) == [{"kept": None}], "it has expired, and is gone already"
    assert list(run.advance()) == []


def test_timer_that_arms_itself_fires_for_each_later_time_and_does_not_hang():
    class Ticks(StatefulFunction):
        output = "at BIGINT"

        def __init__(self, every):
            self.every = every

        def process(self, key, rows, ctx):
            ctx.timers.register(10)
            return ()

        def on_timer(self, key, time_ms, ctx):
            ctx.timers.register(time_ms + self.every)
            yield {"at": time_ms}

    for every, want in ((10, [10, 20, 30]), (0, [10])):
        run = FunctionRun(Ticks(every), HeapStore())
        list(run.process(("a",), []))
        run.context.now_ms = 35
        assert [row["at"] for row in run.advance()] == want
        assert len(run.timers.due()) == (0 if every else 1), "it waits for the next tick"


def test_function_used_outside_a_run_says_so():
    class Holder(StatefulFunction):
        n = ValueStateDescriptor("BIGINT")

    assert Holder.n.of == "BIGINT"
    with pytest.raises(RuntimeError, match=r"^the states of a function can be used only while it runs$"):
        Holder().n.get()


def test_write_without_event_time_is_refused():
    state, *_ = make(ValueStateDescriptor, time_characteristic=TimeCharacteristic.EVENT_TIME)
    said = r"^the record has no event time; got None; allowed: epoch ms, since state ages by event time$"
    with pytest.raises(ValueError, match=said):
        state.update("x")


@pytest.mark.demand("ttl-reinterpret")
def test_stamp_survives_a_migration_to_another_ttl_only():
    run = run_with(MapStateDescriptor("STRING"))
    raw, run.context.now_ms = run.states["s"].raw, 100
    raw.put("a", "stamped", Entry("x", 95, 7))
    raw.put("a", "bare", Entry("x"))
    of_ttl = run.restored(HeapStore(), {"s": StateTtlConfig(ttl=ms(10), cleanup=UNASKED)})
    assert dict(of_ttl.states["s"].raw.entries("a")) == {"stamped": Entry("x", 95, 7), "bare": Entry("x", 100)}
    without = of_ttl.restored(HeapStore(), {"s": None})
    assert dict(without.states["s"].raw.entries("a")) == {"stamped": Entry("x"), "bare": Entry("x")}


def without_note(row):
    """Take the note out in place; leave no row that has nothing else."""
    if row is None:
        return None
    row.pop("note", None)
    return row or None


@pytest.mark.demand("ttl-transformer")
@pytest.mark.parametrize("kind", [ValueStateDescriptor, ListStateDescriptor, MapStateDescriptor])
@pytest.mark.parametrize("store", ["heap", "rocksdb"])
def test_full_snapshot_has_what_its_transformer_leaves_and_the_state_goes_on_as_it_is(kind, store, tmp_path):
    """Of a list and a map each element is handed over, of a map None too, as to Flink's transformers of collections."""
    of = kind("STRUCT<n: INT, note: STRING>", StateTtlConfig(ttl=TEN), snapshot_transformer=without_note)
    run = run_with(of, HeapStore() if store == "heap" else RocksDbStore(str(tmp_path / "states")))
    state = run.states["s"]
    run.context.now_ms = 3
    rows = {"a": {"n": 1, "note": "x"}, "b": {"note": "y"}, "c": {"n": 3}}
    if kind is MapStateDescriptor:
        rows["d"] = None
        state.put_all(rows)
    elif kind is ListStateDescriptor:
        state.update(list(rows.values()))
    else:
        for key, row in rows.items():
            run.context.key = key
            state.update(row)

    def values_in(of_run):
        raw = of_run.states["s"].raw
        entries = [entry for key in raw.all_keys() for _, entry in raw.entries(key)]
        assert {entry.stamp_ms for entry in entries} == {3}, "a transformer is no access"
        return [entry.value for entry in entries]

    again = run.restored(HeapStore(), {"s": state.ttl})
    assert values_in(again) == [{"n": 1}, {"n": 3}]
    assert values_in(run) == list(rows.values())
