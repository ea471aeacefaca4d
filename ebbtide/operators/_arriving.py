"""Changes in the order of their arrival."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ebbtide.changelog import order_struct


def in_arrival_order(changes: pa.Table) -> pa.Table:
    """Sort changes by their order. Sorted changes, the usual case within a task, are not copied."""
    orders = order_struct(changes)
    is_sorted = np.ones(max(len(orders) - 1, 0), bool)
    # Compared like tuples, starting with the last part: each part decides if all before it are equal.
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
