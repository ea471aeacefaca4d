"""Cleanup of expired entries that are never accessed again. Source: FLIP-25, "Additional Cleanup Strategies"."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Any

from ebbtide.columns import Long
from ebbtide.keyed_state._raw import Entry
from ebbtide.keyed_state._states import KeyedState
from ebbtide.keyed_state._ttl import CompactionFilter


class IncrementalCleaner:
    """Looks at the next few keys of a state at each call. After the last key the next call starts over.

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
        n_looked_at = 0
        for key in islice(self._rest, self._size):
            self._state.purge(key)
            n_looked_at += 1
        is_at_end = n_looked_at < self._size
        if is_at_end:
            self._rest = None


class TtlTimers:
    """Deletes entries exactly when they expire, with one timer per key. A timer that finds renewed entries is armed again.

    These are not user timers. If both are due at the same time, these fire first.

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
        self.arm_stored()

    @property
    def armed(self) -> dict[Hashable, int]:
        """Key to the time at which its timer fires, epoch ms."""
        return dict(self._armed)

    def arm_stored(self) -> None:
        """Arm the timer of each key that is stored already: timers are not, so a store that was opened or filled needs this."""
        for key in self._state.raw.all_keys():
            self._arm_first(key)

    def advance(self) -> list[tuple[int, Hashable, int | None]]:
        """Fire the timers that are due at the state's clock.

        Returns:
            (time, key, time armed again or None) of each timer that fired, in order.
        """
        fired = []
        while self._next_is_due():
            time, _, key = heappop(self._queue)
            # A key that was armed again for an earlier time leaves its former timer in the queue.
            is_current = self._armed.get(key) == time
            if is_current:
                armed_again = self._fire(key)
                fired.append((time, key, armed_again))
        return fired

    def _next_is_due(self) -> bool:
        if not self._queue:
            return False
        time, _, _ = self._queue[0]
        return time <= self._state.clock_ms

    def _fire(self, key: Hashable) -> int | None:
        """Remove a key's expired entries; return the next time of its timer, None if nothing is left to expire."""
        del self._armed[key]
        self._state.purge(key)
        self._arm_first(key)
        return self._armed.get(key)

    def _arm_first(self, key: Hashable) -> None:
        """Arm a key's timer for the first end of its entries."""
        entries = self._state.raw.entries(key)
        ends = [self._state.end_ms(entry) for _, entry in entries]
        if ends:
            self._arm(key, min(ends))

    def _arm(self, key: Hashable, end_ms: int) -> None:
        """Arm a key's timer. Keep an earlier timer, and arm none if no entry expires (their end is above the largest long)."""
        armed_ms = self._armed.get(key, Long.MAX + 1)
        if armed_ms <= end_ms:
            return
        self._armed[key] = end_ms
        # Timers for the same time fire in the order they were armed; keys are never compared.
        self._order += 1
        timer = (end_ms, self._order, key)
        heappush(self._queue, timer)


def snapshot(state: KeyedState) -> Iterator[tuple[Any, Any, Entry]]:
    """Yield (key, sub-key, entry) for a full snapshot. Expired entries are left out if the state's cleanup says so.

    Of a function with `on_expire` they are not: each is still to be handed over. The further entries are as the state's snapshot
    transformer leaves them.

    Args:
        state: The state; it is not changed.
    """
    ttl = state.ttl
    cleans = ttl is not None and ttl.cleanup.full_snapshot and state.on_expired is None
    for key in state.raw.all_keys():
        entries = state.raw.entries(key)
        for sub, entry in entries:
            if not state.has_expired(entry):
                kept = state.transformed(entry)
                if kept is not None:
                    yield key, sub, kept
            elif not cleans:
                yield key, sub, entry


def compact(state: KeyedState) -> int:
    """Drop expired entries, as the compaction filter does; return their number.

    The clock is asked again after `query_time_after_num_entries`. RocksDB frees the disk space in `RocksDbStore.compact`.

    Args:
        state: The state. Without a compaction filter or background cleanup nothing happens.
    """
    if state.ttl is None:
        return 0
    cleanup = state.ttl.cleanup
    if not cleanup.in_compactions:
        return 0
    compaction = cleanup.compaction_filter or CompactionFilter()
    entries_per_query = compaction.query_time_after_num_entries
    n_seen = 0
    n_dropped = 0
    clock_ms = state.clock_ms
    for key in state.raw.all_keys():
        entries = list(state.raw.entries(key))
        for sub, entry in entries:
            if n_seen % entries_per_query == 0:
                clock_ms = state.clock_ms
            n_seen += 1
            has_expired = state.end_ms(entry) <= clock_ms
            if has_expired:
                state.remove_expired(key, sub, entry)
                n_dropped += 1
    state.context.counts["expired"] += n_dropped
    return n_dropped
