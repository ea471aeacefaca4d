"""The floor of a TRUNCATE: rows whose change is ordered before it are deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER
from ebbtide.columns import Mask


@dataclass(frozen=True)
class Floors:
    """Compares the rows of a sink with a floor.

    Args:
        sequence: The columns of the row's sequence; empty in arrival mode, where the order of the change counts.
    """

    sequence: Sequence[str]

    @property
    def column(self) -> str:
        """The column that a floor is compared with."""
        return "_sequence" if self.sequence else "_changed_by"

    @property
    def _fields(self) -> Sequence[str]:
        return self.sequence or ORDER.names

    def marks(self, floor: tuple[int, ...] | None) -> Callable[[pa.Table], Mask] | None:
        """Return a function that marks the rows below a floor, given their `column`; None without a floor."""
        if floor is None:
            return None

        def is_below(rows: pa.Table) -> Mask:
            ranks = rows[self.column].combine_chunks()
            below = np.zeros(len(rows), dtype=bool)
            is_equal = np.ones(len(rows), dtype=bool)
            # Lexicographic: the first component that differs decides. Columns stay in Arrow, no row becomes a Python tuple.
            for name, limit in zip(self._fields, floor, strict=True):
                component = pc.struct_field(ranks, name)
                integers = component.cast(pa.int64())
                values = integers.to_numpy(zero_copy_only=False)
                below |= is_equal & (values < limit)
                is_equal &= values == limit
            return below

        return is_below
