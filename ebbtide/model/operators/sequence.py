"""Sequence mode: per key the change with the greatest sequence wins, in whatever order changes arrive.

State, one entry per key (the newest `_step` counts), beside the columns of `ebbtide.model.entries`:

| column | meaning |
|---|---|
| the user's columns | the row; of a tombstone only the key |
| `_sequence` | the row's sequence, and the rank of the operation (`op`), see `ebbtide.model.sequences` |
| `_columns` | where a value is older than the row: column -> sequence at which it was last known, null if it never was |
| `_base` | sequence of the newest delete below the row: no value from before it may fill the row; null if none |
| `_since` | sequence since when the row has its key, by a create or a change of the key; null if that is not known |
| `_moved_from` | of a row that waits for a value: the changes of the key that it went through, newest first, see \
`ebbtide.model.operators.key_changes` |
| `_kept` | rows that had the key before and are not known to have left, oldest first: until when, and the values known |
| `_retracted` | of a tombstone left by a retraction: the digest of the row that it took back |
| `_conflict` | another content stood at the row's sequence |
| `_tombstone` | the key is deleted; kept so that late changes stay dead |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import RowKind, changelog_schema, may_be_unsent
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import (
    DELETE,
    ENTRY_COLUMNS,
    INSERT,
    LONG_MIN,
    SINK_STEP,
    UPDATE,
    Reconciled,
    Step,
    current,
    entry_table,
    flags,
    has_expired,
    ints,
    last_of_group,
    newest,
    order_struct,
)
from ebbtide.model.operators.key_changes import STORED, Event, Kept, KeyChange, Played, chain, play
from ebbtide.model.operators.ties import NO_DIGEST, Contents, Mask, Ties, compare, digests
from ebbtide.model.sequences import (
    OP_DELETE,
    OP_FINAL_DELETE,
    OP_SNAPSHOT,
    OP_UPSERT,
    UNKNOWN,
    is_log_position,
    key_changes_type,
    rank_sequences,
    sequence_type,
    stored_sequence_type,
    without_op,
)
from ebbtide.model.ttl import StateTtlConfig, UpdateType

SEQUENCE_COLUMNS = (
    "_sequence",
    "_columns",
    "_base",
    "_since",
    "_moved_from",
    "_kept",
    "_retracted",
    "_conflict",
    "_tombstone",
)


@dataclass(frozen=True)
class Link:
    """How a key's row is linked to other rows, by ranks and codes.

    Args:
        moved_from: Changes of the key that a waiting row went through, newest first.
        kept: Rows that had the key before.
    """

    moved_from: tuple[KeyChange, ...] = ()
    kept: tuple[Kept, ...] = ()

    @property
    def places(self) -> tuple[Any, Any]:
        """What of it tells it from another."""
        moves = tuple((each.sequence, each.old_key) for each in self.moved_from)
        return moves, tuple((each.sequence, each.until) for each in self.kept)


@dataclass(frozen=True)
class SequenceOperator:
    """Reconciles changes with their keys' state by sequence.

    Args:
        columns: The user's columns, in order.
        key: Names of the key's columns, none of them nullable.
        sequence: What orders a key's changes: one or more columns, compared in this order.
        ttl: Time to live of tombstones (and of live entries with `expire_live`); None keeps them forever.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    ttl: StateTtlConfig | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        sequence = self.sequence_type
        row = pa.struct([f.with_nullable(True) for f in self.columns])
        kept = pa.struct([("sequence", sequence), ("until", sequence), ("known", pa.list_(pa.string())), ("row", row)])
        types = (
            stored_sequence_type(self.columns, self.sequence),
            pa.map_(pa.string(), sequence),
            sequence,
            sequence,
            key_changes_type(self.columns, self.key, self.sequence),
            pa.list_(kept),
            pa.int64(),
            pa.bool_(),
            pa.bool_(),
        )
        own = ENTRY_COLUMNS | dict(zip(SEQUENCE_COLUMNS, types, strict=True))
        fields = [f.with_nullable(True) for f in self.columns]
        return pa.schema([*fields, *(pa.field(name, type_) for name, type_ in own.items())])

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns, self.key, self.sequence)

    @property
    def sequence_type(self) -> pa.StructType:
        """The struct that holds a sequence."""
        return sequence_type(self.columns, self.sequence)

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that tell one entry from another."""
        return self.key

    @property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """Its only state's time to live, if it has one."""
        return {} if self.ttl is None else {None: self.ttl}

    @property
    def state_column(self) -> str:
        """The column that holds the name of the state: there is but one."""
        return "_entry"

    @property
    def unsettled(self) -> str | None:
        """Rows whose waiting has ended: the tick takes note of that, the row stays."""
        return None if self._expires_live else "NOT _tombstone"

    @property
    def mortal(self) -> str | None:
        """The entries that may expire: tombstones and waiting, unless live entries may too."""
        return None if self._expires_live else "_tombstone OR _moved_from IS NOT NULL OR _kept IS NOT NULL"

    @property
    def _expires_live(self) -> bool:
        return self.ttl is not None and self.ttl.expire_live

    def apply(self, changes: pa.Table, state: pa.Table, at: Step) -> Reconciled:
        """Fold one step's changes into the state of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's, in any order.
            state: Every stored version of those keys' entries, in any order.
            at: The step.

        Returns:
            New entries, one for each key whose row, sequence or tombstone changed.
        """
        return _Fold(self, changes.select(self.changes.names), state.select(self.schema.names), at).run()

    def expire(self, state: pa.Table, at: Step) -> Reconciled:
        """Drop the tombstones that have expired and end the waiting that has; the sink keeps its rows.

        Args:
            state: Every stored version of some keys' entries.
            at: The step.
        """
        entries = current(state, self.schema, self.identity)
        gone = entries.filter(pa.array(self.has_expired(entries, at)))
        waits = entries.filter(pa.array(self.stops_waiting(entries, at)))
        n = len(gone)
        fixed = {
            "_step": np.full(n, at.number),
            "_removed": np.ones(n, bool),
            "_stamp_ms": gone["_stamp_ms"],
            "_changed_by": gone["_changed_by"],
        }
        dropped = entry_table(self.schema, {name: gone[name] for name in self.key} | fixed, n)
        metrics = Counter(expired=n, waiting_expired=len(waits))
        return Reconciled(pa.concat_tables([dropped, self._without_waiting(waits, at)]), metrics)

    def _without_waiting(self, entries: pa.Table, at: Step) -> pa.Table:
        n = len(entries)
        columns: dict[str, object] = {name: entries[name] for name in entries.column_names}
        columns |= {"_step": np.full(n, at.number), "_change": None, "_moved_from": None, "_kept": None}
        return entry_table(self.schema, columns, n)

    def has_expired(self, entries: pa.Table, at: Step) -> Mask:
        """Mark the entries that are not to be read any more."""
        old = has_expired(ints(entries, "_stamp_ms"), self.ttl, at)
        return old if self._expires_live else old & flags(entries, "_tombstone")

    def stops_waiting(self, entries: pa.Table, at: Step) -> Mask:
        """Mark the rows that have waited for a value as long as they may."""
        old = has_expired(ints(entries, "_stamp_ms"), self.ttl, at)
        waits: Mask = pc.or_(entries["_moved_from"].is_valid(), entries["_kept"].is_valid()).to_numpy()
        stays = flags(entries, "_tombstone") | self._expires_live
        return old & waits & ~stays


class _Fold:
    """One call of `SequenceOperator.apply`: events are the usable entries, then the changes in order of arrival.

    Sequences are compared as ranks (`rank_sequences`); `UNKNOWN` is below all.
    """

    def __init__(self, operator: SequenceOperator, changes: pa.Table, state: pa.Table, at: Step) -> None:
        self.op, self.at = operator, at
        self.metrics: Counter[str] = Counter(changes=len(changes))
        self.in_log = is_log_position(operator.sequence)
        self.changes = changes.take(np.lexsort(order_struct(changes).T[::-1]))
        self.state = self._usable(state)
        self.n_state = len(self.state)
        self._rank()
        self._number_keys()
        self._read_events()
        self._order()

    def _usable(self, state: pa.Table) -> pa.Table:
        """Pick each key's entry: the newest, unless removed or expired; else the sink's row."""
        codes = row_codes(state, self.op.key) if len(state) else np.empty(0, np.int64)
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
        stored = without_op(_array(state["_sequence"]), type_)
        columns, moved, kept = (_array(state[name]) for name in ("_columns", "_moved_from", "_kept"))
        moves = _array(self.changes["_moved_from"])
        ranks, self.sequences = rank_sequences(
            [
                pa.array([floor], type_),
                stored,
                _array(self.changes["_sequence"]),
                _array(state["_base"]),
                columns.items,
                pc.struct_field(moved.values, "sequence"),
                pc.struct_field(moves.values, "sequence"),
                pc.struct_field(kept.values, "sequence"),
                pc.struct_field(kept.values, "until"),
                _array(state["_since"]),
            ]
        )
        [self.floor] = ranks[0].tolist()
        alive = np.flatnonzero(ranks[1] >= self.floor)
        self.known_since = _known_since(columns, ranks[4].tolist(), alive)
        self.state = state.take(pa.array(alive))
        self.sequence = np.concatenate([ranks[1][alive], ranks[2]])
        self.stored_base, self.stored_since = ranks[3][alive], ranks[9][alive]
        self.moved_ranks, self.kept_ranks = [*ranks[5].tolist(), *ranks[6].tolist()], ranks[7].tolist()
        self.kept_until = ranks[8].tolist()
        self.n_state = len(self.state)
        self._alive = alive
        self._nested = moved, moves, kept

    def _number_keys(self) -> None:
        """Number the keys of all events, and the old keys of the changes of keys among them."""
        moved, moves, _ = self._nested
        old = pa.concat_arrays([pc.struct_field(moved.values, "key"), pc.struct_field(moves.values, "key")])
        self.old_keys = old
        old_keys = pa.table({name: pc.struct_field(old, name) for name in self.op.key})
        keys = pa.concat_tables([self.state.select(self.op.key), self.changes.select(self.op.key), old_keys])
        codes = row_codes(keys, self.op.key) if len(keys) else np.empty(0, np.int64)
        n_events = len(self.state) + len(self.changes)
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
        self.is_retraction = np.concatenate([state["_retracted"].is_valid().to_numpy(), retracts])
        self.rank = np.concatenate([ints(state, "_sequence.op"), np.where(deletes, delete, upsert)])
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
        order = alive[self._sorted(alive, self.arrival, self.rank, self.sequence, self.code)]
        tied = self._same_as_before(order, self.code, self.sequence, self.rank)
        ties = self._ties(order, tied)
        self.digest = ties.digest
        self.conflicting = np.zeros(len(self.code), dtype=bool)
        self.conflicting[ties.conflicting] = True
        if tied.any():
            by = (self.is_retraction, self.digest, self.rank, self.sequence, self.code)
            order = alive[self._sorted(alive, self.arrival, *by)]
            again = self._same_as_before(order, *by)
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

    @staticmethod
    def _sorted(events: Codes, *by: Any) -> Codes:
        return np.lexsort(tuple(column[events] for column in by))

    @staticmethod
    def _same_as_before(order: Codes, *columns: Any) -> Mask:
        """Mark the events of a sorted row that are equal to the one before in some columns."""
        same = np.zeros(len(order), dtype=bool)
        same[1:] = np.logical_and.reduce([c[order[1:]] == c[order[:-1]] for c in columns])
        return same

    def _ties(self, order: Codes, tied: Mask) -> Ties:
        """Compare the upserts, and retractions, that share key, sequence and operation."""
        group = np.cumsum(~tied, dtype=np.int64)
        shared = tied.copy()
        shared[:-1] |= tied[1:]
        shared &= (self.rank[order] != OP_DELETE) & (self.rank[order] != OP_FINAL_DELETE)
        unsent = {name: mask.copy() for name, mask in self.unsent.items()}
        for i, since in self.known_since.items():
            for name, rank in since.items():
                if rank != self.sequence[i]:
                    unsent.setdefault(name, np.zeros(len(self.code), dtype=bool))[i] = True
        forgotten = np.full(len(self.code), NO_DIGEST)
        forgotten[: self.n_state] = ints(self.state, "_retracted", null=NO_DIGEST)
        return compare(order[shared], group[shared], Contents(self.rows, unsent, forgotten))

    def run(self) -> Reconciled:
        """Decide each key's row and build its entry."""
        order = self.order
        winner = order[last_of_group(self.code[order])]
        self.base = np.full(self.n_codes, self.floor)
        np.maximum.at(self.base, self.code[: self.n_state], self.stored_base)
        removed = order[self.is_delete[order] & ~self.is_retraction[order]]
        np.maximum.at(self.base, self.code[removed], self.sequence[removed])
        self.winner = winner
        source, known_at, changed_by, touched = self._columns(winner)
        return self._entries(winner, touched, source, known_at, changed_by)

    def _columns(self, winner: Codes) -> tuple[dict[str, Codes], dict[str, Codes], Codes, Mask]:
        """Find for each key and partly known column the event that its value comes from.

        Returns:
            column -> (n,) event, or UNKNOWN; column -> (n,) rank of that knowledge; (n,) the event that changed the
            row last; (n,) whether a column's value or knowledge changed.
        """
        stored = self._stored_knowledge
        source: dict[str, Codes] = {}
        known_at: dict[str, Codes] = {}
        changed_by, touched = winner.copy(), np.zeros(len(winner), dtype=bool)
        for name in self._partly_known:
            since = stored.get(name, self.sequence)
            absent = self.unsent.get(name, np.zeros(len(self.code), dtype=bool))
            event, rank = self._newest_value(winner, since, absent)
            for i, found in self._played_values(winner, name):
                event[i], rank[i] = found
            before = np.where(winner < self.n_state, since[winner], rank)
            fresh = (rank != before) & ~self.is_delete[winner]
            touched |= fresh
            newer = fresh & (event >= self.n_state) & (event < len(self.code)) & (event > changed_by)
            changed_by = np.where(newer, event, changed_by)
            source[name], known_at[name] = event, rank
        return source, known_at, changed_by, touched

    def _newest_value(self, winner: Codes, since: Codes, absent: Mask) -> tuple[Codes, Codes]:
        """Return each key's event with the newest value of a column since the key's last delete, and the value's rank."""
        candidates = self.order[~self.is_delete[self.order] & ~absent[self.order]]
        base = self.base[self.code[candidates]]
        # In a log a delete stands before an upsert at its sequence, else behind it.
        after_base = since[candidates] >= base if self.in_log else since[candidates] > base
        candidates = candidates[after_base & (since[candidates] != UNKNOWN)]
        by_column = candidates[self._sorted(candidates, self.arrival, self.digest, self.rank, since, self.code)]
        best = by_column[last_of_group(self.code[by_column])]
        best_of = np.full(self.n_codes, UNKNOWN)
        best_of[self.code[best]] = best
        event = best_of[self.code[winner]]
        return event, np.where(event >= 0, since[event], UNKNOWN)

    @cached_property
    def _partly_known(self) -> list[str]:
        stored = {name for since in self.known_since.values() for name in since}
        return sorted(stored | self.unsent.keys())

    @cached_property
    def _stored_knowledge(self) -> dict[str, Codes]:
        """Map column to the (n,) rank since when each event's value is known: its own, unless the entry says another."""
        found: dict[str, Codes] = {}
        for i, since in self.known_since.items():
            for name, rank in since.items():
                found.setdefault(name, self.sequence.copy())[i] = rank
        return found

    def _played_values(self, winner: Codes, name: str) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield what the play of the log says of a column, for the keys in it."""
        if self._played is None:
            return
        for i in np.flatnonzero(self._is_played[self.code[winner]] & ~self.is_delete[winner]).tolist():
            row = self._played.rows.get(int(self.code[winner[i]]))
            known = row.values.get(name) if row is not None else None
            yield i, (known.event, known.since) if known is not None else (UNKNOWN, UNKNOWN)

    @cached_property
    def _is_played(self) -> Mask:
        """Mark the keys that a change of the key concerns, or may yet concern."""
        concerned = np.zeros(self.n_codes, dtype=bool)
        concerned[self.old_code] = True
        linked = [self.state["_moved_from"], self.state["_kept"], self.changes["_moved_from"]]
        stored, kept, changes = (column.is_valid().to_numpy() for column in linked)
        concerned[self.code[: self.n_state][stored | kept]] = True
        concerned[self.code[self.n_state :][changes]] = True
        concerned[self.code[self._rows_of_before]] = True
        return concerned

    @cached_property
    def _rows_of_before(self) -> Codes:
        """Find the rows that had their key before another row got it, and are not known to have left.

        Such a row may have gone to another key, in a change that has yet to arrive without all its values.
        """
        if not self._may_be_unsent:
            return np.empty(0, np.int64)
        event = self.order[~self.is_delete[self.order]]
        since, base = self.since[self.code[event]], self.base[self.code[event]]
        at = self.sequence[event]
        is_before = (at < since) & (at >= self._snapshot_ranks)
        has_left = (base >= at) & (base <= since)
        deleted_later = base > since
        found: Codes = event[is_before & ~has_left & ~deleted_later]
        return found

    @cached_property
    def since(self) -> Codes:
        """Give each key the rank of the sequence since when its row has it, `UNKNOWN` if that is not known."""
        since = np.full(self.n_codes, UNKNOWN)
        np.maximum.at(since, self.code[: self.n_state], self.stored_since)
        starts = self.order[self._starts_row[self.order]]
        np.maximum.at(since, self.code[starts], self.sequence[starts])
        return since

    @cached_property
    def _starts_row(self) -> Mask:
        """Mark creates, and updates that gave a row its key."""
        creates = pc.equal(self.changes["_op"], "c").fill_null(False).to_numpy()
        moves = self.changes["_moved_from"].is_valid().to_numpy()
        return np.concatenate([np.zeros(self.n_state, bool), creates | moves])

    @cached_property
    def _may_be_unsent(self) -> list[str]:
        """Columns that a source may leave out of an update."""
        own = [f.name for f in self.op.columns if may_be_unsent(f.type) and f.name not in self.op.key]
        return sorted({*own, *self._partly_known})

    @cached_property
    def _played(self) -> Played | None:
        """What the log of those keys says; None where there are none."""
        if not self._is_played.any():
            return None
        return play([*self._stored_events(), *self._change_events()])

    def _stored_events(self) -> Iterator[Event]:
        """Yield what the entries tell of the log: changes of keys, rows before, deletes, and their own row."""
        moved, _, kept = self._nested
        lowest_of_log = self._snapshot_ranks
        names, n_events = self._may_be_unsent, len(self.code)
        for i, stored in enumerate(self._alive.tolist()):
            code, sequence = int(self.code[i]), int(self.sequence[i])
            if not self._is_played[code]:
                continue
            if self.stored_since[i] != UNKNOWN:
                yield Event(int(self.stored_since[i]), OP_UPSERT, code, is_other_row=True)
            for at in _items(kept, stored):
                known = tuple(kept.values[at].as_py()["known"])
                yield Event(self.kept_ranks[at], OP_UPSERT, code, n_events + at, known)
                yield Event(self.kept_until[at], OP_UPSERT, code, is_other_row=True)
            to = code
            for at in _items(moved, stored):
                yield Event(self.moved_ranks[at], OP_UPSERT, to, old_key=self.old_code[at], is_other_row=True)
                to = self.old_code[at]
            if self.stored_base[i] != UNKNOWN:
                yield Event(int(self.stored_base[i]), self._delete_phase, code, is_delete=True)
            if self.is_delete[i]:
                yield Event(sequence, self._delete_phase, code, is_delete=True)
                continue
            since = dict.fromkeys(names, sequence) | self.known_since.get(i, {})
            for rank in sorted({*since.values(), sequence} - {UNKNOWN}):
                known = tuple(name for name in names if since[name] == rank)
                is_snapshot = rank < lowest_of_log
                yield Event(rank, OP_UPSERT, code, i, known, is_snapshot=is_snapshot)

    def _change_events(self) -> Iterator[Event]:
        moves = self._nested[1]
        first_of_changes = len(self._nested[0].values)
        names = self._may_be_unsent
        in_play = self.order[self._is_played[self.code[self.order]] & (self.order >= self.n_state)]
        for i in in_play.tolist():
            code, sequence, arrival = int(self.code[i]), int(self.sequence[i]), int(self.arrival[i])
            if self.is_delete[i]:
                yield Event(sequence, self._delete_phase, code, arrival=arrival, is_delete=True)
                continue
            known = tuple(name for name in names if name not in self.unsent or not self.unsent[name][i])
            row = i - self.n_state
            old_key = UNKNOWN
            if moves.is_valid()[row].as_py():
                old_key = self.old_code[first_of_changes + moves.offsets[row].as_py()]
            starts, is_snapshot = bool(self._starts_row[i]), sequence < self._snapshot_ranks
            yield Event(sequence, int(self.rank[i]), code, i, known, arrival, old_key, starts, is_snapshot=is_snapshot)

    @property
    def _delete_phase(self) -> int:
        return OP_DELETE if self.in_log else OP_FINAL_DELETE

    @cached_property
    def _snapshot_ranks(self) -> int:
        """Ranks below this one are those of snapshot rows without a position in the log."""
        if self.op.sequence[0] != "_lsn":
            return 0
        return int((pc.struct_field(self.sequences, "_lsn").to_numpy(zero_copy_only=False) < 0).sum())

    def _entries(
        self,
        winner: Codes,
        touched: Mask,
        source: dict[str, Codes],
        known_at: dict[str, Codes],
        changed_by: Codes,
    ) -> Reconciled:
        shows = (winner >= self.n_state) | touched
        links = [self._link(event, known_at, i) for i, event in enumerate(winner.tolist())] if self._played else None
        changed = shows | self._noted(winner, links)
        rows = winner[changed]
        n, at = len(rows), self.at
        dead = self.is_delete[rows]
        entry = self.entry_of[self.code[rows]]
        shown = (entry >= 0) & ~self.is_delete[entry]
        change = np.where(dead, np.where(shown, DELETE, ""), np.where(shown, UPDATE, INSERT))
        change = np.where(shows[changed], change, "")
        out: dict[str, object] = {}
        for name in self.op.columns.names:
            index = source[name][changed] if name in source else rows
            hidden = (index < 0) | (dead & (name not in self.op.key))
            out[name] = self._values(name).take(pa.array(np.maximum(index, 0), mask=hidden))
        stamp = self._stamps(rows, entry)
        mortal = dead | bool(self.op.ttl and self.op.ttl.expire_live)
        removed = mortal & has_expired(stamp, self.op.ttl, at)
        columns, waiting = self._knowledge(rows, {c: v[changed] for c, v in known_at.items()}, dead)
        orders = pa.concat_tables(
            [self.state.select(["_changed_by"]), self.changes.select(["_order"]).rename_columns(["_changed_by"])]
        )
        out |= {
            "_step": np.full(n, at.number),
            "_change": pa.array(change, mask=change == ""),
            "_removed": removed,
            "_stamp_ms": stamp,
            "_changed_by": orders["_changed_by"].take(changed_by[changed]),
            "_sequence": self._stored_sequences(rows),
            "_columns": columns,
            "_base": self._sequences_of(self.base[self.code[rows]]),
            "_since": self._sequences_of(self.since[self.code[rows]]),
            "_moved_from": self._moved_from(changed, links),
            "_kept": self._kept(changed, links),
            "_retracted": self._retracted(rows, dead),
            "_conflict": self._conflicts(rows),
            "_tombstone": dead,
        }
        filled = shows & (winner < self.n_state)
        self.metrics.update(
            inserted=int((change == INSERT).sum()),
            updated=int((change == UPDATE).sum()),
            deleted=int((change == DELETE).sum()),
            filled=int(filled.sum()),
            late=int(removed.sum()),
            waiting=sum(waiting),
            pending_key_changes=sum(bool(link.moved_from) for link in links or []),
        )
        return Reconciled(entry_table(self.op.schema, out, n), self.metrics)

    def _noted(self, winner: Codes, links: list[Link] | None) -> Mask:
        """Mark stored rows about which something must be remembered that the sink does not show."""
        n, state = self.n_state, self.state
        code = self.code[:n]
        # A late delete below the row, if a column may yet be filled.
        fillable = state["_columns"].is_valid().to_numpy()
        noted = np.zeros(len(self.code), dtype=bool)
        noted[:n] = fillable & (self.base[code] > self.stored_base)
        noted[:n] |= self.conflicting[:n] & ~flags(state, "_conflict")
        if self._renews_by_event_time:
            noted[:n] |= self._event_time[code] > ints(state, "_stamp_ms")
        for event, link in zip(winner.tolist(), links or [], strict=bool(links)):
            if event < n and link.places != self._stored_places(event):
                noted[event] = True
        return noted[winner]

    def _link(self, event: int, known_at: dict[str, Codes], i: int) -> Link:
        code = int(self.code[event])
        if self._played is None or not self._is_played[code]:
            return Link()
        row = self._played.rows.get(code)
        waits = not self.is_delete[event] and any(rank[i] == UNKNOWN for rank in known_at.values())
        moved = chain(row.change) if row is not None and waits else ()
        return Link(tuple(moved), tuple(self._played.kept.get(code, [])))

    def _stored_places(self, entry: int) -> tuple[Any, Any]:
        """Return what an entry remembers of changed keys, as `Link.places`."""
        moved, _, kept = self._nested
        stored = int(self._alive[entry])
        moves = tuple((self.moved_ranks[at], self.old_code[at]) for at in _items(moved, stored))
        return moves, tuple((self.kept_ranks[at], self.kept_until[at]) for at in _items(kept, stored))

    def _moved_from(self, changed: Mask, links: list[Link] | None) -> pa.Array:
        type_ = self.op.schema.field("_moved_from").type
        if links is None:
            return pa.nulls(int(changed.sum()), type_)
        first_of = {code: at for at, code in reversed(list(enumerate(self.old_code)))}
        moves: list[list[dict[str, Any]] | None] = []
        for i in np.flatnonzero(changed).tolist():
            found = [
                {"sequence": self._sequence_of(each.sequence), "key": self.old_keys[first_of[each.old_key]].as_py()}
                for each in links[i].moved_from
            ]
            moves.append(found or None)
        return pa.array(moves, type_)

    def _kept(self, changed: Mask, links: list[Link] | None) -> pa.Array:
        type_ = self.op.schema.field("_kept").type
        if links is None:
            return pa.nulls(int(changed.sum()), type_)
        kept = [links[i].kept for i in np.flatnonzero(changed).tolist()]
        return pa.array([list(map(self._kept_row, rows)) or None for rows in kept], type_)

    def _kept_row(self, kept: Kept) -> dict[str, Any]:
        row = {name: self._values(name)[known.event].as_py() for name, known in kept.values.items()}
        places = {"sequence": self._sequence_of(kept.sequence), "until": self._sequence_of(kept.until)}
        return places | {"known": sorted(row), "row": row}

    def _values(self, name: str) -> pa.ChunkedArray:
        """Return a column of all events, and of the rows kept behind them."""
        kept = self._nested[2].values
        if not len(kept):
            return self.rows[name]
        row = pc.struct_field(kept, "row")
        return pa.chunked_array([*self.rows[name].chunks, pc.struct_field(row, name)])

    def _sequence_of(self, rank: int) -> dict[str, Any] | None:
        return None if rank == UNKNOWN else dict(self.sequences[rank].as_py())

    def _sequences_of(self, ranks: Codes) -> pa.Array:
        return self.sequences.take(pa.array(ranks, mask=ranks == UNKNOWN))

    def _stored_sequences(self, rows: Codes) -> pa.Array:
        sequences = self._sequences_of(self.sequence[rows])
        parts = [pc.struct_field(sequences, name) for name in self.op.sequence]
        parts.append(pa.array(self.rank[rows].astype(np.int32)))
        return pa.StructArray.from_arrays(parts, fields=list(self.op.schema.field("_sequence").type))

    def _retracted(self, rows: Codes, dead: Mask) -> pa.Array:
        """Give the tombstones of retractions the digest of the row that they took back."""
        found = np.full(len(rows), NO_DIGEST)
        by_retraction = np.flatnonzero(dead & self.is_retraction[rows])
        if len(by_retraction):
            found[by_retraction] = self.digest[rows[by_retraction]]
        unknown = by_retraction[found[by_retraction] == NO_DIGEST]
        if len(unknown):
            events = rows[unknown]
            stored = np.concatenate([ints(self.state, "_retracted", null=NO_DIGEST), np.zeros(len(self.changes), int)])
            made = digests(self.rows.take(pa.array(events)))
            found[unknown] = np.where(stored[events] != NO_DIGEST, stored[events], made)
        return pa.array(found, mask=found == NO_DIGEST)

    def _conflicts(self, rows: Codes) -> Mask:
        before = np.concatenate([flags(self.state, "_conflict"), np.zeros(len(self.changes), bool)])
        found: Mask = self.conflicting | before
        return found[rows]

    @property
    def _renews_by_event_time(self) -> bool:
        ttl = self.op.ttl
        return ttl is not None and ttl.by_event_time and ttl.update_type is not UpdateType.ON_CREATE

    @cached_property
    def _event_time(self) -> Codes:
        """Give each key the greatest event time of its changes in this step, whichever of them counts."""
        greatest = np.full(self.n_codes, LONG_MIN)
        changes = np.arange(self.n_state, len(self.code))[~self.dead[self.n_state :]]
        times = ints(self.changes, "_event_ms", null=LONG_MIN)
        np.maximum.at(greatest, self.code[changes], times[changes - self.n_state])
        return greatest

    def _stamps(self, rows: Codes, entry: Codes) -> Codes:
        ttl, now = self.op.ttl, np.full(len(rows), self.at.now_ms)
        if ttl is None:
            return now
        if ttl.update_type is UpdateType.ON_CREATE:
            created = self._created[self.code[rows]]
            changes = (
                ints(self.changes, "_event_ms") if ttl.by_event_time else np.full(len(self.changes), self.at.now_ms)
            )
            times = np.concatenate([ints(self.state, "_stamp_ms"), changes])
            return np.where(created != UNKNOWN, times[created], now)
        if not ttl.by_event_time:
            return now
        # The greatest event time counts, so that it does not matter how changes are cut into steps.
        fresh = self._event_time[self.code[rows]]
        if not self.n_state:
            return np.asarray(fresh)
        is_stored = (entry >= 0) & self._is_stored[entry]
        return np.where(is_stored, np.maximum(ints(self.state, "_stamp_ms")[entry], fresh), fresh)

    @cached_property
    def _is_stored(self) -> Mask:
        """Mark the entries that the state holds; the sink's row is none: what it stands in for has expired."""
        return np.asarray(ints(self.state, "_step") != SINK_STEP)

    @cached_property
    def _created(self) -> Codes:
        """Give each key the event that its entry came to be with; UNKNOWN: none is known.

        A tombstone is an entry of its own, as is a row that comes after one, unless live entries age too: then one entry
        goes through both forms. In the order of the sequence it is the first event after the last change of form; changes
        that a stored entry supersedes create nothing.
        """
        counts = np.ones(len(self.code), dtype=bool)
        counts[: self.n_state] = self._is_stored
        order = self.order[counts[self.order]]
        stored_at = np.full(self.n_codes, UNKNOWN)
        stored = np.flatnonzero(order < self.n_state)
        stored_at[self.code[order[stored]]] = stored
        order = order[np.arange(len(order)) >= stored_at[self.code[order]]]
        is_mortal_row = self.op.ttl is not None and self.op.ttl.expire_live
        code, form = self.code[order], self.is_delete[order] & (not is_mortal_row)
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (code[1:] != code[:-1]) | (form[1:] != form[:-1])
        last_begin = np.flatnonzero(begins)[last_of_group(code[begins])]
        created = np.full(self.n_codes, UNKNOWN)
        created[code[last_begin]] = order[last_begin]
        return created

    def _knowledge(self, rows: Codes, known_at: dict[str, Codes], dead: Mask) -> tuple[pa.Array, list[bool]]:
        """Build `_columns`, and tell which rows still wait for a value."""
        items: list[list[tuple[str, dict[str, Any] | None]] | None] = [None] * len(rows)
        waits = [False] * len(rows)
        for name, ranks in known_at.items():
            for i in np.flatnonzero((ranks != self.sequence[rows]) & ~dead).tolist():
                items[i] = [*(items[i] or []), (name, self._sequence_of(int(ranks[i])))]
                waits[i] |= bool(ranks[i] == UNKNOWN)
        return pa.array(items, self.op.schema.field("_columns").type), waits


def _array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece whose nested values start at 0."""
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks or [pa.array([], column.type)])


def _items(lists: pa.ListArray, row: int) -> range:
    """Return where the items of one list stand among the items of all."""
    return range(lists.offsets[row].as_py(), lists.offsets[row + 1].as_py())


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
