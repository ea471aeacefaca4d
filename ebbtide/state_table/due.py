"""What a tick has to look at: the keys of entries that have expired, or whose timers are due."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from ebbtide.delta.snapshot import DataFile
from ebbtide.delta.table import read_file
from ebbtide.model.entries import Step, equals, flags
from ebbtide.operators.expiry_rules import due_timers
from ebbtide.operators.operator import Operator
from ebbtide.state_table.deciding import Stored, distinct_keys
from ebbtide.state_table.layout import ROW


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
    names = {*operator.key, *operator.expiry.columns, "_removed", "_sub", "_position"}
    columns = [column for column in operator.schema if column.name in names]
    schema = pa.schema([pa.field("_entry", pa.string()), *columns])
    for file in state.files:
        if not (operator.has_named_states or may_hold_expired(file, operator, step)):
            continue
        rows = read_file(state.table, file, schema)
        entries = rows.filter(equals(rows, "_entry", ROW))
        is_due = operator.expiry.expired(entries, step)
        if operator.has_named_states:
            is_due |= due_timers(entries, step)
        is_due &= ~flags(entries, "_removed")
        yield entries.select(list(operator.key)).filter(pa.array(is_due))


def may_hold_expired(file: DataFile, operator: Operator, step: Step) -> bool:
    """Return whether a file's least stamp has expired by a time to live that is no entry's own."""
    oldest_ms = file.least("_stamp_ms")
    if oldest_ms is None:
        return file.rows is None  # without statistics
    return any(oldest_ms + ttl.ttl_ms <= step.clock_ms(ttl) for ttl in operator.expiry.ttls.values())
