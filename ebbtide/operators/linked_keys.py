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
from ebbtide.model.sequences import OP_DELETE, OP_UPSERT, UNKNOWN
from ebbtide.operators.key_changes import Event, Kept, KeyChange, Played, chain, play
from ebbtide.operators.sequence_events import Events
from ebbtide.operators.ties import Mask


@dataclass(frozen=True)
class Link:
    """How a key's row is linked to other rows, by ranks and codes.

    Args:
        moved_from: Changes of the key that a waiting row, or the kept row of a deleted key, went through, newest first.
        kept: The last row that had the key before, while a change of the key has yet to take it elsewhere.
    """

    moved_from: tuple[KeyChange, ...] = ()
    kept: Kept | None = None

    @property
    def equality_key(self) -> tuple[Any, Any]:
        """What two links have in common exactly if they are equal."""
        moved_from = [(change.sequence, change.old_key) for change in self.moved_from]
        if self.kept is None:
            return moved_from, None
        known = sorted(self.kept.values)
        return moved_from, (self.kept.sequence, self.kept.until, known)


NO_LINK = Link()


class LinkedKeys:
    """The keys among a step's events that changes of the key concern.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events

    def values(self, winner: Codes, name: str) -> Iterator[tuple[int, int, int]]:
        """Yield what is known from the log of a column under the keys that are linked.

        Args:
            winner: (m,) the event that shows each key's row.
            name: The column.

        Yields:
            Index in `winner`; the event that carries the value, `UNKNOWN` if none does; the rank since when it is known, `UNKNOWN`
            if a newer one may yet be found.
        """
        for i, event, code in self._linked(winner):
            if self.events.is_delete[event]:
                continue
            row = self.played.rows.get(code)
            if row is None or name not in row.values:
                yield i, self._entry_of_same_row(code), UNKNOWN
                continue
            known = row.values[name]
            yield i, known.event, known.since

    def _entry_of_same_row(self, code: int) -> int:
        """Return the entry of a key if its row is the one that the key has now, else `UNKNOWN`."""
        events = self.events
        entry = int(events.entry_of[code])
        if entry == UNKNOWN or events.is_delete[entry]:
            return UNKNOWN
        has_same_since = events.since[code] == events.stored_since[entry]
        has_same_base = events.base[code] == max(events.stored_base[entry], events.floor)
        return entry if has_same_since and has_same_base else UNKNOWN

    def links(self, winner: Codes, known_at: Mapping[str, Codes]) -> dict[int, Link]:
        """Return how the rows under linked keys are linked to others, by index in `winner`.

        Args:
            winner: (m,) the event that shows each key's row.
            known_at: Column to (m,) rank since when its value is known.
        """
        links: dict[int, Link] = {}
        for i, event, code in self._linked(winner):
            kept = self.played.kept.get(code)
            # Where a row came from is needed only while the row lacks a value.
            if self.events.is_delete[event]:
                change = self._change_of_kept(kept)
            else:
                ranks = [known_since[i] for known_since in known_at.values()]
                change = self._change_of_waiting(code, ranks)
            moved_from = tuple(chain(change))
            links[i] = Link(moved_from, kept)
        return links

    def _change_of_kept(self, kept: Kept | None) -> KeyChange | None:
        """Return the change that brought the kept row of a deleted key, if that row lacks a value."""
        if kept is None:
            return None
        lacks_value = any(name not in kept.values for name in self.events.may_be_unsent)
        return kept.change if lacks_value else None

    def _change_of_waiting(self, code: int, known_at: list[int]) -> KeyChange | None:
        """Return the change that brought a row that lacks a value; its columns are known since these ranks."""
        row = self.played.rows.get(code)
        lacks_value = UNKNOWN in known_at
        return row.change if row and lacks_value else None

    def is_news(self, entry: int, link: Link) -> bool:
        """Whether an entry remembers other links than these."""
        stored = self.events.links
        row = int(stored.row[entry])
        items = _items(stored.moved, row)
        ranks = stored.moved_ranks
        old_keys = self.events.old_code
        moved_from = [(ranks[item], old_keys[item]) for item in items]
        kept = stored.kept[row].as_py()
        if kept is None:
            return link.equality_key != (moved_from, None)
        stored_kept = (stored.kept_ranks[row], stored.kept_until[row], kept["known"])
        return link.equality_key != (moved_from, stored_kept)

    def moved_from(self, links: list[Link]) -> pa.Array:
        """Write links as `_moved_from`."""
        schema = self.events.op.schema
        type_ = schema.field("_moved_from").type
        lists = [self._key_changes(link) for link in links]
        return pa.array(lists, type_)

    def _key_changes(self, link: Link) -> list[dict[str, Any]] | None:
        key_changes = []
        for change in link.moved_from:
            item = self._item_of_old_key[change.old_key]
            old_key = self.events.links.old_keys[item]
            key_changes.append(
                {
                    "sequence": self.events.sequence_of(change.sequence),
                    "key": old_key.as_py(),
                }
            )
        return key_changes or None

    @cached_property
    def _item_of_old_key(self) -> dict[int, int]:
        """Code of an old key to an item that has it."""
        return {code: item for item, code in enumerate(self.events.old_code)}

    def kept(self, links: list[Link]) -> pa.Array:
        """Write links as `_kept`."""
        schema = self.events.op.schema
        type_ = schema.field("_kept").type
        rows = [self._kept_row(link.kept) for link in links]
        return pa.array(rows, type_)

    def _kept_row(self, kept: Kept | None) -> dict[str, Any] | None:
        if kept is None:
            return None
        events = self.events
        row: dict[str, Any] = {}
        for name, known in kept.values.items():
            values = events.values(name)
            row[name] = values[known.event].as_py()
        return {
            "sequence": events.sequence_of(kept.sequence),
            "until": events.sequence_of(kept.until),
            "known": sorted(row),
            "row": row,
        }

    def _linked(self, winner: Codes) -> list[tuple[int, int, int]]:
        """Return the index in `winner`, the event and the key's code of the keys that are linked."""
        if not self.is_played.any():
            return []
        codes = self.events.code[winner]
        linked = np.flatnonzero(self.is_played[codes])
        triples = zip(
            linked.tolist(),
            winner[linked].tolist(),
            codes[linked].tolist(),
            strict=True,
        )
        return list(triples)

    @cached_property
    def is_played(self) -> Mask:
        """Mark the keys that a change of the key concerns, or may yet concern."""
        events = self.events
        entry_keys = events.code[: events.n_state]
        change_keys = events.code[events.n_state :]
        waits_for_value = is_set(events.state, "_moved_from")
        has_kept_row = is_set(events.state, "_kept")
        is_linked_entry = waits_for_value | has_kept_row
        is_key_change = is_set(events.changes, "_moved_from")
        keys_of_before = events.code[self._rows_of_before]
        # Both ends of a change of the key: the old key's row may hold what the new key's lacks.
        concerned = np.zeros(events.n_codes, dtype=bool)
        concerned[events.old_code] = True
        concerned[entry_keys[is_linked_entry]] = True
        concerned[change_keys[is_key_change]] = True
        concerned[keys_of_before] = True
        return concerned

    @cached_property
    def _rows_of_before(self) -> Codes:
        """Find the rows that had their key before another row got it, and are not known to have left.

        Such a row may have gone to another key, in a change that has yet to arrive without all its values.
        """
        events = self.events
        if not events.may_be_unsent:
            return np.empty(0, np.int64)
        is_delete = events.is_delete[events.order]
        event = events.order[~is_delete]
        key = events.code[event]
        sequence = events.sequence[event]
        since = events.since[key]
        base = events.base[key]
        # Snapshot rows stand below all changes: where they stood in the log is not known.
        is_in_log = sequence >= events.snapshot_ranks
        is_before = is_in_log & (sequence < since)
        # A delete between the two rows is how the earlier one left; one above both ended the later one too.
        has_no_later_delete = base < sequence
        rows: Codes = event[is_before & has_no_later_delete]
        return rows

    @cached_property
    def played(self) -> Played:
        """What is known of those keys at the end of their log."""
        stored_events = self._stored_events()
        change_events = self._change_events()
        return play([*stored_events, *change_events])

    def _stored_events(self) -> Iterator[Event]:
        """Yield what the entries know of the log of the keys that are linked."""
        stored_rows = self.events.links.row.tolist()
        for entry, stored in enumerate(stored_rows):
            code = self.events.code[entry]
            if self.is_played[code]:
                yield from self._rows_followed(entry, stored)
                yield from self._key_changes_followed(entry, stored)
                yield from self._own_row(entry)

    def _rows_followed(self, entry: int, stored: int) -> Iterator[Event]:
        """Yield that the entry's row came under its key, and the kept row that had it before."""
        events = self.events
        links = events.links
        code = int(events.code[entry])
        since = int(events.stored_since[entry])
        if since != UNKNOWN:
            yield Event(since, OP_UPSERT, code, is_other_row=True)
        kept = links.kept[stored].as_py()
        if kept is None:
            return
        kept_rank = links.kept_ranks[stored]
        until = links.kept_until[stored]
        if kept["known"] or kept_rank != UNKNOWN:
            yield Event(
                kept_rank,
                OP_UPSERT,
                code,
                # `Events.values` puts kept rows behind all events: this is the kept row's index there.
                index=len(events.code) + stored,
                columns=tuple(kept["known"]),
            )
        # It left before what else happened at that sequence, be that a delete or another row.
        is_delete = int(events.stored_base[entry]) == until
        yield Event(until, OP_DELETE, code, is_delete=is_delete, is_departure=True)
        if not is_delete:
            yield Event(until, OP_UPSERT, code, is_other_row=True)

    def _key_changes_followed(self, entry: int, stored: int) -> Iterator[Event]:
        """Yield the changes of the key that the entry's row went through, the newest first."""
        links = self.events.links
        new_key = int(self.events.code[entry])
        for item in _items(links.moved, stored):
            old_key = self.events.old_code[item]
            yield Event(
                links.moved_ranks[item],
                OP_UPSERT,
                new_key,
                old_key=old_key,
                is_other_row=True,
            )
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
            return  # it is that delete
        # An entry is several events of the log in one: it holds values from different sequences.
        columns_at: dict[int, list[str]] = {sequence: []}
        known_since = events.known_since.get(entry, {})
        for name in events.may_be_unsent:
            rank = known_since.get(name, sequence)
            if rank != UNKNOWN:
                columns_at.setdefault(rank, []).append(name)
        for rank, names in columns_at.items():
            yield Event(
                rank,
                OP_UPSERT,
                code,
                index=entry,
                columns=tuple(names),
                is_snapshot=rank < events.snapshot_ranks,
            )

    def _change_events(self) -> Iterator[Event]:
        """Yield the step's own events under the keys that are linked."""
        events = self.events
        is_change = events.order >= events.n_state
        keys = events.code[events.order]
        is_linked = self.is_played[keys]
        linked_changes = events.order[is_change & is_linked]
        for event in linked_changes.tolist():
            code = int(events.code[event])
            sequence = int(events.sequence[event])
            arrival = int(events.arrival[event])
            if events.is_delete[event]:
                new_key = self._other_key(event)
                yield Event(
                    sequence,
                    events.delete_rank,
                    code,
                    arrival=arrival,
                    is_delete=True,
                    is_departure=new_key != UNKNOWN,
                    new_key=new_key,
                )
                continue
            yield Event(
                sequence,
                phase=int(events.rank[event]),
                key=code,
                index=event,
                columns=self._columns_carried(event),
                arrival=arrival,
                old_key=self._other_key(event),
                is_other_row=bool(events.starts_row[event]),
                is_snapshot=sequence < events.snapshot_ranks,
            )

    def _columns_carried(self, event: int) -> tuple[str, ...]:
        carried = []
        for name in self.events.may_be_unsent:
            is_unsent = self.events.unsent.get(name)
            if is_unsent is None or not is_unsent[event]:
                carried.append(name)
        return tuple(carried)

    def _other_key(self, event: int) -> int:
        """Return the key that the row of a change of the key had before, or has after its delete, else `UNKNOWN`."""
        change = event - self.events.n_state
        item = self._item_of_change.get(change)
        if item is None:
            return UNKNOWN
        return self.events.old_code[item]

    @cached_property
    def _item_of_change(self) -> dict[int, int]:
        """Change to where its old key stands among those of all entries and changes."""
        links = self.events.links
        n_items_of_entries = len(links.moved.values)
        items = links.changes.offsets.to_numpy() + n_items_of_entries
        has_old_key = links.changes.is_valid().to_numpy(zero_copy_only=False)
        changes = np.flatnonzero(has_old_key)
        pairs = zip(
            changes.tolist(),
            items[changes].tolist(),
            strict=True,
        )
        return dict(pairs)


def _items(lists: pa.ListArray, row: int) -> range:
    """Return where the items of one list stand among the items of all."""
    first = lists.offsets[row]
    end = lists.offsets[row + 1]
    return range(first.as_py(), end.as_py())
