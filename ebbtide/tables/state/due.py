"""What a tick has to look at: the keys of entries that have expired, or whose timers are due."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.delta.table import read_file
from ebbtide.model.entries import Step, equals, flags
from ebbtide.operators.expiry import due_timers
from ebbtide.operators.operator import Operator
from ebbtide.tables.state.layout import ROW, may_hold_expired
from ebbtide.tables.state.stored import Stored, distinct_keys


def due_keys(state: Stored, operator: Operator, step: Step) -> pa.Table:
    """Return the keys that a tick has to look at, once each.

    Every stored version of an entry counts, so that there may be more than those of which the newest is due. Only files
    that may hold one are read, by the statistics of their stamps, and of these few columns.

    Args:
        state: The stored entries.
        operator: The operator whose they are.
        step: The tick.
    """
    found = list(_due(state, operator, step))
    key = list(operator.key)
    if not found:
        return operator.schema.empty_table().select(key)
    keys, _ = distinct_keys(pa.concat_tables(found), key)
    return keys


def _due(state: Stored, operator: Operator, step: Step) -> Iterator[pa.Table]:
    """Yield the due keys of each file that may hold one."""
    names = {
        *operator.key,
        *operator.expiry.columns,
        "_removed",
        "_sub",
        "_position",
    }
    columns = [column for column in operator.schema if column.name in names]
    kind = pa.field("_entry", pa.string())
    schema = pa.schema([kind, *columns])
    for file in state.files:
        may_be_due = operator.has_named_states or may_hold_expired(file, operator.expiry, step)
        if not may_be_due:
            continue
        rows = read_file(state.table, file, schema)
        is_entry = equals(rows, "_entry", ROW)
        entries = rows.filter(is_entry)
        is_due = operator.expiry.expired(entries, step)
        if operator.has_named_states:
            is_due |= due_timers(entries, step)
        is_live = ~flags(entries, "_removed")
        is_due &= is_live
        keys = entries.select(list(operator.key))
        yield keys.filter(pa.array(is_due))
