"""Rows that lost a tie: they stand beside the row that won, since a retraction of that one may make one of them the key's row.

An entry keeps them in `_tied` until a greater sequence, or a delete at this one, comes. A step reads them as changes again, so
that of all that was sent at a key's greatest sequence the same counts, whenever it came. Only rows of a changelog that retracts
by content are kept, and only whole ones: of a log, or of a database's events, none comes back.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import ADDS
from ebbtide.model.codes import Codes, Mask
from ebbtide.model.entries import flags, is_set
from ebbtide.operators.sequence.choose import Rows
from ebbtide.operators.sequence.rank import Ranked

Rivals = Mapping[int, list[int]]
"""Place of a winner to the contents that are left beside its own, an event each."""


def was_undecided(ranked: Ranked, winner: Codes) -> Mask:
    """Mark the winners that are at a sequence of which a conflict is stored.

    Args:
        ranked: The step's events.
        winner: (m,) the event that shows each key's row.
    """
    return _ties_with_entry(ranked, winner, flags(ranked.entries, "_conflict"))


def lost_rows_are_unknown(ranked: Ranked, winner: Codes) -> Mask:
    """Mark the winners that tie with a row that lost, and was not kept."""
    is_forgotten = flags(ranked.entries, "_conflict") & ~is_set(ranked.entries, "_tied")
    return _ties_with_entry(ranked, winner, is_forgotten)


def _ties_with_entry(
    ranked: Ranked,
    winner: Codes,
    marked: Mask,
) -> Mask:
    """Mark the winners whose key's entry is marked and has their sequence and operation."""
    if not marked.any():
        return np.zeros(len(winner), bool)
    entry = ranked.entry_of[ranked.key[winner]]
    has_entry = np.flatnonzero(entry >= 0)
    stored = entry[has_entry]
    shown = winner[has_entry]
    is_same_sequence = ranked.sequence[stored] == ranked.sequence[shown]
    is_same_operation = ranked.operation[stored] == ranked.operation[shown]
    ties = np.zeros(len(winner), bool)
    ties[has_entry] = marked[stored] & is_same_sequence & is_same_operation
    return ties


def is_undecided(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> Mask:
    """Mark the keys of which the sequence does not determine which content is the row, or whether one is."""
    is_conflicting = np.isin(winner, rows.ties.conflicting)
    is_forgotten = lost_rows_are_unknown(ranked, winner)
    # Contents that were taken back stay so: where all were, only a new one can be the row.
    is_still_gone = was_undecided(ranked, winner) & ranked.is_delete[winner]
    return np.asarray(is_conflicting | is_forgotten | is_still_gone)


def rivals_of(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
) -> Rivals:
    """Find the contents beside those of winners; none where one of them cannot be kept, or one that lost is not known."""
    left = rows.ties.left
    if not left:
        return {}
    digest = rows.ties.digest
    can_be_kept = _can_be_kept(ranked)
    is_beside_others = np.isin(winner, list(left))
    are_known = ~lost_rows_are_unknown(ranked, winner)
    places = np.flatnonzero(is_beside_others & are_known)
    found = {}
    for place in places.tolist():
        event = int(winner[place])
        together = left[event]
        if can_be_kept[together].all():
            found[place] = [each for each in together if digest[each] != digest[event]]
    return found


def _can_be_kept(ranked: Ranked) -> Mask:
    """Mark the whole rows of a changelog; of an entry the changes beside it show whether it is one's."""
    is_whole_entry = ~is_set(ranked.entries, "_columns")
    adding = pa.array([str(kind) for kind in ADDS])
    is_added = pc.is_in(ranked.changes["_op"], adding)
    is_whole = ~is_set(ranked.changes, "_unavailable")
    is_whole_change = is_added.to_numpy() & is_whole & (not ranked.rules.in_log)
    return np.concatenate([is_whole_entry, is_whole_change])


def tied_column(
    ranked: Ranked,
    rivals: Rivals,
    is_gone: Mask,
    type_: pa.ListType,
) -> pa.Array:
    """Write `_tied`: null too where rows that lost are not known, so that a conflict stays until a greater sequence comes.

    Args:
        ranked: The step's events.
        rivals: The contents beside those of the undecided rows.
        is_gone: (m,) keys of which it is known that no content is left.
        type_: Of the column.
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
