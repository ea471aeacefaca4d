"""Keys that are linked by changes of the key: from entries and changes to the log that is played, and back to entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ebbtide.model.codes import Codes
from ebbtide.model.sequences import OP_DELETE, OP_FINAL_DELETE, OP_UPSERT, UNKNOWN
from ebbtide.operators.key_changes import Event, Kept, KeyChange, Played, chain, play
from ebbtide.operators.sequence_events import Events
from ebbtide.operators.ties import Mask


@dataclass(frozen=True)
class Link:
    """How a key's row is linked to other rows, by ranks and codes.

    Args:
        moved_from: Changes of the key that a waiting row went through, newest first.
        kept: The last row that had the key before, if it is not known to have left.
    """

    moved_from: tuple[KeyChange, ...] = ()
    kept: Kept | None = None

    @property
    def places(self) -> tuple[Any, Any]:
        """What of it tells it from another."""
        moves = tuple((each.sequence, each.old_key) for each in self.moved_from)
        return moves, (self.kept.sequence, self.kept.until) if self.kept else (UNKNOWN, UNKNOWN)


NO_LINK = Link()


class LinkedKeys:
    """The keys among a step's events that changes of the key concern.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events

    def values(self, winner: Codes, name: str) -> Iterator[tuple[int, int, int]]:
        """Yield what the log says of a column under the keys that are linked.

        Args:
            winner: (m,) the event that shows each key's row.
            name: The column.

        Yields:
            Index in `winner`; the event that carries the value, and the rank since when it is known, or `UNKNOWN` twice.
        """
        for i in self._linked(winner):
            row = self.played.rows.get(int(self.events.code[winner[i]]))
            known = row.values.get(name) if row is not None else None
            if not self.events.is_delete[winner[i]]:
                yield (i, known.event, known.since) if known is not None else (i, UNKNOWN, UNKNOWN)

    def links(self, winner: Codes, known_at: Mapping[str, Codes]) -> dict[int, Link]:
        """Return how the rows under linked keys are linked to others, by index in `winner`.

        Args:
            winner: (m,) the event that shows each key's row.
            known_at: Column to (m,) rank since when its value is known.
        """
        found: dict[int, Link] = {}
        for i in self._linked(winner):
            code = int(self.events.code[winner[i]])
            row = self.played.rows.get(code)
            waits = not self.events.is_delete[winner[i]] and any(rank[i] == UNKNOWN for rank in known_at.values())
            moved = chain(row.change) if row is not None and waits else ()
            found[i] = Link(tuple(moved), self.played.kept.get(code))
        return found

    def is_news(self, entry: int, link: Link) -> bool:
        """Whether an entry remembers other links than these."""
        links, row = self.events.links, int(self.events.links.row[entry])
        moved = tuple((links.moved_ranks[at], self.events.old_code[at]) for at in _items(links.moved, row))
        return link.places != (moved, (links.kept_ranks[row], links.kept_until[row]))

    def moved_from(self, links: list[Link]) -> pa.Array:
        """Write links as `_moved_from`."""
        first_of = {code: at for at, code in reversed(list(enumerate(self.events.old_code)))}
        lists: list[list[dict[str, Any]] | None] = []
        for link in links:
            changes = []
            for change in link.moved_from:
                old_key = self.events.links.old_keys[first_of[change.old_key]].as_py()
                changes.append({"sequence": self.events.sequence_of(change.sequence), "key": old_key})
            lists.append(changes or None)
        return pa.array(lists, self.events.op.schema.field("_moved_from").type)

    def kept(self, links: list[Link]) -> pa.Array:
        """Write links as `_kept`."""
        rows = [None if link.kept is None else self._kept_row(link.kept) for link in links]
        return pa.array(rows, self.events.op.schema.field("_kept").type)

    def _kept_row(self, kept: Kept) -> dict[str, Any]:
        row = {name: self.events.values(name)[known.event].as_py() for name, known in kept.values.items()}
        return {
            "sequence": self.events.sequence_of(kept.sequence),
            "until": self.events.sequence_of(kept.until),
            "known": sorted(row),
            "row": row,
        }

    def _linked(self, winner: Codes) -> list[int]:
        return np.flatnonzero(self.is_played[self.events.code[winner]]).tolist() if self.is_played.any() else []

    @cached_property
    def is_played(self) -> Mask:
        """Mark the keys that a change of the key concerns, or may yet concern."""
        events = self.events
        concerned = np.zeros(events.n_codes, dtype=bool)
        concerned[events.old_code] = True
        linked = [events.state["_moved_from"], events.state["_kept"], events.changes["_moved_from"]]
        stored, kept, changes = (column.is_valid().to_numpy() for column in linked)
        concerned[events.code[: events.n_state][stored | kept]] = True
        concerned[events.code[events.n_state :][changes]] = True
        concerned[events.code[self._rows_of_before]] = True
        return concerned

    @cached_property
    def _rows_of_before(self) -> Codes:
        """Find the rows that had their key before another row got it, and are not known to have left.

        Such a row may have gone to another key, in a change that has yet to arrive without all its values.
        """
        events = self.events
        if not events.may_be_unsent:
            return np.empty(0, np.int64)
        event = events.order[~events.is_delete[events.order]]
        since, base = events.since[events.code[event]], events.base[events.code[event]]
        at = events.sequence[event]
        is_before = (at < since) & (at >= events.snapshot_ranks)
        has_left = (base >= at) & (base <= since)
        deleted_later = base > since
        found: Codes = event[is_before & ~has_left & ~deleted_later]
        return found

    @cached_property
    def played(self) -> Played:
        """What the log of those keys says."""
        return play([*self._stored_events(), *self._change_events()])

    def _stored_events(self) -> Iterator[Event]:
        """Yield what the entries tell of the log: changes of keys, rows before, deletes, and their own row."""
        events = self.events
        moved, kept = events.links.moved, events.links.kept
        lowest_of_log = events.snapshot_ranks
        names, n_events = events.may_be_unsent, len(events.code)
        for i, stored in enumerate(events.links.row.tolist()):
            code, sequence = int(events.code[i]), int(events.sequence[i])
            if not self.is_played[code]:
                continue
            if events.stored_since[i] != UNKNOWN:
                yield Event(int(events.stored_since[i]), OP_UPSERT, code, is_other_row=True)
            if events.links.kept_ranks[stored] != UNKNOWN:
                known = tuple(kept[stored].as_py()["known"])
                yield Event(events.links.kept_ranks[stored], OP_UPSERT, code, n_events + stored, known)
                yield Event(events.links.kept_until[stored], OP_UPSERT, code, is_other_row=True)
            to = code
            for at in _items(moved, stored):
                yield Event(events.links.moved_ranks[at], OP_UPSERT, to, old_key=events.old_code[at], is_other_row=True)
                to = events.old_code[at]
            if events.stored_base[i] != UNKNOWN:
                yield Event(int(events.stored_base[i]), self._delete_phase, code, is_delete=True)
            if events.is_delete[i]:
                yield Event(sequence, self._delete_phase, code, is_delete=True)
                continue
            since = dict.fromkeys(names, sequence) | events.known_since.get(i, {})
            for rank in sorted({*since.values(), sequence} - {UNKNOWN}):
                known = tuple(name for name in names if since[name] == rank)
                is_snapshot = rank < lowest_of_log
                yield Event(rank, OP_UPSERT, code, i, known, is_snapshot=is_snapshot)

    def _change_events(self) -> Iterator[Event]:
        events = self.events
        key_changes = events.links.changes
        changes_key = key_changes.is_valid().to_numpy(zero_copy_only=False)
        item_of, first_of_changes = key_changes.offsets.to_numpy(), len(events.links.moved.values)
        names = events.may_be_unsent
        in_play = events.order[self.is_played[events.code[events.order]] & (events.order >= events.n_state)]
        for i in in_play.tolist():
            code, sequence, arrival = int(events.code[i]), int(events.sequence[i]), int(events.arrival[i])
            if events.is_delete[i]:
                yield Event(sequence, self._delete_phase, code, arrival=arrival, is_delete=True)
                continue
            known = tuple(name for name in names if name not in events.unsent or not events.unsent[name][i])
            row = i - events.n_state
            old_key = UNKNOWN
            if changes_key[row]:
                old_key = events.old_code[first_of_changes + item_of[row]]
            starts, is_snapshot = bool(events.starts_row[i]), sequence < events.snapshot_ranks
            yield Event(
                sequence, int(events.rank[i]), code, i, known, arrival, old_key, starts, is_snapshot=is_snapshot
            )

    @property
    def _delete_phase(self) -> int:
        return OP_DELETE if self.events.in_log else OP_FINAL_DELETE


def _items(lists: pa.ListArray, row: int) -> range:
    """Return where the items of one list stand among the items of all."""
    return range(lists.offsets[row].as_py(), lists.offsets[row + 1].as_py())
