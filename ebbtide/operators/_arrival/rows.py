"""The rows that a step of arrival mode decides on: stored entries and changes as codes, with their derived columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER, RowKind, order_struct
from ebbtide.columns import Codes, Mask, count_codes, equals, flags, ints, row_codes
from ebbtide.entries import Step
from ebbtide.keyed_state import UpdateType
from ebbtide.operators._arrival.kernel import NONE
from ebbtide.operators._arrival.rules import GONE, WAITING, ArrivalRules, Materialization, OnExpire


@dataclass(frozen=True)
class Rows:
    """The rows of one call of the operator, by index: the stored entries by position, then the changes in order.

    Args:
        rules: Settings of the pipeline.
        changes: Changes above the floor, in order.
        state: Live entries of their keys, by position.
        step: Number, clocks and floor of the step.
    """

    rules: ArrivalRules
    changes: pa.Table
    state: pa.Table
    step: Step

    @property
    def options(self) -> Materialization:
        """Settings of the histories."""
        return self.rules.materialization

    @property
    def n_state(self) -> int:
        """Number of rows that are entries."""
        return len(self.state)

    @cached_property
    def user(self) -> pa.Table:
        """(n,) the user's columns."""
        names = self.rules.columns.names
        stored = self.state.select(names)
        changed = self.changes.select(names)
        rows = pa.concat_tables([stored, changed])
        return rows.combine_chunks()  # once: each use of a column would copy its chunks again

    @cached_property
    def key(self) -> Codes:
        """(n,) the key of each row."""
        return row_codes(self.user, self.rules.key)

    @cached_property
    def n_keys(self) -> int:
        """Number of keys."""
        return count_codes(self.key)

    @cached_property
    def match_code(self) -> Codes:
        """(n,) codes by which a retraction finds its row: equal in the upsert key, or without one in all columns."""
        columns = self.rules.columns.names
        if self.options.upsert_key:
            columns = [*self.rules.key, *self.options.upsert_key]
        return row_codes(self.user, columns)

    @cached_property
    def is_waiting(self) -> Mask:
        """(entries,) retractions that wait for their row."""
        return equals(self.state, "_role", WAITING)

    @cached_property
    def is_gone(self) -> Mask:
        """(entries,) rows that only the sink still shows."""
        return equals(self.state, "_role", GONE)

    @cached_property
    def adds(self) -> Mask:
        """(n,) true for rows of a history, false for retractions."""
        of_changes = adds(self.changes)
        return np.concatenate([~self.is_waiting, of_changes])

    @cached_property
    def was_shown(self) -> Mask:
        """(entries,) rows that the sink shows."""
        return flags(self.state, "_shown")

    @cached_property
    def shown_before(self) -> Codes:
        """(keys,) the entry that the sink showed of each key; -1 if none is known."""
        shown = np.flatnonzero(self.was_shown & ~self.is_dead)
        keys = self.key[shown]
        before = np.full(self.n_keys, NONE)
        before[keys] = shown
        return before

    @cached_property
    def is_expired(self) -> Mask:
        """(entries,) entries that have expired."""
        stamps = ints(self.state, "_stamp_ms")
        ttls = self.rules.expiry.ttls
        row_expired = self.step.has_expired(stamps, ttls.get(None))
        waiting_expired = self.step.has_expired(stamps, ttls.get(WAITING))
        if not self.options.retraction_grace_ms:  # switched off meanwhile
            waiting_expired = np.ones(self.n_state, bool)
        return np.where(self.is_waiting, waiting_expired, row_expired)

    @cached_property
    def is_dead(self) -> Mask:
        """(entries,) entries below the floor."""
        orders = order_struct(self.state, "_changed_by")
        return ~above_floor(orders, self.step.floor)

    def __len__(self) -> int:
        return len(self.user)

    @property
    def change_rows(self) -> Codes:
        """Indices of the changes."""
        return np.arange(self.n_state, len(self))

    @property
    def entry_keys(self) -> Codes:
        """Keys of the stored entries."""
        return self.key[: self.n_state]

    @property
    def change_keys(self) -> Codes:
        """Keys of the changes."""
        return self.key[self.n_state :]

    def are_equal(
        self,
        left: Codes,
        right: Codes,
    ) -> Mask:
        """Compare the user's columns of rows, one by one."""
        # Coded together, so that equal rows have equal codes on both sides.
        sides = np.concatenate([left, right])
        both = self.user.take(pa.array(sides))
        codes = row_codes(both, both.column_names)
        left_codes, right_codes = np.split(codes, 2)
        is_equal = left_codes == right_codes
        return np.asarray(is_equal)

    def stamps(self, content: Codes) -> Codes:
        """Return the stamp of each row: with ON_CREATE a replacing row keeps the earlier stamp.

        Args:
            content: (n,) the row that holds each row's values.
        """
        ttl = self.rules.ttl
        keeps_time = ttl is not None and ttl.update_type is UpdateType.ON_CREATE
        if keeps_time:
            return self._own_stamps
        return self._own_stamps[content]

    @cached_property
    def _own_stamps(self) -> Codes:
        ttl = self.rules.ttl
        stored = ints(self.state, "_stamp_ms")
        fresh = np.full(len(self.changes), self.step.now_ms)
        if ttl is not None and ttl.by_event_time:
            event_times = ints(self.changes, "_event_ms")
            is_added = self.adds[self.n_state :]
            fresh = np.where(is_added, event_times, fresh)
        return np.concatenate([stored, fresh])

    def late(self, content: Codes) -> Mask:
        """Mark new rows that have already expired: they reach the sink and are not stored.

        Args:
            content: (n,) the row that holds each row's values.
        """
        if self.options.on_expire is OnExpire.DELETE:
            return np.zeros(len(self), bool)  # the next tick deletes them, from the sink too
        has_new_content = content >= self.n_state
        is_written = self.adds & has_new_content
        stamps = self.stamps(content)
        is_past = self.step.has_expired(stamps, self.rules.ttl)
        return is_written & is_past

    def positions(self) -> Codes:
        """Return each row's place in its key's history: changes follow stored rows."""
        keys = self.change_keys
        stored = ints(self.state, "_position")
        next_position = np.zeros(self.n_keys, np.int64)
        np.maximum.at(
            next_position,
            self.entry_keys,
            stored + 1,
        )
        # Numbers within each key, by one sort; stable, so that the changes of a key keep their order.
        by_key = np.argsort(keys, kind="stable")
        sorted_keys = keys[by_key]
        number_in_key = np.empty(len(keys), np.int64)
        number_in_key[by_key] = number_in_run(sorted_keys)
        fresh = next_position[keys] + number_in_key
        return np.concatenate([stored, fresh])

    def orders(self) -> pa.ChunkedArray:
        """Return the order of the change that caused each row."""
        stored = self.state["_changed_by"]
        own = self.changes["_order"]
        chunks = [*stored.chunks, *own.chunks]
        return pa.chunked_array(chunks, ORDER)

    def before_changes(self, n: int) -> pa.Array:
        """Return n copies of the order before all changes of the step."""
        step = np.full(n, self.step.number)
        before_all = np.full(n, -1)
        parts = [step, before_all, before_all]
        return pa.StructArray.from_arrays(parts, fields=list(ORDER))


def number_in_run(codes: Codes) -> Codes:
    """Number the rows within each run of equal codes.

    Example:
        >>> number_in_run(np.array([3, 3, 5])).tolist()
        [0, 1, 0]
    """
    begins = np.ones(len(codes), bool)
    begins[1:] = codes[1:] != codes[:-1]
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=len(codes))
    index = np.arange(len(codes))
    start_of_own_run = np.repeat(starts, lengths)
    return index - start_of_own_run


def adds(changes: pa.Table) -> Mask:
    """Mark the changes that add a row."""
    adding_kinds = [str(kind) for kind in RowKind if kind.adds]
    kinds = pa.array(adding_kinds)  # not at import: pyarrow loads pandas for it
    is_added = pc.is_in(changes["_kind"], kinds)
    marked = is_added.to_numpy(zero_copy_only=False)
    return np.asarray(marked, bool)


def above_floor(orders: Codes, floor: tuple[int, ...] | None) -> Mask:
    """Mark the orders after the floor.

    Args:
        orders: (n, 3) step, part, position.
        floor: Order of the newest TRUNCATE; None: there was none.
    """
    if floor is None:
        return np.ones(len(orders), dtype=bool)
    # Compared like tuples, starting with the last part: each part decides if all before it are equal.
    is_above = np.zeros(len(orders), dtype=bool)
    parts = orders.T[::-1]
    limits = floor[::-1]
    for part, limit in zip(parts, limits, strict=True):
        is_greater = part > limit
        is_equal = part == limit
        is_above = is_greater | (is_equal & is_above)
    return is_above
