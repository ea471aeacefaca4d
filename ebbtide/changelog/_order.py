"""The order in which changes arrive."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ebbtide.columns import Ints, ints

ORDER = pa.struct(
    [
        ("step", pa.int64()),
        ("part", pa.int64()),
        ("position", pa.int64()),
    ]
)


def order_struct(table: pa.Table, column: str = "_order") -> Ints:
    """Return an order column as (n, 3) integers: step, part, position."""
    step = ints(table, f"{column}.step")
    part = ints(table, f"{column}.part")
    position = ints(table, f"{column}.position")
    return np.stack([step, part, position], axis=1)
