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
        names, position = _partitions(changes), ints(changes, "_origin.position")
        return self.with_places(
            {name: [(p, p) for p in sorted(set(position[names == name].tolist()))] for name in set(names.tolist())}
        )

    def repeats(self, changes: pa.Table) -> NDArray[np.bool_]:
        """Mark the rows of records read before, earlier or in this very table.

        Rows of one record have one `_order`: its rows count together.
        """
        names, position = _partitions(changes), ints(changes, "_origin.position")
        known = np.zeros(len(changes), dtype=bool)
        for name in set(names.tolist()):
            at = np.flatnonzero(names == name)
            intervals = np.array(self.read.get(name, []), dtype=np.int64).reshape(-1, 2)
            if len(intervals):
                place = np.searchsorted(intervals[:, 0], position[at], side="right") - 1
                known[at] = (place >= 0) & (position[at] <= intervals[place, 1])
            known[at] |= _after_first(position[at], order_struct(changes)[at])
        return known


def _after_first(position: NDArray[np.int64], orders: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark rows whose position stands at an earlier order too."""
    by = np.lexsort((*orders.T[::-1], position))
    again = np.zeros(len(position), dtype=bool)
    first = None
    for i in by.tolist():
        if first is None or position[i] != position[first]:
            first = i
        again[i] = bool((orders[i] != orders[first]).any())
    return again


def _partitions(changes: pa.Table) -> NDArray[np.str_]:
    if not len(changes):
        return np.empty(0, dtype=str)
    origin = changes["_origin"].combine_chunks()
    joined = pc.binary_join_element_wise(
        pc.struct_field(origin, "source"), pc.struct_field(origin, "partition").cast(pa.string()), "/"
    )
    return np.asarray(joined.to_pylist(), dtype=str)


def _merge(intervals: Intervals) -> Intervals:
    out: Intervals = []
    for a, b in sorted((int(a), int(b)) for a, b in intervals):
        if out and a <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(b, out[-1][1]))
        else:
            out.append((a, b))
    return out
