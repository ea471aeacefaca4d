"""Changes in the order of their arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ebbtide.changelog import order_struct


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
