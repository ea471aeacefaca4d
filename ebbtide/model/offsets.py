"""Which offsets of a source have been read, so that a redelivered record is known by its origin.

Kept as closed ranges per source and partition; offsets are dense in practice, so there are few ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.entries import ints, order_struct

Intervals = list[tuple[int, int]]
Offsets = NDArray[np.int64]


@dataclass(frozen=True)
class OffsetRanges:
    """Offsets read so far.

    Args:
        read: `source/partition` to its closed ranges, ascending and apart.

    Example:
        >>> OffsetRanges({"orders/0": [(0, 4)]}).with_ranges({"orders/0": [(5, 6), (9, 9)]}).read
        {'orders/0': [(0, 6), (9, 9)]}
    """

    read: Mapping[str, Intervals] = field(default_factory=dict)

    def with_ranges(self, ranges: Mapping[str, Intervals]) -> OffsetRanges:
        """Add ranges, in any order."""
        merged: dict[str, Intervals] = {}
        for name in dict.fromkeys([*self.read, *ranges]):
            before = self.read.get(name, [])
            added = ranges.get(name, [])
            merged[name] = _merge([*before, *added])
        return OffsetRanges(merged)

    def with_rows(self, changes: pa.Table) -> OffsetRanges:
        """Add the origins of changelog rows."""
        return self.with_ranges(origin_offsets(changes))

    def knows(self, name: str, offset: int) -> bool:
        """Return whether an offset of `source/partition` was read."""
        return any(low <= offset <= high for low, high in self.read.get(name, []))

    def repeats(self, changes: pa.Table) -> NDArray[np.bool_]:
        """Mark the rows of records read before, in an earlier step or earlier in this very table.

        Rows of one record have one `_order`: they count together. O(n log n) in the rows and O(log ranges) a row.
        """
        names, partition = _partitions(changes)
        offsets = ints(changes, "_origin.position")
        orders = order_struct(changes)
        repeated = np.zeros(len(changes), dtype=bool)
        for number, name in enumerate(names):
            rows = np.flatnonzero(partition == number)
            read_before = _within(self.read.get(name, []), offsets[rows])
            repeated[rows] = read_before | _after_first(offsets[rows], orders[rows])
        return repeated


def origin_offsets(changes: pa.Table) -> dict[str, Intervals]:
    """Return the offsets of changelog rows in their sources, as closed ranges by `source/partition`."""
    names, partition = _partitions(changes)
    offsets = ints(changes, "_origin.position")
    ranges: dict[str, Intervals] = {}
    for number, name in enumerate(names):
        ranges[name] = _ranges_of(offsets[partition == number])
    return ranges


def _ranges_of(offsets: Offsets) -> Intervals:
    """Join neighbouring offsets, at least one, to closed ranges."""
    ascending = np.unique(offsets)
    # A range begins where the step from the offset before is more than one; the very first offset always does.
    steps = np.diff(ascending, prepend=ascending[0] - 2)
    first = np.flatnonzero(steps > 1)
    last = np.append(first[1:] - 1, len(ascending) - 1)
    lows = ascending[first].tolist()
    highs = ascending[last].tolist()
    return list(zip(lows, highs, strict=True))


def _within(ranges: Intervals, offsets: Offsets) -> NDArray[np.bool_]:
    """Mark the offsets that lie in one of some ascending ranges, by binary search for the last range that begins in time."""
    if not ranges:
        return np.zeros(len(offsets), dtype=bool)
    lows, highs = np.array(ranges, dtype=np.int64).T
    candidate = np.searchsorted(lows, offsets, side="right") - 1
    has_candidate = candidate >= 0
    within = has_candidate & (offsets <= highs[candidate])
    return np.asarray(within)


def _after_first(offsets: Offsets, orders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark rows whose offset also stands at an earlier order.

    Args:
        offsets: (n,) offsets of one partition.
        orders: (n, 3) where each row stands in the order of arrival.
    """
    by_offset = np.lexsort((*orders.T[::-1], offsets))
    steps = np.diff(offsets[by_offset], prepend=offsets[by_offset[:1]] - 1)
    begins = steps != 0
    # In sorted order each run of one offset begins with its earliest order: all others in the run repeat it.
    run_of = np.cumsum(begins) - 1
    earliest = by_offset[np.flatnonzero(begins)[run_of]]
    is_later = orders[by_offset] != orders[earliest]
    later = np.zeros(len(offsets), dtype=bool)
    later[by_offset] = is_later.any(axis=1)
    return later


def _partitions(changes: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the sources' partitions, and of each row the index of its own."""
    origin = changes["_origin"].combine_chunks()
    source = pc.struct_field(origin, "source")
    partition = pc.struct_field(origin, "partition").cast(pa.string())
    names = pc.binary_join_element_wise(source, partition, "/").dictionary_encode()
    return names.dictionary.to_pylist(), names.indices.to_numpy(zero_copy_only=False)


def _merge(ranges: Intervals) -> Intervals:
    """Join ranges that overlap or touch; O(n log n)."""
    merged: Intervals = []
    for low, high in sorted((int(low), int(high)) for low, high in ranges):
        touches = bool(merged) and low <= merged[-1][1] + 1
        if touches:
            last_low, last_high = merged[-1]
            merged[-1] = (last_low, max(high, last_high))
        else:
            merged.append((low, high))
    return merged
