"""Runs a user's stateful function over one step's changes, its states being rows of a state table.

A key's timers that are due fire before its rows; those of other keys at the tick that ends the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ebbtide.errors import EbbtideError, StatefulFunctionError
from ebbtide.model.changelog import ORDER, RowKind, changelog_schema
from ebbtide.model.codes import row_codes
from ebbtide.model.entries import (
    DELETE,
    ENTRY_COLUMNS,
    LONG_MIN,
    UPDATE,
    Reconciled,
    Step,
    last_of_group,
    live_entries,
    order_struct,
)
from ebbtide.model.state.function import Change, Deletion, FunctionRun, StatefulFunction
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.state_rows import (
    Key,
    StateSpec,
    UnfitValueError,
    WorkingStore,
    changed_rows,
    load,
    state_columns,
    to_table,
)

Row = Mapping[str, Any]
Place = tuple[int, ...]
PLACE = [f.name for f in ORDER]


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful function as an operator of a pipeline.

    Args:
        columns: The source's columns.
        key: Names of the key's columns.
        output: The sink's columns, those of the key among them.
        sink_key: Names of the sink's key.
        function: Makes the function; called once for each group of keys.
        states: Its states by name.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    output: pa.Schema
    sink_key: tuple[str, ...]
    function: Callable[[], StatefulFunction]
    states: dict[str, StateSpec] = field(default_factory=dict)

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        keys = [self.columns.field(name).with_nullable(True) for name in self.key]
        own = ENTRY_COLUMNS | state_columns(self.states, self.output)
        return pa.schema([*keys, *(pa.field(name, kind) for name, kind in own.items())])

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that distinguish one entry from another."""
        return (*self.key, "_state", "_sub")

    @property
    def ttls(self) -> dict[str | None, StateTtlConfig]:
        """State to its time to live, of those that expire."""
        return {name: spec.ttl for name, spec in self.states.items() if spec.ttl is not None}

    @property
    def state_column(self) -> str:
        """The column that holds the name of the state."""
        return "_state"

    @property
    def unsettled(self) -> None:
        """There are no entries whose expiry a tick has to act on."""

    @property
    def mortal(self) -> tuple[str, ...]:
        """All entries of a state with a time to live may expire."""
        return ()

    def apply(self, changes: pa.Table, state: pa.Table, at: Step) -> Reconciled:
        """Run the function on one step's changes.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's.
            state: Every stored version of those keys' entries, in any order.
            at: The step.

        Returns:
            Entries changed and removed, and the rows that the sink must take, one per key of the sink.

        Raises:
            StatefulFunctionError: the function failed, or yielded a row that does not fit its output.
        """
        return _Call(self, changes, self.live_entries(state), at).run()

    def expire(self, state: pa.Table, at: Step) -> Reconciled:
        """Drop what has expired, and fire the timers that are due.

        Args:
            state: Every stored version of some keys' entries.
            at: The step.
        """
        return _Call(self, None, self.live_entries(state), at).run()

    def live_entries(self, state: pa.Table) -> pa.Table:
        """Return the newest version of each entry, those removed left out."""
        return live_entries(state.filter(state["_state"].is_valid()), self.schema, self.entry_key)


class _Call:
    """One call of the operator: the entries in dicts, the function run key by key, the rows that follow."""

    def __init__(self, operator: StatefulOperator, changes: pa.Table | None, state: pa.Table, at: Step) -> None:
        self.op, self.at, self.store = operator, at, WorkingStore(operator.states)
        self.metrics: Counter[str] = Counter()
        self.out: dict[Key, tuple[Row, Place, Key]] = {}
        self.changes = changes
        columns = [*operator.key]
        parts = [state.select(columns)] + ([changes.select(columns)] if changes is not None else [])
        together = pa.concat_tables(parts)
        codes = row_codes(together, columns) if len(together) else np.empty(0, np.int64)
        _, first = np.unique(codes, return_index=True)
        lists = [together[name].take(pa.array(first)).to_pylist() for name in columns]
        self.keys: list[Key] = list(zip(*lists, strict=True))
        self.codes = codes[len(state) :]
        load(state, [self.keys[code] for code in codes[: len(state)].tolist()], operator.states, self.store)

    def run(self) -> Reconciled:
        function = self.op.function()
        self.running = FunctionRun(function, self.store, {name: spec.ttl for name, spec in self.op.states.items()})
        context = self.running.context
        context.now_ms, context.output_key = self.at.now_ms, self.op.sink_key
        context.watermark_ms = LONG_MIN if self.at.watermark_ms is None else self.at.watermark_ms
        if self.changes is None:
            self._tick()
        else:
            self._process(self.changes)
        return Reconciled(self._entries(), self.metrics + context.counts)

    def _tick(self) -> None:
        for state in self.running.states.values():
            if state.ttl is not None and (state.ttl.cleanup.background or state.ttl.cleanup.timers):
                for key in state.raw.all_keys():
                    state.purge(key)
        for key in self.keys:
            self._fire(key)

    def _process(self, changes: pa.Table) -> None:
        places = order_struct(changes)
        order = np.lexsort((*places.T[::-1], self.codes))
        names = self.op.columns.names
        columns = [changes[name].to_pylist(maps_as_pydicts="strict") for name in names]
        kinds, events = changes["_kind"].to_pylist(), changes["_event_ms"].to_pylist()
        codes = self.codes[order]
        ends = (np.flatnonzero(last_of_group(codes)) + 1).tolist() if len(codes) else []
        self.metrics["changes"] += len(codes)
        start = 0
        for end in ends:
            rows = order[start:end].tolist()
            key = self.keys[codes[start]]
            place: Place = tuple(map(int, places[rows[-1]]))
            given = [
                Change(RowKind(kinds[i]), {n: c[i] for n, c in zip(names, columns, strict=True)}, events[i])
                for i in rows
            ]
            self._fire(key)
            self._take(key, place, self.running.process(key, given))
            start = end

    def _fire(self, key: Key) -> None:
        due = self.running.due(key)
        self.metrics["timers"] += len(due)
        if due:
            self._take(key, (self.at.number, 0, 0), self.running.fire(key))

    def _take(self, key: Key, place: Place, rows: Iterable[Row]) -> None:
        name = type(self.running.function).__name__
        try:
            for given in rows:
                row = {**given, **dict(zip(self.op.key, key, strict=True))}
                sink_key = tuple(row.get(k) for k in self.op.sink_key)
                self._refuse_misfit(name, key, given, row, sink_key)
                self.out[sink_key] = Deletion(row) if isinstance(given, Deletion) else row, place, key
        except EbbtideError:
            raise
        except Exception as error:
            raise StatefulFunctionError.of(
                f"{name} failed on key {key}: {type(error).__name__}: {error}.".replace("\n", " "),
                next_step="Nothing of the step was committed. Repair the function, then run again.",
            ) from error

    def _refuse_misfit(self, name: str, key: Key, given: Row, row: Row, sink_key: Key) -> None:
        unknown = [column for column in row if column not in self.op.output.names]
        if (
            unknown
            or None in sink_key
            or any(given.get(k, own) != own for k, own in zip(self.op.key, key, strict=True))
        ):
            raise StatefulFunctionError.of(
                f"{name} yielded a row that does not fit its output.",
                got=dict(given),
                allowed=f"the columns {', '.join(self.op.output.names)}; those of the key are added; none of {', '.join(self.op.sink_key)} null",
            )

    def _entries(self) -> pa.Table:
        keys, columns = changed_rows(self.store, self.op.states)
        n, out = len(keys), list(self.out.values())
        gone = [isinstance(row, Deletion) for row, _, _ in out]
        self.metrics["deleted"] += sum(gone)
        self.metrics["updated"] += len(out) - sum(gone)
        columns["_removed"] += [False] * len(out)
        columns["_change"] = [None] * n + [DELETE if each else UPDATE for each in gone]
        columns["_out"] = [None] * n + [{f: row.get(f) for f in self.op.output.names} for row, _, _ in out]
        columns["_changed_by"] = [None] * n + [dict(zip(PLACE, place, strict=True)) for _, place, _ in out]
        try:
            return to_table(self.op.schema, self.op.key, [*keys, *(key for _, _, key in out)], columns, self.at.number)
        except UnfitValueError as error:
            raise StatefulFunctionError.of(
                f"{type(self.running.function).__name__} gave a value that does not fit '{error.column}': {error}.",
                allowed=error.allowed,
            ) from error
