"""Sequence mode: per key the change with the greatest sequence wins, in whatever order changes arrive.

State, one entry per key (the newest `_step` counts), beside the columns of `ebbtide.model.entries`:

| column | meaning |
|---|---|
| the user's columns | the row; of a tombstone only the key |
| `_sequence` | the row's sequence, and the rank of the operation (`op`), see `ebbtide.model.sequences` |
| `_columns` | where a value is older than the row: column -> sequence at which it was last known, null if it never was, or if a \
newer one may yet be found under an old key; from before `_since`: it is known from under an old key |
| `_base` | sequence of the newest delete below the row: no value from before it may fill the row; null if none |
| `_since` | sequence since when the row has its key, by a create or a change of the key; null if that is not known |
| `_moved_from` | the changes of the key that a row went through since its oldest value is known, newest first, all while it waits for \
a value; behind them those of the rows that are kept; the old key is null where the row is cut off from its earlier values; see `ebbtide.operators.sequence.key_changes` |
| `_kept` | the last row that had the key before, and that a change of the key has yet to take elsewhere: until when, the values \
known and since when, whether it left by a delete, how many of `_moved_from` are its own, and since when it had the key |
| `_kept_before` | more such rows, from before that one |
| `_retracted` | digests of the contents that retractions took back at the row's sequence |
| `_tied` | the other contents that are left at the row's sequence, as rows: one of them is the row if it is taken back; see \
`ebbtide.operators.sequence.tied_rows` |
| `_conflict` | the sequence does not tell which of several contents is the row, or, of a key without one, whether one of those that \
were taken back came once more |
| `_tombstone` | the key is deleted; kept so that late changes stay dead |

With a transform also the columns of `ebbtide.operators.selection`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ebbtide.model.changelog import changelog_schema
from ebbtide.model.entries import (
    ENTRY_COLUMNS,
    Reconciled,
    Step,
    entry_table,
    flags,
    has_expired,
    ints,
    is_set,
    live_entries,
)
from ebbtide.model.sequences import key_changes_type, sequence_type, stored_sequence_type
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.expiry import ExpiryRules
from ebbtide.operators.selection import KeyNames, selected_fields
from ebbtide.operators.sequence.entries import Decision
from ebbtide.operators.sequence.events import Events
from ebbtide.operators.sequence.links import waits
from ebbtide.operators.sequence.ties import Mask

SEQUENCE_COLUMNS = (
    "_sequence",
    "_columns",
    "_base",
    "_since",
    "_moved_from",
    "_kept",
    "_kept_before",
    "_retracted",
    "_tied",
    "_conflict",
    "_tombstone",
)


@dataclass(frozen=True)
class SequenceOperator:
    """Reconciles changes with their keys' state by sequence.

    Args:
        columns: The user's columns, in order.
        key: Names of the key's columns, none of them nullable.
        sequence: What orders a key's changes: one or more columns, compared in this order.
        ttl: Time to live of tombstones (and of live entries with `expire_live`); None keeps them forever.
        output: The sink's columns, where a transform selects them from the decided rows; None: they are the user's.
        output_key: Of such a sink the key.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    ttl: StateTtlConfig | None = None
    output: pa.Schema | None = None
    output_key: KeyNames = ()

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        user_fields = [field.with_nullable(True) for field in self.columns]
        row = pa.struct(user_fields)
        sequence = self.sequence_type
        kept = pa.struct(
            [
                ("sequence", sequence),
                ("until", sequence),
                ("known", pa.list_(pa.string())),
                ("row", row),
                ("since", pa.list_(sequence)),
                ("has_left", pa.bool_()),
                ("n_moved", pa.int32()),
                ("started", sequence),
            ]
        )
        types = (
            stored_sequence_type(self.columns, self.sequence),
            pa.map_(pa.string(), sequence),
            sequence,
            sequence,
            key_changes_type(self.columns, self.key, self.sequence),
            kept,
            pa.list_(kept),
            pa.list_(pa.int64()),
            pa.list_(row),
            pa.bool_(),
            pa.bool_(),
        )
        own_types = ENTRY_COLUMNS | dict(zip(SEQUENCE_COLUMNS, types, strict=True))
        own_fields = [pa.field(name, type_) for name, type_ in own_types.items()]
        return pa.schema([*user_fields, *own_fields, *selected_fields(self.output)])

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns, self.key, self.sequence)

    @property
    def sequence_type(self) -> pa.StructType:
        """The struct that holds a sequence."""
        return sequence_type(self.columns, self.sequence)

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that distinguish one entry from another."""
        return self.key

    @property
    def expiry(self) -> ExpiryRules:
        """Tombstones and waiting expire, and rows where these may.

        Where rows may not, a tick takes note that a row waits no longer, and the row stays.
        """
        ttls: dict[str | None, StateTtlConfig] = {} if self.ttl is None else {None: self.ttl}
        if self.expires_live:
            return ExpiryRules(ttls)
        return ExpiryRules(
            ttls,
            any_set=("_tombstone", "_moved_from", "_kept"),
            acted_on=(("_tombstone", False),),
        )

    @property
    def has_named_states(self) -> bool:
        """There is one state, without a name."""
        return False

    @property
    def expires_live(self) -> bool:
        """Whether rows expire too, not only tombstones and waiting."""
        return self.ttl is not None and self.ttl.expire_live

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Fold one step's changes into the state of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's, in any order.
            state: Every stored version of those keys' entries, in any order.
            step: Number, clocks and floor of the step.

        Returns:
            New entries, one for each key whose row, sequence or tombstone changed.
        """
        own_changes = changes.select(self.changes.names)
        own_state = state.select(self.schema.names)
        events = Events(
            operator=self,
            changes=own_changes,
            state=own_state,
            step=step,
        )
        return Decision(events).run()

    def expire(self, state: pa.Table, step: Step) -> Reconciled:
        """Drop the tombstones that have expired and end the waiting that has; the sink keeps its rows.

        Args:
            state: Every stored version of some keys' entries.
            step: Number and clocks of the tick.
        """
        entries = live_entries(state, self.schema, self.entry_key)
        expired = entries.filter(pa.array(self.has_expired(entries, step)))
        given_up = entries.filter(pa.array(self.stops_waiting(entries, step)))
        written = pa.concat_tables(
            [
                self._removals(expired, step),
                self._without_waiting(given_up, step),
            ]
        )
        n_waited = int(waits(given_up).sum())
        metrics = Counter(expired=len(expired), waiting_expired=n_waited)
        return Reconciled(written, metrics)

    def _removals(self, entries: pa.Table, step: Step) -> pa.Table:
        """Return the entries that remove others: of the row only the key."""
        n = len(entries)
        columns: dict[str, object] = {name: entries[name] for name in self.key}
        columns |= {
            "_step": np.full(n, step.number),
            "_removed": np.ones(n, bool),
            "_stamp_ms": entries["_stamp_ms"],
            "_changed_by": entries["_changed_by"],
        }
        return entry_table(self.schema, columns, n)

    def _without_waiting(self, entries: pa.Table, step: Step) -> pa.Table:
        n = len(entries)
        columns: dict[str, object] = {name: entries[name] for name in entries.column_names}
        columns |= {
            "_step": np.full(n, step.number),
            "_change": None,
            "_moved_from": None,
            "_kept": None,
            "_kept_before": None,
        }
        return entry_table(self.schema, columns, n)

    def has_expired(self, entries: pa.Table, step: Step) -> Mask:
        """Mark the entries that are not to be read any more."""
        is_past = has_expired(ints(entries, "_stamp_ms"), self.ttl, step)
        if self.expires_live:
            return is_past
        return is_past & flags(entries, "_tombstone")

    def stops_waiting(self, entries: pa.Table, step: Step) -> Mask:
        """Mark the rows that have waited for a value, or been linked to their old keys, as long as they may."""
        if self.expires_live:  # then the row itself expires
            return np.zeros(len(entries), bool)
        is_past = has_expired(ints(entries, "_stamp_ms"), self.ttl, step)
        is_linked = is_set(entries, "_moved_from") | is_set(entries, "_kept")
        is_tombstone = flags(entries, "_tombstone")
        marked: Mask = is_past & is_linked & ~is_tombstone
        return marked
