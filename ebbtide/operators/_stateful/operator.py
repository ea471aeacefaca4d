"""Runs a user's stateful function over one step's changes. Its states are rows of a state table.

A key's due timers fire before its rows; timers of other keys fire at the tick that ends the run.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER, RowKind, changelog_schema, order_struct
from ebbtide.columns import Codes, Long, Mask, ints, row_codes
from ebbtide.entries import ENTRY_COLUMNS, Reconciled, SinkChange, Step, last_of_group, live_entries
from ebbtide.errors import EbbtideError, StatefulFunctionError
from ebbtide.keyed_state import Change, Deletion, Entry, FunctionRun, KeyedState, StatefulFunction, StateTtlConfig
from ebbtide.model import SchemaChange
from ebbtide.operators._expiry import ExpiryRules
from ebbtide.operators._stateful.rows import Key, UnfitValueError, changed_rows, load, state_columns, to_table
from ebbtide.operators._stateful.store import StateSpec, WorkingStore

Row = Mapping[str, Any]
Order = tuple[int, ...]
ORDER_PARTS = [part.name for part in ORDER]


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful function as an operator of a pipeline.

    Args:
        columns: The source's columns.
        key: Names of the key's columns.
        output: The sink's columns, including the key's.
        sink_key: Names of the sink's key.
        function: Makes the function; called once for each group of keys.
        states: Its states by name.
        shows_values: Errors may show keys, rows and the function's error text.
        hands_over: The function has `on_expire`, so that no entry may be deleted without a tick, which calls it.
        transformed: The states with a snapshot transformer.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    output: pa.Schema
    sink_key: tuple[str, ...]
    function: Callable[[], StatefulFunction]
    states: dict[str, StateSpec] = field(default_factory=dict)
    shows_values: bool = True
    hands_over: bool = False
    transformed: frozenset[str] = frozenset()

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        fields = []
        for name in self.key:
            column = self.columns.field(name)
            fields.append(column.with_nullable(True))
        own_types = ENTRY_COLUMNS | state_columns(self.states, self.output)
        fields.extend(pa.schema(own_types))
        return pa.schema(fields)

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that identify an entry."""
        return (*self.key, "_state", "_sub")

    @property
    def expiry(self) -> ExpiryRules:
        """Expiry by each state's time to live."""
        ttls: dict[str | None, StateTtlConfig] = {}
        for name, spec in self.states.items():
            if spec.ttl is not None:
                ttls[name] = spec.ttl
        needs_tick = (("_removed", False),) if self.hands_over else ()
        return ExpiryRules(ttls, needs_tick=needs_tick)

    @property
    def has_named_states(self) -> bool:
        """Return True: the function's states and timers are named."""
        return True

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Run the function on one step's changes.

        Args:
            changes: Changelog rows without TRUNCATE; all changes of each key.
            state: Every stored version of those keys' entries, in any order.
            step: Number and clocks of the step.

        Returns:
            Entries changed and removed, and the rows for the sink, one per key of the sink.

        Raises:
            StatefulFunctionError: the function failed, or yielded a row that does not fit its output.
        """
        call = _Call(
            operator=self,
            changes=changes,
            state=self.live_entries(state),
            step=step,
        )
        return call.run()

    def altered(self, entries: pa.Table, change: SchemaChange, fills: Mapping[str, pa.Scalar]) -> pa.Table:
        """See `Operator`."""
        return change.rows(entries, self.schema, fills)

    def expire(
        self,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Drop expired entries, and fire the timers that are due.

        Args:
            state: Every stored version of some keys' entries.
            step: Number and clocks of the tick.
        """
        call = _Call(
            operator=self,
            changes=None,
            state=self.live_entries(state),
            step=step,
        )
        return call.run()

    def transform(self, state: pa.Table, step: Step, since: int) -> Reconciled:
        """Hand live entries to the snapshot transformers of their states.

        Args:
            state: Every stored version of some keys' entries.
            step: Number and clocks of the step.
            since: See `untransformed`.
        """
        entries = self.live_entries(state)
        is_due = self.untransformed(entries, since) & ~self.expiry.expired(entries, step)
        call = _Call(
            operator=self,
            changes=None,
            state=entries.filter(pa.array(is_due)),
            step=step,
        )
        return call.transform()

    def untransformed(self, entries: pa.Table, since: int) -> Mask:
        """Mark the entries that a snapshot transformer has yet to be handed.

        Args:
            entries: With `_state` and `_step`.
            since: Those of this step and of earlier ones were handed over.
        """
        names = pa.array(sorted(self.transformed), pa.string())
        has_transformer = pc.is_in(entries["_state"], names).to_numpy()
        return np.asarray(has_transformer & (ints(entries, "_step") > since))

    def live_entries(self, state: pa.Table) -> pa.Table:
        """Return the newest version of each entry, without removed ones."""
        # Rows that are only for the sink have no state.
        is_of_state = state["_state"].is_valid()
        of_states = state.filter(is_of_state)
        return live_entries(of_states, self.schema, self.entry_key)


class _Yielded(NamedTuple):
    """A row for the sink.

    Args:
        row: Column to value; a `Deletion` if the sink must no longer have its key.
        order: Order of the change that caused it.
        key: The function's key.
    """

    row: Row
    order: Order
    key: Key


class _Call:
    """One call of the operator: loads entries into dicts, runs the function key by key, and collects the rows."""

    def __init__(
        self,
        operator: StatefulOperator,
        changes: pa.Table | None,
        state: pa.Table,
        step: Step,
    ) -> None:
        self.op = operator
        self.step = step
        self.store = WorkingStore(operator.states)
        self.metrics: Counter[str] = Counter()
        self.out: dict[Key, _Yielded] = {}
        self.changes = changes
        self.function = operator.function()
        self.function_name = type(self.function).__name__
        ttls = {name: spec.ttl for name, spec in operator.states.items()}
        self.running = FunctionRun(self.function, self.store, ttls)
        context = self.running.context
        context.now_ms = step.now_ms
        context.output_key = operator.sink_key
        context.watermark_ms = Long.MIN
        if step.watermark_ms is not None:
            context.watermark_ms = step.watermark_ms
        codes = self._number_keys(state)
        n = len(state)
        entry_codes = codes[:n].tolist()
        self.change_codes = codes[n:]
        entry_keys = [self.keys[code] for code in entry_codes]
        load(
            entries=state,
            keys=entry_keys,
            states=operator.states,
            store=self.store,
        )

    def _number_keys(self, state: pa.Table) -> Codes:
        """List the keys of entries and changes; return the number of each one's key."""
        names = self.op.key
        keys = state.select(names)
        if self.changes is not None:
            change_keys = self.changes.select(names)
            keys = pa.concat_tables([keys, change_keys])
        codes: Codes = np.empty(0, np.int64)
        if len(keys):
            codes = row_codes(keys, names)
        # Each key is converted to Python values once, for all of its entries and changes.
        _, first_of_key = np.unique(codes, return_index=True)
        distinct = keys.take(pa.array(first_of_key))
        columns = [column.to_pylist() for column in distinct.columns]
        self.keys: list[Key] = list(zip(*columns, strict=True))
        return codes

    def run(self) -> Reconciled:
        """Run the function on the changes; without any fire timers and remove what has expired."""
        if self.changes is None:
            self._tick()
        else:
            self._process(self.changes)
        return self._reconciled()

    def transform(self) -> Reconciled:
        """Hand all entries to the snapshot transformers, which keep, change or drop each."""
        for name in sorted(self.op.transformed):
            state = self.running.states[name]
            for key in self.keys:
                for sub, entry in list(state.raw.entries(key)):
                    self._transform(state, key, sub, entry)
        return self._reconciled()

    def _transform(self, state: KeyedState, key: Key, sub: Any, entry: Entry) -> None:
        with self._failing(key):
            kept = state.transformed(entry)
        if kept is None:
            state.raw.remove(key, sub)
            self.metrics["filtered"] += 1
        elif kept.value != entry.value:
            state.raw.put(key, sub, kept)
            self.metrics["transformed"] += 1

    def _reconciled(self) -> Reconciled:
        return Reconciled(self._entries(), self.metrics + self.running.context.counts)

    def _tick(self) -> None:
        """Remove expired entries, then fire the timers that are due."""
        # Before the timers, so that a function's timers do not see expired entries.
        for state in self.running.states.values():
            if state.ttl is None or self.op.hands_over:
                continue
            cleanup = state.ttl.cleanup
            if cleanup.background or cleanup.timers:
                for key in state.raw.all_keys():
                    state.purge(key)
        for key in self.keys:
            self._expire(key)
            self._fire(key)

    def _process(self, changes: pa.Table) -> None:
        """Run the function on each key's changes in order; O(n log n) in them, for the sort."""
        self.metrics["changes"] += len(changes)
        if not len(changes):
            return
        orders = order_struct(changes)
        by_order = orders.T[::-1]
        by_key = np.lexsort((*by_order, self.change_codes))
        codes = self.change_codes[by_key]
        change_of = _changes_of(changes, self.op.columns.names)
        # Each run of one code is one key's changes, in order.
        is_last = last_of_group(codes)
        ends = np.flatnonzero(is_last) + 1
        bounds = [0, *ends.tolist()]
        for start, end in itertools.pairwise(bounds):
            rows = by_key[start:end].tolist()
            last_order = orders[rows[-1]]
            order = tuple(last_order.tolist())
            key = self.keys[codes[start]]
            key_changes = [change_of(row) for row in rows]
            self._expire(key)
            self._fire(key)
            yielded = self.running.process(key, key_changes)
            self._collect(key, order, yielded)

    def _expire(self, key: Key) -> None:
        """Remove a key's expired entries and hand them over to the function, if it takes them."""
        if self.op.hands_over:
            self._collect(key, self._before_changes, self.running.expire(key))

    def _fire(self, key: Key) -> None:
        due = self.running.due(key)
        self.metrics["timers"] += len(due)
        if due:
            self._collect(key, self._before_changes, self.running.fire(key))

    @property
    def _before_changes(self) -> Order:
        return (self.step.number, 0, 0)

    def _collect(
        self,
        key: Key,
        order: Order,
        rows: Iterable[Row],
    ) -> None:
        """Keep the rows that the function yields, the last one for each key of the sink."""
        own_key = dict(zip(self.op.key, key, strict=True))
        with self._failing(key):
            for given in rows:
                row = {**given, **own_key}
                self._refuse_misfit(key, given, row)
                sink_key = tuple(row[name] for name in self.op.sink_key)
                if isinstance(given, Deletion):
                    row = Deletion(row)
                self.out[sink_key] = _Yielded(row, order, key)

    @contextmanager
    def _failing(self, key: Key) -> Iterator[None]:
        """Raise the errors of the user's code with the key that it ran on."""
        try:
            yield
        except EbbtideError:
            raise
        except Exception as error:
            if not self.op.shows_values:
                raise self._failure(key, error) from None
            raise self._failure(key, error) from error

    def _failure(
        self,
        key: Key,
        error: Exception,
    ) -> StatefulFunctionError:
        error_name = type(error).__name__
        what_happened = f"{self.function_name} failed on key {key}: {error_name}: {error}."
        if not self.op.shows_values:
            what_happened = f"{self.function_name} failed: {error_name}. Its key and text may be personal."
        return StatefulFunctionError.of(
            what_happened.replace("\n", " "),
            next_step="Nothing of the step was committed. Repair the function, then run again.",
        )

    def _refuse_misfit(
        self,
        key: Key,
        given: Row,
        row: Row,
    ) -> None:
        """Refuse a row with unknown columns, another key, or a null in the sink's key.

        Args:
            key: The key that the function ran on.
            given: The row as the function yielded it.
            row: With the key's columns.
        """
        output_names = self.op.output.names
        sink_key = self.op.sink_key
        own_key = zip(self.op.key, key, strict=True)
        has_unknown = any(name not in output_names for name in row)
        has_null_key = any(row.get(name) is None for name in sink_key)
        has_other_key = any(given.get(name, value) != value for name, value in own_key)
        if not (has_unknown or has_null_key or has_other_key):
            return
        columns = ", ".join(output_names)
        not_null = ", ".join(sink_key)
        raise StatefulFunctionError.of(
            f"{self.function_name} yielded a row that does not fit its output.",
            got=dict(given) if self.op.shows_values else f"columns {', '.join(given)}",
            allowed=f"the columns {columns}; those of the key are added; none of {not_null} null",
        )

    def _entries(self) -> pa.Table:
        """Build the entries that changed, then one for each row of the sink."""
        keys, columns = changed_rows(self.store, self.op.states)
        no_entry: list[Any] = [None] * len(keys)
        changes: list[str] = []
        rows: list[Row] = []
        orders: list[dict[str, int]] = []
        names = self.op.output.names
        for yielded in self.out.values():
            is_deletion = isinstance(yielded.row, Deletion)
            row = {name: yielded.row.get(name) for name in names}
            order = dict(zip(ORDER_PARTS, yielded.order, strict=True))
            changes.append(SinkChange.DELETE if is_deletion else SinkChange.UPDATE)
            rows.append(row)
            orders.append(order)
            keys.append(yielded.key)
        self.metrics["deleted"] += changes.count(SinkChange.DELETE)
        self.metrics["updated"] += changes.count(SinkChange.UPDATE)
        columns["_removed"] += [False] * len(rows)
        columns["_change"] = no_entry + changes
        columns["_out"] = no_entry + rows
        columns["_changed_by"] = no_entry + orders
        try:
            return to_table(
                schema=self.op.schema,
                key=self.op.key,
                keys=keys,
                columns=columns,
                step=self.step.number,
            )
        except UnfitValueError as error:
            what_happened = f"{self.function_name} gave a value that does not fit '{error.column}'"
            if not self.op.shows_values:
                raise StatefulFunctionError.of(f"{what_happened}.", allowed=error.allowed) from None
            raise StatefulFunctionError.of(f"{what_happened}: {error}.", allowed=error.allowed) from error


def _changes_of(changes: pa.Table, names: Sequence[str]) -> Callable[[int], Change]:
    """Return a function that converts a changelog row to a `Change`."""
    kinds = changes["_kind"].to_pylist()
    row_kinds = [RowKind(kind) for kind in kinds]
    event_times = changes["_event_ms"].to_pylist()
    columns = [changes[name].to_pylist(maps_as_pydicts="strict") for name in names]

    def change(row: int) -> Change:
        values = [column[row] for column in columns]
        named_values = zip(names, values, strict=True)
        return Change(
            row_kinds[row],
            dict(named_values),
            event_times[row],
        )

    return change
