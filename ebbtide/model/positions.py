"""Which places of a source have been read, so that a redelivered record is known by its origin.

Kept as closed intervals per source and partition; places are dense in practice, so there are few.
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


@dataclass(frozen=True)
class Positions:
    """Places read so far.

    Args:
        read: `source/partition` to its closed intervals, ascending and apart.

    Example:
        >>> Positions({"orders/0": [(0, 4)]}).with_places({"orders/0": [(5, 6), (9, 9)]}).read
        {'orders/0': [(0, 6), (9, 9)]}
    """

    read: Mapping[str, Intervals] = field(default_factory=dict)

    def with_places(self, places: Mapping[str, Intervals]) -> Positions:
        """Add intervals, in any order."""
        merged = {
            name: _merge([*self.read.get(name, []), *places.get(name, [])])
            for name in [*self.read, *(n for n in places if n not in self.read)]
        }
        return Positions(merged)

    def with_rows(self, changes: pa.Table) -> Positions:
        """Add the origins of changelog rows."""
        return self.with_places(places(changes))

    def knows(self, name: str, position: int) -> bool:
        """Tell whether a place of `source/partition` was read."""
        return any(a <= position <= b for a, b in self.read.get(name, []))

    def repeats(self, changes: pa.Table) -> NDArray[np.bool_]:
        """Mark the rows of records read before, earlier or in this very table.

        Rows of one record have one `_order`: its rows count together.
        """
        (names, index), position = _partitions(changes), ints(changes, "_origin.position")
        known = np.zeros(len(changes), dtype=bool)
        for i, name in enumerate(names):
            at = np.flatnonzero(index == i)
            intervals = np.array(self.read.get(name, []), dtype=np.int64).reshape(-1, 2)
            if len(intervals):
                place = np.searchsorted(intervals[:, 0], position[at], side="right") - 1
                known[at] = (place >= 0) & (position[at] <= intervals[place, 1])
            known[at] |= _after_first(position[at], order_struct(changes)[at])
        return known


def places(changes: pa.Table) -> dict[str, Intervals]:
    """Return where changelog rows stand in their sources, as closed intervals by `source/partition`."""
    (names, index), position = _partitions(changes), ints(changes, "_origin.position")
    found: dict[str, Intervals] = {}
    for i, name in enumerate(names):
        each = np.unique(position[index == i])
        first = np.flatnonzero(np.diff(each, prepend=each[0] - 2) > 1)
        found[name] = list(
            zip(each[first].tolist(), each[np.append(first[1:] - 1, len(each) - 1)].tolist(), strict=True)
        )
    return found


def _after_first(position: NDArray[np.int64], orders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark rows whose position stands at an earlier order too."""
    by = np.lexsort((*orders.T[::-1], position))
    starts = np.diff(position[by], prepend=position[by[:1]] - 1) != 0
    first = by[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
    again = np.zeros(len(position), dtype=bool)
    again[by] = (orders[by] != orders[first]).any(axis=1)
    return again


def _partitions(changes: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
    """Return the names of the sources' partitions, and of each row the index of its own."""
    origin = changes["_origin"].combine_chunks()
    joined = pc.binary_join_element_wise(
        pc.struct_field(origin, "source"), pc.struct_field(origin, "partition").cast(pa.string()), "/"
    ).dictionary_encode()
    return joined.dictionary.to_pylist(), joined.indices.to_numpy(zero_copy_only=False)


def _merge(intervals: Intervals) -> Intervals:
    out: Intervals = []
    for a, b in sorted((int(a), int(b)) for a, b in intervals):
        if out and a <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out
