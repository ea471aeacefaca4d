"""Arrival mode: the upsert materializer in columns. Changes apply in the order in which they arrived.

State, beside the columns of `ebbtide.model.entries` (the newest `_step` of a key and `_position` counts):

| column | meaning |
|---|---|
| the user's columns | the row |
| `_position` | its place in the key's history; greater is newer |
| `_role` | `live`: a row of the history; `waiting`: a retraction whose row has not come yet; `gone`: has left the history, but the sink still shows it |
| `_shown` | the sink shows this row |

Without an upsert key the sink shows the newest live row of a key; with one, a row that was replaced in its place is shown, though
newer ones follow. Of a key's changes in one step the sink takes the net effect; `every` emits record by record besides.

Source: FLIP-544, "SinkUpsertMaterializer", "TTL support".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.changelog import ADDS, ORDER, changelog_schema
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.durations import from_ms
from ebbtide.model.entries import (
    DELETE,
    ENTRY_COLUMNS,
    INSERT,
    UPDATE,
    Reconciled,
    Step,
    entry_table,
    flags,
    has_expired,
    ints,
    live_entries,
    order_struct,
)
from ebbtide.model.materializer import kernel
from ebbtide.model.ttl import StateTtlConfig, TimeCharacteristic, UpdateType

Mask = NDArray[np.bool_]
LIVE, WAITING, GONE = "live", "waiting", "gone"
ARRIVAL_COLUMNS: dict[str, pa.DataType] = {"_position": pa.int64(), "_role": pa.string(), "_shown": pa.bool_()}
EMITTED_COLUMNS: dict[str, pa.DataType] = {"_kind": pa.string(), "_order": ORDER, "_number": pa.int64()}
NONE = kernel.NONE


class OnExpire(StrEnum):
    """What becomes of the sink's row when its time is over."""

    KEEP = "keep"
    DELETE = "delete"


class Emission(StrEnum):
    """What a step emits: the net effect per key, or what each record would have emitted by itself as well."""

    NET = "net"
    EVERY = "every"


class Keep(StrEnum):
    """Which row of a key the sink shows: that of the last insertion, or of the first."""

    LAST = "last"
    FIRST = "first"


@dataclass(frozen=True)
class Materialization:
    """How histories are kept.

    Args:
        upsert_key: Columns by which, within a key, a row replaces another and a retraction finds its row. Empty: the whole row.
        on_expire: What becomes of the sink's row when its time is over.
        retraction_grace_ms: How long a retraction waits for its row, ms; 0: it does not.
        max_history: Most rows of a key; the oldest are dropped at the end of a step. None: any number.
        emission: What a step emits.
        keep: Which row of a key the sink shows, its newest or its oldest.
    """

    upsert_key: tuple[str, ...] = ()
    on_expire: OnExpire = OnExpire.KEEP
    retraction_grace_ms: int = 0
    max_history: int | None = None
    emission: Emission = Emission.NET
    keep: Keep = Keep.LAST


@dataclass(frozen=True)
class ArrivalOperator:
    """Reconciles changes with their keys' histories in order of arrival.

    Args:
        columns: The user's columns, in order; two rows are equal if all of them are.
        key: Names of the key's columns, none of them nullable.
        ttl: Time to live of each row of a history, from when it was written; None keeps them until retracted.
        how: How histories are kept.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    ttl: StateTtlConfig | None = None
    how: Materialization = Materialization()

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        own = [pa.field(n, t) for n, t in (ENTRY_COLUMNS | ARRIVAL_COLUMNS).items()]
        return pa.schema([f.with_nullable(True) for f in self.columns] + own)

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns)

    @cached_property
    def emitted_schema(self) -> pa.Schema:
        """Columns of an emitted record."""
        own = [pa.field(n, t) for n, t in EMITTED_COLUMNS.items()]
        return pa.schema([f.with_nullable(True) for f in self.columns] + own)

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that distinguish one entry from another."""
        return (*self.key, "_position")

    @property
    def state_column(self) -> str:
        """The column that holds the name of the state."""
        return "_role"

    @cached_property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """That of rows, and that of retractions that wait."""
        found: dict[str | None, StateTtlConfig] = {} if self.ttl is None else {None: self.ttl}
        if self.how.retraction_grace_ms:
            found[WAITING] = StateTtlConfig(ttl=from_ms(self.how.retraction_grace_ms))
        return found

    @property
    def leaves_orphans(self) -> bool:
        """Whether rows may stay in the sink that the state forgets."""
        return self.ttl is not None and self.how.on_expire is OnExpire.KEEP

    @property
    def unsettled(self) -> str:
        """SQL condition of the entries whose expiry a tick has to act on: it counts retractions, and may delete the sink's rows."""
        return f"_role = '{WAITING}'" + (" OR _shown" if self.how.on_expire is OnExpire.DELETE else "")

    @property
    def mortal(self) -> tuple[str, ...]:
        """All entries may expire."""
        return ()

    def apply(self, changes: pa.Table, state: pa.Table, at: Step) -> Reconciled:
        """Apply one step's changes to the histories of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's.
            state: Every stored version of those keys' entries, in any order.
            at: The step.

        Returns:
            Entries added, changed and removed; for each key whose shown row changed the entry that the sink must take; what was emitted.
        """
        changes = changes.select(self.changes.names)
        changes = changes.take(np.lexsort(order_struct(changes).T[::-1]))
        above = _above(order_struct(changes), at.floor)
        metrics = Counter(changes=len(changes), below_floor=int((~above).sum()))
        return _Histories(self, changes.filter(pa.array(above)), self._current(state), at, metrics).run(tick=False)

    def expire(self, state: pa.Table, at: Step) -> Reconciled:
        """Drop what has expired.

        Args:
            state: Every stored version of some keys' entries.
            at: The step.
        """
        none = self.changes.empty_table()
        return _Histories(self, none, self._current(state), at, Counter()).run(tick=True)

    def _current(self, state: pa.Table) -> pa.Table:
        found = live_entries(state, self.schema, self.entry_key)
        return found.take(np.argsort(ints(found, "_position"), kind="stable"))


class _Keys(NamedTuple):
    """Per key, what its sink shows.

    Args:
        before: (keys,) the stored entry that it showed, -1: none that is known.
        after: (keys,) the element that it is to show, -1: none.
        touched: (keys,) it has changes, or rows that expire.
        over: (keys,) it is touched, and the time of what it showed is over.
        change: (keys,) what the sink must do; empty: nothing.
        ends: (keys,) place of the key's last change; -1: it has none.
    """

    before: Codes
    after: Codes
    touched: Mask
    over: Mask
    change: NDArray[np.str_]
    ends: Codes


class _Histories:
    """One call of the operator. A place is an index into `rows`: the stored entries by position, then the changes in order."""

    def __init__(
        self, operator: ArrivalOperator, changes: pa.Table, state: pa.Table, at: Step, metrics: Counter[str]
    ) -> None:
        self.op, self.how, self.at, self.metrics = operator, operator.how, at, metrics
        self.state, self.changes, self.n = state, changes, len(state)
        names = operator.columns.names
        self.rows = pa.concat_tables([state.select(names), changes.select(names)])
        self.key = row_codes(self.rows, operator.key)
        by = [*operator.key, *self.how.upsert_key] if self.how.upsert_key else names
        self.match_code = row_codes(self.rows, by)
        self.keys = int(self.key.max(initial=-1)) + 1
        role = state["_role"].combine_chunks()
        self.waiting, self.gone = (pc.equal(role, each).to_numpy(zero_copy_only=False) for each in (WAITING, GONE))
        self.was_shown = flags(state, "_shown")
        self.expired = self._expired()
        self.dead = ~_above(order_struct(state, "_changed_by"), at.floor)
        self.stamp = self._stamps()

    def run(self, *, tick: bool) -> Reconciled:
        """Go through the changes, or through the keys that expire, see what each key shows, write what differs."""
        touched = np.zeros(self.keys, bool)
        touched[self.key[self.n :]] = True
        touched[self.key[: self.n][self.expired]] |= tick
        self.metrics["expired"] += int((self.expired & ~self.dead & ~self.waiting & touched[self.key[: self.n]]).sum())
        self.metrics["unmatched"] += int((self.expired & ~self.dead & self.waiting & touched[self.key[: self.n]]).sum())
        usable = ~(self.expired | self.dead | self.gone) & touched[self.key[: self.n]]
        places = np.concatenate([np.flatnonzero(usable), np.arange(len(self.changes)) + self.n])
        adds = np.concatenate([~self.waiting, _adds(self.changes)])
        silent = int(usable.sum())
        found = kernel.materialize(
            self.key[places],
            self.match_code[places],
            adds[places],
            n_stored=silent,
            replaces=bool(self.how.upsert_key),
            keep_unmatched=self.how.retraction_grace_ms > 0,
            first=self.how.keep is Keep.FIRST,
        )
        self._count(found.outcome[silent:])
        content, alive = np.arange(len(self.rows)), np.zeros(len(self.rows), bool)
        alive[places] = found.alive
        elements = found.content >= 0
        content[places[elements]] = places[found.content[elements]]
        late = self._late(content, adds)
        self.metrics["late"] += int((late & alive).sum())
        alive &= ~late
        alive &= ~self._above_max_history(alive & adds)
        keys = self._keys(found, places, touched, content)
        entries = self._entries(keys, content, alive, adds, late)
        emitted = self._emitted(found, places, silent, keys, content) if self.how.emission is Emission.EVERY else None
        return Reconciled(entries, self.metrics, emitted)

    def _keys(self, found: kernel.Result, places: Codes, touched: Mask, content: Codes) -> _Keys:
        before, after, edge, ends = (np.full(self.keys, NONE) for _ in range(4))
        speaks = np.zeros(self.keys, bool)
        shown = np.flatnonzero(self.was_shown & ~self.dead)
        before[self.key[shown]] = shown
        size = len(found.last_emitting_event)
        speaks[:size] = found.last_emitting_event >= 0
        for own, theirs in ((after, found.shown), (edge, found.visible_row)):
            known = np.flatnonzero(theirs >= 0)
            own[known] = places[theirs[known]]
        ends[self.key[self.n :]] = np.arange(len(self.changes)) + self.n
        was_over = (before >= 0) & touched
        was_over[was_over] = self.expired[before[was_over]]
        if self.how.on_expire is OnExpire.DELETE:
            after[was_over & ~speaks] = edge[was_over & ~speaks]
            speaks |= was_over
        else:
            self.metrics["orphaned"] += int((was_over & ~speaks & (edge < 0)).sum())
        quiet = ~speaks & ~was_over
        after[quiet] = before[quiet]
        change = np.full(self.keys, "", dtype="U1")
        has, had = after >= 0, before >= 0
        maybe = self.at.orphans or self.op.leaves_orphans
        change[speaks & has] = UPDATE
        change[speaks & has & ~had] = UPDATE if maybe else INSERT
        change[speaks & ~has & (had | maybe)] = DELETE
        both = np.flatnonzero(speaks & has & had)
        same = both[self._same_rows(content[after[both]], before[both])]
        change[same] = ""
        for name, each in {"inserted": INSERT, "updated": UPDATE, "deleted": DELETE}.items():
            self.metrics[name] += int((change == each).sum())
        self.metrics["unchanged"] += int(((ends >= 0) & (change == "")).sum())
        return _Keys(before, after, touched, was_over, change, ends)

    def _same_rows(self, left: Codes, right: Codes) -> Mask:
        both = self.rows.take(pa.array(np.concatenate([left, right])))
        codes = row_codes(both, both.column_names)
        return np.asarray(codes[: len(left)] == codes[len(left) :])

    def _entries(self, keys: _Keys, content: Codes, alive: Mask, adds: Mask, late: Mask) -> pa.Table:
        n, all_ = self.n, len(self.rows)
        of_touched = keys.touched[self.key]
        is_shown = np.zeros(all_, bool)
        is_shown[keys.after[keys.after >= 0]] = True
        over = np.concatenate([self.expired | self.dead, np.zeros(all_ - n, bool)])
        kept = (alive | is_shown) & ~over & ~late
        kept[:n] |= ~of_touched[:n]
        role = np.where(alive, np.where(adds, LIVE, WAITING), GONE)
        carries = np.zeros(all_, bool)
        change = np.full(all_, "", dtype="U1")
        carrier = np.where(keys.after >= 0, keys.after, np.where(keys.before >= 0, keys.before, keys.ends))
        said = np.flatnonzero(keys.change != "")
        carries[carrier[said]], change[carrier[said]] = True, keys.change[said]
        differs = np.ones(all_, bool)
        stored_role = np.where(self.waiting, WAITING, np.where(self.gone, GONE, LIVE))
        differs[:n] = (
            ~kept[:n] | (content[:n] >= n) | (is_shown[:n] != self.was_shown) | (role[:n] != stored_role)
        ) & of_touched[:n]
        differs[n:] = kept[n:]
        out = np.flatnonzero(differs | carries)
        cause = np.where(carries & (keys.ends[self.key] >= 0), keys.ends[self.key], content)[out]
        orders = pa.concat_tables(
            [self.state.select(["_changed_by"]), self.changes.select(["_order"]).rename_columns(["_changed_by"])]
        )["_changed_by"]
        changed_by = orders.take(pa.array(cause))
        if not len(self.changes):
            changed_by = pc.if_else(pa.array(carries[out]), self._before_changes(len(out)), changed_by)
        rows = pa.array(content[out])
        columns: dict[str, object] = {name: self.rows[name].take(rows) for name in self.op.columns.names}
        columns |= {
            "_step": np.full(len(out), self.at.number),
            "_change": pa.array([each or None for each in change[out].tolist()], pa.string()),
            "_removed": ~kept[out],
            "_stamp_ms": self._stamp(content)[out],
            "_changed_by": changed_by,
            "_position": self._positions()[out],
            "_role": role[out],
            "_shown": (is_shown & kept)[out],
        }
        return entry_table(self.op.schema, columns, len(out))

    def _emitted(self, found: kernel.Result, places: Codes, silent: int, keys: _Keys, content: Codes) -> pa.Table:
        """Return what was emitted, record by record; what expired comes before the changes."""
        codes = ("", "+I", "+U", "-D", "", "")
        events = np.flatnonzero(np.isin(found.outcome, [kernel.INSERT, kernel.UPDATE, kernel.DELETE]))
        events = events[events >= silent]
        over, start = self._expiries(keys)
        rows = np.concatenate([np.where(start >= 0, start, keys.before[over]), places[found.source[events]]])
        kinds = ["+U" if each >= 0 else "-D" for each in start.tolist()]
        kinds += [codes[each] for each in self._first_kinds(found.outcome[events], places[events], keys).tolist()]
        orders = self.changes["_order"].take(pa.array(places[events] - self.n)).combine_chunks()
        columns = {name: self.rows[name].take(pa.array(rows)) for name in self.op.columns.names}
        columns |= {"_kind": pa.array(kinds, pa.string())}
        columns |= {"_order": pa.concat_arrays([self._before_changes(len(over)), orders])}
        columns |= {"_number": pa.array(np.arange(len(rows)))}
        return pa.table(columns).cast(self.op.emitted_schema)

    def _first_kinds(self, outcome: NDArray[np.int8], places: Codes, keys: _Keys) -> NDArray[np.int8]:
        """Make an insertion an update where the sink still shows a row that has left a history, which is empty since."""
        key = self.key[places]
        first = np.zeros(len(key), bool)
        first[np.unique(key, return_index=True)[1]] = True
        there = first & ((keys.before >= 0) & ~keys.over)[key]
        return np.where(there & (outcome == kernel.INSERT), kernel.UPDATE, outcome)

    def _expiries(self, keys: _Keys) -> tuple[Codes, Codes]:
        """Return the keys whose shown row was to be deleted since its time is over, and what each shows instead; -1: nothing."""
        if self.how.on_expire is OnExpire.KEEP:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        over = np.flatnonzero(keys.over)
        edge = np.full(self.keys, NONE)
        live = np.flatnonzero(~(self.expired | self.dead | self.gone | self.waiting))
        live = live[::-1] if self.how.keep is Keep.FIRST else live
        edge[self.key[live]] = live  # the last one counts
        return over, edge[over]

    def _before_changes(self, n: int) -> pa.Array:
        """Return n times the place in the order that is before all changes of the step."""
        place = [np.full(n, value) for value in (self.at.number, -1, -1)]
        return pa.StructArray.from_arrays(place, fields=list(ORDER))

    def _count(self, outcome: NDArray[np.int8]) -> None:
        unmatched = np.flatnonzero(outcome == kernel.UNMATCHED)
        over = self.match_code[: self.n][self.expired & ~self.dead & ~self.waiting]
        self.metrics["waiting" if self.how.retraction_grace_ms else "unmatched"] += len(unmatched)
        self.metrics["unmatched_expired"] += int(np.isin(self.match_code[self.n :][unmatched], over).sum())
        self.metrics["cancelled"] += int((outcome == kernel.CANCELLED).sum())

    def _above_max_history(self, live: Mask) -> Mask:
        """Mark the oldest rows of the keys that have too many."""
        too_many = np.zeros(len(live), bool)
        if self.how.max_history is not None:
            places = np.flatnonzero(live)
            newest_first = places[np.lexsort((-places, self.key[places]))]
            too_many[newest_first[_rank(self.key[newest_first]) >= self.how.max_history]] = True
            self.metrics["dropped"] += int(too_many.sum())
        return too_many

    def _positions(self) -> Codes:
        stored, codes = ints(self.state, "_position"), self.key[self.n :]
        following = np.zeros(self.keys, np.int64)
        np.maximum.at(following, self.key[: self.n], stored + 1)
        order = np.argsort(codes, kind="stable")
        rank = np.empty(len(codes), np.int64)
        rank[order] = _rank(codes[order])
        return np.concatenate([stored, following[codes] + rank])

    def _expired(self) -> Mask:
        stamps = ints(self.state, "_stamp_ms")
        lives, waits = (has_expired(stamps, self.op.ttls.get(role), self.at) for role in (None, WAITING))
        return np.where(self.waiting, waits | (self.how.retraction_grace_ms == 0), lives)

    def _stamps(self) -> Codes:
        fresh = np.full(len(self.changes), self.at.now_ms)
        if self.op.ttl is not None and self.op.ttl.time_characteristic is TimeCharacteristic.EVENT_TIME:
            adds = _adds(self.changes)
            fresh = np.where(adds, ints(self.changes, "_event_ms"), fresh)
        return np.concatenate([ints(self.state, "_stamp_ms"), fresh])

    def _stamp(self, content: Codes) -> Codes:
        """Return from when each element lives: a row that replaces another may keep its time."""
        keeps = self.op.ttl is not None and self.op.ttl.update_type is UpdateType.ON_CREATE
        return self.stamp if keeps else self.stamp[content]

    def _late(self, content: Codes, adds: Mask) -> Mask:
        """Mark the elements written now whose time is over already: they reach the sink and are not stored."""
        if self.how.on_expire is OnExpire.DELETE:
            return np.zeros(len(content), bool)  # the next tick deletes them, from the sink too
        return adds & (content >= self.n) & has_expired(self._stamp(content), self.op.ttl, self.at)


def _rank(codes: Codes) -> Codes:
    """Number the rows within each run of equal codes.

    Example:
        >>> _rank(np.array([3, 3, 5])).tolist()
        [0, 1, 0]
    """
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]])) if len(codes) else codes
    return np.arange(len(codes)) - np.repeat(starts, np.diff(starts, append=len(codes)))


def _adds(changes: pa.Table) -> Mask:
    """Mark the changes that add a row."""
    kinds = pa.array([str(kind) for kind in ADDS])  # here, since pyarrow loads pandas for it
    return np.asarray(pc.is_in(changes["_kind"], kinds).to_numpy(zero_copy_only=False), bool)


def _above(orders: Codes, floor: tuple[int, ...] | None) -> Mask:
    """Mark the orders after the floor."""
    if floor is None:
        return np.ones(len(orders), dtype=bool)
    step, part, position = orders.T
    s, p, o = floor
    return np.asarray((step > s) | ((step == s) & ((part > p) | ((part == p) & (position > o)))))
