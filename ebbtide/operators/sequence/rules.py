"""Settings of sequence mode, and what follows from them: the columns of entries and changes, and when entries expire.

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
a value; behind them those of the rows that are kept; the old key is null where the row is cut off from its earlier values; see \
`ebbtide.operators.sequence.log` |
| `_kept` | the last row that had the key before, and that a change of the key has yet to take elsewhere: until when, the values \
known and since when, whether it left by a delete, how many of `_moved_from` are its own, and since when it had the key |
| `_kept_before` | more such rows, from before that one |
| `_retracted` | digests of the contents that retractions took back at the row's sequence |
| `_tied` | the other contents that are left at the row's sequence, as rows: one of them is the row if it is taken back; see \
`ebbtide.operators.sequence.tied_rows` |
| `_conflict` | the sequence does not determine which of several contents is the row, or, of a key without one, whether one of those \
that were taken back came once more |
| `_tombstone` | the key is deleted; kept so that late changes stay dead |

With a transform also the columns of `ebbtide.operators.selection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ebbtide.model.changelog import changelog_schema
from ebbtide.model.codes import Mask
from ebbtide.model.entries import ENTRY_COLUMNS, Step, flags, has_expired, ints, is_set
from ebbtide.model.sequences import (
    OP_DELETE,
    OP_FINAL_DELETE,
    is_log_position,
    key_changes_type,
    sequence_type,
    stored_sequence_type,
)
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.expiry import ExpiryRules
from ebbtide.operators.selection import KeyNames, selected_fields

LINK_COLUMNS = ("_moved_from", "_kept", "_kept_before")
"""What links an entry's row to the keys that it had, or to the rows that had its key."""
SEQUENCE_COLUMNS = (
    "_sequence",
    "_columns",
    "_base",
    "_since",
    *LINK_COLUMNS,
    "_retracted",
    "_tied",
    "_conflict",
    "_tombstone",
)


@dataclass(frozen=True)
class SequenceRules:
    """How a pipeline reconciles by sequence.

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
        return pa.schema([*user_fields, *pa.schema(own_types), *selected_fields(self.output)])

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns, self.key, self.sequence)

    @property
    def sequence_type(self) -> pa.StructType:
        """The struct that holds a sequence."""
        return sequence_type(self.columns, self.sequence)

    @property
    def in_log(self) -> bool:
        """Return whether a source's log orders changes, not a column of the user's."""
        return is_log_position(self.sequence)

    @property
    def delete_rank(self) -> int:
        """The rank of a delete's operation."""
        return OP_DELETE if self.in_log else OP_FINAL_DELETE

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that distinguish one entry from another."""
        return self.key

    @property
    def has_named_states(self) -> bool:
        """There is one state, without a name."""
        return False

    @property
    def expires_live(self) -> bool:
        """Return whether rows expire too, not only tombstones and waiting."""
        return self.ttl is not None and self.ttl.expire_live

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
            needs_tick=(("_tombstone", False),),
        )

    def has_expired(
        self,
        entries: pa.Table,
        step: Step,
    ) -> Mask:
        """Mark the entries that are not to be read any more."""
        is_past = has_expired(ints(entries, "_stamp_ms"), self.ttl, step)
        if self.expires_live:
            return is_past
        return is_past & flags(entries, "_tombstone")

    def stops_waiting(
        self,
        entries: pa.Table,
        step: Step,
    ) -> Mask:
        """Mark the rows that have waited for a value, or been linked to their old keys, as long as they may."""
        if self.expires_live:  # then the row itself expires
            return np.zeros(len(entries), bool)
        is_past = has_expired(ints(entries, "_stamp_ms"), self.ttl, step)
        is_linked = is_set(entries, "_moved_from") | is_set(entries, "_kept")
        marked: Mask = is_past & is_linked & ~flags(entries, "_tombstone")
        return marked
