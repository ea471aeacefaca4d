"""Sequence mode: per key the change with the greatest sequence wins, in whatever order changes arrive.

State, one entry per key (the newest `_step` counts), beside the columns of `ebbtide.model.entries`:

| column | meaning |
|---|---|
| the user's columns | the row; of a tombstone only the key |
| `_sequence` | (lsn or 0, rank of the operation); a delete ranks below a create at one lsn |
| `_ops` | the source's operations applied at that sequence, by which a redelivery is known |
| `_columns` | where a value is older than the row: column -> lsn at which it was last known, -1 if it never was |
| `_base` | lsn of the newest delete below the row: no value from before it may fill the row; -1 if none |
| `_moved_from` | while some column waits for a value from a key that the row had before: the row's moves as JSON, newest \
first, `[{"lsn": of the update that changed the key, "key": [the old key]}, ...]` |
| `_tombstone` | the key is deleted; kept so that late changes stay dead |
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import OP_DELETE, OP_UPSERT, SEQUENCE, changelog_schema
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import (
    DELETE,
    ENTRY_COLUMNS,
    INSERT,
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
from ebbtide.model.operators.moves import UNKNOWN, Mask, Moves
from ebbtide.model.ttl import StateTtlConfig, TimeCharacteristic, UpdateType

SEQUENCE_COLUMNS: dict[str, pa.DataType] = {
    "_sequence": SEQUENCE,
    "_ops": pa.string(),
    "_columns": pa.map_(pa.string(), pa.int64()),
    "_base": pa.int64(),
    "_moved_from": pa.string(),
    "_tombstone": pa.bool_(),
}


@dataclass(frozen=True)
class SequenceOperator:
    """Reconciles changes with their keys' state by sequence.

    Args:
        columns: The user's columns, in order.
        key: Names of the key's columns, none of them nullable.
        ttl: Time to live of tombstones (and of live entries with `expire_live`); None keeps them for ever.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    ttl: StateTtlConfig | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        own = [pa.field(n, t) for n, t in (ENTRY_COLUMNS | SEQUENCE_COLUMNS).items()]
        return pa.schema([f.with_nullable(True) for f in self.columns] + own)

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
    def unsettled(self) -> None:
        """There are no entries whose expiry a tick has to act on."""

    @property
    def mortal(self) -> str | None:
        """The boolean column of the entries that may expire: tombstones, unless live entries may too."""
        return None if self.ttl is not None and self.ttl.expire_live else "_tombstone"

    def apply(self, changes: pa.Table, state: pa.Table, at: Step) -> Reconciled:
        """Fold one step's changes into the state of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's, in any order.
            state: Every stored version of those keys' entries, in any order.
            at: The step.

        Returns:
            New entries, one for each key whose row, sequence or tombstone changed.
        """
        changes = changes.select(changelog_schema(self.columns).names)
        return _Fold(self, changes, state.select(self.schema.names), at).run()

    def expire(self, state: pa.Table, at: Step) -> Reconciled:
        """Drop what has expired; the sink keeps its rows.

        Args:
            state: Every stored version of some keys' entries.
            at: The step.
        """
        entries = current(state, self.schema, self.identity)
        gone = entries.filter(pa.array(self.has_expired(entries, at)))
        keys = {name: gone[name] for name in self.key}
        n = len(gone)
        fixed = {
            "_step": np.full(n, at.number),
            "_removed": np.ones(n, bool),
            "_stamp_ms": gone["_stamp_ms"],
            "_changed_by": gone["_changed_by"],
        }
        return Reconciled(entry_table(self.schema, keys | fixed, n), Counter(expired=n))

    def has_expired(self, entries: pa.Table, at: Step) -> Mask:
        """Mark the entries that are not to be read any more."""
        old = has_expired(ints(entries, "_stamp_ms"), self.ttl, at)
        return old if self.ttl and self.ttl.expire_live else old & flags(entries, "_tombstone")


class _Fold:
    """One call of `SequenceOperator.apply`: events are the usable entries, then the changes in order of arrival."""

    def __init__(self, operator: SequenceOperator, changes: pa.Table, state: pa.Table, at: Step) -> None:
        self.op, self.at = operator, at
        self.metrics: Counter[str] = Counter(changes=len(changes))
        orders = order_struct(changes)
        changes = changes.take(np.lexsort(orders.T[::-1]))
        keys = pa.concat_tables([state.select(operator.key), changes.select(operator.key)])
        codes = row_codes(keys, operator.key) if len(keys) else np.empty(0, np.int64)
        usable = self._usable(state, codes[: len(state)])
        self.state, self.changes = state.take(usable), changes
        self.n_state = len(usable)
        self.code = np.concatenate([codes[usable], codes[len(state) :]])
        self.n_codes = int(codes.max(initial=-1)) + 1
        self._read_events()

    def _usable(self, state: pa.Table, codes: Codes) -> Codes:
        """Pick each key's entry: the newest, unless removed, expired or below the floor; else the sink's row."""
        steps = ints(state, "_step")
        stored = np.flatnonzero(steps != SINK_STEP)
        rows = stored[newest(codes[stored], steps[stored])]
        entries = state.take(rows)
        keep = ~flags(entries, "_removed") & ~self.op.has_expired(entries, self.at)
        rows = rows[keep]
        spare = np.flatnonzero(steps == SINK_STEP)
        rows = np.concatenate([rows, spare[~np.isin(codes[spare], codes[rows])]])
        return rows[ints(state.take(rows), "_sequence.lsn") >= self._floor]

    @property
    def _floor(self) -> int:
        return self.at.floor[0] if self.at.floor else UNKNOWN

    def _read_events(self) -> None:
        state, changes, n = self.state, self.changes, self.n_state
        deletes = pc.is_in(changes["_kind"], pa.array(["-U", "-D"])).to_numpy()
        self.is_delete = np.concatenate([flags(state, "_tombstone"), deletes])
        self.lsn = np.concatenate([ints(state, "_sequence.lsn"), ints(changes, "_lsn")])
        self.rank = np.where(self.is_delete, OP_DELETE, OP_UPSERT)
        self.rank[:n] = ints(state, "_sequence.op")
        self.arrival = np.arange(len(self.code)) - n
        self.arrival[:n] = UNKNOWN
        self.entry_of = np.full(self.n_codes, UNKNOWN)
        self.entry_of[self.code[:n]] = np.arange(n)
        self.ops = pc.coalesce(changes["_op"], changes["_kind"]).to_pylist()
        dead = self.lsn < self._floor
        dead[:n] = False
        duplicate = ~dead & self._duplicates()
        self.metrics.update(below_floor=int(dead.sum()), duplicates=int(duplicate.sum()))
        self.valid = ~dead & ~duplicate
        entry = self.entry_of[self.code]
        older = (
            (entry >= 0)
            & self.valid
            & ((self.lsn < self.lsn[entry]) | ((self.lsn == self.lsn[entry]) & (self.rank < self.rank[entry])))
        )
        self.metrics["superseded"] = int(older[n:].sum())

    def _duplicates(self) -> Mask:
        """Mark changes met before: the same key, sequence and operation, in this step or in the key's entry."""
        n = self.n_state
        code, lsn, rank = self.code[n:], self.lsn[n:], self.rank[n:]
        names = pa.array(self.ops, pa.string()).dictionary_encode()
        op = names.indices.to_numpy(zero_copy_only=False)
        order = np.lexsort((self.arrival[n:], op, rank, lsn, code))
        same = np.zeros(len(code), dtype=bool)
        columns = [c[order] for c in (code, lsn, rank, op)]
        same[order[1:]] = np.logical_and.reduce([c[1:] == c[:-1] for c in columns])
        entry = self.entry_of[code]
        for i in np.flatnonzero((entry >= 0) & (lsn == self.lsn[entry]) & (rank == self.rank[entry])):
            same[i] |= self.ops[i] in json.loads(self.state["_ops"][entry[i]].as_py() or "[]")
        return np.concatenate([np.zeros(n, dtype=bool), same])

    def run(self) -> Reconciled:
        """Decide each key's row and build its entry."""
        valid = np.flatnonzero(self.valid)
        order = valid[np.lexsort((self.arrival[valid], self.rank[valid], self.lsn[valid], self.code[valid]))]
        winner = order[last_of_group(self.code[order])]
        self.winner_of = np.full(self.n_codes, UNKNOWN)
        self.winner_of[self.code[winner]] = winner
        self.order = order
        self.base = np.full(self.n_codes, self._floor)
        np.maximum.at(self.base, self.code[: self.n_state], ints(self.state, "_base", null=UNKNOWN))
        removed = order[self.is_delete[order]]
        np.maximum.at(self.base, self.code[removed], self.lsn[removed])

        source, known_at, changed_by, touched = self._columns(winner)
        shows = (winner >= self.n_state) | touched
        return self._entries(winner, shows | self._base_rose(winner), shows, source, known_at, changed_by)

    def _base_rose(self, winner: Codes) -> Mask:
        """Mark rows that a late delete stands below now, if a column may yet be filled: the delete must be remembered."""
        rose = np.zeros(len(self.code), dtype=bool)
        fillable = self.state["_columns"].is_valid().to_numpy()
        before = ints(self.state, "_base", null=UNKNOWN)
        rose[: self.n_state] = fillable & (self.base[self.code[: self.n_state]] > before)
        return rose[winner]

    def _columns(self, winner: Codes) -> tuple[dict[str, Codes], dict[str, Codes], Codes, Mask]:
        """Find for each key and partly known column the event that its value comes from.

        Returns:
            column -> (n,) event, or UNKNOWN; column -> (n,) lsn of that knowledge; (n,) the event that changed the
            row last; (n,) whether a column's value or knowledge changed.
        """
        missing = _missing(self.changes, self.n_state, len(self.code))
        stored = _stored_columns(self.state)
        source: dict[str, Codes] = {}
        known_at: dict[str, Codes] = {}
        changed_by, touched = winner.copy(), np.zeros(len(winner), dtype=bool)
        for name in sorted(missing.keys() | stored.keys()):
            entry_lsn = self.lsn.copy()
            for i, value in stored.get(name, {}).items():
                entry_lsn[i] = value
            absent = missing.get(name, np.zeros(len(self.code), dtype=bool))
            candidates = self.order[~self.is_delete[self.order] & ~absent[self.order]]
            candidates = candidates[
                (entry_lsn[candidates] != UNKNOWN) & (entry_lsn[candidates] >= self._moves.since[self.code[candidates]])
            ]
            by_column = candidates[
                np.lexsort(
                    (self.arrival[candidates], self.rank[candidates], entry_lsn[candidates], self.code[candidates])
                )
            ]
            best = by_column[last_of_group(self.code[by_column])]
            best_of = np.full(self.n_codes, UNKNOWN)
            best_of[self.code[best]] = best
            event = best_of[self.code[winner]]
            lsn = np.where(event >= 0, entry_lsn[event], UNKNOWN)
            for i in np.flatnonzero((event < 0) & ~self.is_delete[winner]).tolist():
                event[i], lsn[i] = self._moves.value(int(winner[i]), absent, stored.get(name, {}))
            before = np.where(winner < self.n_state, entry_lsn[winner], lsn)
            fresh = (lsn != before) & ~self.is_delete[winner]
            touched |= fresh
            newer = fresh & (event >= self.n_state) & (event > changed_by)
            changed_by = np.where(newer, event, changed_by)
            source[name], known_at[name] = event, lsn
        return source, known_at, changed_by, touched

    @cached_property
    def _moves(self) -> Moves:
        events = [table.select([*self.op.key, "_moved_from"]) for table in (self.state, self.changes)]
        return Moves(
            pa.concat_tables(events),
            self.op.key,
            code=self.code,
            lsn=self.lsn,
            arrival=self.arrival,
            is_delete=self.is_delete,
            valid=self.valid,
            order=self.order,
            base=self.base,
            floor=self._floor,
        )

    def _entries(
        self,
        winner: Codes,
        changed: Mask,
        shows: Mask,
        source: dict[str, Codes],
        known_at: dict[str, Codes],
        changed_by: Codes,
    ) -> Reconciled:
        rows = winner[changed]
        n, at = len(rows), self.at
        dead = self.is_delete[rows]
        entry = self.entry_of[self.code[rows]]
        shown = (entry >= 0) & ~self.is_delete[entry]
        change = np.where(dead, np.where(shown, DELETE, ""), np.where(shown, UPDATE, INSERT))
        change = np.where(shows[changed], change, "")
        events = pa.concat_tables(
            [self.state.select(self.op.columns.names), self.changes.select(self.op.columns.names)]
        )
        out: dict[str, object] = {}
        for name in self.op.columns.names:
            index = source[name][changed] if name in source else rows
            hidden = (index < 0) | (dead & (name not in self.op.key))
            out[name] = events[name].take(pa.array(np.maximum(index, 0), mask=hidden))
        stamp = self._stamps(rows, entry, dead)
        mortal = dead | bool(self.op.ttl and self.op.ttl.expire_live)
        removed = mortal & has_expired(stamp, self.op.ttl, at)
        columns, waiting = self._knowledge(rows, {c: v[changed] for c, v in known_at.items()}, dead)
        moves = [self._moves.open(r) if w else None for r, w in zip(rows.tolist(), waiting, strict=True)]
        left_open = self.state["_moved_from"].is_valid().to_numpy()[winner[~changed]]
        orders = pa.concat_tables(
            [self.state.select(["_changed_by"]), self.changes.select(["_order"]).rename_columns(["_changed_by"])]
        )
        out |= {
            "_step": np.full(n, at.number),
            "_change": pa.array(change, mask=change == ""),
            "_removed": removed,
            "_stamp_ms": stamp,
            "_changed_by": orders["_changed_by"].take(changed_by[changed]),
            "_sequence": pa.StructArray.from_arrays(
                [pa.array(self.lsn[rows]), pa.array(self.rank[rows].astype(np.int32))], fields=list(SEQUENCE)
            ),
            "_ops": self._applied_ops(rows),
            "_columns": columns,
            "_base": self.base[self.code[rows]],
            "_moved_from": pa.array(moves, pa.string()),
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
            open_moves=sum(m is not None for m in moves) + int(left_open.sum()),
        )
        return Reconciled(entry_table(self.op.schema, out, n), self.metrics)

    def _stamps(self, rows: Codes, entry: Codes, dead: Mask) -> Codes:
        ttl, now = self.op.ttl, np.full(len(rows), self.at.now_ms)
        if ttl is None:
            return now
        event_time = ttl.time_characteristic is TimeCharacteristic.EVENT_TIME
        changes_at = (
            np.concatenate([ints(self.state, "_stamp_ms"), ints(self.changes, "_event_ms")]) if event_time else None
        )
        fresh = now if changes_at is None else changes_at[rows]
        # A tombstone is an entry of its own, unless live entries age too: then one entry goes through both forms.
        # The sink's row is no entry: what it stands in for has expired.
        stored = ints(self.state, "_step") != SINK_STEP if self.n_state else np.zeros(1, dtype=bool)
        overwrites = (entry >= 0) & stored[entry] & (ttl.expire_live | (self.is_delete[entry] == dead))
        before = ints(self.state, "_stamp_ms")[entry] if self.n_state else np.zeros(len(rows), np.int64)
        if ttl.update_type is UpdateType.ON_CREATE:
            return np.where(overwrites, before, fresh)
        return np.where(overwrites, np.maximum(before, fresh), fresh) if event_time else fresh

    def _knowledge(self, rows: Codes, known_at: dict[str, Codes], dead: Mask) -> tuple[pa.Array, list[bool]]:
        """Build `_columns`, and tell which rows still wait for a value."""
        items: list[list[tuple[str, int]] | None] = [None] * len(rows)
        for name, lsn in known_at.items():
            for i in np.flatnonzero((lsn != self.lsn[rows]) & ~dead):
                items[i] = [*(items[i] or []), (name, int(lsn[i]))]
        return pa.array(items, SEQUENCE_COLUMNS["_columns"]), [any(lsn == UNKNOWN for _, lsn in i or []) for i in items]

    def _applied_ops(self, rows: Codes) -> pa.Array:
        """List, as JSON, the operations applied at each row's sequence; nearly always one."""
        n = self.n_state
        ops = [json.dumps([self.ops[r - n]]) if r >= n else self.state["_ops"][int(r)].as_py() for r in rows.tolist()]
        order, code, lsn, rank = self.order, self.code, self.lsn, self.rank
        a, b = order[:-1], order[1:]
        tied = {int(code[i]) for i in b[(code[a] == code[b]) & (lsn[a] == lsn[b]) & (rank[a] == rank[b])]}
        for at, row in enumerate(rows.tolist()) if tied else ():
            if int(code[row]) in tied:
                same = order[(code[order] == code[row]) & (lsn[order] == lsn[row]) & (rank[order] == rank[row])]
                lists = [
                    json.loads(self.state["_ops"][int(i)].as_py() or "[]") if i < n else [self.ops[i - n]]
                    for i in same.tolist()
                ]
                ops[at] = json.dumps(sorted({op for each in lists for op in each}))
        return pa.array(ops, pa.string())


def _missing(changes: pa.Table, n_state: int, n: int) -> dict[str, Mask]:
    """Map column to (n,) events that did not carry its value."""
    found: dict[str, Mask] = {}
    for i, name in _listed(changes["_unavailable"]):
        found.setdefault(name, np.zeros(n, dtype=bool))[n_state + i] = True
    return found


def _listed(column: pa.ChunkedArray) -> Iterator[tuple[int, str]]:
    for i in np.flatnonzero(column.is_valid().to_numpy()):
        for name in column[int(i)].as_py():
            yield int(i), name


def _stored_columns(state: pa.Table) -> dict[str, dict[int, int]]:
    """Map column to entry to the lsn at which its value was last known."""
    found: dict[str, dict[int, int]] = {}
    for i in np.flatnonzero(state["_columns"].is_valid().to_numpy()):
        for name, lsn in state["_columns"][int(i)].as_py():
            found.setdefault(name, {})[int(i)] = lsn
    return found
