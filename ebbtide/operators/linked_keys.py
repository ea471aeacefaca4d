"""Keys that are linked by changes of the key: from entries and changes to the log that is played, and back to entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ebbtide.model.codes import Codes
from ebbtide.model.entries import is_set
from ebbtide.model.sequences import OP_UPSERT, UNKNOWN
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
    def equality_key(self) -> tuple[Any, Any]:
        """What two links have in common exactly if they are equal."""
        moved_from = [(change.sequence, change.old_key) for change in self.moved_from]
        if self.kept is None:
            return moved_from, (UNKNOWN, UNKNOWN)
        return moved_from, (self.kept.sequence, self.kept.until)


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
        for i, event, code in self._linked(winner):
            if self.events.is_delete[event]:
                continue
            row = self.played.rows.get(code)
            known = row.values.get(name) if row is not None else None
            if known is None:
                yield i, UNKNOWN, UNKNOWN
            else:
                yield i, known.event, known.since

    def links(self, winner: Codes, known_at: Mapping[str, Codes]) -> dict[int, Link]:
        """Return how the rows under linked keys are linked to others, by index in `winner`.

        Args:
            winner: (m,) the event that shows each key's row.
            known_at: Column to (m,) rank since when its value is known.
        """
        links: dict[int, Link] = {}
        for i, event, code in self._linked(winner):
            row = self.played.rows.get(code)
            kept = self.played.kept.get(code)
            moved_from: tuple[KeyChange, ...] = ()
            # A row that lacks nothing needs no memory of where it came from.
            lacks_value = any(rank[i] == UNKNOWN for rank in known_at.values())
            if row is not None and lacks_value and not self.events.is_delete[event]:
                moved_from = tuple(chain(row.change))
            links[i] = Link(moved_from, kept)
        return links

    def is_news(self, entry: int, link: Link) -> bool:
        """Whether an entry remembers other links than these."""
        stored = self.events.links
        row = int(stored.row[entry])
        items = _items(stored.moved, row)
        moved_from = [(stored.moved_ranks[item], self.events.old_code[item]) for item in items]
        kept = (stored.kept_ranks[row], stored.kept_until[row])
        return link.equality_key != (moved_from, kept)

    def moved_from(self, links: list[Link]) -> pa.Array:
        """Write links as `_moved_from`."""
        lists = [self._key_changes(link) or None for link in links]
        return pa.array(lists, self.events.op.schema.field("_moved_from").type)

    def _key_changes(self, link: Link) -> list[dict[str, Any]]:
        key_changes = []
        for change in link.moved_from:
            item = self._item_of_old_key[change.old_key]
            key_changes.append(
                {
                    "sequence": self.events.sequence_of(change.sequence),
                    "key": self.events.links.old_keys[item].as_py(),
                }
            )
        return key_changes

    @cached_property
    def _item_of_old_key(self) -> dict[int, int]:
        """Code of an old key to an item that has it."""
        return {code: item for item, code in enumerate(self.events.old_code)}

    def kept(self, links: list[Link]) -> pa.Array:
        """Write links as `_kept`."""
        rows = [None if link.kept is None else self._kept_row(link.kept) for link in links]
        return pa.array(rows, self.events.op.schema.field("_kept").type)

    def _kept_row(self, kept: Kept) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, known in kept.values.items():
            row[name] = self.events.values(name)[known.event].as_py()
        return {
            "sequence": self.events.sequence_of(kept.sequence),
            "until": self.events.sequence_of(kept.until),
            "known": sorted(row),
            "row": row,
        }

    def _linked(self, winner: Codes) -> list[tuple[int, int, int]]:
        """Return the index in `winner`, the event and the key's code of the keys that are linked."""
        if not self.is_played.any():
            return []
        codes = self.events.code[winner]
        linked = np.flatnonzero(self.is_played[codes])
        return list(zip(linked.tolist(), winner[linked].tolist(), codes[linked].tolist(), strict=True))

    @cached_property
    def is_played(self) -> Mask:
        """Mark the keys that a change of the key concerns, or may yet concern."""
        events = self.events
        entry_keys = events.code[: events.n_state]
        change_keys = events.code[events.n_state :]
        is_linked_entry = is_set(events.state, "_moved_from") | is_set(events.state, "_kept")
        is_key_change = is_set(events.changes, "_moved_from")
        # Both ends of a change of the key: the old key's row may hold what the new key's lacks.
        concerned = np.zeros(events.n_codes, dtype=bool)
        concerned[events.old_code] = True
        concerned[entry_keys[is_linked_entry]] = True
        concerned[change_keys[is_key_change]] = True
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
        key = events.code[event]
        sequence = events.sequence[event]
        since = events.since[key]
        base = events.base[key]
        # Snapshot rows stand below all changes: where they stood in the log is not known.
        is_before = (sequence < since) & (sequence >= events.snapshot_ranks)
        # A newest delete between the two rows is how the earlier one left; one above both ended the later one too.
        has_left = (base >= sequence) & (base <= since)
        deleted_later = base > since
        rows: Codes = event[is_before & ~has_left & ~deleted_later]
        return rows

    @cached_property
    def played(self) -> Played:
        """What the log of those keys says."""
        return play([*self._stored_events(), *self._change_events()])

    def _stored_events(self) -> Iterator[Event]:
        """Yield what the entries tell of the log of the keys that are linked."""
        links = self.events.links
        for entry, stored in enumerate(links.row.tolist()):
            if self.is_played[self.events.code[entry]]:
                yield from self._rows_followed(entry, stored)
                yield from self._key_changes_followed(entry, stored)
                yield from self._own_row(entry)

    def _rows_followed(self, entry: int, stored: int) -> Iterator[Event]:
        """Yield that the entry's row came under its key, and the kept row that it followed there."""
        events = self.events
        links = events.links
        code = int(events.code[entry])
        since = int(events.stored_since[entry])
        if since != UNKNOWN:
            yield Event(since, OP_UPSERT, code, is_other_row=True)
        kept_rank = links.kept_ranks[stored]
        if kept_rank != UNKNOWN:
            columns = tuple(links.kept[stored].as_py()["known"])
            # `Events.values` puts kept rows behind all events: this is the kept row's index there.
            behind_events = len(events.code) + stored
            yield Event(kept_rank, OP_UPSERT, code, behind_events, columns)
            yield Event(links.kept_until[stored], OP_UPSERT, code, is_other_row=True)

    def _key_changes_followed(self, entry: int, stored: int) -> Iterator[Event]:
        """Yield the changes of the key that the entry's row went through, the newest first."""
        links = self.events.links
        new_key = int(self.events.code[entry])
        for item in _items(links.moved, stored):
            old_key = self.events.old_code[item]
            yield Event(links.moved_ranks[item], OP_UPSERT, new_key, old_key=old_key, is_other_row=True)
            new_key = old_key

    def _own_row(self, entry: int) -> Iterator[Event]:
        """Yield the newest delete that an entry knows of, and its row: one event for each rank since when values are known."""
        events = self.events
        code = int(events.code[entry])
        sequence = int(events.sequence[entry])
        base = int(events.stored_base[entry])
        if base != UNKNOWN:
            yield Event(base, events.delete_rank, code, is_delete=True)
        if events.is_delete[entry]:
            yield Event(sequence, events.delete_rank, code, is_delete=True)
            return
        # An entry is several events of the log in one: it holds values from different sequences.
        columns_at: dict[int, list[str]] = {sequence: []}
        known_since = events.known_since.get(entry, {})
        for name in events.may_be_unsent:
            rank = known_since.get(name, sequence)
            if rank != UNKNOWN:
                columns_at.setdefault(rank, []).append(name)
        for rank, names in columns_at.items():
            is_snapshot = rank < events.snapshot_ranks
            yield Event(rank, OP_UPSERT, code, entry, tuple(names), is_snapshot=is_snapshot)

    def _change_events(self) -> Iterator[Event]:
        """Yield the step's own events under the keys that are linked."""
        events = self.events
        is_change = events.order >= events.n_state
        is_linked = self.is_played[events.code[events.order]]
        for event in events.order[is_change & is_linked].tolist():
            code = int(events.code[event])
            sequence = int(events.sequence[event])
            arrival = int(events.arrival[event])
            if events.is_delete[event]:
                yield Event(sequence, events.delete_rank, code, arrival=arrival, is_delete=True)
                continue
            yield Event(
                sequence,
                phase=int(events.rank[event]),
                key=code,
                index=event,
                columns=self._columns_carried(event),
                arrival=arrival,
                old_key=self._old_key(event),
                is_other_row=bool(events.starts_row[event]),
                is_snapshot=sequence < events.snapshot_ranks,
            )

    def _columns_carried(self, event: int) -> tuple[str, ...]:
        unsent = self.events.unsent
        names = self.events.may_be_unsent
        return tuple(name for name in names if name not in unsent or not unsent[name][event])

    def _old_key(self, event: int) -> int:
        """Return the old key of a change that changed it, else `UNKNOWN`."""
        items = self._items_of_changes.get(event - self.events.n_state)
        return UNKNOWN if items is None else self.events.old_code[items]

    @cached_property
    def _items_of_changes(self) -> dict[int, int]:
        """Change to where its old key stands among those of all entries and changes."""
        key_changes = self.events.links.changes
        first_of_changes = len(self.events.links.moved.values)
        items = key_changes.offsets.to_numpy() + first_of_changes
        rows = np.flatnonzero(key_changes.is_valid().to_numpy(zero_copy_only=False))
        return dict(zip(rows.tolist(), items[rows].tolist(), strict=True))


def _items(lists: pa.ListArray, row: int) -> range:
    """Return where the items of one list stand among the items of all."""
    first = lists.offsets[row].as_py()
    end = lists.offsets[row + 1].as_py()
    return range(first, end)
