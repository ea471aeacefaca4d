"""The events that a step of sequence mode decides on: the usable entries, then the changes, in one order.

Sequences are compared as ranks (`ebbtide.model.sequences.rank_sequences`) and keys as dense codes, so that all that follows
works on integers. `UNKNOWN` is below every rank.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import RowKind, may_be_unsent
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import SINK_STEP, Step, flags, ints, newest, order_struct
from ebbtide.model.sequences import (
    OP_DELETE,
    OP_FINAL_DELETE,
    OP_SNAPSHOT,
    OP_UPSERT,
    UNKNOWN,
    is_log_position,
    rank_sequences,
    without_op,
)
from ebbtide.operators.key_changes import STORED
from ebbtide.operators.ties import Contents, Mask, Ties, compare

if TYPE_CHECKING:
    from ebbtide.operators.sequence import SequenceOperator


@dataclass(frozen=True)
class StoredLinks:
    """What entries and changes say of changed keys, as lists whose items stand behind one another.

    Args:
        moved: (entries,) `_moved_from`.
        kept: (entries,) `_kept`.
        changes: (changes,) `_moved_from`.
        row: (usable entries,) where each stands among these entries.
        moved_ranks: Rank of the sequence of each item of `moved`, then of `changes`.
        kept_ranks: The same of `kept`; `UNKNOWN` where there is none.
        kept_until: Rank of the sequence up to which each of `kept` had the key.
        old_keys: The old key of each item of `moved`, then of `changes`.
    """

    moved: pa.ListArray
    kept: pa.StructArray
    changes: pa.ListArray
    row: Codes
    moved_ranks: list[int]
    kept_ranks: list[int]
    kept_until: list[int]
    old_keys: pa.StructArray


class Events:
    """The events of one call of `SequenceOperator.apply`.

    Args:
        operator: What decides.
        changes: Changes of some keys.
        state: Every stored version of those keys' entries.
        at: The step.

    Attributes:
        order: The events that count, by (key, sequence, operation, digest), in whatever order they arrived.
        code: (n,) the key of each event.
        sequence: (n,) the rank of its sequence.
        rank: (n,) the rank of its operation.
        digest: (n,) what orders different contents at one sequence.
        arrival: (n,) its place in the step; `STORED` for entries.
        rows: (n,) the user's columns.
        unsent: Column to (n,) events that did not carry its value.
        known_since: Entry to column to the rank since when its value is known, where that is not the entry's own.
        entry_of: (keys,) the entry of each key.
    """

    def __init__(self, operator: SequenceOperator, changes: pa.Table, state: pa.Table, at: Step) -> None:
        self.op, self.at = operator, at
        self.metrics: Counter[str] = Counter(changes=len(changes))
        self.in_log = is_log_position(operator.sequence)
        self.changes = changes.take(np.lexsort(order_struct(changes).T[::-1]))
        self.state = self._usable(state)
        self._rank()
        self._number_keys()
        self._read_events()
        self._order()

    def _usable(self, state: pa.Table) -> pa.Table:
        """Pick each key's entry: the newest, unless removed or expired; else the sink's row."""
        codes = row_codes(state, self.op.key)
        steps = ints(state, "_step")
        stored = np.flatnonzero(steps != SINK_STEP)
        rows = stored[newest(codes[stored], steps[stored])]
        entries = state.take(rows)
        rows = rows[~flags(entries, "_removed") & ~self.op.has_expired(entries, self.at)]
        spare = np.flatnonzero(steps == SINK_STEP)
        rows = np.concatenate([rows, spare[~np.isin(codes[spare], codes[rows])]])
        usable = state.take(rows)
        ended = self.op.stops_waiting(usable, self.at)
        if ended.any():
            for name in ("_moved_from", "_kept"):
                kept = usable[name].take(pa.array(np.arange(len(usable)), mask=ended))
                usable = usable.set_column(usable.column_names.index(name), usable.schema.field(name), kept)
            self.metrics["waiting_expired"] += int(ended.sum())
        return usable

    def _rank(self) -> None:
        """Rank every sequence that this step meets; forget the entries below the floor."""
        type_, state = self.op.sequence_type, self.state
        floor = dict(zip(self.op.sequence, self.at.floor, strict=True)) if self.at.floor else None
        known, moved, kept = (whole(state[name]) for name in ("_columns", "_moved_from", "_kept"))
        key_changes = whole(self.changes["_moved_from"])
        met = {
            "floor": pa.array([floor], type_),
            "entries": without_op(whole(state["_sequence"]), type_),
            "changes": whole(self.changes["_sequence"]),
            "base": whole(state["_base"]),
            "since": whole(state["_since"]),
            "known": known.items,
            "moved": pc.struct_field(moved.values, "sequence"),
            "key_changes": pc.struct_field(key_changes.values, "sequence"),
            "kept": pc.struct_field(kept, "sequence"),
            "kept_until": pc.struct_field(kept, "until"),
        }
        found, self.sequences = rank_sequences(met.values())
        ranks = dict(zip(met, found, strict=True))
        [self.floor] = ranks["floor"].tolist()
        alive = np.flatnonzero(ranks["entries"] >= self.floor)
        self.state = state.take(pa.array(alive))
        self.n_state = len(alive)
        self.known_since = _known_since(known, ranks["known"].tolist(), alive)
        self.sequence = np.concatenate([ranks["entries"][alive], ranks["changes"]])
        self.stored_base, self.stored_since = ranks["base"][alive], ranks["since"][alive]
        old_keys = [pc.struct_field(items.values, "key") for items in (moved, key_changes)]
        self.links = StoredLinks(
            moved,
            kept,
            key_changes,
            alive,
            [*ranks["moved"].tolist(), *ranks["key_changes"].tolist()],
            ranks["kept"].tolist(),
            ranks["kept_until"].tolist(),
            pa.concat_arrays(old_keys),
        )

    def _number_keys(self) -> None:
        """Number the keys of all events, and the old keys of the changes of keys among them."""
        old_keys = pa.table({name: pc.struct_field(self.links.old_keys, name) for name in self.op.key})
        keys = pa.concat_tables([self.state.select(self.op.key), self.changes.select(self.op.key), old_keys])
        codes = row_codes(keys, self.op.key)
        n_events = self.n_state + len(self.changes)
        self.code, self.old_code = codes[:n_events], codes[n_events:].tolist()
        self.n_codes = int(codes.max(initial=-1)) + 1

    def _read_events(self) -> None:
        state, changes, n = self.state, self.changes, self.n_state
        kinds = changes["_kind"]
        deletes = pc.is_in(kinds, pa.array([RowKind.UPDATE_BEFORE, RowKind.DELETE])).to_numpy()
        # A -U of a log is the old key of a changed one; a changelog's own takes its row back.
        retracts = pc.equal(changes["_op"], RowKind.UPDATE_BEFORE).fill_null(False).to_numpy() & deletes
        whole = changes["_unavailable"].is_null().to_numpy()
        retracts &= whole & (not self.in_log)
        snapshots = pc.equal(changes["_op"], "r").fill_null(False).to_numpy()
        upsert = np.where(snapshots & self.in_log, OP_SNAPSHOT, OP_UPSERT)
        delete = np.where(retracts, OP_UPSERT, OP_DELETE if self.in_log else OP_FINAL_DELETE)
        self.is_delete = np.concatenate([flags(state, "_tombstone"), deletes])
        self.rank = np.concatenate([ints(state, "_sequence.op"), np.where(deletes, delete, upsert)])
        self.is_retraction = self.is_delete & (self.rank == OP_UPSERT)
        stored = state["_retracted"].to_pylist()
        self.stored_retracted = {entry: digests for entry, digests in enumerate(stored) if digests}
        self.arrival = np.arange(len(self.code)) - n
        self.arrival[:n] = STORED
        self.entry_of = np.full(self.n_codes, UNKNOWN)
        self.entry_of[self.code[:n]] = np.arange(n)
        names = self.op.columns.names
        self.rows = pa.concat_tables([state.select(names), changes.select(names)]).combine_chunks()
        self.unsent = _unsent(changes, n)
        self.dead = self.sequence < self.floor
        self.dead[:n] = False

    def _order(self) -> None:
        """Bring the events of each key into one order, whatever the order of their arrival; leave out what came again."""
        alive = np.flatnonzero(~self.dead)
        order = alive[sorted_by(alive, self.arrival, self.rank, self.sequence, self.code)]
        tied = same_as_before(order, self.code, self.sequence, self.rank)
        ties = self._ties(order, tied)
        self.digest, self.taken_back = ties.digest, ties.taken_back
        self.conflicting = np.zeros(len(self.code), dtype=bool)
        self.conflicting[ties.conflicting] = True
        if tied.any():
            by = (self._unsent_sets(), ties.digest, ties.weight, self.rank, self.sequence, self.code)
            order = alive[sorted_by(alive, self.arrival, *by)]
            again = same_as_before(order, *by)
        else:
            again = tied
        self.order = order[~again]
        place = np.zeros(len(self.code), np.int64)
        place[order] = np.arange(len(order))
        entry = self.entry_of[self.code[self.order]]
        superseded = (entry >= 0) & (place[self.order] < place[entry])
        self.metrics.update(
            below_floor=int(self.dead.sum()),
            duplicates=int(again.sum()),
            conflicts=ties.n_conflicts,
            superseded=int(superseded.sum()),
        )

    def _ties(self, order: Codes, tied: Mask) -> Ties:
        """Compare the upserts, and retractions, that share key, sequence and operation."""
        group = np.cumsum(~tied, dtype=np.int64)
        shared = tied.copy()
        shared[:-1] |= tied[1:]
        shared &= (self.rank[order] != OP_DELETE) & (self.rank[order] != OP_FINAL_DELETE)
        is_forgotten = self.is_retraction & (self.arrival == STORED)
        contents = Contents(self.rows, self._not_carried, self.is_retraction, self.stored_retracted, is_forgotten)
        return compare(order[shared], group[shared], contents)

    @cached_property
    def _not_carried(self) -> dict[str, Mask]:
        """Map column to (n,) events, entries too, that did not carry its value at their own sequence."""
        found = {name: mask.copy() for name, mask in self.unsent.items()}
        for i, since in self.known_since.items():
            for name, rank in since.items():
                if rank != self.sequence[i]:
                    found.setdefault(name, np.zeros(len(self.code), dtype=bool))[i] = True
        return found

    def _unsent_sets(self) -> Codes:
        """Number the sets of columns that events did not carry: of two that carry different values neither is the other again."""
        numbers = np.zeros(len(self.code), np.int64)
        for mask in self._not_carried.values():
            numbers = np.unique(numbers * 2 + mask, return_inverse=True)[1]
        return numbers

    @cached_property
    def base(self) -> Codes:
        """Give each key the rank of its newest delete, at least the floor."""
        base = np.full(self.n_codes, self.floor)
        np.maximum.at(base, self.code[: self.n_state], self.stored_base)
        removed = self.order[self.is_delete[self.order] & ~self.is_retraction[self.order]]
        np.maximum.at(base, self.code[removed], self.sequence[removed])
        return base

    @cached_property
    def since(self) -> Codes:
        """Give each key the rank of the sequence since when its row has it, `UNKNOWN` if that is not known."""
        since = np.full(self.n_codes, UNKNOWN)
        np.maximum.at(since, self.code[: self.n_state], self.stored_since)
        starts = self.order[self.starts_row[self.order]]
        np.maximum.at(since, self.code[starts], self.sequence[starts])
        return since

    @cached_property
    def starts_row(self) -> Mask:
        """Mark creates, and updates that gave a row its key."""
        creates = pc.equal(self.changes["_op"], "c").fill_null(False).to_numpy()
        moves = self.changes["_moved_from"].is_valid().to_numpy()
        return np.concatenate([np.zeros(self.n_state, bool), creates | moves])

    @cached_property
    def partly_known(self) -> list[str]:
        """Columns whose value some event does not carry, or some entry knows from before its own sequence."""
        stored = {name for since in self.known_since.values() for name in since}
        return sorted(stored | self.unsent.keys())

    @cached_property
    def may_be_unsent(self) -> list[str]:
        """Columns that a source may leave out of an update."""
        own = [f.name for f in self.op.columns if may_be_unsent(f.type) and f.name not in self.op.key]
        return sorted({*own, *self.partly_known})

    @cached_property
    def snapshot_ranks(self) -> int:
        """Ranks below this one are those of snapshot rows without a position in the log."""
        if self.op.sequence[0] != "_lsn":
            return 0
        return int((pc.struct_field(self.sequences, "_lsn").to_numpy(zero_copy_only=False) < 0).sum())

    def values(self, name: str) -> pa.ChunkedArray:
        """Return a column of all events, and of the rows kept behind them."""
        kept = self.links.kept
        if not len(kept):
            return self.rows[name]
        row = pc.struct_field(kept, "row")
        return pa.chunked_array([*self.rows[name].chunks, pc.struct_field(row, name)])

    def sequence_of(self, rank: int) -> dict[str, Any] | None:
        """Return the sequence of a rank; None for `UNKNOWN`."""
        return None if rank == UNKNOWN else dict(self.sequences[rank].as_py())

    def sequences_of(self, ranks: Codes) -> pa.Array:
        """Return the sequences of ranks; null for `UNKNOWN`."""
        return self.sequences.take(pa.array(ranks, mask=ranks == UNKNOWN))


def sorted_by(events: Codes, *by: Any) -> Codes:
    """Return the indices that sort events by columns, the last of them first."""
    return np.lexsort(tuple(column[events] for column in by))


def same_as_before(order: Codes, *columns: Any) -> Mask:
    """Mark the events of a sorted row that are equal to the one before in some columns."""
    same = np.zeros(len(order), dtype=bool)
    same[1:] = np.logical_and.reduce([c[order[1:]] == c[order[:-1]] for c in columns])
    return same


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece whose nested values start at 0."""
    return column.combine_chunks()


def _unsent(changes: pa.Table, n_state: int) -> dict[str, Mask]:
    """Map column to (n,) events that did not carry its value."""
    found: dict[str, Mask] = {}
    listed = changes["_unavailable"]
    for i in np.flatnonzero(listed.is_valid().to_numpy()).tolist():
        for name in listed[i].as_py():
            found.setdefault(name, np.zeros(n_state + len(changes), dtype=bool))[n_state + i] = True
    return found


def _known_since(columns: pa.MapArray, ranks: list[int], alive: Codes) -> dict[int, dict[str, int]]:
    """Map entry to column to the rank since when its value is known, `UNKNOWN` if it never was.

    Args:
        columns: The entries' `_columns`.
        ranks: Of all their sequences.
        alive: Which entries count, in their new order.
    """
    found: dict[int, dict[str, int]] = {}
    names, valid = columns.keys.to_pylist(), columns.is_valid().to_numpy(zero_copy_only=False)
    offsets = columns.offsets.to_numpy()
    for i, stored in enumerate(alive.tolist()):
        if valid[stored]:
            items = range(offsets[stored], offsets[stored + 1])
            found[i] = {names[at]: ranks[at] for at in items}
    return found
