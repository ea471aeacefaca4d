"""Keeps rows that lost a tie: if the winner is retracted, one of them becomes the key's row.

An entry keeps them in `_tied` until a greater sequence, or a delete at this one, arrives. A step reads them as changes again.
So the result at a key's greatest sequence does not depend on how its changes are divided into steps. Only whole rows of a
changelog that retracts by content are kept: in a log, no losing row ever comes back.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import RowKind
from ebbtide.columns import Codes, Mask, flags, is_set
from ebbtide.operators._sequence.choose import Rows
from ebbtide.operators._sequence.rank import Ranked

Rivals = Mapping[int, list[int]]
"""Index of a winner to the losing contents at its sequence, one event for each."""


def was_undecided(ranked: Ranked, winner: Codes) -> Mask:
    """Mark the winners at whose sequence a conflict is stored.

    Args:
        ranked: The step's events.
        winner: (m,) the event that shows each key's row.
    """
    is_stored = flags(ranked.entries, "_conflict")
    return _ties_with_entry(ranked, winner, is_stored)


def lost_rows_are_unknown(ranked: Ranked, winner: Codes) -> Mask:
    """Mark the winners that tie with a losing row that was not kept."""
    entries = ranked.entries
    is_kept = is_set(entries, "_tied")
    is_forgotten = flags(entries, "_conflict") & ~is_kept
    return _ties_with_entry(ranked, winner, is_forgotten)


def _ties_with_entry(
    ranked: Ranked,
    winner: Codes,
    marked: Mask,
) -> Mask:
    """Mark the winners whose key's entry is marked and has their sequence and operation."""
    if not marked.any():
        return np.zeros(len(winner), bool)
    keys = ranked.key[winner]
    entry = ranked.entry_of[keys]
    has_entry = np.flatnonzero(entry >= 0)
    stored = entry[has_entry]
    shown = winner[has_entry]
    is_same_sequence = ranked.sequence[stored] == ranked.sequence[shown]
    is_same_operation = ranked.operation[stored] == ranked.operation[shown]
    is_same = is_same_sequence & is_same_operation
    ties = np.zeros(len(winner), bool)
    ties[has_entry] = marked[stored] & is_same
    return ties


def is_undecided(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> Mask:
    """Mark the keys whose sequence does not determine the row, or its existence."""
    is_conflicting = np.isin(winner, rows.ties.conflicting)
    is_forgotten = lost_rows_are_unknown(ranked, winner)
    # Retracted contents stay retracted: if all are, only a new content can become the row.
    is_still_gone = was_undecided(ranked, winner) & ranked.is_delete[winner]
    return np.asarray(is_conflicting | is_forgotten | is_still_gone)


def rivals_of(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> Rivals:
    """Return the losing contents of each winner; none if one of them cannot be kept, or a losing row is unknown."""
    left = rows.ties.left
    if not left:
        return {}
    digest = rows.ties.digest
    can_be_kept = _can_be_kept(ranked)
    has_rivals = np.isin(winner, list(left))
    are_known = ~lost_rows_are_unknown(ranked, winner)
    places = np.flatnonzero(has_rivals & are_known)
    rivals: dict[int, list[int]] = {}
    for place in places.tolist():
        event = int(winner[place])
        contents = left[event]
        if can_be_kept[contents].all():
            rivals[place] = [content for content in contents if digest[content] != digest[event]]
    return rivals


def _can_be_kept(ranked: Ranked) -> Mask:
    """Mark the whole rows of a changelog. An entry does not store its operation: the changes that tie with it decide for it."""
    is_whole_entry = ~is_set(ranked.entries, "_columns")
    adding_kinds = [str(kind) for kind in RowKind if kind.adds]
    is_added = pc.is_in(ranked.changes["_op"], pa.array(adding_kinds)).to_numpy()
    is_whole = ~is_set(ranked.changes, "_unavailable")
    retracts_by_content = not ranked.rules.in_log
    is_whole_change = is_added & is_whole & retracts_by_content
    return np.concatenate([is_whole_entry, is_whole_change])


def tied_column(
    ranked: Ranked,
    rivals: Rivals,
    is_gone: Mask,
    type_: pa.ListType,
) -> pa.Array:
    """Build `_tied`. Null if losing rows are unknown: then the conflict stays until a greater sequence arrives.

    Args:
        ranked: The step's events.
        rivals: The losing contents of the undecided rows.
        is_gone: (m,) true for keys whose contents are all known to be retracted.
        type_: Type of the column.
    """
    lists: dict[int, list[int]] = {place: [] for place in np.flatnonzero(is_gone).tolist()}
    lists |= {place: events for place, events in rivals.items() if events}
    n = len(is_gone)
    lengths = np.zeros(n, np.int64)
    is_null = np.ones(n + 1, bool)
    is_null[n] = False  # where the last list ends
    in_order: list[int] = []
    for place, events in sorted(lists.items()):
        lengths[place] = len(events)
        is_null[place] = False
        in_order += events
    ends = np.cumsum(lengths)
    offsets = np.concatenate([[0], ends])
    indices = pa.array(in_order, pa.int64())
    rows = ranked.rows.take(indices)
    values = rows.to_struct_array().combine_chunks()
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32(), mask=is_null),
        values.cast(type_.value_type),
        type=type_,
    )
