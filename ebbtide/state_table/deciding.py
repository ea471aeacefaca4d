"""What Spark's workers do in a step: an operator runs over partitions of changes and entries; rows of the state table come out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import Reconciled, Step, entry_table
from ebbtide.model.offsets import OffsetRanges
from ebbtide.operators.operator import Operator
from ebbtide.state_table.layout import EMITTED, METRICS, ROW
from ebbtide.state_table.shipping import ship

LINKED = "_linked"
"""Column of the rows that are decided on together although their keys differ."""
Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Work:
    """What a worker does with a partition.

    Args:
        operator: Gives the operator, with the user's code that it needs.
        schema: Columns of the state table.
        step: The step.
        group_bytes: About how many bytes of a partition are decided together, whole keys at least; None: all.
    """

    operator: Callable[[], Operator]
    schema: pa.Schema
    step: Step
    group_bytes: int | None

    @classmethod
    def of(
        cls,
        operator: Operator,
        schema: pa.Schema,
        step: Step,
        group_bytes: int | None,
    ) -> Work:
        """Pack an operator for the workers; see the class."""
        function = getattr(operator, "function", None)
        if function is None:
            return cls(lambda: operator, schema, step, group_bytes)
        module = function.func.__module__
        packed = ship(operator, module)
        return cls(packed.unpack, schema, step, group_bytes)

    def reconcile(self, batches: Batches, read_before: OffsetRanges | None) -> Batches:
        """Turn changes (`_kind` set) and entries of their keys into rows of the state table.

        Args:
            batches: A partition.
            read_before: Offsets whose records are repeats; None: the operator knows repeats by itself.
        """
        operator = self.operator()
        for rows in _groups(batches, operator.key, self.group_bytes):
            is_change = pc.is_valid(rows["_kind"])
            is_entry = pc.invert(is_change)
            changes = _shaped(rows.filter(is_change), operator.changes)
            entries = _shaped(rows.filter(is_entry), operator.schema)
            n_delivered = len(changes)
            if read_before is not None:
                is_new = ~read_before.repeats(changes)
                changes = changes.filter(pa.array(is_new))
            n_redelivered = n_delivered - len(changes)
            result = operator.apply(changes, entries, self.step)
            metrics = Counter(redelivered=n_redelivered)
            yield from self._rows(result, metrics)

    def expire(self, batches: Batches) -> Batches:
        """Turn entries into the rows that drop the expired ones, and show what timers did."""
        operator = self.operator()
        for rows in _groups(batches, operator.key, self.group_bytes):
            entries = _shaped(rows, operator.schema)
            result = operator.expire(entries, self.step)
            yield from self._rows(result, Counter())

    def _rows(self, result: Reconciled, more_metrics: Counter[str]) -> Batches:
        """Write a result as rows of the state table."""
        metrics = Counter(result.metrics) + more_metrics
        emitted = result.emitted
        if emitted is not None:
            metrics["emitted"] = len(emitted)
            emitted_rows = self._emitted_rows(emitted)
            yield from emitted_rows.to_batches()
        entry_rows = self._entry_rows(result.entries)
        yield from entry_rows.to_batches()
        metrics_row = self._metrics_row(metrics)
        yield from metrics_row.to_batches()

    def _entry_rows(self, entries: pa.Table) -> pa.Table:
        n_rows = len(entries)
        columns = _columns_by_name(entries)
        columns["_entry"] = [ROW] * n_rows
        return entry_table(self.schema, columns, n_rows)

    def _emitted_rows(self, emitted: pa.Table) -> pa.Table:
        n_rows = len(emitted)
        columns = _columns_by_name(emitted)
        columns["_entry"] = [EMITTED] * n_rows
        columns["_note"] = columns.pop("_kind")
        columns["_changed_by"] = columns.pop("_order")
        columns["_position"] = columns.pop("_number")
        columns["_step"] = [self.step.number] * n_rows
        return entry_table(self.schema, columns, n_rows)

    def _metrics_row(self, metrics: Counter[str]) -> pa.Table:
        counted = {name: count for name, count in metrics.items() if count}
        columns: dict[str, object] = {
            "_entry": [METRICS],
            "_note": [json.dumps(counted)],
            "_step": [self.step.number],
        }
        return entry_table(self.schema, columns, 1)


def _groups(batches: Batches, key: Sequence[str], group_bytes: int | None) -> Iterator[pa.Table]:
    """Yield a partition in groups of whole keys: what an operator makes of rows takes many times their bytes."""
    filled = [batch for batch in batches if batch.num_rows]
    if not filled:
        return
    rows = pa.Table.from_batches(filled)
    n_groups = 1
    if group_bytes is not None:
        n_groups = -(-rows.nbytes // group_bytes)  # rounded up
    if n_groups <= 1:
        yield rows
        return
    # One filter over the rows for each group, so that only one group at a time is copied.
    group_numbers = _group_numbers(rows, key, n_groups)
    for number in range(n_groups):
        is_in_group = pa.array(group_numbers == number)
        group = rows.filter(is_in_group)
        if len(group):
            yield group


def _group_numbers(rows: pa.Table, key: Sequence[str], n_groups: int) -> Codes:
    """Return the group of each row: the code of its key decides, so that no key is split."""
    key_codes = row_codes(rows, key)
    numbers = key_codes % n_groups
    if LINKED in rows.column_names:  # a value may have to be looked for under another key
        is_linked = rows[LINKED].fill_null(False)
        numbers[is_linked.to_numpy()] = 0
    return numbers


def _columns_by_name(table: pa.Table) -> dict[str, object]:
    return dict(zip(table.column_names, table.columns, strict=True))


def _shaped(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    own_columns = rows.select(schema.names)
    return own_columns.cast(schema)
