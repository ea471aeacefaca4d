"""Emission record by record in arrival mode (`emission: every`): expired rows first, then one record per change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns import Codes, Mask
from ebbtide.operators._arrival import kernel
from ebbtide.operators._arrival.rows import Rows
from ebbtide.operators._arrival.rules import Keep, OnExpire

KIND_OF_OUTCOME = {kernel.INSERT: "+I", kernel.UPDATE: "+U", kernel.DELETE: "-D"}


def emitted_records(
    rows: Rows,
    result: kernel.Result,
    row_of_event: Codes,
    before: Codes,
    has_expired: Mask,
) -> pa.Table:
    """Return the records emitted, in order.

    Args:
        rows: The rows of the step.
        result: The kernel's result, by event.
        row_of_event: (events,) row of each event.
        before: (keys,) the entry that the sink showed of each key; -1 if none is known.
        has_expired: (keys,) true if that entry has expired.
    """
    is_change = row_of_event >= rows.n_state
    is_emitted = np.isin(result.outcome, list(KIND_OF_OUTCOME))
    events = np.flatnonzero(is_change & is_emitted)
    changes = row_of_event[events]
    source_events = result.source[events]
    emitted_rows = row_of_event[source_events]
    had_row = before >= 0
    outcomes = _as_the_sink_sees(
        outcome=result.outcome[events],
        key=rows.key[changes],
        is_still_shown=had_row & ~has_expired,
    )

    expired_keys = np.empty(0, np.int64)
    if rows.options.on_expire is OnExpire.DELETE:
        expired_keys = np.flatnonzero(has_expired)
    # Expired rows leave before any change applies. A key then shows its newest live row (with FIRST: its oldest).
    visible_rows = _visible_before_changes(rows)
    instead = visible_rows[expired_keys]
    has_other_row = instead >= 0
    expired_rows = np.where(has_other_row, instead, before[expired_keys])

    expired_kinds = np.where(has_other_row, "+U", "-D")
    kinds = expired_kinds.tolist()
    kinds += [KIND_OF_OUTCOME[outcome] for outcome in outcomes.tolist()]
    change_indices = pa.array(changes - rows.n_state)
    own_orders = rows.changes["_order"].take(change_indices)
    orders = [
        rows.before_changes(len(expired_keys)),
        own_orders.combine_chunks(),
    ]
    all_rows = np.concatenate([expired_rows, emitted_rows])
    indices = pa.array(all_rows)
    numbers = np.arange(len(all_rows))
    columns = {}
    for name in rows.rules.columns.names:
        columns[name] = rows.user[name].take(indices)
    columns |= {
        "_kind": pa.array(kinds, pa.string()),
        "_order": pa.concat_arrays(orders),
        "_number": pa.array(numbers),
    }
    return pa.table(columns).cast(rows.rules.emitted_schema)


def _as_the_sink_sees(
    outcome: NDArray[np.int8],
    key: Codes,
    is_still_shown: Mask,
) -> NDArray[np.int8]:
    """Turn +I into +U if the history is empty but the sink still shows a row of it.

    Args:
        outcome: (m,) outcomes of the changes that emitted.
        key: (m,) keys of these changes.
        is_still_shown: (keys,) true if the sink shows a row from before the step.
    """
    _, first_of_key = np.unique(key, return_index=True)
    is_first = np.zeros(len(key), bool)
    is_first[first_of_key] = True
    is_insert = outcome == kernel.INSERT
    meets_row = is_first & is_still_shown[key]
    is_update = is_insert & meets_row
    return np.where(is_update, kernel.UPDATE, outcome)


def _visible_before_changes(rows: Rows) -> Codes:
    """Return the stored row that each key shows before any change of the step; -1: none."""
    is_over = rows.is_expired | rows.is_dead
    is_in_history = ~rows.is_gone & ~rows.is_waiting
    live = np.flatnonzero(is_in_history & ~is_over)
    if rows.options.keep is Keep.FIRST:
        live = live[::-1]
    keys = rows.key[live]
    visible = np.full(rows.n_keys, kernel.NONE)
    visible[keys] = live  # the last one of a key stays
    return visible
