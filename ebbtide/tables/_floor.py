"""The floor of a TRUNCATE: rows whose change is ordered before it are deleted.

The comparison exists twice: in Arrow for the sinks that Ebbtide writes, as a Spark column for those that Spark reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORDER
from ebbtide.columns import Mask, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column


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

    def condition(
        self,
        floor: tuple[int, ...],
        side: str = "",
    ) -> Column:
        """Return the condition that a row lies below a floor, for Spark.

        Args:
            floor: The floor.
            side: Alias of the table, with a dot.
        """
        from pyspark.sql import functions as F

        # Spark compares structs field by field, which is the order of the changes. A MERGE takes no function of Python.
        own = []
        limits = []
        for name, limit in zip(self._fields, floor, strict=True):
            component = quoted(name, self.column)
            value = F.col(f"{side}{component}")
            bound = F.lit(limit).cast("bigint")
            own.append(value.alias(name))
            limits.append(bound.alias(name))
        return F.struct(*own) < F.struct(*limits)
