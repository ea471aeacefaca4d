"""The contract of the operators: columns of a state entry, the step as they see it, and their result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model._changelog import ORDER
from ebbtide.model._codes import Codes, Ints, Mask, in_one_array, row_codes
from ebbtide.model._ttl import ExpiryClock, StateTtlConfig, expired

ENTRY_COLUMNS: dict[str, pa.DataType] = {
    "_step": pa.int64(),
    "_change": pa.string(),
    "_removed": pa.bool_(),
    "_stamp_ms": pa.int64(),
    "_changed_by": ORDER,
}
"""Columns of every entry: the step that wrote it; the sink's action for its key (`I`, `U`, `D`, null: nothing); whether the
entry is removed; its last access, epoch ms; the order of the change that caused it."""

INSERT = "I"
UPDATE = "U"
DELETE = "D"
SINK_STEP = -1
"""`_step` of a sink row that stands in for an entry that the state no longer has."""
LONG_MIN = -(2**63)


@dataclass(frozen=True)
class Step:
    """The fixed facts of one step; the only source of time for an operator.

    Args:
        number: The ledger's number of the step.
        now_ms: Processing time, epoch ms.
        watermark_ms: Greatest event time of earlier steps less the allowed delay; None before the first event.
        floor: The newest TRUNCATE: it deletes everything below (lsn,) in sequence mode, (step, part, position) in arrival mode.
        orphans: The sink may have rows that the state has forgotten.
    """

    number: int
    now_ms: int
    watermark_ms: int | None = None
    floor: tuple[int, ...] | None = None
    orphans: bool = False

    def clock_ms(self, ttl: StateTtlConfig) -> int:
        """The clock that `ttl` ages entries by."""
        compares_with_watermark = ttl.expiry_clock is ExpiryClock.WATERMARK
        expires_by_watermark = ttl.by_event_time and compares_with_watermark
        if not expires_by_watermark:
            return self.now_ms
        if self.watermark_ms is None:
            return LONG_MIN
        return self.watermark_ms


@dataclass(frozen=True)
class Reconciled:
    """Entries to append to the state, and counts.

    Args:
        entries: Entry rows; those with a `_change` are the step's change set.
        metrics: Counts by name; names with a count of 0 may be absent.
        emitted: The records emitted one by one, in order; None if only the net effect is emitted.
    """

    entries: pa.Table
    metrics: Mapping[str, int] = field(default_factory=Counter)
    emitted: pa.Table | None = None


def has_expired(stamp_ms: Ints, ttl: StateTtlConfig | None, step: Step) -> Mask:
    """Mark the stamps that have expired as of a step; without a ttl none has."""
    if ttl is None:
        return np.zeros(len(stamp_ms), dtype=bool)
    clock_ms = step.clock_ms(ttl)
    return expired(stamp_ms, ttl.ttl_ms, clock_ms)


def newest(codes: Codes, steps: Ints) -> Codes:
    """Return, in order of code, the index of each code's row with the greatest step; O(n log n).

    Example:
        >>> newest(np.array([1, 0, 1]), np.array([5, 1, 7])).tolist()
        [1, 2]
    """
    # Sorted by code, and by step within a code: the newest row is the last of its code.
    by_code = np.lexsort((steps, codes))
    is_newest = last_of_group(codes[by_code])
    return by_code[is_newest]


def live_entries(
    state: pa.Table,
    schema: pa.Schema,
    entry_key: Sequence[str],
) -> pa.Table:
    """Return the newest version of each entry, those dropped left out.

    Args:
        state: Every stored version, in any order.
        schema: Of an entry.
        entry_key: Columns that distinguish one entry from another.
    """
    versions = state.select(schema.names)
    latest = newest_versions(versions, entry_key)
    is_live = ~flags(latest, "_removed")
    return latest.filter(pa.array(is_live))


def newest_versions(versions: pa.Table, entry_key: Sequence[str]) -> pa.Table:
    """Return the newest version of each entry; arguments as `live_entries`."""
    # Steps only append: an entry has one version for each step that changed it, and the greatest step counts.
    codes = row_codes(versions, entry_key)
    steps = ints(versions, "_step")
    latest = newest(codes, steps)
    return versions.take(latest)


def last_of_group(sorted_codes: Codes) -> Mask:
    """Mark the last row of each run of equal codes."""
    codes = sorted_codes[:-1]
    next_codes = sorted_codes[1:]
    is_last = np.ones(len(sorted_codes), dtype=bool)
    is_last[:-1] = codes != next_codes
    return is_last


def ints(table: pa.Table, column: str, *, null: int = 0) -> Ints:
    """Return an integer column as numpy, nulls replaced; `a.b` names a struct's field."""
    name, _, part = column.partition(".")
    array = in_one_array(table[name])
    if part:
        array = pc.struct_field(array, part)
    filled = array.fill_null(null)
    values = filled.to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.int64)


def flags(table: pa.Table, column: str) -> Mask:
    """Return a boolean column as numpy, null as false."""
    filled = table[column].fill_null(False)
    return np.asarray(filled.to_numpy(), dtype=bool)


def is_set(table: pa.Table, column: str) -> Mask:
    """Mark the rows that have a value in a column."""
    is_valid = table[column].is_valid()
    return np.asarray(is_valid.to_numpy(), dtype=bool)


def only(table: pa.Table, is_kept: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return the rows that a mask keeps; if these are all, the table itself: a filter would copy it."""
    keeps_all = pc.all(is_kept, skip_nulls=False, min_count=0)
    if keeps_all.as_py():
        return table
    return table.filter(is_kept)


def equals(table: pa.Table, column: str, value: str) -> Mask:
    """Mark the rows whose column equals a text; null does not."""
    is_equal = pc.equal(table[column], value)
    filled = is_equal.fill_null(False)
    return np.asarray(filled.to_numpy(), dtype=bool)


def order_struct(table: pa.Table, column: str = "_order") -> Ints:
    """Return an order column as (n, 3) integers: step, part, position."""
    step = ints(table, f"{column}.step")
    part = ints(table, f"{column}.part")
    position = ints(table, f"{column}.position")
    return np.stack([step, part, position], axis=1)


def in_arrival_order(changes: pa.Table) -> pa.Table:
    """Sort changes by their order; those that are in it already, as those of one task mostly are, are not copied."""
    orders = order_struct(changes)
    is_sorted = np.ones(max(len(orders) - 1, 0), bool)
    # Compared as tuples are: from the last part on, each decides where all before it are equal.
    for part in reversed(orders.T):
        later = part[1:]
        earlier = part[:-1]
        is_equal = later == earlier
        is_greater = later > earlier
        is_sorted = is_greater | (is_equal & is_sorted)
    if is_sorted.all():
        return changes
    by_arrival = np.lexsort(orders.T[::-1])
    return changes.take(pa.array(by_arrival))


def with_column(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Return a table with other values in a column, which keeps its place and type."""
    schema = table.schema
    index = schema.get_field_index(name)
    column = schema.field(index)
    typed_values = values.cast(column.type)
    return table.set_column(index, column, typed_values)


def entry_table(schema: pa.Schema, columns: dict[str, object], n: int) -> pa.Table:
    """Build a table of `schema` with n rows; columns that are not given are null."""
    arrays = []
    for column in schema:
        values = columns.get(column.name)
        array = _typed(values, column.type, n)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)


def _typed(values: object, type_: pa.DataType, n: int) -> pa.Array | pa.ChunkedArray:
    """Return values as a column of a type; n nulls for None."""
    if values is None:
        return pa.nulls(n, type_)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        is_typed = values.type == type_
        return values if is_typed else values.cast(type_)
    return pa.array(values, type_)
