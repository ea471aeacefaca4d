"""Settings of sequence mode, and the columns and expiry rules that follow from them.

The state has one entry per key (the newest `_step` counts), with the columns of `ebbtide.entries._entry` and these:

| column | meaning |
|---|---|
| the user's columns | the row; for a tombstone only the key |
| `_sequence` | the row's sequence, and the rank of the operation (`op`), see `ebbtide.changelog._sequences` |
| `_columns` | values older than the row: column -> sequence from which the value is known; null if no value is known, or if a \
newer one may still be found under an old key; a sequence before `_since` comes from an old key |
| `_base` | sequence of the newest delete below the row; no older value may fill the row; null if there is none |
| `_since` | sequence at which the row got its key, by a create or a key change; null if unknown |
| `_moved_from` | the row's key changes since its oldest value is known, newest first; all of them while \
it waits for a value; then those of the kept rows; the old key is null if the row is cut off from its earlier values; see \
`ebbtide.operators._sequence.log` |
| `_kept` | the last former row of the key, which waits for a key change: its end, its known values and their ranks, \
whether it left by a delete, the number of its items in `_moved_from`, and its start |
| `_kept_before` | earlier rows of this kind |
| `_moved_ms` | commit times of the items of `_moved_from`, epoch ms, as the source gives them |
| `_retracted` | digests of the contents retracted at the row's sequence; in a log, of those that preceded it there, see \
`ebbtide.operators._sequence.places` |
| `_tied` | the losing contents at the row's sequence, as rows: one of them becomes the row if the winner is retracted; see \
`ebbtide.operators._sequence.tied_rows` |
| `_conflict` | the sequence does not determine which of several contents is the row; for a key without a row: whether one of the \
retracted contents was added again |
| `_tombstone` | the key is deleted; kept so that late changes cannot bring it back |

With a transform also the columns of `ebbtide.operators._selection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from ebbtide.changelog import SequenceColumns, changelog_schema
from ebbtide.columns import Mask, flags, ints, is_set
from ebbtide.entries import ENTRY_COLUMNS, Step
from ebbtide.keyed_state import StateTtlConfig
from ebbtide.operators._expiry import ExpiryRules
from ebbtide.operators._selection import KeyNames, selected_fields
from ebbtide.operators._sequence.ops import OP_DELETE, OP_FINAL_DELETE

LINK_COLUMNS = ("_moved_from", "_kept", "_kept_before", "_moved_ms")
"""Columns that link an entry's row to its former keys, or to former rows of its key."""
LIFE_COLUMNS = ("_removed", "_stamp_ms", "_tombstone")
"""Columns that decide whether an entry is read: not if it was removed or has expired."""
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
    """Settings of a pipeline that reconciles by sequence.

    Args:
        columns: The user's columns, in order.
        key: Names of the key's columns, none of them nullable.
        sequence: One or more columns that order a key's changes, compared in this order.
        ttl: Time to live of tombstones (and of live entries with `expire_live`); None keeps them forever.
        output: The sink's columns if a transform selects them from the decided rows; None: the user's columns.
        output_key: The key of a sink with a transform.
        allowed_delay_ms: How far event times of one key may contradict its sequences; None: a user's column gives the
            event times.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    ttl: StateTtlConfig | None = None
    output: pa.Schema | None = None
    output_key: KeyNames = ()
    allowed_delay_ms: int | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        user_fields = [field.with_nullable(True) for field in self.columns]
        row = pa.struct(user_fields)
        of_sequence = self.sequence_columns
        sequence = of_sequence.type
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
            of_sequence.stored_type,
            pa.map_(pa.string(), sequence),
            sequence,
            sequence,
            of_sequence.key_changes_type(self.key),
            kept,
            pa.list_(kept),
            pa.list_(pa.int64()),
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
    def sequence_columns(self) -> SequenceColumns:
        """The sequence with the types of its columns."""
        return SequenceColumns(self.sequence, self.columns)

    @property
    def sequence_type(self) -> pa.StructType:
        """The struct that holds a sequence."""
        return self.sequence_columns.type

    @property
    def in_log(self) -> bool:
        """Return whether the source's log orders changes, rather than a column of the user's."""
        return self.sequence_columns.are_positions

    @property
    def delete_rank(self) -> int:
        """The rank of a delete's operation."""
        return OP_DELETE if self.in_log else OP_FINAL_DELETE

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that identify an entry."""
        return self.key

    @property
    def has_named_states(self) -> bool:
        """Return False: there is one state, without a name."""
        return False

    @property
    def expires_live(self) -> bool:
        """Return whether rows expire too, and not only tombstones and links."""
        return self.ttl is not None and self.ttl.expire_live

    @property
    def expiry(self) -> ExpiryRules:
        """Tombstones and links expire; rows too with `expire_live`.

        Without it, a tick must act on an expired link: the row stays and no longer waits.
        """
        ttls: dict[str | None, StateTtlConfig] = {}
        if self.ttl is not None:
            ttls[None] = self.ttl
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
        """Mark the entries that must no longer be read."""
        is_past = step.has_expired(ints(entries, "_stamp_ms"), self.ttl)
        if self.expires_live:
            return is_past
        return is_past & flags(entries, "_tombstone")

    def stops_waiting(
        self,
        entries: pa.Table,
        step: Step,
    ) -> Mask:
        """Mark the rows whose links to other keys have expired: they no longer wait for a value."""
        if self.expires_live:  # then the row itself expires
            return np.zeros(len(entries), bool)
        is_past = step.has_expired(ints(entries, "_stamp_ms"), self.ttl)
        is_linked = is_set(entries, "_moved_from") | is_set(entries, "_kept")
        is_row = ~flags(entries, "_tombstone")
        marked: Mask = is_past & is_linked & is_row
        return marked
