"""First phase: the events of a step, the usable entries and then the changes, as integers.

Sequences stand in entries, in changes, and inside both: where a value was last known, where a row got its key. All are ranked
together, so that any two of them compare (`ebbtide.model.sequences.rank_sequences`); keys become dense codes. `UNKNOWN` is below
every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import RowKind
from ebbtide.model.codes import Codes, Mask, count_codes, row_codes
from ebbtide.model.entries import Step, equals, flags, ints, is_set, order_struct
from ebbtide.model.sequences import OP_SNAPSHOT, OP_UPSERT, UNKNOWN, rank_sequences, without_op
from ebbtide.operators.sequence.links import Link, StoredLinks, in_one_piece
from ebbtide.operators.sequence.rules import SequenceRules
from ebbtide.operators.sequence.ties import as_changes


@dataclass(frozen=True)
class Scale:
    """The sequences that a step meets, in order.

    Args:
        sequences: That of each rank.
        floor: Rank of the floor; `UNKNOWN` if there is none.
    """

    sequences: pa.StructArray
    floor: int

    @cached_property
    def snapshot_ranks(self) -> int:
        """Ranks below this one are those of snapshot rows without a position in the log."""
        [first, *_] = self.sequences.type
        if first.name != "_lsn":
            return 0
        positions = pc.struct_field(self.sequences, "_lsn")
        is_before_log = positions.to_numpy(zero_copy_only=False) < 0
        return int(is_before_log.sum())

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
    """What the usable entries hold beside their rows, as ranks and codes.

    Args:
        base: (entries,) rank of the newest delete below each row.
        since: (entries,) rank of the sequence since when each row has its key.
        known_since: Column to (entries,) rank since when its value is known, of columns of which some entry's is older than its row.
        links: Entry to its link, of those that are linked.
        kept_rows: The rows of `KeptRow.carriers` behind the last event.
        old_codes: (moves,) codes of the old keys that entries and changes name; `UNKNOWN` where a row is cut off from it.
        old_keys: (moves,) these keys.
        other_key: Change to the code of the key that its row had before, or has after its delete.
        n_lost: The first changes that are rows which lost a tie with an entry.
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
        stored: What the entries hold beside their rows.
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
        """Events that are entries."""
        return len(self.entries)

    @property
    def n_stored(self) -> int:
        """Events that were known before this step."""
        return self.n_entries + self.stored.n_lost

    @cached_property
    def n_keys(self) -> int:
        """Codes that may stand in `key` or among the old keys."""
        return max(count_codes(self.key), count_codes(self.stored.old_codes))

    @property
    def is_retraction(self) -> Mask:
        """Mark the events that take a row back by its content: they rank as the upsert that they take back."""
        return np.asarray(self.is_delete & (self.operation == OP_UPSERT))

    @cached_property
    def is_dead(self) -> Mask:
        """Mark the changes below the floor; of the entries none is."""
        return np.asarray(self.sequence < self.scale.floor)

    @cached_property
    def starts_row(self) -> Mask:
        """Mark creates, and updates that gave a row its key."""
        n = self.n_entries
        is_create = equals(self.changes, "_op", "c")
        is_delete = self.is_delete[n:]
        is_key_change = is_set(self.changes, "_moved_from") & ~is_delete
        entry_starts = np.zeros(n, bool)
        return np.concatenate([entry_starts, is_create | is_key_change])

    @cached_property
    def entry_of(self) -> Codes:
        """Give each key its entry; `UNKNOWN`: it has none."""
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
        """Give keys what their entries have.

        Args:
            values: (entries,) it.
            key: (m,) codes of keys.
            otherwise: What a key has that has no entry.
        """
        # A key without an entry has `UNKNOWN`, -1, which reads the last place.
        with_none = np.append(values, otherwise)
        return with_none[self.entry_of[key]]

    @cached_property
    def partly_known(self) -> list[str]:
        """Columns whose value some event does not carry, or some entry knows from before its own sequence."""
        return sorted({*self.unsent, *self.stored.known_since})

    @cached_property
    def rows(self) -> pa.Table:
        """The user's columns of all events, and behind them those of the rows that are kept."""
        names = self.stored.kept_rows.type.names
        kept = {name: pc.struct_field(self.stored.kept_rows, name) for name in names}
        tables = [
            self.entries.select(names),
            self.changes.select(names),
            pa.table(kept),
        ]
        return pa.concat_tables(tables).combine_chunks()


def rank(
    changes: pa.Table,
    entries: pa.Table,
    rules: SequenceRules,
    step: Step,
) -> Ranked:
    """Rank what a step decides on. O(n log n) in entries and changes.

    Args:
        changes: Of some keys.
        entries: Those of these keys that may be read, one per key.
        rules: Settings of the pipeline.
        step: Number, clocks and floor of the step.
    """
    orders = order_struct(changes)
    by_arrival = np.lexsort(orders.T[::-1])
    lost = as_changes(entries, changes.schema)
    changes = pa.concat_tables([lost, changes.take(by_arrival)])

    # Links are nested lists, and few entries have any: only theirs are taken apart.
    is_linked = is_set(entries, "_moved_from") | is_set(entries, "_kept")
    linked = np.flatnonzero(is_linked)
    links = StoredLinks.of(entries.take(linked), changes)
    known = in_one_piece(entries["_columns"])
    stored_sequences = in_one_piece(entries["_sequence"])
    own_sequences = [
        _floor(step.floor, rules.sequence_type),
        without_op(stored_sequences, rules.sequence_type),
        in_one_piece(changes["_sequence"]),
        in_one_piece(entries["_base"]),
        in_one_piece(entries["_since"]),
        known.items,
    ]
    ranks, sequences = rank_sequences([*own_sequences, *links.sequences])
    floor, of_entries, of_changes, base, since, known_at, *of_links = ranks

    # Entries below the floor are left out; changes below it stay, to be counted.
    is_usable = of_entries >= floor[0]
    usable = np.flatnonzero(is_usable)
    used = entries.take(pa.array(usable))
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
    # Links were read of all entries; each usable one has moved up by those that were left out before it.
    place_of = np.cumsum(is_usable) - 1
    links_of = {}
    for entry, link in zip(linked.tolist(), links_of_linked, strict=True):
        if is_usable[entry]:
            links_of[int(place_of[entry])] = link
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
        scale=Scale(sequences, floor[0]),
    )


def _floor(floor: tuple[int, ...] | None, type_: pa.StructType) -> pa.StructArray:
    """Return the floor as an array of one sequence, null if there is none."""
    if not floor:
        return pa.nulls(1, type_)
    names = [field.name for field in type_]
    sequence = dict(zip(names, floor, strict=True))
    return pa.array([sequence], type_)


def _key_codes(
    entries: pa.Table, changes: pa.Table, old_keys: pa.StructArray, key: Sequence[str]
) -> tuple[Codes, Codes]:
    """Number the keys of all events, and the old keys that they name, though no event may stand under these."""
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
    """Mark the events that remove a row, and rank each one's operation."""
    delete_kinds = pa.array([RowKind.UPDATE_BEFORE, RowKind.DELETE])
    deletes = pc.is_in(changes["_kind"], delete_kinds).to_numpy()
    # A -U of a log is the old key of a changed one; a changelog's own takes its row back, if that is whole.
    is_update_before = equals(changes, "_op", RowKind.UPDATE_BEFORE)
    is_whole = ~is_set(changes, "_unavailable")
    retracts = deletes & is_update_before & is_whole & (not rules.in_log)
    is_snapshot = equals(changes, "_op", "r") & rules.in_log
    upsert_ranks = np.where(is_snapshot, OP_SNAPSHOT, OP_UPSERT)
    # A retraction ranks as the upsert that it takes back: they tie, and their contents are compared.
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
    """Map column to (usable entries,) rank since when its value is known: the row's own, unless `_columns` names another.

    Args:
        known: (entries,) `_columns`.
        known_at: Ranks of all their sequences.
        own: (entries,) ranks of the rows.
        is_usable: (entries,) those that are left.
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
    """Take values that were found under an old key to which no row is linked any more for their rows' own."""
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
    """Map each change of the key to the code of the key that it names.

    Args:
        moved: (changes,) `_moved_from`.
        old_codes: Of all items that this is a part of.
        first_event: The first change.
    """
    changes = np.flatnonzero(moved.is_valid().to_numpy(zero_copy_only=False))
    named = moved.offsets.to_numpy()[changes]
    return dict(zip((first_event + changes).tolist(), old_codes[named].tolist(), strict=True))
