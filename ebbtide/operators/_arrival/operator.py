"""Arrival mode: the upsert materializer in columns. Changes apply in the order of their arrival.

Without an upsert key the sink shows the newest live row of a key; with one, a replaced row
keeps its place and may be shown although newer rows follow. The sink gets the net effect of a key's changes in a step;
`every` also emits record by record.
`ebbtide.operators._arrival.rules` lists the columns of an entry.

Source: FLIP-544, "SinkUpsertMaterializer", "TTL support".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from ebbtide.changelog import order_struct
from ebbtide.columns import only
from ebbtide.entries import Reconciled, Step, live_entries
from ebbtide.model import SchemaChange
from ebbtide.operators._arrival.histories import Histories
from ebbtide.operators._arrival.rows import Rows, above_floor
from ebbtide.operators._arrival.rules import ArrivalRules
from ebbtide.operators._arriving import in_arrival_order


class ArrivalOperator(ArrivalRules):
    """Reconciles changes with their keys' histories in order of arrival; its settings are the rules."""

    def apply(
        self,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Apply one step's changes to the histories of their keys.

        Args:
            changes: Changelog rows without TRUNCATE; all changes of each key.
            state: Every stored version of those keys' entries, in any order.
            step: Number, clocks and floor of the step.

        Returns:
            Entries added, changed and removed, with the sink's action for each key whose shown row changed; the emitted records.
        """
        own_changes = in_arrival_order(changes.select(self.changes.names))
        is_above = above_floor(order_struct(own_changes), step.floor)
        above = only(own_changes, pa.array(is_above))
        rows = Rows(
            rules=self,
            changes=above,
            state=live_entries(state, self.schema, self.entry_key, by="_position"),
            step=step,
        )
        n_below = len(changes) - len(above)
        metrics = Counter(changes=len(changes), below_floor=n_below)
        return Histories(rows, metrics).run(tick=False)

    def altered(self, entries: pa.Table, change: SchemaChange, fills: Mapping[str, pa.Scalar]) -> pa.Table:
        """See `Operator`."""
        return change.rows(entries, self.schema, fills)

    def expire(
        self,
        state: pa.Table,
        step: Step,
    ) -> Reconciled:
        """Drop expired rows.

        Args:
            state: Every stored version of some keys' entries.
            step: Number and clocks of the tick.
        """
        rows = Rows(
            rules=self,
            changes=self.changes.empty_table(),
            state=live_entries(state, self.schema, self.entry_key, by="_position"),
            step=step,
        )
        return Histories(rows, Counter()).run(tick=True)
