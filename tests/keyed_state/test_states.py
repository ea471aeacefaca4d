"""States of each kind, beyond what the reference walks."""

import operator
from datetime import timedelta
from functools import partial

import pytest
from local.states import run_with

from ebbtide.keyed_state import (
    AggregatingStateDescriptor,
    CleanupConfig,
    Entry,
    ExpiryClock,
    IncrementalCleanup,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    StateVisibility,
    ValueStateDescriptor,
)
from ebbtide.stores import HeapStore, RocksDbStore


@pytest.fixture(params=[HeapStore, RocksDbStore])
def store(request, tmp_path):
    """Each embedded store, empty."""
    opened = request.param() if request.param is HeapStore else request.param(str(tmp_path / "store"))
    yield opened
    if request.param is RocksDbStore:
        opened.close()


def make(kind, **config):
    """Bind a state of numbers that expire after 10 ms."""
    ttl = StateTtlConfig(ttl=timedelta(milliseconds=10), cleanup=CleanupConfig(background=False), **config)
    run = run_with(kind("BIGINT", ttl))
    return run.states["s"], run.context


@pytest.mark.parametrize("ttl", [None, StateTtlConfig(ttl="10ms", update_type="Disabled")], ids=["none", "disabled"])
@pytest.mark.demand("ttl-disabled")
def test_state_without_a_time_to_live_stores_values_alone_and_keeps_them(ttl):
    run = run_with(ValueStateDescriptor("BIGINT", ttl))
    state, at = run.states["s"], run.context
    state.update(1)
    assert state.raw.get("a", None) == Entry(1, stamp_ms=None, ttl_ms=None)
    at.now_ms = 2**63 - 1
    assert state.get() == 1


@pytest.mark.demand("ttl-stamp")
def test_time_of_the_last_access_is_stored_with_the_value():
    state, at = make(ValueStateDescriptor, update_type="OnReadAndWrite")
    for at.now_ms, access in ((3, lambda: state.update(1)), (8, state.get), (9, lambda: state.update(2))):
        access()
        assert state.raw.get("a", None).stamp_ms == at.now_ms


@pytest.mark.demand("ttl-elements")
def test_elements_and_entries_are_left_out_each_at_its_own_end():
    items, at_items = make(ListStateDescriptor)
    entries, at_entries = make(MapStateDescriptor)
    for now_ms, name in ((0, "x"), (4, "y"), (7, "z")):
        at_items.now_ms = at_entries.now_ms = now_ms
        items.add(name)
        entries.put(name, now_ms)
    for now_ms, left in ((9, "xyz"), (10, "yz"), (14, "z"), (17, "")):
        at_items.now_ms = at_entries.now_ms = now_ms
        assert (list(items.get()), list(entries.keys())) == (list(left), list(left))


@pytest.mark.demand("ttl-hidden")
def test_expired_elements_are_hidden_though_they_are_still_stored():
    state, at = make(ListStateDescriptor)
    for at.now_ms, value in ((0, "x"), (5, "y")):
        state.add(value)
    at.now_ms = 10
    assert list(state.get()) == ["y"]
    assert [entry.value for _, entry in state.raw.entries("a")] == ["x", "y"]


@pytest.mark.demand("ttl-visibility")
def test_expired_value_is_shown_once_unless_it_was_cleaned_up_first():
    shows = StateTtlConfig(
        ttl="10ms",
        state_visibility="ReturnExpiredIfNotCleanedUp",
        cleanup=CleanupConfig(background=False, incremental=IncrementalCleanup(cleanup_size=1)),
    )
    run = run_with(ValueStateDescriptor("BIGINT", shows))
    state, at = run.states["s"], run.context
    for at.key in "ab":
        state.update(1)
    at.now_ms, at.key = 10, "b"
    assert state.get() == 1, "its turn for cleanup comes later"
    assert state.get() is None
    assert state.raw.get("a", None) is None, "it was cleaned up by these accesses"
    at.key = "a"
    assert state.get() is None


@pytest.mark.demand("ttl-read")
def test_read_deletes_the_expired_entries_that_it_meets():
    value, at_value = make(ValueStateDescriptor)
    entries, at_entries = make(MapStateDescriptor)
    value.update(1)
    entries.put_all({"p": 1, "q": 2})
    at_value.now_ms = at_entries.now_ms = 10
    assert (value.get(), entries.get("p")) == (None, None)
    assert list(value.raw.all_keys()) == []
    assert [name for name, _ in entries.raw.entries("a")] == ["q"]
    assert list(entries.entries()) == []
    assert list(entries.raw.all_keys()) == []


@pytest.mark.parametrize(
    ("clock", "ends_at"), [(ExpiryClock.WATERMARK, "watermark"), (ExpiryClock.PROCESSING_TIME, "now")]
)
@pytest.mark.demand("ttl-access-time", "ttl-event-clock")
def test_event_time_stamps_by_the_record_and_expires_by_the_clock_that_is_named(clock, ends_at):
    state, at = make(ValueStateDescriptor, time_characteristic="EVENT_TIME", expiry_clock=clock)
    at.event_ms, at.now_ms, at.watermark_ms = 100, 50, 60
    state.update(1)
    assert state.raw.get("a", None).stamp_ms == 100, "neither the watermark nor the clock"
    for now_ms, watermark_ms in ((109, 109), (109, 200) if ends_at == "now" else (200, 109)):
        at.now_ms, at.watermark_ms = now_ms, watermark_ms
        assert state.get() == 1
    at.event_ms = 90
    state.update(2)
    assert state.raw.get("a", None).stamp_ms == 100, "a late record ends nothing early"
    at.now_ms, at.watermark_ms = (110, 60) if ends_at == "now" else (50, 110)
    assert state.get() is None


def test_entry_without_a_time_never_expires():
    state, at = make(ValueStateDescriptor)
    at.now_ms = 2**63 - 1
    assert not state.has_expired(Entry("x"))


@pytest.mark.parametrize("change", ["add_all", "update"])
def test_list_element_that_is_none_is_refused_and_nothing_changed(change):
    state, _ = make(ListStateDescriptor)
    state.add("x")
    with pytest.raises(TypeError, match=r"^a list element is None; allowed: any other value$"):
        getattr(state, change)(["y", None])
    assert list(state.get()) == ["x"]


class Total:
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator


appending = pytest.mark.parametrize(
    "kind",
    [partial(ReducingStateDescriptor, reduce=operator.add), partial(AggregatingStateDescriptor, aggregate=Total())],
    ids=["reducing", "aggregating"],
)


@appending
def test_added_value_that_is_none_is_refused_and_nothing_changed(kind):
    state, at = make(kind)
    state.add(1)
    at.now_ms = 5
    with pytest.raises(TypeError, match=r"^an added value is None; allowed: any other value$"):
        state.add(None)
    at.now_ms = 9
    assert state.get() == 1
    at.now_ms = 10
    assert state.get() is None


@appending
def test_expired_value_is_combined_with_what_is_added_only_where_reads_would_show_it(kind):
    state, at = make(kind)
    shown, of_shown = make(kind, state_visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    for each in (state, shown):
        each.add(1)
    at.now_ms = of_shown.now_ms = 10
    for each in (state, shown):
        each.add(2)
    assert (state.get(), shown.get()) == (2, 3)


@appending
def test_added_value_may_have_its_own_time_to_live(kind):
    state, at = make(kind)
    state.add(1, ttl=timedelta(milliseconds=50))
    at.now_ms = 49
    assert state.get() == 1
    state.add(1)
    at.now_ms = 59
    assert state.get() is None


def no_entry_to_remove(entries):
    said = r"^no entry to remove: none was returned, or it had expired and is removed already$"
    with pytest.raises(RuntimeError, match=said):
        entries.remove()
    return True


def test_entry_of_a_map_is_removed_once_and_only_where_one_was_returned():
    state, _ = make(MapStateDescriptor)
    state.put_all({"p": 1, "q": 2})
    entries = state.entries()
    assert no_entry_to_remove(entries), "before the first"
    assert next(entries) == ("p", 1)
    entries.remove()
    assert no_entry_to_remove(entries), "it is removed already"
    assert list(entries) == [("q", 2)]
    assert no_entry_to_remove(entries), "after the last"
    assert state.get("p") is None
    assert state.get("q") == 2


@pytest.mark.demand("ttl-visibility")
def test_expired_entry_of_a_map_is_shown_once_and_is_removed_already():
    state, at = make(MapStateDescriptor, state_visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    state.put("p", 1)
    at.now_ms = 10
    entries = state.entries()
    assert next(entries) == ("p", 1)
    assert no_entry_to_remove(entries)
    assert state.is_empty()


@pytest.mark.demand("ttl-clocks")
def test_every_expired_entry_that_is_read_and_every_late_write_is_counted():
    state, at = make(MapStateDescriptor, time_characteristic="EVENT_TIME")
    at.event_ms, at.watermark_ms = 0, 0
    for key in "pqr":
        state.put(key, 1)
    at.watermark_ms = 10
    for key in "pq":
        assert state.get(key) is None
        state.put(key, 2)
    assert (at.counts["expired"], at.counts["late"]) == (2, 2)


@pytest.mark.demand("ttl-in-get")
def test_read_gives_what_it_returns_another_time_to_live():
    state, at = make(ValueStateDescriptor)
    state.update("x")
    at.now_ms = 9
    assert state.get(ttl=timedelta(milliseconds=20)) == "x"
    at.now_ms = 19
    assert state.get() == "x", "20 ms from its last access, which was its creation"
    at.now_ms = 20
    assert state.get() is None


def test_timer_of_an_entry_fires_at_the_earlier_end_that_a_read_gives_it():
    exact = CleanupConfig(background=False, timers=True)
    run = run_with(ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=10), cleanup=exact)))
    state, at = run.states["s"], run.context
    state.update(1)
    state.get(ttl=timedelta(milliseconds=5))
    at.now_ms = 5
    assert [time for time, *_ in run.ttl_timers["s"].advance()] == [5]
    assert state.raw.get("a", None) is None


@pytest.mark.demand("ttl-current")
def test_current_time_to_live_holds_for_writes_until_the_key_changes():
    run = run_with(ValueStateDescriptor("BIGINT", StateTtlConfig(ttl=timedelta(milliseconds=10))))
    state, at = run.states["s"], run.context
    state.current_ttl = timedelta(milliseconds=50)
    state.update(1)
    at.now_ms = 49
    assert state.get() == 1
    state.update(1, ttl=timedelta(milliseconds=5))
    at.now_ms = 54
    assert state.get() is None
    assert list(run.fire(("a",))) == []
    assert state.current_ttl is None


@pytest.mark.parametrize("visibility", list(StateVisibility))
@pytest.mark.parametrize("put", ["add", "update"])
def test_elements_written_between_get_and_the_end_of_its_iteration_stay(store, visibility, put):
    ttl = StateTtlConfig(ttl=timedelta(milliseconds=10), state_visibility=visibility)
    run = run_with(ListStateDescriptor("BIGINT", ttl), store)
    state, at = run.states["s"], run.context
    state.add(1)
    at.now_ms = 10
    before = state.get()
    state.add(2) if put == "add" else state.update([2])
    list(before)
    assert list(state.get())[-1:] == [2]


def test_entry_that_was_returned_alive_is_removed_though_it_expires_before(store):
    run = run_with(MapStateDescriptor("BIGINT", StateTtlConfig(ttl="10ms")), store)
    state, at = run.states["s"], run.context
    state.put("x", 1)
    entries = state.entries()
    next(entries)
    at.now_ms = 10
    entries.remove()
    assert list(state.raw.entries("a")) == []


def test_exact_timer_follows_a_read_behind_a_clock_that_went_back(store):
    ttl = StateTtlConfig(ttl="10ms", update_type="OnReadAndWrite", cleanup=CleanupConfig(timers=True))
    run = run_with(ValueStateDescriptor("BIGINT", ttl), store)
    state, at = run.states["s"], run.context
    for at.now_ms, access in ((100, lambda: state.update(1)), (50, state.get), (60, lambda: list(run.advance()))):
        access()
    assert state.raw.get("a", None) is None
