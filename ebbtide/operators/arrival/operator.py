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
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from ebbtide.model.changelog import ORDER, changelog_schema
from ebbtide.model.durations import from_ms
from ebbtide.model.entries import ENTRY_COLUMNS, Reconciled, Step, ints, live_entries, order_struct
from ebbtide.model.ttl import StateTtlConfig
from ebbtide.operators.arrival.histories import Histories
from ebbtide.operators.arrival.rows import WAITING, Rows, above_floor
from ebbtide.operators.arrival.rules import Emission, Keep, Materialization, OnExpire
from ebbtide.operators.expiry import ExpiryRules

__all__ = ["ArrivalOperator", "Emission", "Keep", "Materialization", "OnExpire"]

ARRIVAL_COLUMNS: dict[str, pa.DataType] = {
    "_position": pa.int64(),
    "_role": pa.string(),
    "_shown": pa.bool_(),
}
EMITTED_COLUMNS: dict[str, pa.DataType] = {
    "_kind": pa.string(),
    "_order": ORDER,
    "_number": pa.int64(),
}


@dataclass(frozen=True)
class ArrivalOperator:
    """Reconciles changes with their keys' histories in order of arrival.

    Args:
        columns: The user's columns, in order; two rows are equal if all of them are.
        key: Names of the key's columns, none of them nullable.
        ttl: Time to live of each row of a history, from when it was written; None keeps them until retracted.
        materialization: How histories are kept.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    ttl: StateTtlConfig | None = None
    materialization: Materialization = field(default_factory=Materialization)

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a state entry."""
        return self._with_columns(ENTRY_COLUMNS | ARRIVAL_COLUMNS)

    @cached_property
    def changes(self) -> pa.Schema:
        """Columns of a change."""
        return changelog_schema(self.columns)

    @cached_property
    def emitted_schema(self) -> pa.Schema:
        """Columns of an emitted record."""
        return self._with_columns(EMITTED_COLUMNS)

    def _with_columns(self, types: dict[str, pa.DataType]) -> pa.Schema:
        user_fields = [field.with_nullable(True) for field in self.columns]
        own_fields = pa.schema(types)
        fields = [*user_fields, *own_fields]
        return pa.schema(fields)

    @property
    def entry_key(self) -> tuple[str, ...]:
        """Columns that distinguish one entry from another."""
        return (*self.key, "_position")

    @cached_property
    def expiry(self) -> ExpiryRules:
        """Rows have the pipeline's time to live, retractions that wait their own.

        A tick counts the retractions that have expired, and may delete the sink's rows.
        """
        ttls: dict[str | None, StateTtlConfig] = {}
        if self.ttl is not None:
            ttls[None] = self.ttl
        if self.materialization.retraction_grace_ms:
            grace = from_ms(self.materialization.retraction_grace_ms)
            ttls[WAITING] = StateTtlConfig(ttl=grace)
        acted_on: list[tuple[str, str | bool]] = [("_role", WAITING)]
        if self.materialization.on_expire is OnExpire.DELETE:
            acted_on.append(("_shown", True))
        return ExpiryRules(ttls, state_column="_role", acted_on=tuple(acted_on))

    @property
    def has_named_states(self) -> bool:
        """There is one state, without a name."""
        return False

    @property
    def leaves_orphans(self) -> bool:
        """Whether rows may stay in the sink that the state forgets."""
        return self.ttl is not None and self.materialization.on_expire is OnExpire.KEEP

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Apply one step's changes to the histories of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all of a key's.
            state: Every stored version of those keys' entries, in any order.
            step: Number, clocks and floor of the step.

        Returns:
            Entries added, changed and removed; for each key whose shown row changed the entry that the sink must take; what was emitted.
        """
        orders = order_struct(changes)
        by_arrival = np.lexsort(orders.T[::-1])
        is_above = above_floor(orders[by_arrival], step.floor)
        above = by_arrival[is_above]
        own_changes = changes.select(self.changes.names)
        rows = Rows(
            operator=self,
            changes=own_changes.take(above),
            state=self._by_position(state),
            step=step,
        )
        n_below = len(changes) - len(above)
        metrics = Counter(changes=len(changes), below_floor=n_below)
        return Histories(rows, metrics).run(tick=False)

    def expire(self, state: pa.Table, step: Step) -> Reconciled:
        """Drop what has expired.

        Args:
            state: Every stored version of some keys' entries.
            step: Number and clocks of the tick.
        """
        rows = Rows(
            operator=self,
            changes=self.changes.empty_table(),
            state=self._by_position(state),
            step=step,
        )
        return Histories(rows, Counter()).run(tick=True)

    def _by_position(self, state: pa.Table) -> pa.Table:
        entries = live_entries(state, self.schema, self.entry_key)
        positions = ints(entries, "_position")
        by_position = np.argsort(positions, kind="stable")
        return entries.take(by_position)
