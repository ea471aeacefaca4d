"""Rows for display: values of personal columns are masked unless the user requests them."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.redaction import MASK
from ebbtide.spec import Pipeline

OF_FUNCTIONS = ("value", "map_key")
"""Columns of a function's state: its values may come from any column."""


def without_personal(rows: pa.Table, spec: Pipeline) -> pa.Table:
    """Mask the personal values in rows of a pipeline's state; nulls stay.

    Args:
        rows: Rows from `ebbtide.inspect._state`.
    """
    hidden = spec.personal
    if hidden and spec.identity.get("states"):
        hidden = hidden.union(OF_FUNCTIONS)
    return _masked(rows, hidden)


def _masked(rows: pa.Table, hidden: Collection[str]) -> pa.Table:
    null = pa.scalar(None, pa.string())
    mask = pa.scalar(MASK)
    for number, name in enumerate(rows.column_names):
        if name not in hidden:
            continue
        is_null = pc.is_null(rows[name])
        masked = pc.if_else(is_null, null, mask)
        rows = rows.set_column(number, name, masked)
    return rows
