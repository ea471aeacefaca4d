"""Expiry of an operator's entries as data: SQL over a state table and Arrow evaluate the same rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.columns import Long, Mask, equals, ints
from ebbtide.entries import Step
from ebbtide.keyed_state import TIMERS, StateTtlConfig, TimeCharacteristic


@dataclass(frozen=True)
class ExpiryRules:
    """Expiry rules of an operator's entries.

    Args:
        ttls: Time to live by state name; None is the default for states without a TTL. Empty: nothing expires.
        ttl_selector: Column with the name of an entry's state.
        any_set: An entry may expire only if one of these columns is true or not null; empty: every entry may.
        needs_tick: (column, value) pairs. A tick must act on the expiry of entries with such a value before they are deleted.
        grace_ms: Time within which a retraction that came before its row still finds it, ms.
    """

    ttls: Mapping[str | None, StateTtlConfig] = field(default_factory=dict)
    ttl_selector: str = "_state"
    any_set: tuple[str, ...] = ()
    needs_tick: tuple[tuple[str, str | bool], ...] = ()
    grace_ms: int = 0

    @property
    def columns(self) -> set[str]:
        """Columns that `expired` reads if the entries have them."""
        return {"_stamp_ms", "_ttl_ms", self.ttl_selector, *self.any_set}

    @property
    def on_time(self) -> list[str]:
        """States whose entries must expire within a minute (`cleanup.timers`)."""
        return [name for name, ttl in self.ttls.items() if name is not None and ttl.cleanup.timers]

    @property
    def tick_columns(self) -> set[str]:
        """Further columns that `deletable` and `awaited` read."""
        return {name for name, _ in self.needs_tick}

    def expired(
        self,
        entries: pa.Table,
        step: Step,
    ) -> Mask:
        """Mark the entries that have expired.

        Args:
            entries: Entries with those of `columns` that exist.
            step: The clocks.
        """
        marked = np.zeros(len(entries), dtype=bool)
        # None comes first if present: it is the default for states without a time to live.
        for state, ttl in self.ttls.items():
            is_own = np.ones(len(entries), dtype=bool)
            if state is not None:
                is_own = equals(entries, self.ttl_selector, state)
            clock_ms = step.clock_ms(ttl)
            if clock_ms == Long.MIN:  # no watermark yet
                marked[is_own] = False
                continue
            oldest_alive_ms = clock_ms - self._ttl_ms(entries, ttl)
            is_old = ints(entries, "_stamp_ms", null=Long.MAX) <= oldest_alive_ms
            marked[is_own] = is_old[is_own]
        if self.any_set:
            is_set = [_is_set(entries[name]) for name in self.any_set]
            marked &= np.logical_or.reduce(is_set)
        return marked

    def expires_ms(self, entries: pa.Table, step: Step) -> NDArray[np.int64]:
        """Return when each entry expires, ms by the clock of its state; `Long.MAX`: never, or not while there is no watermark.

        Args:
            entries: See `expired`.
            step: The clocks.
        """
        expires_ms = np.full(len(entries), Long.MAX, np.int64)
        for state, ttl in self.ttls.items():
            is_own = np.ones(len(entries), dtype=bool) if state is None else equals(entries, self.ttl_selector, state)
            if step.clock_ms(ttl) == Long.MIN:  # no watermark yet
                expires_ms[is_own] = Long.MAX
                continue
            ttl_ms = self._ttl_ms(entries, ttl)
            stamp_ms = ints(entries, "_stamp_ms", null=Long.MAX)
            saturated = np.where(stamp_ms > Long.MAX - ttl_ms, Long.MAX, stamp_ms + ttl_ms)
            expires_ms[is_own] = saturated[is_own]
        if self.any_set:
            is_set = [_is_set(entries[name]) for name in self.any_set]
            expires_ms[~np.logical_or.reduce(is_set)] = Long.MAX
        return expires_ms

    @staticmethod
    def _ttl_ms(entries: pa.Table, ttl: StateTtlConfig) -> NDArray[np.int64]:
        """Return the time to live of each entry, if it were of a state with one."""
        if "_ttl_ms" in entries.column_names:
            return ints(entries, "_ttl_ms", null=ttl.ttl_ms)
        return np.full(len(entries), ttl.ttl_ms, np.int64)

    def due(self, entries: pa.Table, step: Step) -> Mask:
        """Mark the entries that a tick must examine: those that have expired, and timers that are due."""
        marked = self.expired(entries, step)
        if "_state" in entries.column_names:
            marked |= _due_timers(entries, step)
        return marked

    def next_ms(self, entries: pa.Table, step: Step) -> int:
        """Return when processing time ends the next entry or fires the next timer, epoch ms; `Long.MAX`: never.

        Args:
            entries: See `due`.
            step: The clocks.
        """
        ends_ms = self.expires_ms(entries, step)
        is_by_clock = np.ones(len(entries), dtype=bool)
        for state, ttl in self.ttls.items():  # None comes first if present, as in `expired`
            is_own = np.ones(len(entries), dtype=bool) if state is None else equals(entries, self.ttl_selector, state)
            is_by_clock[is_own] = ttl.by_clock
        ends_ms[~is_by_clock] = Long.MAX
        if "_state" in entries.column_names:
            is_timer = _timers_of(entries, TimeCharacteristic.PROCESSING_TIME)
            ends_ms[is_timer] = ints(entries, "_position")[is_timer]
        return int(ends_ms.min(initial=Long.MAX))

    def deletable(
        self,
        entries: pa.Table,
        step: Step,
    ) -> Mask:
        """Mark the entries that may be deleted: they have expired, and no tick needs to act on it.

        Args:
            entries: With all columns of an entry.
            step: The clocks.
        """
        return self.expired(entries, step) & ~self._need_tick(entries)

    def compactable(self, entries: pa.Table, step: Step) -> Mask:
        """Mark the deletable entries that a compaction leaves out: those of states whose cleanup has it do so."""
        marked = self.deletable(entries, step)
        for state, ttl in self.ttls.items():
            if not ttl.cleanup.in_compactions:
                marked &= ~self.is_of_state(entries, state)
        return marked

    def awaited(self, entries: pa.Table, step: Step) -> Mask:
        """Mark the entries that have expired, and may be deleted only once a tick has acted on it; see `deletable`."""
        return self.expired(entries, step) & self._need_tick(entries)

    def _need_tick(self, entries: pa.Table) -> Mask:
        marked = np.zeros(len(entries), dtype=bool)
        for name, value in self.needs_tick:
            marked |= _has_value(value, entries[name])
        return marked

    def is_of_state(
        self,
        entries: pa.Table,
        state: str | None,
    ) -> Mask:
        """Mark the entries with the TTL of a state; for None: entries of states without one."""
        if state is not None:
            return equals(entries, self.ttl_selector, state)
        marked = np.ones(len(entries), dtype=bool)
        for name in self.ttls:
            if name is not None:
                marked &= ~equals(entries, self.ttl_selector, name)
        return marked


def _has_value(value: str | bool, column: pa.ChunkedArray) -> Mask:  # noqa: FBT001
    # A null flag counts as false; a null text equals no text.
    has_value = pc.equal(column, value).fill_null(value is False)
    return np.asarray(has_value.to_numpy(), dtype=bool)


def _is_set(column: pa.ChunkedArray) -> Mask:
    if pa.types.is_boolean(column.type):
        column = column.fill_null(False)
        return np.asarray(column.to_numpy(), dtype=bool)
    return np.asarray(column.is_valid().to_numpy(), dtype=bool)


def _due_timers(entries: pa.Table, step: Step) -> Mask:
    """Mark the timers that are due."""
    at_ms = ints(entries, "_position")
    is_due = np.zeros(len(entries), dtype=bool)
    clocks = {
        TimeCharacteristic.PROCESSING_TIME: step.now_ms,
        TimeCharacteristic.EVENT_TIME: step.watermark_ms,
    }
    for clock, now_ms in clocks.items():
        if now_ms is None:
            continue
        is_due |= _timers_of(entries, clock) & (at_ms <= now_ms)
    return is_due


def _timers_of(entries: pa.Table, clock: TimeCharacteristic) -> Mask:
    """Mark the timers of a clock."""
    is_timer = equals(entries, "_state", TIMERS)
    is_of_clock = pc.starts_with(entries["_sub"], f"{clock}/").fill_null(False).to_numpy()
    return np.asarray(is_timer & is_of_clock)
