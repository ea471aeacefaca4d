"""Finds the entries of a state that a tick or a snapshot transformer waits for, by the statistics of its files first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ebbtide.columns import flags
from ebbtide.delta import DataFile, KeyIndex
from ebbtide.entries import Step
from ebbtide.operators import ExpiryRules, Operator, StatefulOperator
from ebbtide.tables._state.lookup import Stored


def may_hold_expired(file: DataFile, rules: ExpiryRules, step: Step) -> bool:
    """Return whether a file's least stamp has expired by one of the states' TTLs."""
    oldest_ms = file.least("_stamp_ms")
    if oldest_ms is None:
        return not file.is_all_null("_stamp_ms")  # without statistics it may
    for ttl in rules.ttls.values():
        expires_ms = oldest_ms + ttl.ttl_ms
        if expires_ms <= step.clock_ms(ttl):
            return True
    return False


def due_keys(state: Stored, operator: Operator, step: Step, *, only_awaited: bool = False) -> pa.Table:
    """Return the keys that a tick has to examine, once each.

    Args:
        state: The stored entries.
        operator: The operator of the entries.
        step: The tick.
        only_awaited: Leave out keys whose due entries may be deleted without a tick, and timers.
    """
    # A superset: every stored version of an entry counts, and the operator then decides by the newest. Finding the newest
    # here would need all files; this reads only those whose least stamp has expired, and few of their columns.
    found = _due(state, operator, step, only_awaited=only_awaited)
    return _once_each(found, operator)


def untransformed_keys(state: Stored, operator: StatefulOperator, since: int) -> pa.Table:
    """Return the keys with entries that a snapshot transformer has yet to be handed, once each.

    Args:
        state: The stored entries.
        operator: The operator of the entries.
        since: See `StatefulOperator.untransformed`.
    """
    found = _untransformed(state, operator, since)
    return _once_each(found, operator)


def _once_each(found: Iterable[pa.Table], operator: Operator) -> pa.Table:
    key = list(operator.key)
    tables = list(found)
    if not tables:
        return operator.schema.empty_table().select(key)
    keys, _ = KeyIndex.distinct_keys(pa.concat_tables(tables), key)
    return keys


def _untransformed(state: Stored, operator: StatefulOperator, since: int) -> Iterator[pa.Table]:
    """Yield the keys in each file that may hold entries of later steps."""
    key = list(operator.key)
    for file in state.files:
        newest_step = file.greatest("_step")
        if newest_step is not None and newest_step <= since:
            continue
        rows, counts = state.scan(file, {*key, "_state", "_step", "_removed"})
        is_due = counts & operator.untransformed(rows, since) & ~flags(rows, "_removed")
        yield rows.select(key).filter(pa.array(is_due))


def _due(state: Stored, operator: Operator, step: Step, *, only_awaited: bool) -> Iterator[pa.Table]:
    """Yield the due keys of each file that may hold one."""
    rules = operator.expiry
    names = {
        *operator.key,
        *rules.columns,
        *rules.tick_columns,
        "_removed",
        "_sub",
        "_position",
    }
    for file in state.files:
        # Timers have no statistics: with named states every file may hold a due one.
        may_be_due = operator.has_named_states or may_hold_expired(file, rules, step)
        if not may_be_due:
            continue
        rows, counts = state.scan(file, names)
        entries = rows.filter(pa.array(counts))
        is_due = rules.awaited(entries, step) if only_awaited else rules.due(entries, step)
        is_live = ~flags(entries, "_removed")
        is_due &= is_live
        keys = entries.select(list(operator.key))
        yield keys.filter(pa.array(is_due))
