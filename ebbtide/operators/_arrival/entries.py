"""Builds the entries that a step must write: rows of its histories that differ from the stored ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.columns import Codes, Mask, entry_table
from ebbtide.operators._arrival.rows import Rows
from ebbtide.operators._arrival.rules import GONE, LIVE, WAITING


class History(NamedTuple):
    """All histories at the end of the step, by row.

    Args:
        content: (n,) the row that holds each row's values: itself, or the change that replaced it.
        is_alive: (n,) true for rows in their key's history, and for waiting retractions.
        is_late: (n,) true for rows that had expired when they were written.
    """

    content: Codes
    is_alive: Mask
    is_late: Mask


class Shown(NamedTuple):
    """The sink's rows, by key.

    Args:
        before: (keys,) the stored entry that it showed; -1 if none is known.
        after: (keys,) the row that it must show; -1: none.
        is_touched: (keys,) true for keys with changes, or with rows that expire.
        has_expired: (keys,) true for touched keys whose shown row has expired.
        change: (keys,) the sink's action; empty: nothing.
        last_change: (keys,) the key's last change; -1: none.
        last_emitting: (keys,) the last change that emitted; -1: none.
    """

    before: Codes
    after: Codes
    is_touched: Mask
    has_expired: Mask
    change: NDArray[np.str_]
    last_change: Codes
    last_emitting: Codes


def entries_of(
    rows: Rows,
    shown: Shown,
    history: History,
) -> pa.Table:
    """Build entries for rows that differ from the stored ones and for rows that carry a change for the sink."""
    has_row = shown.after >= 0
    shown_rows = shown.after[has_row]
    is_shown = np.zeros(len(rows), bool)
    is_shown[shown_rows] = True
    # A row that left its history but is still shown stays stored: the key's next change needs it.
    is_kept = (history.is_alive | is_shown) & ~history.is_late
    role_if_alive = np.where(rows.adds, LIVE, WAITING)
    role = np.where(history.is_alive, role_if_alive, GONE)
    differs = _differs(
        rows,
        shown,
        history,
        is_shown=is_shown,
        is_kept=is_kept,
        role=role,
    )
    change = _carried_changes(rows, shown)
    carries = change != ""

    written = np.flatnonzero(differs | carries)
    contents = pa.array(history.content[written])
    stamps = rows.stamps(history.content)
    positions = rows.positions()
    causes = _causes(
        rows,
        shown,
        history,
        written=written,
        carries=carries,
    )
    is_stored_shown = is_shown & is_kept
    columns: dict[str, object] = {}
    for name in rows.rules.columns.names:
        columns[name] = rows.user[name].take(contents)
    columns |= {
        "_step": np.full(len(written), rows.step.number),
        "_change": pa.array(change[written], mask=~carries[written]),
        "_removed": ~is_kept[written],
        "_stamp_ms": stamps[written],
        "_changed_by": causes,
        "_position": positions[written],
        "_role": role[written],
        "_shown": is_stored_shown[written],
    }
    return entry_table(rows.rules.schema, columns, len(written))


def _differs(
    rows: Rows,
    shown: Shown,
    history: History,
    is_shown: Mask,
    is_kept: Mask,
    role: NDArray[np.str_],
) -> Mask:
    """Mark the entries that changed or are dropped, and the changes that are kept."""
    n = rows.n_state
    if_kept = np.where(rows.is_waiting, WAITING, LIVE)
    stored_role = np.where(rows.is_gone, GONE, if_kept)
    is_dropped = ~is_kept[:n]
    is_replaced = history.content[:n] >= n
    is_shown_otherwise = is_shown[:n] != rows.was_shown
    has_other_role = role[:n] != stored_role
    is_changed = is_dropped | is_replaced | is_shown_otherwise | has_other_role
    is_touched = shown.is_touched[rows.entry_keys]
    # Kept changes are new. Only entries of touched keys are written; the tick handles the rest.
    differs = is_kept.copy()
    differs[:n] = is_changed & is_touched
    return differs


def _carried_changes(rows: Rows, shown: Shown) -> NDArray[np.str_]:
    """Give each row the change that its entry carries for the sink; empty: none.

    One entry carries a key's change: that of the row shown, else that of the row shown before, else that of the retraction
    that emptied the history. The last two are dropped entries, so a kept entry never carries an outdated decision.
    """
    has_row = shown.after >= 0
    had_row = shown.before >= 0
    if_gone = np.where(had_row, shown.before, shown.last_emitting)
    carriers = np.where(has_row, shown.after, if_gone)
    needs_change = shown.change != ""
    change = np.full(len(rows), "", dtype="U1")
    change[carriers[needs_change]] = shown.change[needs_change]
    return change


def _causes(
    rows: Rows,
    shown: Shown,
    history: History,
    written: Codes,
    carries: Mask,
) -> pa.ChunkedArray | pa.Array:
    """Return the order of the change that caused each entry.

    For the sink this is the key's last change; at a tick there is none.
    """
    keys = rows.key[written]
    last_change = shown.last_change[keys]
    is_sink_change = carries[written]
    by_last = is_sink_change & (last_change >= 0)
    content = history.content[written]
    cause = np.where(by_last, last_change, content)
    orders = rows.orders().take(pa.array(cause))
    if len(rows.changes):
        return orders
    no_change = rows.before_changes(len(written))
    return pc.if_else(pa.array(is_sink_change), no_change, orders)
