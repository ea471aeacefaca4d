"""Offsets of a source that have been read, so that a redelivered record is recognized by its origin.

Kept as closed ranges per source and partition; offsets are dense in practice, so there are few ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog._rows import order_struct
from ebbtide.columns import Ints, Mask, ints

Intervals = list[tuple[int, int]]
Offsets = Ints


@dataclass(frozen=True)
class OffsetRanges:
    """Offsets read so far.

    Args:
        read: `source/partition` to its closed ranges, ascending, with a gap between each two.

    Example:
        >>> OffsetRanges({"orders/0": [(0, 4)]}).with_ranges({"orders/0": [(5, 6), (9, 9)]}).read
        {'orders/0': [(0, 6), (9, 9)]}
    """

    read: Mapping[str, Intervals] = field(default_factory=dict)

    def with_ranges(self, ranges: Mapping[str, Intervals]) -> OffsetRanges:
        """Add ranges, in any order."""
        names = dict.fromkeys([*self.read, *ranges])
        merged: dict[str, Intervals] = {}
        for name in names:
            before = self.read.get(name, [])
            added = ranges.get(name, [])
            merged[name] = _merge([*before, *added])
        return OffsetRanges(merged)

    def without_ranges(self, ranges: Mapping[str, Intervals]) -> OffsetRanges:
        """Take ranges out, each source's ascending and apart.

        Example:
            >>> OffsetRanges({"orders/0": [(0, 6)]}).without_ranges({"orders/0": [(2, 3), (6, 9)]}).read
            {'orders/0': [(0, 1), (4, 5)]}
        """
        left = {}
        for name, own in self.read.items():
            taken = ranges.get(name, [])
            left[name] = _without(own, taken)
        return OffsetRanges(left)

    @staticmethod
    def in_rows(changes: pa.Table) -> dict[str, Intervals]:
        """Return the offsets of changelog rows in their sources, as closed ranges by `source/partition`."""
        names, partitions = _partitions(changes)
        offsets = ints(changes, "_origin.position")
        ranges: dict[str, Intervals] = {}
        for number, name in enumerate(names):
            own_offsets = offsets[partitions == number]
            ranges[name] = _ranges_of(own_offsets)
        return ranges

    def with_rows(self, changes: pa.Table) -> OffsetRanges:
        """Add the origins of changelog rows."""
        added = self.in_rows(changes)
        return self.with_ranges(added)

    def knows(self, name: str, offset: int) -> bool:
        """Return whether an offset of `source/partition` was read."""
        ranges = self.read.get(name, [])
        return any(low <= offset <= high for low, high in ranges)

    def knows_origin(self, origin: Mapping[str, Any]) -> bool:
        """Return whether the record with an `_origin` was read."""
        source = origin["source"]
        partition = origin["partition"]
        name = f"{source}/{partition}"
        return self.knows(name, origin["position"])

    def repeats(self, changes: pa.Table) -> Mask:
        """Mark the rows of records read before, in an earlier step or earlier in this table.

        Rows of one record share an `_order` and are marked together. O(n log n) in the rows, O(log ranges) a row, and
        one pass over the rows for each partition.
        """
        # Two kinds of repeats: an offset in the ranges of earlier steps, or one that occurs earlier in this table.
        names, partitions = _partitions(changes)
        offsets = ints(changes, "_origin.position")
        orders = order_struct(changes)
        is_repeat = np.zeros(len(changes), dtype=bool)
        for number, name in enumerate(names):
            rows = np.flatnonzero(partitions == number)
            own_offsets = offsets[rows]
            own_orders = orders[rows]
            ranges = self.read.get(name, [])
            in_earlier_step = _within(ranges, own_offsets)
            in_this_table = _after_first(own_offsets, own_orders)
            is_repeat[rows] = in_earlier_step | in_this_table
        return is_repeat


def _ranges_of(offsets: Offsets) -> Intervals:
    """Join neighbouring offsets, at least one, to closed ranges."""
    ascending = np.unique(offsets)
    # A range begins where the step from the offset before is more than one; the very first offset always begins one.
    before_first = ascending[0] - 2
    steps = np.diff(ascending, prepend=before_first)
    starts = np.flatnonzero(steps > 1)
    # Each range ends just before the next one starts, the last range with the last offset.
    last = len(ascending) - 1
    before_next = starts[1:] - 1
    ends = np.append(before_next, last)
    lows = ascending[starts].tolist()
    highs = ascending[ends].tolist()
    return list(zip(lows, highs, strict=True))


def _within(ranges: Intervals, offsets: Offsets) -> Mask:
    """Mark the offsets that lie in one of some ascending ranges, by binary search for the last range that begins in time."""
    if not ranges:
        return np.zeros(len(offsets), dtype=bool)
    bounds = np.array(ranges, dtype=np.int64)
    lows, highs = bounds.T
    candidates = np.searchsorted(lows, offsets, side="right") - 1
    has_candidate = candidates >= 0
    is_in_time = offsets <= highs[candidates]
    within = has_candidate & is_in_time
    return np.asarray(within)


def _after_first(offsets: Offsets, orders: Ints) -> Mask:
    """Mark rows whose offset also occurs at an earlier order.

    Args:
        offsets: (n,) offsets of one partition.
        orders: (n, 3) each row's place in the order of arrival.
    """
    step, part, position = orders.T
    by_offset = np.lexsort((position, part, step, offsets))
    sorted_offsets = offsets[by_offset]
    begins_run = np.ones(len(offsets), dtype=bool)
    before = sorted_offsets[:-1]
    begins_run[1:] = sorted_offsets[1:] != before
    # In sorted order each run of one offset begins with its earliest order: the rest of the run repeats it.
    run_of = np.cumsum(begins_run) - 1
    run_starts = np.flatnonzero(begins_run)
    earliest = by_offset[run_starts[run_of]]
    sorted_orders = orders[by_offset]
    differs = sorted_orders != orders[earliest]
    is_later = np.zeros(len(offsets), dtype=bool)
    is_later[by_offset] = differs.any(axis=1)
    return is_later


def _partitions(changes: pa.Table) -> tuple[list[str], Ints]:
    """Return the names of the sources' partitions, and each row's index into them."""
    origin = changes["_origin"].combine_chunks()
    sources = pc.struct_field(origin, "source")
    numbers = pc.struct_field(origin, "partition")
    texts = numbers.cast(pa.string())
    names = pc.binary_join_element_wise(sources, texts, "/")
    encoded = names.dictionary_encode()
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), indices


def _without(ranges: Intervals, taken: Intervals) -> Intervals:
    """Subtract ranges from ranges, both ascending; O(n m)."""
    left: Intervals = []
    for low, high in ranges:
        # `start` is the first offset of the range that no subtracted range has covered so far.
        start = low
        for first, last in taken:
            is_apart = last < start or first > high
            if is_apart:
                continue
            if start < first:
                left.append((start, first - 1))
            start = last + 1
        if start <= high:
            left.append((start, high))
    return left


def _merge(ranges: Intervals) -> Intervals:
    """Join ranges that overlap or touch; O(n log n)."""
    # In ascending order a range can only touch the last merged one.
    as_ints = [(int(low), int(high)) for low, high in ranges]
    ascending = sorted(as_ints)
    merged: Intervals = []
    for low, high in ascending:
        if not merged:
            merged.append((low, high))
            continue
        last_low, last_high = merged[-1]
        touches = low <= last_high + 1
        if touches:
            merged[-1] = (last_low, max(high, last_high))
        else:
            merged.append((low, high))
    return merged
