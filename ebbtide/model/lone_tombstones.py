"""Tombstones whose delete never came: the row of their key is still there after the step that read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import flags, is_set, live_entries, order_struct

Order = tuple[int, ...]


def count_lone(
    tombstones: pa.Table,
    before: pa.Table,
    written: pa.Table,
    *,
    key: Sequence[str],
    entry_key: Sequence[str],
) -> Counter[str]:
    """Count tombstones of whose key there is a row from before them. O(n log n) in the tombstones and their keys' entries.

    A row that came after its tombstone does not count: the key is in use again.

    Args:
        tombstones: Rows with the key's columns and `_order`; a key with a null could not be read.
        before: Every version of those keys' entries before the step; entries of other keys are ignored.
        written: The entries that the step wrote.
        key: Names of the key's columns.
        entry_key: Columns that distinguish one entry from another.
    """
    if not len(tombstones):
        return Counter()
    is_read = np.ones(len(tombstones), bool)
    for name in key:
        is_read &= is_set(tombstones, name)
    asked = tombstones.filter(pa.array(is_read))
    n_asked = len(asked)
    known = before.select(written.column_names)
    versions = pa.concat_tables([known, written])
    is_of_asked = _is_of(versions, asked, key)
    rows = _shown(versions.filter(is_of_asked), entry_key)
    codes = _codes(asked, rows, key)
    since: dict[int, Order] = {}
    orders = order_struct(rows, "_changed_by").tolist()
    for code, values in zip(codes[n_asked:].tolist(), orders, strict=True):
        order = tuple(values)
        since[code] = min(order, since.get(code, order))
    n_lone = 0
    orders = order_struct(asked).tolist()
    for code, values in zip(codes[:n_asked].tolist(), orders, strict=True):
        order = tuple(values)
        is_there = since.get(code, order) < order
        n_lone += is_there
    return Counter(
        lone_tombstones=n_lone,
        unread_tombstones=len(tombstones) - n_asked,
    )


def _codes(asked: pa.Table, rows: pa.Table, key: Sequence[str]) -> Codes:
    """Return a code for each key of both."""
    names = list(key)
    keys = pa.concat_tables([asked.select(names), rows.select(names)])
    return row_codes(keys, names)


def _is_of(versions: pa.Table, asked: pa.Table, key: Sequence[str]) -> pa.Array:
    """Mark the versions of entries whose keys are asked of."""
    codes = _codes(asked, versions, key)
    n_asked = len(asked)
    is_asked = np.isin(codes[n_asked:], codes[:n_asked])
    return pa.array(is_asked)


def _shown(versions: pa.Table, entry_key: Sequence[str]) -> pa.Table:
    """Return the newest of some entries, if the sink shows their rows."""
    live = live_entries(versions, versions.schema, entry_key)
    has_shown = "_shown" in live.column_names
    is_shown = flags(live, "_shown") if has_shown else ~flags(live, "_tombstone")
    return live.filter(pa.array(is_shown))
