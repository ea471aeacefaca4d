"""What a step of arrival mode decides: each key's history, the row that its sink shows, and the entries that remember both."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.codes import Codes
from ebbtide.model.entries import DELETE, INSERT, UPDATE, Reconciled, entry_table
from ebbtide.model.materializer import kernel
from ebbtide.operators.arrival_emission import emitted_records
from ebbtide.operators.arrival_options import Emission, Keep, OnExpire
from ebbtide.operators.arrival_rows import GONE, LIVE, WAITING, Mask, Rows, number_in_run

NONE = kernel.NONE


class History(NamedTuple):
    """All histories at the end of the step, by row.

    Args:
        content: (n,) the row whose values each has: its own, or of the change that replaced it in its place.
        is_alive: (n,) it is in its key's history, or is a retraction that waits.
        is_late: (n,) it has expired as it was written.
    """

    content: Codes
    is_alive: Mask
    is_late: Mask


class Shown(NamedTuple):
    """Per key, what its sink shows.

    Args:
        before: (keys,) the stored entry that it showed, -1: none that is known.
        after: (keys,) the row that it is to show, -1: none.
        is_touched: (keys,) it has changes, or rows that expire.
        has_expired: (keys,) it is touched, and what it showed has expired.
        change: (keys,) what the sink must do; empty: nothing.
        last_change: (keys,) the key's last change; -1: it has none.
    """

    before: Codes
    after: Codes
    is_touched: Mask
    has_expired: Mask
    change: NDArray[np.str_]
    last_change: Codes


class Histories:
    """Decides on the rows of one step.

    Args:
        rows: The step's.
        metrics: Counts so far.
    """

    def __init__(self, rows: Rows, metrics: Counter[str]) -> None:
        self.rows = rows
        self.options = rows.options
        self.metrics = metrics

    def run(self, *, tick: bool) -> Reconciled:
        """Go through the changes, or through the keys that expire, see what each key shows, write what differs.

        One pass of the kernel replays the stored rows and then the changes of the keys touched; all else is columns: time with
        the number of rows.

        Args:
            tick: There are no changes; the keys are touched that have something expired.
        """
        rows = self.rows
        is_touched = self._touched_keys(tick=tick)
        is_usable = self._usable_entries(is_touched)
        n_stored = int(is_usable.sum())
        # The kernel sees stored rows first, silently, so that the changes meet the histories as they were.
        row_of_event = np.concatenate([np.flatnonzero(is_usable), rows.change_rows])
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
        history = self._history(result, row_of_event)
        shown = self._shown(result, row_of_event, is_touched, history.content)
        emitted = None
        if self.options.emission is Emission.EVERY:
            emitted = emitted_records(rows, result, row_of_event, shown.before, shown.has_expired)
        return Reconciled(self._entries(shown, history), self.metrics, emitted)

    def _touched_keys(self, *, tick: bool) -> Mask:
        rows = self.rows
        is_touched = np.zeros(rows.n_keys, bool)
        is_touched[rows.change_keys] = True
        if tick:
            is_touched[rows.entry_keys[rows.is_expired]] = True
        return is_touched

    def _usable_entries(self, is_touched: Mask) -> Mask:
        """Mark the entries of touched keys that are in a history, or wait; count those that have expired."""
        rows = self.rows
        is_of_touched = is_touched[rows.entry_keys]
        # Entries of other keys that have expired too are left to the tick.
        expires_now = rows.is_expired & ~rows.is_dead & is_of_touched
        self.metrics["expired"] += int((expires_now & ~rows.is_waiting).sum())
        self.metrics["unmatched"] += int((expires_now & rows.is_waiting).sum())
        is_over = rows.is_expired | rows.is_dead | rows.is_gone
        return is_of_touched & ~is_over

    def _count_outcomes(self, outcome: NDArray[np.int8]) -> None:
        """Count what became of the changes.

        Args:
            outcome: (changes,) the kernel's.
        """
        rows = self.rows
        is_unmatched = outcome == kernel.UNMATCHED
        # A retraction whose row is stored, but has expired, is not one whose row never came.
        expired_rows = rows.is_expired & ~rows.is_dead & ~rows.is_waiting
        expired_codes = rows.match_code[: rows.n_state][expired_rows]
        unmatched_codes = rows.match_code[rows.n_state :][is_unmatched]
        count_name = "waiting" if self.options.retraction_grace_ms else "unmatched"
        self.metrics[count_name] += int(is_unmatched.sum())
        self.metrics["unmatched_expired"] += int(np.isin(unmatched_codes, expired_codes).sum())
        self.metrics["cancelled"] += int((outcome == kernel.CANCELLED).sum())

    def _history(self, result: kernel.Result, row_of_event: Codes) -> History:
        """Translate the kernel's elements to rows, and leave out what is late or too much."""
        rows = self.rows
        # Waiting retractions are not elements: they have no content but their own.
        is_element = result.content >= 0
        content = np.arange(len(rows))
        content[row_of_event[is_element]] = row_of_event[result.content[is_element]]
        is_alive = np.zeros(len(rows), bool)
        is_alive[row_of_event] = result.alive
        is_late = rows.late(content)
        self.metrics["late"] += int((is_late & is_alive).sum())
        is_alive &= ~is_late
        is_alive &= ~self._above_max_history(is_alive & rows.adds)
        return History(content, is_alive, is_late)

    def _above_max_history(self, is_live: Mask) -> Mask:
        """Mark the oldest rows of the keys that have too many."""
        too_many = np.zeros(len(is_live), bool)
        if self.options.max_history is None:
            return too_many
        live = np.flatnonzero(is_live)
        # Rows are in order of position: the greater index is newer.
        newest_first = live[np.lexsort((-live, self.rows.key[live]))]
        age = number_in_run(self.rows.key[newest_first])
        too_many[newest_first[age >= self.options.max_history]] = True
        self.metrics["dropped"] += int(too_many.sum())
        return too_many

    def _shown(self, result: kernel.Result, row_of_event: Codes, is_touched: Mask, content: Codes) -> Shown:
        """See what each key's sink showed, is to show, and must do for it.

        A key whose changes emitted nothing keeps what it shows. Where that has expired, the sink's row is deleted or stays as an
        orphan, as `on_expire` says.
        """
        rows = self.rows
        was_shown = np.flatnonzero(rows.was_shown & ~rows.is_dead)
        before = np.full(rows.n_keys, NONE)
        before[rows.key[was_shown]] = was_shown
        has_expired = (before >= 0) & is_touched
        has_expired[has_expired] = rows.is_expired[before[has_expired]]

        # The kernel knows of each key what it was last told to show; -1 where nothing is left, or nothing was said.
        after = self._per_key(result.shown, row_of_event)
        visible_row = self._per_key(result.visible_row, row_of_event)
        emits = np.zeros(rows.n_keys, bool)
        emits[: len(result.last_emitting_event)] = result.last_emitting_event >= 0
        only_expired = has_expired & ~emits
        if self.options.on_expire is OnExpire.DELETE:
            after[only_expired] = visible_row[only_expired]
            emits |= has_expired
        else:
            is_orphan = only_expired & (visible_row < 0)
            self.metrics["orphaned"] += int(is_orphan.sum())
        is_unchanged = ~emits & ~has_expired
        after[is_unchanged] = before[is_unchanged]

        change = self._sink_changes(before, after, emits, content)
        last_change = np.full(rows.n_keys, NONE)
        last_change[rows.change_keys] = rows.change_rows  # the last one of a key stays
        has_no_effect = (last_change >= 0) & (change == "")
        self.metrics["unchanged"] += int(has_no_effect.sum())
        return Shown(before, after, is_touched, has_expired, change, last_change)

    def _per_key(self, events: Codes, row_of_event: Codes) -> Codes:
        """Translate the kernel's element of each key to its row; -1 for keys that the kernel did not see."""
        per_key = np.full(self.rows.n_keys, NONE)
        known = np.flatnonzero(events >= 0)
        per_key[known] = row_of_event[events[known]]
        return per_key

    def _sink_changes(self, before: Codes, after: Codes, emits: Mask, content: Codes) -> NDArray[np.str_]:
        """Return what the sink must do for each key; empty: nothing.

        Args:
            before: (keys,) the entry that it showed; -1: none that is known.
            after: (keys,) the row that it is to show; -1: none.
            emits: (keys,) whether the key emitted anything.
            content: (n,) the row whose values each has.
        """
        has_row = after >= 0
        had_row = before >= 0
        # An orphan in the sink is not known: an insert may meet it, and a delete may have to remove it.
        may_have_orphans = self.rows.step.orphans or self.rows.op.leaves_orphans
        may_be_in_sink = had_row | may_have_orphans
        if_row = np.where(may_be_in_sink, UPDATE, INSERT)
        if_none = np.where(may_be_in_sink, DELETE, "")
        change = np.where(has_row, if_row, if_none)
        change[~emits] = ""
        replaced = np.flatnonzero(emits & has_row & had_row)
        # The net effect of the step may be nothing, though records were emitted on the way.
        is_same = self.rows.are_equal(content[after[replaced]], before[replaced])
        change[replaced[is_same]] = ""
        self.metrics["inserted"] += int((change == INSERT).sum())
        self.metrics["updated"] += int((change == UPDATE).sum())
        self.metrics["deleted"] += int((change == DELETE).sum())
        return change

    def _entries(self, shown: Shown, history: History) -> pa.Table:
        """Build the entries of the rows that differ from what is stored, and of those that carry a change for the sink."""
        rows = self.rows
        is_shown = np.zeros(len(rows), bool)
        is_shown[shown.after[shown.after >= 0]] = True
        is_kept = self._kept(shown, history, is_shown)
        # A row that left its history but is still shown is kept: its key's next change needs to know of it.
        role_if_alive = np.where(rows.adds, LIVE, WAITING)
        role = np.where(history.is_alive, role_if_alive, GONE)
        differs = self._differs(shown, history, is_shown, is_kept, role)

        # The change set rides on entries: each key's change on one of them.
        change = np.full(len(rows), "", dtype="U1")
        is_said = shown.change != ""
        change[self._carriers(shown)[is_said]] = shown.change[is_said]
        carries = change != ""

        written = np.flatnonzero(differs | carries)
        values = pa.array(history.content[written])
        columns: dict[str, object] = {name: rows.user[name].take(values) for name in rows.op.columns.names}
        columns |= {
            "_step": np.full(len(written), rows.step.number),
            "_change": pa.array(change[written], mask=~carries[written]),
            "_removed": ~is_kept[written],
            "_stamp_ms": rows.stamps(history.content)[written],
            "_changed_by": self._causes(shown, history, written, carries),
            "_position": rows.positions()[written],
            "_role": role[written],
            "_shown": (is_shown & is_kept)[written],
        }
        return entry_table(rows.op.schema, columns, len(written))

    def _kept(self, shown: Shown, history: History, is_shown: Mask) -> Mask:
        """Mark the rows that the state has at the end; entries of keys that are not touched stay as they are."""
        rows = self.rows
        is_over = rows.of_entries(rows.is_expired | rows.is_dead) | history.is_late
        is_needed = history.is_alive | is_shown
        is_of_other_key = ~shown.is_touched[rows.entry_keys]
        return (is_needed & ~is_over) | rows.of_entries(is_of_other_key)

    def _differs(self, shown: Shown, history: History, is_shown: Mask, is_kept: Mask, role: NDArray[np.str_]) -> Mask:
        """Mark the entries that changed or go, and the changes that stay."""
        rows = self.rows
        n = rows.n_state
        if_kept = np.where(rows.is_waiting, WAITING, LIVE)
        stored_role = np.where(rows.is_gone, GONE, if_kept)
        is_replaced = history.content[:n] >= n
        is_shown_otherwise = is_shown[:n] != rows.was_shown
        has_other_role = role[:n] != stored_role
        is_changed = ~is_kept[:n] | is_replaced | is_shown_otherwise | has_other_role
        differs = is_kept.copy()
        differs[:n] = is_changed & shown.is_touched[rows.entry_keys]
        return differs

    def _carriers(self, shown: Shown) -> Codes:
        """Give each key the row whose entry carries its change: the one shown, else the one shown before, else its last change."""
        if_gone = np.where(shown.before >= 0, shown.before, shown.last_change)
        return np.where(shown.after >= 0, shown.after, if_gone)

    def _causes(self, shown: Shown, history: History, written: Codes, carries: Mask) -> pa.ChunkedArray | pa.Array:
        """Return the order of the change that caused each entry: for the sink it is its key's last, at a tick none."""
        rows = self.rows
        last_change = shown.last_change[rows.key[written]]
        is_sink_change = carries[written]
        by_last = is_sink_change & (last_change >= 0)
        cause = np.where(by_last, last_change, history.content[written])
        orders = rows.orders().take(pa.array(cause))
        if len(rows.changes):
            return orders
        return pc.if_else(pa.array(is_sink_change), rows.before_changes(len(written)), orders)
