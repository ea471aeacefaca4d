"""Decides a step in arrival mode: each key's history, the row that the sink shows, and the entries that store both."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from ebbtide.columns import Codes, Mask
from ebbtide.entries import Reconciled, SinkChange
from ebbtide.operators._arrival import kernel
from ebbtide.operators._arrival.emission import emitted_records
from ebbtide.operators._arrival.entries import History, Shown, entries_of
from ebbtide.operators._arrival.rows import Rows, number_in_run
from ebbtide.operators._arrival.rules import Emission, Keep, OnExpire

NONE = kernel.NONE


class Histories:
    """Decides on the rows of one step.

    Args:
        rows: The rows of the step.
        metrics: Counts so far.
    """

    def __init__(self, rows: Rows, metrics: Counter[str]) -> None:
        self.rows = rows
        self.options = rows.options
        self.metrics = metrics

    def run(self, *, tick: bool) -> Reconciled:
        """Apply the changes, or the expiry of a tick, and return the entries that differ from the stored ones.

        One pass of the kernel replays the stored rows of the touched keys and then their changes. All else is columnar: O(n log n).

        Args:
            tick: There are no changes; keys with expired rows are touched.
        """
        rows = self.rows
        is_touched = self._touched_keys(tick=tick)
        is_usable = self._usable_entries(is_touched)
        stored_rows = np.flatnonzero(is_usable)
        n_stored = len(stored_rows)
        # The kernel replays the stored rows first, without emitting, so the changes meet the stored histories.
        row_of_event = np.concatenate([stored_rows, rows.change_rows])
        result = kernel.materialize(
            rows.key[row_of_event],
            rows.match_code[row_of_event],
            rows.adds[row_of_event],
            n_stored=n_stored,
            replaces=bool(self.options.upsert_key),
            keep_unmatched=self.options.retraction_grace_ms > 0,
            first=self.options.keep is Keep.FIRST,
        )
        self._count_outcomes(result.outcome[n_stored:])
        is_repeated = self._repeats(result.outcome, row_of_event)
        self._count("repeated", is_repeated[n_stored:])
        history = self._history(result, row_of_event)
        shown = self._shown(
            result,
            row_of_event,
            is_touched=is_touched,
            content=history.content,
        )
        emitted = None
        if self.options.emission is Emission.EVERY:
            emitted = emitted_records(
                rows,
                result,
                row_of_event,
                before=shown.before,
                has_expired=shown.has_expired,
            )
        return Reconciled(
            entries=entries_of(rows, shown, history),
            metrics=self.metrics,
            emitted=emitted,
        )

    def _touched_keys(self, *, tick: bool) -> Mask:
        rows = self.rows
        is_touched = np.zeros(rows.n_keys, bool)
        is_touched[rows.change_keys] = True
        if tick:
            expired_keys = rows.entry_keys[rows.is_expired]
            is_touched[expired_keys] = True
        return is_touched

    def _usable_entries(self, is_touched: Mask) -> Mask:
        """Mark the entries of touched keys that are in a history or waiting; count the expired ones."""
        rows = self.rows
        is_of_touched = is_touched[rows.entry_keys]
        # The tick handles expired entries of other keys.
        expires_now = rows.is_expired & ~rows.is_dead & is_of_touched
        waiting_expires = expires_now & rows.is_waiting
        row_expires = expires_now & ~rows.is_waiting
        self._count("expired", row_expires)
        self._count("unmatched", waiting_expires)
        # Dead: below the newest TRUNCATE. Gone: no longer in its history, stored only because the sink still shows it.
        is_over = rows.is_expired | rows.is_dead | rows.is_gone
        return is_of_touched & ~is_over

    def _count_outcomes(self, outcome: NDArray[np.int8]) -> None:
        """Count the outcomes of the changes.

        Args:
            outcome: (changes,) outcomes from the kernel.
        """
        rows = self.rows
        is_unmatched = outcome == kernel.UNMATCHED
        is_cancelled = outcome == kernel.CANCELLED
        # A retraction whose row is stored but expired is also counted separately: the check `ordering` subtracts it.
        row_has_expired = rows.is_expired & ~rows.is_dead & ~rows.is_waiting
        expired_rows = np.flatnonzero(row_has_expired)
        unmatched_rows = rows.change_rows[is_unmatched]
        meets_expired = np.isin(
            rows.match_code[unmatched_rows],
            rows.match_code[expired_rows],
        )
        may_wait = self.options.retraction_grace_ms > 0
        self._count("waiting" if may_wait else "unmatched", is_unmatched)
        self._count("unmatched_expired", meets_expired)
        self._count("cancelled", is_cancelled)

    def _repeats(self, outcome: NDArray[np.int8], row_of_event: Codes) -> Mask:
        """Mark the events that add a row to a history with an equal row.

        With an upsert key there are none, since rows replace each other.

        A running sum per content counts the rows present at each event: rows added minus rows retracted. O(n log n).
        """
        rows = self.rows
        adds = rows.adds[row_of_event]
        if self.options.upsert_key:
            return np.zeros(len(adds), bool)
        joins = adds & (outcome != kernel.CANCELLED)
        leaves = ~adds & (outcome != kernel.UNMATCHED)
        match_code = rows.match_code[row_of_event]
        order = np.argsort(match_code, kind="stable")
        change = joins[order].astype(np.int64) - leaves[order]
        running = np.cumsum(change) - change
        is_first = np.ones(len(order), bool)
        is_first[1:] = match_code[order][1:] != match_code[order][:-1]
        start_of_content = np.flatnonzero(is_first)
        before = running - running[start_of_content][np.cumsum(is_first) - 1]
        marked = np.zeros(len(order), bool)
        marked[order] = joins[order] & (before > 0)
        return marked

    def _count(self, name: str, marked: Mask) -> None:
        """Add the rows marked to a metric."""
        self.metrics[name] += int(marked.sum())

    def _history(self, result: kernel.Result, row_of_event: Codes) -> History:
        """Translate the kernel's elements to rows.

        New rows that have already expired are left out, as are the oldest rows beyond `max_history`.
        """
        rows = self.rows
        # Waiting retractions are not elements: they have only their own content.
        is_element = result.content >= 0
        element_rows = row_of_event[is_element]
        content_events = result.content[is_element]
        content = np.arange(len(rows))
        content[element_rows] = row_of_event[content_events]
        is_alive = np.zeros(len(rows), bool)
        is_alive[row_of_event] = result.alive
        is_late = rows.late(content)
        self._count("late", is_late & is_alive)
        is_alive &= ~is_late
        is_live_row = is_alive & rows.adds
        is_alive &= ~self._above_max_history(is_live_row)
        return History(
            content=content,
            is_alive=is_alive,
            is_late=is_late,
        )

    def _above_max_history(self, is_live: Mask) -> Mask:
        """Mark the oldest rows of keys that exceed the maximum history."""
        max_history = self.options.max_history
        too_many = np.zeros(len(is_live), bool)
        if max_history is None:
            return too_many
        # Rows are in order of position: the greater index is newer.
        live = np.flatnonzero(is_live)
        keys = self.rows.key[live]
        by_key_and_age = np.lexsort((-live, keys))
        newest_first = live[by_key_and_age]
        age = number_in_run(keys[by_key_and_age])
        dropped = newest_first[age >= max_history]
        too_many[dropped] = True
        self._count("dropped", too_many)
        return too_many

    def _shown(
        self,
        result: kernel.Result,
        row_of_event: Codes,
        is_touched: Mask,
        content: Codes,
    ) -> Shown:
        """Find the row that the sink showed for each key, the row that it must show now, and its action.

        A key whose changes emitted nothing keeps its row. If that row has expired, it is deleted from the sink or stays there as
        an orphan, by `on_expire`.
        """
        rows = self.rows
        before = rows.shown_before
        had_row = before >= 0
        has_expired = had_row & is_touched
        shown_entries = before[has_expired]
        has_expired[has_expired] = rows.is_expired[shown_entries]

        # The kernel returns each key's last emission; -1 if no row is left, or nothing was emitted.
        after = self._per_key(result.shown, row_of_event)
        visible_row = self._per_key(result.visible_row, row_of_event)
        last_emitting = self._per_key(result.last_emitting_event, row_of_event)
        emits = last_emitting >= 0
        only_expired = has_expired & ~emits
        if self.options.on_expire is OnExpire.DELETE:
            after[only_expired] = visible_row[only_expired]
            emits |= has_expired
        else:
            has_no_row = visible_row < 0
            self._count("orphaned", only_expired & has_no_row)
        is_unchanged = ~emits & ~has_expired
        after[is_unchanged] = before[is_unchanged]

        change = self._sink_changes(
            before=before,
            after=after,
            emits=emits,
            content=content,
        )
        last_change = np.full(rows.n_keys, NONE)
        last_change[rows.change_keys] = rows.change_rows  # if a key occurs several times, the last assignment counts
        has_changes = last_change >= 0
        needs_nothing = change == ""
        self._count("unchanged", has_changes & needs_nothing)
        return Shown(
            before=before,
            after=after,
            is_touched=is_touched,
            has_expired=has_expired,
            change=change,
            last_change=last_change,
            last_emitting=last_emitting,
        )

    def _per_key(self, events: Codes, row_of_event: Codes) -> Codes:
        """Translate the kernel's element of each key to its row; -1 for keys that the kernel did not see."""
        per_key = np.full(self.rows.n_keys, NONE)
        known = np.flatnonzero(events >= 0)
        known_events = events[known]
        per_key[known] = row_of_event[known_events]
        return per_key

    def _sink_changes(
        self,
        before: Codes,
        after: Codes,
        emits: Mask,
        content: Codes,
    ) -> NDArray[np.str_]:
        """Return the sink's action for each key; empty: nothing.

        Args:
            before: (keys,) the entry that the sink showed; -1 if none is known.
            after: (keys,) the row that it must show; -1: none.
            emits: (keys,) true if the key emitted anything.
            content: (n,) the row that holds each row's values.
        """
        rows = self.rows
        has_row = after >= 0
        had_row = before >= 0
        # Orphans in the sink are unknown: an insert may meet one, and a delete may have to remove one.
        may_have_orphans = rows.step.orphans or rows.rules.leaves_orphans
        may_be_in_sink = had_row | may_have_orphans
        if_row = np.where(may_be_in_sink, SinkChange.UPDATE, SinkChange.INSERT)
        if_none = np.where(may_be_in_sink, SinkChange.DELETE, "")
        change = np.where(has_row, if_row, if_none)
        change[~emits] = ""
        # The net effect of the step may be nothing, though records were emitted on the way.
        replaced = np.flatnonzero(emits & has_row & had_row)
        new_content = content[after[replaced]]
        is_same = rows.are_equal(new_content, before[replaced])
        same = replaced[is_same]
        change[same] = ""
        self._count("inserted", change == SinkChange.INSERT)
        self._count("updated", change == SinkChange.UPDATE)
        self._count("deleted", change == SinkChange.DELETE)
        return change
