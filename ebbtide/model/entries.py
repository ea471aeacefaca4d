"""What the two reconcilers share: the columns of a state entry, the step they run in, and what they return."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.changelog import ORDER
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.ttl import ExpiryClock, StateTtlConfig, expired

ENTRY_COLUMNS: dict[str, pa.DataType] = {
    "_step": pa.int64(),
    "_change": pa.string(),
    "_removed": pa.bool_(),
    "_stamp_ms": pa.int64(),
    "_changed_by": ORDER,
}
"""Of every entry: the step that wrote it; what the sink must do for its key (`I`, `U`, `D`, null: nothing); whether the
entry is dropped; its last access, epoch ms; the order of the change that caused it."""

INSERT, UPDATE, DELETE = "I", "U", "D"
SINK_STEP = -1
"""`_step` of a sink row that stands in for an entry that the state no longer has."""
LONG_MIN = -(2**63)


@dataclass(frozen=True)
class Step:
    """The fixed facts of one step; nothing else may tell the time.

    Args:
        number: The ledger's number of the step.
        now_ms: Processing time, epoch ms.
        watermark_ms: Greatest event time of earlier steps less the allowed delay; None before the first event.
        floor: What a TRUNCATE left dead: (lsn,) in sequence mode, (step, part, position) in arrival mode.
        orphans: The sink may have rows that the state has forgotten.
    """

    number: int
    now_ms: int
    watermark_ms: int | None = None
    floor: tuple[int, ...] | None = None
    orphans: bool = False

    def clock_ms(self, ttl: StateTtlConfig) -> int:
        """The clock that `ttl` ages entries by."""
        if not ttl.by_event_time or ttl.expiry_clock is ExpiryClock.PROCESSING_TIME:
            return self.now_ms
        return LONG_MIN if self.watermark_ms is None else self.watermark_ms


@dataclass(frozen=True)
class Reconciled:
    """Entries to append to the state, and counts of what was met.

    Args:
        entries: Entry rows; those with a `_change` are the step's change set.
        metrics: Counts by name; names with a count of 0 may be absent.
        emitted: What was emitted record by record, in order; None where nothing is but the net effect.
    """

    entries: pa.Table
    metrics: Mapping[str, int] = field(default_factory=Counter)
    emitted: pa.Table | None = None


def has_expired(stamp_ms: NDArray[np.int64], ttl: StateTtlConfig | None, step: Step) -> NDArray[np.bool_]:
    """Mark the stamps that have expired as of a step; without a ttl none has."""
    if ttl is None:
        return np.zeros(len(stamp_ms), dtype=bool)
    return expired(stamp_ms, ttl.ttl_ms, step.clock_ms(ttl))


def newest(codes: Codes, steps: NDArray[np.int64]) -> Codes:
    """Return, in order of code, the index of each code's row with the greatest step.

    Example:
        >>> newest(np.array([1, 0, 1]), np.array([5, 1, 7])).tolist()
        [1, 2]
    """
    by_step = np.lexsort((steps, codes))
    is_newest = last_of_group(codes[by_step])
    return by_step[is_newest]


def live_entries(state: pa.Table, schema: pa.Schema, entry_key: Sequence[str]) -> pa.Table:
    """Return the newest version of each entry, those dropped left out.

    Args:
        state: Every stored version, in any order.
        schema: Of an entry.
        entry_key: Columns that distinguish one entry from another.
    """
    versions = state.select(schema.names)
    codes = row_codes(versions, entry_key)
    steps = ints(versions, "_step")
    latest = versions.take(newest(codes, steps))
    is_live = ~flags(latest, "_removed")
    return latest.filter(pa.array(is_live))


def last_of_group(sorted_codes: Codes) -> NDArray[np.bool_]:
    """Mark the last row of each run of equal codes."""
    is_last = np.ones(len(sorted_codes), dtype=bool)
    is_last[:-1] = sorted_codes[1:] != sorted_codes[:-1]
    return is_last


def ints(table: pa.Table, column: str, *, null: int = 0) -> NDArray[np.int64]:
    """Return an integer column as numpy, nulls replaced; `a.b` names a struct's field."""
    name, _, part = column.partition(".")
    array = table[name].combine_chunks()
    if part:
        array = pc.struct_field(array, part)
    values = array.fill_null(null).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.int64)


def flags(table: pa.Table, column: str) -> NDArray[np.bool_]:
    """Return a boolean column as numpy, null as false."""
    return np.asarray(table[column].fill_null(False).to_numpy(), dtype=bool)


def is_set(table: pa.Table, column: str) -> NDArray[np.bool_]:
    """Mark the rows that have a value in a column."""
    return np.asarray(table[column].is_valid().to_numpy(), dtype=bool)


def equals(table: pa.Table, column: str, value: str) -> NDArray[np.bool_]:
    """Mark the rows that have a text in a column; null is none."""
    is_equal = pc.equal(table[column], value).fill_null(False)
    return np.asarray(is_equal.to_numpy(), dtype=bool)


def order_struct(table: pa.Table, column: str = "_order") -> NDArray[np.int64]:
    """Return an order column as (n, 3) integers: step, part, position."""
    return np.stack([ints(table, f"{column}.{part}") for part in ("step", "part", "position")], axis=1)


def entry_table(schema: pa.Schema, columns: dict[str, object], n: int) -> pa.Table:
    """Build a table of `schema` with n rows; what `columns` does not give is null."""
    arrays = [_typed(columns.get(field.name), field.type, n) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _typed(values: object, type_: pa.DataType, n: int) -> pa.Array | pa.ChunkedArray:
    """Return values as a column of a type; n nulls for None."""
    if values is None:
        return pa.nulls(n, type_)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(type_)
    return pa.array(values, type_)
