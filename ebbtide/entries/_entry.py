"""The contract of the operators: columns of a state entry, the step as they see it, and their result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa

from ebbtide.changelog import ORDER
from ebbtide.columns import Codes, Ints, Long, Mask, flags, ints, row_codes
from ebbtide.keyed_state import ExpiryClock, StateTtlConfig

ENTRY_COLUMNS: dict[str, pa.DataType] = {
    "_step": pa.int64(),
    "_change": pa.string(),
    "_removed": pa.bool_(),
    "_stamp_ms": pa.int64(),
    "_changed_by": ORDER,
}
"""Columns of every entry: the step that wrote it; the sink's action for its key (`I`, `U`, `D`, null: nothing); whether the
entry is removed; its last access, epoch ms; the order of the change that caused it."""


class SinkChange(StrEnum):
    """The action of an entry on the sink's row of its key, as stored in `_change`; null: none."""

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


SINK_STEP = -1
"""`_step` of a sink row that replaces an entry missing from the state."""


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

    def earlier(self, by_ms: int) -> Step:
        """Return the step with earlier clocks."""
        watermark_ms = None if self.watermark_ms is None else self.watermark_ms - by_ms
        return replace(self, now_ms=self.now_ms - by_ms, watermark_ms=watermark_ms)

    def clock_ms(self, ttl: StateTtlConfig) -> int:
        """The clock that `ttl` ages entries by."""
        compares_with_watermark = ttl.expiry_clock is ExpiryClock.WATERMARK
        expires_by_watermark = ttl.by_event_time and compares_with_watermark
        if not expires_by_watermark:
            return self.now_ms
        if self.watermark_ms is None:
            return Long.MIN
        return self.watermark_ms

    def has_expired(self, stamp_ms: Ints, ttl: StateTtlConfig | None) -> Mask:
        """Mark the stamps that have expired as of the step; without a ttl none has."""
        if ttl is None:
            return np.zeros(len(stamp_ms), dtype=bool)
        return ttl.expired(stamp_ms, self.clock_ms(ttl))


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
    *,
    by: str | None = None,
) -> pa.Table:
    """Return the newest version of each entry, without dropped ones.

    Args:
        state: Every stored version, in any order.
        schema: Schema of an entry.
        entry_key: Columns that identify an entry.
        by: An integer column: entries are in its order. Default: in no particular one.
    """
    latest = _newest_rows(state, entry_key)
    is_live = ~flags(state, "_removed")[latest]
    live = latest[is_live]
    if by is not None:
        in_order = np.argsort(ints(state, by)[live], kind="stable")
        live = live[in_order]
    return state.select(schema.names).take(live)  # once: rows may be long


def newest_versions(versions: pa.Table, entry_key: Sequence[str]) -> pa.Table:
    """Return the newest version of each entry; arguments as `live_entries`."""
    return versions.take(_newest_rows(versions, entry_key))


def _newest_rows(versions: pa.Table, entry_key: Sequence[str]) -> Codes:
    # Steps only append: an entry has one version for each step that changed it; the version of the greatest step is valid.
    codes = row_codes(versions, entry_key)
    steps = ints(versions, "_step")
    return newest(codes, steps)


def last_of_group(sorted_codes: Codes) -> Mask:
    """Mark the last row of each run of equal codes."""
    codes = sorted_codes[:-1]
    next_codes = sorted_codes[1:]
    is_last = np.ones(len(sorted_codes), dtype=bool)
    is_last[:-1] = codes != next_codes
    return is_last
