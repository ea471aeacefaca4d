"""Tombstones whose delete never arrived: their key still has a row after the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ebbtide.changelog import order_struct
from ebbtide.columns import Codes, flags, is_set, row_codes
from ebbtide.entries._entry import live_entries

Order = tuple[int, ...]


def count_lone(
    tombstones: pa.Table,
    before: pa.Table,
    written: pa.Table,
    *,
    key: Sequence[str],
    entry_key: Sequence[str],
) -> Counter[str]:
    """Count tombstones whose key still has an earlier row. O(n log n) in the tombstones and their keys' entries.

    A row that arrived after the tombstone does not count: the key is in use again.

    Args:
        tombstones: Rows with the key's columns and `_order`; a key with a null could not be read.
        before: Every version of those keys' entries before the step; entries of other keys are ignored.
        written: The entries that the step wrote.
        key: Names of the key's columns.
        entry_key: Columns that identify an entry.
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
    asked_codes = codes[:n_asked].tolist()
    codes_of_rows = codes[n_asked:].tolist()
    # A key may have several rows, one for each place in its history: the earliest decides.
    earliest: dict[int, Order] = {}
    for code, order in zip(codes_of_rows, _orders(rows, "_changed_by"), strict=True):
        known = earliest.get(code, order)
        earliest[code] = min(order, known)
    n_lone = 0
    for code, order in zip(asked_codes, _orders(asked, "_order"), strict=True):
        has_earlier_row = earliest.get(code, order) < order
        n_lone += has_earlier_row
    return Counter(
        lone_tombstones=n_lone,
        unread_tombstones=len(tombstones) - n_asked,
    )


def _orders(rows: pa.Table, column: str) -> list[Order]:
    """Return the orders in a column as tuples, which compare part by part."""
    orders = order_struct(rows, column).tolist()
    return [tuple(order) for order in orders]


def _codes(
    asked: pa.Table,
    rows: pa.Table,
    key: Sequence[str],
) -> Codes:
    """Number the keys of two tables together."""
    names = list(key)
    tables = [
        asked.select(names),
        rows.select(names),
    ]
    keys = pa.concat_tables(tables)
    return row_codes(keys, names)


def _is_of(
    versions: pa.Table,
    asked: pa.Table,
    key: Sequence[str],
) -> pa.Array:
    """Mark the versions of entries that have one of the keys."""
    codes = _codes(asked, versions, key)
    n_asked = len(asked)
    of_asked = codes[:n_asked]
    of_versions = codes[n_asked:]
    is_asked = np.isin(of_versions, of_asked)
    return pa.array(is_asked)


def _shown(versions: pa.Table, entry_key: Sequence[str]) -> pa.Table:
    """Return the newest of some entries, if the sink shows their rows."""
    live = live_entries(versions, versions.schema, entry_key)
    # Arrival mode marks the rows that the sink shows; in sequence mode it shows all but tombstones.
    has_marks = "_shown" in live.column_names
    is_shown = flags(live, "_shown") if has_marks else ~flags(live, "_tombstone")
    return live.filter(pa.array(is_shown))
