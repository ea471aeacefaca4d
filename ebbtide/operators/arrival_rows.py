"""The rows that a step of arrival mode decides on: stored entries and changes, coded, with what is known of each beforehand."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.changelog import ADDS, ORDER
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import Step, equals, flags, has_expired, ints, order_struct
from ebbtide.model.ttl import UpdateType
from ebbtide.operators.arrival_options import OnExpire

if TYPE_CHECKING:
    from ebbtide.operators.arrival import ArrivalOperator

Mask = NDArray[np.bool_]
LIVE, WAITING, GONE = "live", "waiting", "gone"


class Rows:
    """The rows of one call of the operator. They go by their index: the stored entries by position, then the changes in order.

    Args:
        operator: What decides.
        changes: Changes above the floor, in order.
        state: Live entries of their keys, by position.
        step: The step.

    Attributes:
        user: (n,) the user's columns.
        key: (n,) the key of each row.
        match_code: (n,) equal for rows of which a retraction of one finds the other.
        adds: (n,) whether the row is one of a history; else it is a retraction.
        is_waiting: (entries,) retractions that wait for their row.
        is_gone: (entries,) rows that only the sink still shows.
        is_expired: (entries,) those whose time to live has passed.
        is_dead: (entries,) those below the floor.
    """

    def __init__(self, operator: ArrivalOperator, changes: pa.Table, state: pa.Table, step: Step) -> None:
        self.op = operator
        self.options = operator.materialization
        self.step = step
        self.state = state
        self.changes = changes
        self.n_state = len(state)
        names = operator.columns.names
        self.user = pa.concat_tables([state.select(names), changes.select(names)])
        self.key = row_codes(self.user, operator.key)
        self.n_keys = int(self.key.max(initial=-1)) + 1
        # Without an upsert key a retraction finds a row by all of its columns.
        match_columns = names
        if self.options.upsert_key:
            match_columns = [*operator.key, *self.options.upsert_key]
        self.match_code = row_codes(self.user, match_columns)
        self.is_waiting = equals(state, "_role", WAITING)
        self.is_gone = equals(state, "_role", GONE)
        self.adds = np.concatenate([~self.is_waiting, adds(changes)])
        self.was_shown = flags(state, "_shown")
        self.is_expired = self._expired()
        self.is_dead = ~above_floor(order_struct(state, "_changed_by"), step.floor)

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

    def of_entries(self, marked: Mask) -> Mask:
        """Extend a mask of the entries to all rows: no change is marked."""
        all_rows = np.zeros(len(self), bool)
        all_rows[: self.n_state] = marked
        return all_rows

    def are_equal(self, left: Codes, right: Codes) -> Mask:
        """Compare the user's columns of rows, one by one."""
        # Coded together, so that equal rows have equal codes on both sides.
        pairs = np.concatenate([left, right])
        both = self.user.take(pa.array(pairs))
        codes = row_codes(both, both.column_names)
        left_codes, right_codes = np.split(codes, 2)
        return np.asarray(left_codes == right_codes)

    def _expired(self) -> Mask:
        stamps = ints(self.state, "_stamp_ms")
        row_expired = has_expired(stamps, self.op.expiry.ttls.get(None), self.step)
        waiting_expired = has_expired(stamps, self.op.expiry.ttls.get(WAITING), self.step)
        if not self.options.retraction_grace_ms:  # it was switched off since
            waiting_expired = np.ones(self.n_state, bool)
        return np.where(self.is_waiting, waiting_expired, row_expired)

    def stamps(self, content: Codes) -> Codes:
        """Return from when each row lives: one that replaces another may keep its time.

        Args:
            content: (n,) the row whose values each has.
        """
        keeps_time = self.op.ttl is not None and self.op.ttl.update_type is UpdateType.ON_CREATE
        return self._own_stamps if keeps_time else self._own_stamps[content]

    @cached_property
    def _own_stamps(self) -> Codes:
        now = np.full(len(self.changes), self.step.now_ms)
        fresh = now
        if self.op.ttl is not None and self.op.ttl.by_event_time:
            event_times = ints(self.changes, "_event_ms")
            is_added = self.adds[self.n_state :]
            fresh = np.where(is_added, event_times, now)
        return np.concatenate([ints(self.state, "_stamp_ms"), fresh])

    def late(self, content: Codes) -> Mask:
        """Mark the rows written now that have expired already: they reach the sink and are not stored.

        Args:
            content: (n,) the row whose values each has.
        """
        if self.options.on_expire is OnExpire.DELETE:
            return np.zeros(len(self), bool)  # the next tick deletes them, from the sink too
        is_written = self.adds & (content >= self.n_state)
        return is_written & has_expired(self.stamps(content), self.op.ttl, self.step)

    def positions(self) -> Codes:
        """Return each row's place in its key's history: a change's follows those that are stored."""
        stored = ints(self.state, "_position")
        next_position = np.zeros(self.n_keys, np.int64)
        np.maximum.at(next_position, self.entry_keys, stored + 1)
        by_key = np.argsort(self.change_keys, kind="stable")
        # Stable, so that the changes of a key keep their order.
        number_in_key = np.empty(len(by_key), np.int64)
        number_in_key[by_key] = number_in_run(self.change_keys[by_key])
        fresh = next_position[self.change_keys] + number_in_key
        return np.concatenate([stored, fresh])

    def orders(self) -> pa.ChunkedArray:
        """Return the order of the change that caused each row."""
        stored = self.state["_changed_by"]
        own = self.changes["_order"]
        return pa.chunked_array([*stored.chunks, *own.chunks], ORDER)

    def before_changes(self, n: int) -> pa.Array:
        """Return n times the place in the order that is before all changes of the step."""
        parts = [np.full(n, value) for value in (self.step.number, -1, -1)]
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
    return np.arange(len(codes)) - np.repeat(starts, lengths)


def adds(changes: pa.Table) -> Mask:
    """Mark the changes that add a row."""
    kinds = pa.array([str(kind) for kind in ADDS])  # here, since pyarrow loads pandas for it
    is_added = pc.is_in(changes["_kind"], kinds)
    return np.asarray(is_added.to_numpy(zero_copy_only=False), bool)


def above_floor(orders: Codes, floor: tuple[int, ...] | None) -> Mask:
    """Mark the orders after the floor.

    Args:
        orders: (n, 3) step, part, position.
        floor: The same of a TRUNCATE; None: there was none.
    """
    if floor is None:
        return np.ones(len(orders), dtype=bool)
    # Compared as tuples are: from the last part on, each decides where all before it are equal.
    is_above = np.zeros(len(orders), dtype=bool)
    for part, limit in zip(orders.T[::-1], reversed(floor), strict=True):
        is_above = (part > limit) | ((part == limit) & is_above)
    return is_above
