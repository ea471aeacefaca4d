"""Arrival mode: changes apply in the order in which they arrived, to an ordered multiset of rows per key.

State, one entry per live row (the newest `_step` of a key and `_position` counts), beside the columns of
`ebbtide.model.entries`:

| column | meaning |
|---|---|
| the user's columns | the row |
| `_position` | its place in the key's history; greater is newer |

The sink shows the newest live row of a key. Source: FLIP-544, "SinkUpsertMaterializer" without an upsert key; of a
key's changes in one step only the net effect is emitted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.changelog import changelog_schema
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import (
    DELETE,
    ENTRY_COLUMNS,
    INSERT,
    UPDATE,
    Reconciled,
    Step,
    current,
    entry_table,
    has_expired,
    ints,
    order_struct,
)
from ebbtide.model.multiset import Element, OrderedMultiset
from ebbtide.model.ttl import StateTtlConfig, TimeCharacteristic

ARRIVAL_COLUMNS: dict[str, pa.DataType] = {"_position": pa.int64()}


@dataclass(frozen=True)
class ArrivalOperator:
    """Reconciles changes with their keys' histories in order of arrival.

    Args:
        columns: The user's columns, in order; two rows are equal if all of them are.
        key: Names of the key's columns, none of them nullable.
        ttl: Time to live of each row of a history, from its insertion; None keeps them until retracted.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    ttl: StateTtlConfig | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        own = [pa.field(n, t) for n, t in (ENTRY_COLUMNS | ARRIVAL_COLUMNS).items()]
        return pa.schema([f.with_nullable(True) for f in self.columns] + own)

    @property
    def identity(self) -> tuple[str, ...]:
        """Columns that tell one entry from another."""
        return (*self.key, "_position")

    @property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """Its only state's time to live, if it has one."""
        return {} if self.ttl is None else {None: self.ttl}

    @property
    def mortal(self) -> str | None:
        """The boolean column of the entries that may expire; None: all may."""
        return None

    def apply(self, changes: pa.Table, state: pa.Table, at: Step) -> Reconciled:
        """Apply one step's changes to the histories of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's.
            state: Every stored version of those keys' entries, in any order.
            at: The step.

        Returns:
            Entries added and removed, and for each key whose shown row changed the entry that the sink must take.
        """
        changes = changes.select(changelog_schema(self.columns).names)
        changes = changes.take(np.lexsort(order_struct(changes).T[::-1]))
        above = _above(order_struct(changes), at.floor)
        metrics = Counter(changes=len(changes), below_floor=int((~above).sum()))
        return _Histories(
            self, changes.filter(pa.array(above)), current(state, self.schema, self.identity), at, metrics
        ).run()

    def expire(self, state: pa.Table, at: Step) -> Reconciled:
        """Drop what has expired; the sink keeps its rows.

        Args:
            state: Every stored version of some keys' entries.
            at: The step.
        """
        entries = current(state, self.schema, self.identity)
        gone = entries.filter(pa.array(has_expired(ints(entries, "_stamp_ms"), self.ttl, at)))
        columns = {name: gone[name] for name in (*self.columns.names, "_stamp_ms", "_changed_by", "_position")}
        n = len(gone)
        return Reconciled(
            entry_table(self.schema, columns | {"_step": np.full(n, at.number), "_removed": np.ones(n, bool)}, n),
            Counter(expired=n),
        )


class _Histories:
    """One call of `ArrivalOperator.apply`: the entries, then the changes, in one run of row indices."""

    def __init__(
        self, operator: ArrivalOperator, changes: pa.Table, state: pa.Table, at: Step, metrics: Counter[str]
    ) -> None:
        self.op, self.at, self.metrics = operator, at, metrics
        self.state, self.changes, self.n_state = state, changes, len(state)
        names = operator.columns.names
        self.rows = pa.concat_tables([state.select(names), changes.select(names)])
        self.code = row_codes(self.rows, operator.key)
        self.row = row_codes(self.rows, names)
        self.gone = has_expired(ints(state, "_stamp_ms"), operator.ttl, at)
        self.position = ints(state, "_position")
        self.dead = ~_above(order_struct(state, "_changed_by"), at.floor)
        self.out: list[tuple[int, int, str | None, bool, int]] = []
        """(event, position, change, removed, event that caused it) of each entry to append."""

    def run(self) -> Reconciled:
        """Go through the touched keys one by one."""
        adds = pc.is_in(self.changes["_kind"], pa.array(["+I", "+U"])).to_numpy()
        events = np.concatenate(
            [np.lexsort((self.position, self.code[: self.n_state])), np.arange(len(self.changes)) + self.n_state]
        )
        events = events[np.argsort(self.code[events], kind="stable")]
        ends = np.flatnonzero(np.diff(self.code[events], append=-1))
        start = 0
        for end in (ends + 1).tolist():
            self._key(events[start:end].tolist(), adds)
            start = end
        return self._entries()

    def _key(self, events: list[int], adds: np.ndarray) -> None:
        stored = [e for e in events if e < self.n_state]
        changes = events[len(stored) :]
        if not changes:
            return
        at_position = {int(self.position[e]): e for e in stored}
        live = [e for e in stored if not self.gone[e] and not self.dead[e]]
        expired = Counter(int(self.row[e]) for e in stored if self.gone[e] and not self.dead[e])
        history = OrderedMultiset(
            [Element(int(self.row[e]), int(self.position[e])) for e in live],
            next_position=max(at_position, default=-1) + 1,
        )
        shown = history.last
        said: Element[int] | None = None  # the row of the last record that, one by one, would have been emitted
        for e in changes:
            row, last = int(self.row[e]), history.last
            if adds[e - self.n_state]:
                said = history.add(row)
                at_position[said.position] = e
            elif (gone := history.retract(row)) is None:
                self.metrics["unmatched"] += 1
                self.metrics["unmatched_expired"] += int(expired[row] > 0)
            elif gone == last:
                said = history.last or gone
        kept = {element.position for element in history}
        change = self._change(shown, history.last) if said else None
        self.metrics[{INSERT: "inserted", UPDATE: "updated", DELETE: "deleted", None: "unchanged"}[change]] += 1
        shows = (shown or said if change == DELETE else history.last) if change else None
        for position, e in at_position.items():
            is_new, is_kept, is_shown = (
                e >= self.n_state,
                position in kept,
                shows is not None and position == shows.position,
            )
            if is_shown or is_new == is_kept:
                self.out.append(
                    (e, position, change if is_shown else None, not is_kept, changes[-1] if is_shown else e)
                )

    def _change(self, before: Element[int] | None, after: Element[int] | None) -> str | None:
        """Tell what the sink must do; with a ttl it may still show an expired row, and so differ from `before`."""
        if after is None:
            return DELETE if before or self.op.ttl else None
        if before is None:
            return UPDATE if self.op.ttl else INSERT
        return UPDATE if before.row != after.row or self._by_event_time else None

    def _entries(self) -> Reconciled:
        n = len(self.out)
        event, position, change, removed, cause = ([o[i] for o in self.out] for i in range(5))
        index = pa.array(event, pa.int64())
        orders = pa.concat_tables(
            [self.state.select(["_changed_by"]), self.changes.select(["_order"]).rename_columns(["_changed_by"])]
        )
        stamp = self._stamps()[np.asarray(event, np.int64)]
        mask = np.asarray(removed, bool)
        is_new = np.asarray(event, np.int64) >= self.n_state
        late = is_new & ~mask & has_expired(stamp, self.op.ttl, self.at)
        self.metrics.update(late=int(late.sum()))
        columns = {name: self.rows[name].take(index) for name in self.op.columns.names}
        columns |= {
            "_step": np.full(n, self.at.number),
            "_change": change,
            "_removed": mask | late,
            "_stamp_ms": stamp,
            "_changed_by": orders["_changed_by"].take(pa.array(cause, pa.int64())),
            "_position": position,
        }
        return Reconciled(entry_table(self.op.schema, columns, n), self.metrics)

    @property
    def _by_event_time(self) -> bool:
        """Whether a newer row may expire before an older one."""
        return self.op.ttl is not None and self.op.ttl.time_characteristic is TimeCharacteristic.EVENT_TIME

    def _stamps(self) -> Codes:
        fresh = ints(self.changes, "_event_ms") if self._by_event_time else np.full(len(self.changes), self.at.now_ms)
        return np.concatenate([ints(self.state, "_stamp_ms"), fresh])


def _above(orders: Codes, floor: tuple[int, ...] | None) -> NDArray[np.bool_]:
    """Mark the orders after the floor."""
    if floor is None:
        return np.ones(len(orders), dtype=bool)
    step, part, position = orders.T
    s, p, o = floor
    return np.asarray((step > s) | ((step == s) & ((part > p) | ((part == p) & (position > o)))))
