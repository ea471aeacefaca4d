"""Value, list and map state, beyond what the reference walks."""

from datetime import timedelta

import pytest
from local.states import run_with

from ebbtide.keyed_state import (
    CleanupConfig,
    Entry,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    StateVisibility,
    ValueStateDescriptor,
)


def make(kind, **config):
    ttl = StateTtlConfig(ttl=timedelta(milliseconds=10), cleanup=CleanupConfig(background=False), **config)
    run = run_with(kind("BIGINT", ttl))
    return run.states["s"], run.context


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


def test_expired_entry_of_a_map_is_shown_once_and_is_removed_already():
    state, at = make(MapStateDescriptor, state_visibility=StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    state.put("p", 1)
    at.now_ms = 10
    entries = state.entries()
    assert next(entries) == ("p", 1)
    assert no_entry_to_remove(entries)
    assert state.is_empty()


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
