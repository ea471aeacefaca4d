"""Rows that lost a tie: they stand beside the row that won, since a retraction of that one may make one of them the key's row.

An entry keeps them in `_tied` until a greater sequence, or a delete at this one, comes. A step reads them as changes again, so
that of all that was sent at a key's greatest sequence the same counts, whenever it came. Only rows of a changelog that retracts
by content are kept, and only whole ones: of a log, or of a database's events, none comes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import ADDS
from ebbtide.model.codes import Codes, Mask
from ebbtide.model.entries import flags, is_set
from ebbtide.operators.sequence.choose import Rows
from ebbtide.operators.sequence.rank import Ranked

Others = Mapping[int, list[int]]
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


def _ties_with_entry(ranked: Ranked, winner: Codes, marked: Mask) -> Mask:
    """Mark the winners whose key's entry is marked and has their sequence and operation."""
    if not marked.any():
        return np.zeros(len(winner), bool)
    key = ranked.key[winner]
    n = ranked.n_entries
    is_same_sequence = ranked.of_entry(ranked.sequence[:n], key, otherwise=-1) == ranked.sequence[winner]
    is_same_operation = ranked.of_entry(ranked.operation[:n], key, otherwise=-1) == ranked.operation[winner]
    is_marked = ranked.of_entry(marked, key, otherwise=False)
    return np.asarray(is_marked & is_same_sequence & is_same_operation)


def is_undecided(ranked: Ranked, rows: Rows, winner: Codes) -> Mask:
    """Mark the keys of which the sequence does not determine which content is the row, or whether one is."""
    is_conflicting = np.isin(winner, rows.ties.conflicting)
    # Contents that were taken back stay so: where all were, only a new one can be the row.
    is_still_gone = was_undecided(ranked, winner) & ranked.is_delete[winner]
    return np.asarray(is_conflicting | lost_rows_are_unknown(ranked, winner) | is_still_gone)


def others(ranked: Ranked, rows: Rows, winner: Codes, *, in_log: bool) -> Others:
    """Find the contents beside those of winners; none where one of them cannot be kept, or one that lost is not known."""
    left = rows.ties.left
    if not left:
        return {}
    can_be_kept = _can_be_kept(ranked, in_log=in_log)
    is_beside_others = np.isin(winner, list(left)) & ~lost_rows_are_unknown(ranked, winner)
    found = {}
    for place in np.flatnonzero(is_beside_others).tolist():
        event = int(winner[place])
        together = left[event]
        if can_be_kept[together].all():
            found[place] = [each for each in together if rows.ties.digest[each] != rows.ties.digest[event]]
    return found


def _can_be_kept(ranked: Ranked, *, in_log: bool) -> Mask:
    """Mark the whole rows of a changelog; of an entry the changes beside it show whether it is one's."""
    adding = pa.array([str(kind) for kind in ADDS])
    is_added = pc.is_in(ranked.changes["_op"], adding).to_numpy()
    is_whole = ~is_set(ranked.changes, "_unavailable")
    is_whole_entry = ~is_set(ranked.entries, "_columns")
    return np.concatenate([is_whole_entry, is_added & is_whole & (not in_log)])


def tied_column(ranked: Ranked, beside: Others, is_gone: Mask, type_: pa.ListType) -> pa.Array:
    """Write `_tied`: null too where rows that lost are not known, so that a conflict stays until a greater sequence comes.

    Args:
        ranked: The step's events.
        beside: The contents beside those of the undecided rows.
        is_gone: (m,) keys of which it is known that no content is left.
        type_: Of the column.
    """
    lists: dict[int, list[int]] = {place: [] for place in np.flatnonzero(is_gone).tolist()}
    lists |= {place: events for place, events in beside.items() if events}
    lengths = np.zeros(len(is_gone), np.int64)
    lengths[list(lists)] = [len(events) for events in lists.values()]
    in_order: list[Any] = [event for place in sorted(lists) for event in lists[place]]
    rows = ranked.rows.take(pa.array(in_order, pa.int64()))
    is_null = np.ones(len(is_gone) + 1, bool)
    is_null[[*lists, len(is_gone)]] = False
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32(), mask=is_null)
    values = rows.to_struct_array().combine_chunks().cast(type_.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=type_)
