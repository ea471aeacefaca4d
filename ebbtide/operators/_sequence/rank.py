"""First phase: the events of a step as integers. The events are the usable entries, then the changes.

Entries and changes hold several sequences each: their own, those from which values are known, and those of key changes. All are
ranked together, so that any two compare (`ebbtide.changelog._sequences.rank_sequences`). Keys become dense codes. `UNKNOWN` is
below every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import UNKNOWN, RowKind, SequenceColumns, rank_sequences
from ebbtide.columns import Codes, Long, Mask, count_codes, equals, flags, ints, is_set, only, row_codes
from ebbtide.entries import Step
from ebbtide.operators._arriving import in_arrival_order
from ebbtide.operators._sequence.links import Link, StoredLinks, in_one_piece
from ebbtide.operators._sequence.ops import OP_SNAPSHOT, OP_UPSERT
from ebbtide.operators._sequence.rules import LINK_COLUMNS, SequenceRules
from ebbtide.operators._sequence.ties import as_changes


@dataclass(frozen=True)
class Scale:
    """All sequences of a step, in order.

    Args:
        sequences: The sequence of each rank.
        floor: Rank of the floor; `UNKNOWN` if there is none.
        in_log: The sequences are positions in the source's log.
    """

    sequences: pa.StructArray
    floor: int
    in_log: bool = True

    @cached_property
    def snapshot_ranks(self) -> int:
        """Number of ranks of snapshot rows without a position in the log: they are the lowest ranks."""
        if not self.in_log:
            return 0
        positions = pc.struct_field(self.sequences, 0)
        is_before_log = positions.to_numpy(zero_copy_only=False) < 0
        return int(is_before_log.sum())

    def read_ms(self, rank: int) -> int | None:
        """Return when a snapshot row without a position was read, epoch ms, by its rank; None for all other ranks."""
        if not 0 <= rank < self.snapshot_ranks:
            return None
        [first, *_] = self.sequences[rank].as_py().values()
        return (int(first) - Long.MIN) or None  # 0: the source gave no time

    def sequence(self, rank: int) -> dict[str, Any] | None:
        """Return the sequence of a rank; None for `UNKNOWN`."""
        if rank == UNKNOWN:
            return None
        return dict(self.sequences[rank].as_py())

    def take(self, ranks: Codes) -> pa.StructArray:
        """Return the sequences of ranks; null for `UNKNOWN`."""
        return self.sequences.take(pa.array(ranks, mask=ranks == UNKNOWN))


@dataclass(frozen=True)
class Stored:
    """Columns of the usable entries other than the user's, as ranks and codes.

    Args:
        base: (entries,) rank of the newest delete below each row.
        since: (entries,) rank of the sequence at which each row got its key.
        known_since: Column to (entries,) rank from which its value is known; only columns with a value older than its row.
        links: Linked entry to its link.
        kept_rows: The rows of `KeptRow.carriers`; their indices follow the last event.
        old_codes: (key changes,) codes of the old keys in entries and changes; `UNKNOWN` if a row is cut off.
        old_keys: (key changes,) the old keys.
        other_key: Change to the code of the key that its row had before, or has after its delete.
        n_lost: Number of rows that lost a tie with an entry; they are the first changes.
    """

    base: Codes
    since: Codes
    known_since: Mapping[str, Codes]
    links: Mapping[int, Link]
    kept_rows: pa.StructArray
    old_codes: Codes
    old_keys: pa.StructArray
    other_key: Mapping[int, int]
    n_lost: int


@dataclass(frozen=True)
class Ranked:
    """The events of a step: its usable entries, then the rows that lost a tie with them, then its changes in order of arrival.

    Args:
        entries: One per key, none below the floor.
        changes: The rows that lost a tie, and the changes.
        rules: Settings of the pipeline.
        key: (n,) code of each event's key.
        sequence: (n,) rank of its sequence.
        operation: (n,) rank of its operation.
        is_delete: (n,) deletes, retractions and tombstones.
        unsent: Column to (n,) events that did not carry its value.
        stored: Columns of the entries other than the user's.
        scale: The sequences of the ranks.
    """

    entries: pa.Table
    changes: pa.Table
    rules: SequenceRules
    key: Codes
    sequence: Codes
    operation: Codes
    is_delete: Mask
    unsent: Mapping[str, Mask]
    stored: Stored
    scale: Scale

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.key)

    @property
    def n_entries(self) -> int:
        """Number of events that are entries."""
        return len(self.entries)

    @property
    def n_stored(self) -> int:
        """Number of events that were stored before this step."""
        return self.n_entries + self.stored.n_lost

    @cached_property
    def n_keys(self) -> int:
        """Number of codes in `key` and among the old keys."""
        return max(count_codes(self.key), count_codes(self.stored.old_codes))

    @property
    def is_retraction(self) -> Mask:
        """Mark the events that retract a row by its content: they rank as the upsert that they retract."""
        return np.asarray(self.is_delete & (self.operation == OP_UPSERT))

    @cached_property
    def is_dead(self) -> Mask:
        """Mark the changes below the floor; no entry is below it."""
        return np.asarray(self.sequence < self.scale.floor)

    @cached_property
    def event_ms(self) -> list[int | None]:
        """Commit time of each change, epoch ms; None if unknown, or if a user's column gives the event times."""
        if self.rules.allowed_delay_ms is None:
            return [None] * len(self.changes)
        times = ints(self.changes, "_event_ms", null=0).tolist()
        return [event_ms if event_ms > 0 else None for event_ms in times]  # a source's time is never 0

    @cached_property
    def starts_row(self) -> Mask:
        """Mark creates, and updates that changed the key."""
        n = self.n_entries
        is_create = equals(self.changes, "_op", "c")
        is_delete = self.is_delete[n:]
        is_key_change = is_set(self.changes, "_moved_from") & ~is_delete
        entry_starts = np.zeros(n, bool)
        return np.concatenate([entry_starts, is_create | is_key_change])

    @cached_property
    def entry_of(self) -> Codes:
        """The entry of each key, or `UNKNOWN`."""
        n = self.n_entries
        entry_keys = self.key[:n]
        entry_of = np.full(self.n_keys, UNKNOWN)
        entry_of[entry_keys] = np.arange(n)
        return entry_of

    def of_entry(
        self,
        values: Any,
        key: Codes,
        otherwise: Any,
    ) -> Any:
        """Look up values of entries by key.

        Args:
            values: (entries,) the values.
            key: (m,) codes of keys.
            otherwise: The value for keys without an entry.
        """
        # `UNKNOWN` is -1: for a key without an entry it reads the last place.
        with_none = np.append(values, otherwise)
        return with_none[self.entry_of[key]]

    @cached_property
    def partly_known(self) -> list[str]:
        """Columns that some event does not carry, or whose value in some entry is older than its row."""
        return sorted({*self.unsent, *self.stored.known_since})

    @cached_property
    def rows(self) -> pa.Table:
        """The user's columns of all events, followed by those of the kept rows."""
        kept_rows = self.stored.kept_rows
        names = kept_rows.type.names
        kept_columns = {name: pc.struct_field(kept_rows, name) for name in names}
        tables = [
            self.entries.select(names),
            self.changes.select(names),
            pa.table(kept_columns),
        ]
        return pa.concat_tables(tables).combine_chunks()


def rank(
    changes: pa.Table,
    entries: pa.Table,
    rules: SequenceRules,
    step: Step,
) -> Ranked:
    """Rank the events of a step. O(n log n) in entries and changes.

    Args:
        changes: Changes of some keys.
        entries: The readable entries of these keys, one per key.
        rules: Settings of the pipeline.
        step: Number, clocks and floor of the step.
    """
    lost = as_changes(entries, changes.schema)
    changes = pa.concat_tables([lost, in_arrival_order(changes)])

    # Links are nested lists and slow to read. Few entries have any, so only those are read.
    is_linked = is_set(entries, "_moved_from") | is_set(entries, "_kept")
    linked = np.flatnonzero(is_linked)
    links = StoredLinks.of(entries.select(LINK_COLUMNS).take(linked), changes)
    known = in_one_piece(entries["_columns"])
    stored_sequences = in_one_piece(entries["_sequence"])
    # One ranking over every sequence that occurs, the floor included: ranks from two rankings would not compare.
    own_sequences = [
        _floor(step.floor, rules.sequence_type),
        SequenceColumns.without_op(stored_sequences),
        in_one_piece(changes["_sequence"]),
        in_one_piece(entries["_base"]),
        in_one_piece(entries["_since"]),
        known.items,
    ]
    ranks, sequences = rank_sequences([*own_sequences, *links.sequences])
    floor, of_entries, of_changes, base, since, known_at, *of_links = ranks

    # The floor: a TRUNCATE deleted everything below it. Entries below are left out; changes below stay, to be counted.
    is_usable = of_entries >= floor[0]
    usable = np.flatnonzero(is_usable)
    used = only(entries, pa.array(is_usable))
    key, old_codes = _key_codes(used, changes, links.old_keys, rules.key)
    own = of_entries[usable]
    known_since = _known_since(known, known_at, of_entries, is_usable)
    _settle(known_since, used, own, since[usable])
    is_delete, operation = _operations(used, changes, rules)
    is_deleted = flags(entries, "_tombstone")
    links_of_linked = links.read(
        ranks=[array.tolist() for array in of_links],
        old_codes=old_codes.tolist(),
        is_deleted=is_deleted[linked].tolist(),
        deleted_at=base[linked].tolist(),
        first_kept=len(key),
    )
    # Links are indexed by entry; without the unusable entries, each usable one has a lower index.
    index_of = np.cumsum(is_usable) - 1
    links_of = {}
    for entry, link in zip(linked.tolist(), links_of_linked, strict=True):
        if is_usable[entry]:
            index = int(index_of[entry])
            links_of[index] = link
    moved_of_changes = links.moved[len(linked) :]
    stored = Stored(
        base=base[usable],
        since=since[usable],
        known_since=known_since,
        links=links_of,
        kept_rows=pc.struct_field(links.kept, "row"),
        old_codes=old_codes,
        old_keys=links.old_keys,
        other_key=_other_keys(moved_of_changes, old_codes, first_event=len(used)),
        n_lost=len(lost),
    )
    return Ranked(
        entries=used,
        changes=changes,
        rules=rules,
        key=key,
        sequence=np.concatenate([own, of_changes]),
        operation=operation,
        is_delete=is_delete,
        unsent=_unsent(changes, len(used)),
        stored=stored,
        scale=Scale(sequences, floor[0], rules.in_log),
    )


def _floor(floor: tuple[int, ...] | None, type_: pa.StructType) -> pa.StructArray:
    """Return the floor as an array of one sequence, null if there is none."""
    if not floor:
        return pa.nulls(1, type_)
    names = [field.name for field in type_]
    parts = zip(names, floor, strict=True)
    sequence = dict(parts)
    return pa.array([sequence], type_)


def _key_codes(
    entries: pa.Table, changes: pa.Table, old_keys: pa.StructArray, key: Sequence[str]
) -> tuple[Codes, Codes]:
    """Number the keys of all events together with the old keys that they name."""
    named = {name: pc.struct_field(old_keys, name) for name in key}
    tables = [
        entries.select(key),
        changes.select(key),
        pa.table(named),
    ]
    codes = row_codes(pa.concat_tables(tables), key)
    n_events = len(entries) + len(changes)
    own, old = np.split(codes, [n_events])
    is_cut_off = old_keys.is_null().to_numpy(zero_copy_only=False)
    return own, np.where(is_cut_off, UNKNOWN, old)


def _operations(
    entries: pa.Table,
    changes: pa.Table,
    rules: SequenceRules,
) -> tuple[Mask, Codes]:
    """Mark the events that remove a row, and rank the operation of each event."""
    delete_kinds = pa.array([RowKind.UPDATE_BEFORE, RowKind.DELETE])
    deletes = pc.is_in(changes["_kind"], delete_kinds).to_numpy()
    # In a log, -U is the delete under an old key. In a user's changelog it retracts its row, if it carries the whole row.
    is_update_before = equals(changes, "_op", RowKind.UPDATE_BEFORE)
    is_whole = ~is_set(changes, "_unavailable")
    retracts = deletes & is_update_before & is_whole & (not rules.in_log)
    is_snapshot = equals(changes, "_op", "r") & rules.in_log
    upsert_ranks = np.where(is_snapshot, OP_SNAPSHOT, OP_UPSERT)
    # A retraction has the rank of the upsert that it retracts: they tie, and their contents are compared.
    delete_ranks = np.where(retracts, OP_UPSERT, rules.delete_rank)
    ranks = np.where(deletes, delete_ranks, upsert_ranks)
    stored_deletes = flags(entries, "_tombstone")
    stored_ranks = ints(entries, "_sequence.op")
    return np.concatenate([stored_deletes, deletes]), np.concatenate([stored_ranks, ranks])


def _unsent(changes: pa.Table, n_entries: int) -> dict[str, Mask]:
    """Map column to (n,) events that did not carry its value. O(n) for each such column."""
    lists = in_one_piece(changes["_unavailable"])
    names = pc.list_flatten(lists).dictionary_encode()
    events = n_entries + pc.list_parent_indices(lists).to_numpy()
    # By numbers of the distinct names: no text is compared per change.
    columns = names.indices.to_numpy()
    unsent: dict[str, Mask] = {}
    for number, name in enumerate(names.dictionary.to_pylist()):
        is_named = columns == number
        is_unsent = np.zeros(n_entries + len(changes), bool)
        is_unsent[events[is_named]] = True
        unsent[name] = is_unsent
    return unsent


def _known_since(
    known: pa.MapArray,
    known_at: Codes,
    own: Codes,
    is_usable: Mask,
) -> dict[str, Codes]:
    """Map column to (usable entries,) rank from which its value is known: the row's rank unless `_columns` has another.

    Args:
        known: (entries,) `_columns`.
        known_at: Ranks of the sequences in `_columns`.
        own: (entries,) ranks of the rows.
        is_usable: (entries,) true for the usable entries.
    """
    lengths = np.diff(known.offsets.to_numpy())
    entry_of_item = np.repeat(np.arange(len(known)), lengths)
    items = np.flatnonzero(is_usable[entry_of_item])
    names = known.keys.take(pa.array(items)).dictionary_encode()
    # One pass over the items for each column that is named anywhere; such columns are few.
    columns = names.indices.to_numpy()
    since: dict[str, Codes] = {}
    for number, name in enumerate(names.dictionary.to_pylist()):
        named = items[columns == number]
        ranks = own.copy()
        ranks[entry_of_item[named]] = known_at[named]
        since[name] = ranks[is_usable]
    return since


def _settle(
    known_since: Mapping[str, Codes],
    entries: pa.Table,
    own: Codes,
    since: Codes,
) -> None:
    """Give values from an old key the row's rank if the row is no longer linked to that key: deletes there do not affect them."""
    is_unlinked = ~is_set(entries, "_moved_from")
    for name, ranks in known_since.items():
        is_unknown = ranks == UNKNOWN
        is_found = is_unknown & is_set(entries, name)
        is_of_old_key = ~is_unknown & (ranks < since)
        settles = is_unlinked & (is_found | is_of_old_key)
        ranks[settles] = own[settles]


def _other_keys(
    moved: pa.ListArray,
    old_codes: Codes,
    first_event: int,
) -> dict[int, int]:
    """Map each key change to the code of the key that it names.

    Args:
        moved: (changes,) `_moved_from`.
        old_codes: Codes of all items of the array that `moved` is a slice of.
        first_event: Index of the first change.
    """
    is_key_change = moved.is_valid().to_numpy(zero_copy_only=False)
    changes = np.flatnonzero(is_key_change)
    # A change names one key: its list has one item, found by the offset of the list.
    items = moved.offsets.to_numpy()[changes]
    events = first_event + changes
    codes = old_codes[items]
    pairs = zip(events.tolist(), codes.tolist(), strict=True)
    return dict(pairs)
