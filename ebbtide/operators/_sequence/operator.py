"""Sequence mode: per key the change with the greatest sequence wins, independently of arrival.

A step is decided in phases. Each returns frozen values:

| phase | from | to |
|---|---|---|
| `rank` | changes, entries | events: keys as codes, sequences as ranks |
| `choose` | events | the events that count, in order, and the winner of each key |
| `fill` | winners | the source event of each of a row's values, possibly under another key |
| `write` | winners and sources | the entries that differ from the stored ones |

`ebbtide.operators._sequence.rules` lists the columns of an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from ebbtide.columns import entry_table, flags, ints, row_codes, with_column
from ebbtide.entries import SINK_STEP, Reconciled, Step, live_entries, newest
from ebbtide.model import SchemaChange
from ebbtide.operators._sequence.altered import altered_entries
from ebbtide.operators._sequence.choose import choose, n_created_over_rows, n_late_deletes, n_newer_superseded
from ebbtide.operators._sequence.fill import fill
from ebbtide.operators._sequence.links import is_waiting
from ebbtide.operators._sequence.rank import rank
from ebbtide.operators._sequence.rules import LIFE_COLUMNS, LINK_COLUMNS, SequenceRules
from ebbtide.operators._sequence.write import write


class SequenceOperator(SequenceRules):
    """Reconciles changes with their keys' state by sequence; its settings are the rules."""

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Fold one step's changes into the state of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all changes of each key, in any order.
            state: Every stored version of those keys' entries, in any order.
            step: Number, clocks and floor of the step.

        Returns:
            New entries, one for each key whose row, sequence or tombstone changed.
        """
        own_changes = changes.select(self.changes.names)
        own_state = state.select(self.schema.names)
        entries = self._usable(own_state, step)
        given_up = self.stops_waiting(entries, step)
        has_waited = given_up & is_waiting(entries)
        ranked = rank(own_changes, _unlinked(entries, given_up), self, step)
        rows = choose(ranked)
        filled = fill(ranked, rows)
        written = write(ranked, rows, filled, step)
        counts = Counter(changes=len(changes), waiting_expired=int(has_waited.sum()))
        counts["superseded_newer"] = n_newer_superseded(ranked, rows, step)
        counts["created_over_rows"] = n_created_over_rows(ranked, rows)
        counts["late_deletes"] = n_late_deletes(ranked, rows)
        counts.update(rows.counts)
        counts.update(written.metrics)
        return Reconciled(written.entries, counts)

    def altered(self, entries: pa.Table, change: SchemaChange, fills: Mapping[str, pa.Scalar]) -> pa.Table:
        """See `Operator`."""
        return altered_entries(entries, self.schema, change, fills)

    def expire(
        self,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Drop expired tombstones, and the expired links of rows that wait for a value; the sink keeps its rows.

        Args:
            state: Every stored version of some keys' entries.
            step: Number and clocks of the tick.
        """
        entries = live_entries(state, self.schema, self.entry_key)
        is_expired = self.has_expired(entries, step)
        expired = entries.filter(pa.array(is_expired))
        is_given_up = self.stops_waiting(entries, step)
        given_up = entries.filter(pa.array(is_given_up))
        # An entry that removes another one needs only the key, its stamp and its cause.
        of_removal = [*self.key, "_stamp_ms", "_changed_by"]
        forgotten = {"_change", *LINK_COLUMNS}
        remembered = [name for name in self.schema.names if name not in forgotten]
        written = [
            self._written(expired, of_removal, step, is_removed=True),
            self._written(given_up, remembered, step, is_removed=False),
        ]
        n_waited = int(is_waiting(given_up).sum())
        metrics = Counter(expired=len(expired), waiting_expired=n_waited)
        return Reconciled(pa.concat_tables(written), metrics)

    def _usable(
        self,
        state: pa.Table,
        step: Step,
    ) -> pa.Table:
        """Return each key's newest entry, or the sink's row if that entry is removed or expired.

        The state keeps versions: steps append, and the version of the greatest step counts. O(n log n).
        """
        codes = row_codes(state, self.key)
        steps = ints(state, "_step")
        is_sink_row = steps == SINK_STEP
        stored = np.flatnonzero(~is_sink_row)
        latest = newest(codes[stored], steps[stored])
        newest_stored = stored[latest]
        entries = state.select(LIFE_COLUMNS).take(newest_stored)  # taking rows is slow with many columns
        is_over = flags(entries, "_removed") | self.has_expired(entries, step)
        readable = newest_stored[~is_over]
        # A row of the sink is used only where the state has no entry of its key.
        sink_rows = np.flatnonzero(is_sink_row)
        has_entry = np.isin(codes[sink_rows], codes[readable])
        of_sink = sink_rows[~has_entry]
        return state.take(np.concatenate([readable, of_sink]))

    def _written(
        self,
        entries: pa.Table,
        names: Iterable[str],
        step: Step,
        *,
        is_removed: bool,
    ) -> pa.Table:
        """Return new versions of entries with some of their columns."""
        n = len(entries)
        columns: dict[str, object] = {name: entries[name] for name in names}
        columns["_step"] = np.full(n, step.number)
        columns["_removed"] = np.full(n, is_removed)
        return entry_table(self.schema, columns, n)


def _unlinked(entries: pa.Table, marked: np.ndarray) -> pa.Table:
    """Remove the links of marked entries."""
    if not marked.any():
        return entries
    rows = np.arange(len(entries))
    unless_marked = pa.array(rows, mask=marked)
    for name in LINK_COLUMNS:
        entries = with_column(entries, name, entries[name].take(unless_marked))
    return entries
