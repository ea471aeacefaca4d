"""What deletes expired entries that no one accesses. Source: FLIP-25, "Additional Cleanup Strategies"."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from ebbtide.model.state.raw import Entry
from ebbtide.model.state.states import KeyedState
from ebbtide.model.ttl import LONG_MAX, CompactionFilter


class IncrementalCleaner:
    """Looks at the next few keys of a state each time it is called; at the end it starts over at the next call.

    Args:
        state: The state.
        size: Keys looked at per call.
    """

    def __init__(self, state: KeyedState, size: int) -> None:
        self._state = state
        self._size = size
        self._rest: Iterator[Any] | None = None

    def __call__(self) -> None:
        """Look at some keys."""
        if self._rest is None:
            self._rest = self._state.raw.all_keys()
        looked = 0
        for key in islice(self._rest, self._size):
            self._state.purge(key)
            looked += 1
        if looked < self._size:
            self._rest = None


class TtlTimers:
    """Deletes entries exactly at the end of their time: one timer per key, armed again for what was renewed meanwhile.

    They are no user timers, and at one time they fire before those.

    Args:
        state: The state.

    Source: FLIP-25, first version, "Design".
    """

    def __init__(self, state: KeyedState) -> None:
        self._state = state
        self._armed: dict[Hashable, int] = {}
        self._queue: list[tuple[int, int, Hashable]] = []
        self._order = 0
        state.on_stamp = self._arm

    @property
    def armed(self) -> dict[Hashable, int]:
        """Key to the time at which its timer fires, epoch ms."""
        return dict(self._armed)

    def advance(self) -> list[tuple[int, Hashable, int | None]]:
        """Fire what is due at the state's clock.

        Returns:
            (time, key, time armed again or None) of each timer that fired, in order.
        """
        fired = []
        while self._queue and self._queue[0][0] <= self._state.clock_ms:
            time, _, key = heappop(self._queue)
            if self._armed.get(key) != time:
                continue
            del self._armed[key]
            self._state.purge(key)
            entries = self._state.raw.entries(key)
            ends = [self._state.end_ms(entry) for _, entry in entries]
            if ends:
                self._arm(key, min(ends))
            fired.append((time, key, self._armed.get(key)))
        return fired

    def _arm(self, key: Hashable, end_ms: int) -> None:
        never_ends = end_ms > LONG_MAX
        armed_ms = self._armed.get(key, LONG_MAX + 1)
        if never_ends or armed_ms <= end_ms:
            return
        self._armed[key] = end_ms
        self._order += 1
        heappush(self._queue, (end_ms, self._order, key))


def snapshot(state: KeyedState) -> Iterator[tuple[Any, Any, Entry]]:
    """Yield (key, sub-key, entry) of all that a full snapshot keeps: expired entries only where it does not clean.

    Args:
        state: The state; it keeps what it has.
    """
    cleans = state.ttl is not None and state.ttl.cleanup.full_snapshot
    for key in state.raw.all_keys():
        for sub, entry in state.raw.entries(key):
            is_left_out = cleans and state.has_expired(entry)
            if not is_left_out:
                yield key, sub, entry


def compact(state: KeyedState) -> int:
    """Drop what has expired, as the compaction filter does; return how many entries.

    The clock is asked again after `query_time_after_num_entries`. RocksDB gives the room back by `RocksDbStore.compact`.

    Args:
        state: The state; nothing happens if its cleanup has neither a compaction filter nor background.
    """
    if state.ttl is None:
        return 0
    cleanup = state.ttl.cleanup
    if cleanup.compaction_filter is None and not cleanup.background:
        return 0
    compaction = cleanup.compaction_filter or CompactionFilter()
    seen = 0
    dropped = 0
    clock_ms = state.clock_ms
    for key in state.raw.all_keys():
        for sub, entry in list(state.raw.entries(key)):
            if seen % compaction.query_time_after_num_entries == 0:
                clock_ms = state.clock_ms
            seen += 1
            if state.end_ms(entry) <= clock_ms:
                state.raw.remove(key, sub)
                dropped += 1
    state.context.counts["expired"] += dropped
    return dropped
