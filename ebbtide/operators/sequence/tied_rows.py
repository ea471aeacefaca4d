"""Rows that lost a tie: they stand beside the row that won, since a retraction of that one may make one of them the key's row.

An entry keeps them in `_tied` until a greater sequence, or a delete at this one, comes. A step reads them as changes again, so
that of all that was sent at a key's greatest sequence the same counts, whenever it came. Only rows of a changelog that retracts
by content are kept, and only whole ones: of a log, or of a database's events, none comes back.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ebbtide.model.changelog import ADDS
from ebbtide.model.codes import Codes, Mask
from ebbtide.model.entries import flags, is_set
from ebbtide.operators.sequence.events import Events


class TiedRows:
    """What the entries of a step remember of ties at their sequences.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events

    def is_undecided(self, winner: Codes) -> Mask:
        """Mark the keys of which the sequence does not tell which content is the row, or whether one is.

        Args:
            winner: (m,) the event that shows each key's row.
        """
        events = self.events
        was_undecided = self._was_undecided(winner)
        is_forgotten = self._lost_rows_at(winner)
        # Contents that were taken back stay so: where all were, only a new one can be the row.
        is_still_gone = was_undecided & events.is_delete[winner]
        marked: Mask = events.conflicting[winner] | is_forgotten | is_still_gone
        return marked

    def n_lost(self, winner: Codes, is_undecided: Mask) -> int:
        """Count the keys without a row of which this step found that one may have come back."""
        is_gone = is_undecided & self.events.is_delete[winner]
        is_new = is_gone & ~self._was_undecided(winner)
        return int(is_new.sum())

    def kept(self, winner: Codes, is_undecided: Mask) -> pa.Array:
        """Write `_tied`: null too where rows that lost are not known, so that a conflict stays until a greater sequence comes."""
        events = self.events
        type_ = events.op.schema.field("_tied").type
        is_known = is_undecided & ~self._lost_rows_at(winner)
        is_gone = is_known & events.is_delete[winner]
        lists: dict[int, list[int]] = {i: [] for i in np.flatnonzero(is_gone).tolist()}
        for i in self._with_others(winner, is_known):
            others = self._others(int(winner[i]))
            if others:
                lists[i] = others
        if not lists:
            return pa.nulls(len(winner), type_)
        lengths = np.zeros(len(winner), np.int64)
        for i, others in lists.items():
            lengths[i] = len(others)
        in_order = [event for i in sorted(lists) for event in lists[i]]
        rows = events.rows.take(pa.array(in_order, pa.int64()))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        is_null = np.ones(len(winner), dtype=bool)
        is_null[list(lists)] = False
        values = rows.to_struct_array().combine_chunks().cast(type_.value_type)
        return pa.ListArray.from_arrays(
            pa.array(offsets, pa.int32()),
            values,
            type=type_,
            mask=pa.array(is_null),
        )

    def is_news(self, winner: Codes) -> Mask:
        """Mark the rows beside which a content lost that is not stored yet."""
        marked = np.zeros(len(winner), dtype=bool)
        for i in self._with_others(winner, ~self._lost_rows_at(winner)):
            others = self._others(int(winner[i]))
            marked[i] = any(event >= self.events.n_stored for event in others)
        return marked

    def _with_others(self, winner: Codes, marked: Mask) -> list[int]:
        """Return the indices of the marked winners beside which other contents are left."""
        left = self.events.left
        if not left:
            return []
        is_beside_others = np.isin(winner, list(left)) & marked
        indices: list[int] = np.flatnonzero(is_beside_others).tolist()
        return indices

    def _others(self, event: int) -> list[int]:
        """Return the contents that are left beside an event's, an event each; none if one of them cannot be kept."""
        events = self.events
        left = events.left[event]
        if not all(map(self._can_be_kept, left)):
            return []
        return [each for each in left if events.digest[each] != events.digest[event]]

    def _can_be_kept(self, event: int) -> bool:
        """Whether an event is a whole row of a changelog; of an entry the changes beside it say whether it is one's."""
        events = self.events
        if event < events.n_state:
            return event not in events.known_since
        change = event - events.n_state
        op = events.changes["_op"][change].as_py()
        is_whole = not events.changes["_unavailable"][change].is_valid
        return op in ADDS and is_whole and not events.in_log

    def _lost_rows_at(self, winner: Codes) -> Mask:
        """Mark the keys with a row that lost a tie at the winner's sequence, and was not kept."""
        state = self.events.state
        is_forgotten = flags(state, "_conflict") & ~is_set(state, "_tied")
        return self._at_winner(is_forgotten, winner)

    def _was_undecided(self, winner: Codes) -> Mask:
        return self._at_winner(flags(self.events.state, "_conflict"), winner)

    def _at_winner(self, marked: Mask, winner: Codes) -> Mask:
        """Mark the keys whose entry is marked and ties with the event that shows the key's row."""
        events = self.events
        found = np.zeros(len(winner), dtype=bool)
        if not marked.any():
            return found
        entry = events.entry_of[events.code[winner]]
        has_entry = np.flatnonzero(entry >= 0)
        stored = entry[has_entry]
        shown = winner[has_entry]
        is_same_sequence = events.sequence[stored] == events.sequence[shown]
        is_same_operation = events.rank[stored] == events.rank[shown]
        found[has_entry] = marked[stored] & is_same_sequence & is_same_operation
        return found
