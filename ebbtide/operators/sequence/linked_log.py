"""The log of keys that are linked by changes of the key: a step's entries and changes of these keys, as events to be played."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from ebbtide.model.sequences import OP_DELETE, OP_UPSERT, UNKNOWN
from ebbtide.operators.sequence.events import Events
from ebbtide.operators.sequence.key_changes import Event
from ebbtide.operators.sequence.ranks import items_of
from ebbtide.operators.sequence.ties import Mask

Place = tuple[int, int]
"""A change of the key: rank of its sequence, code of the old key."""


class LinkedLog:
    """What is known of the log of some keys.

    Args:
        events: The step's.
        is_played: (keys,) which keys.
    """

    def __init__(self, events: Events, is_played: Mask) -> None:
        self.events = events
        self._is_played = is_played

    def __iter__(self) -> Iterator[Event]:
        """Yield the events of the log, in no order."""
        yield from self._stored_events()
        yield from self._change_events()

    def moves_of_entry(self, entry: int) -> list[Place]:
        """Return all changes of the key that an entry holds, in the order in which they are stored."""
        links = self.events.links
        return [self._place(item) for item in items_of(links.moved, int(links.row[entry]))]

    def _place(self, item: int) -> Place:
        return self.events.links.moved_ranks[item], self.events.old_code[item]

    def has_left(self, entry: int, number: int) -> bool:
        """Return whether a kept row left by a delete; older entries do not tell, they know of one delete."""
        links = self.events.links
        has_left = links.kept[number]["has_left"].as_py()
        if has_left is None:
            return int(self.events.stored_base[entry]) == links.kept_until[number]
        return bool(has_left)

    def forgets(self, key: int, at: int) -> bool:
        """Return whether values that a row had under a key before a sequence may have been forgotten.

        So it is where a later row was updated or ended before this step. Not where the earlier row was kept, as it is then whole; the start of a
        later row forgets nothing, as it has the earlier one kept.

        Args:
            key: Its code.
            at: Rank of the sequence.
        """
        entry = int(self.events.entry_of[key])
        if entry == UNKNOWN:
            return False
        links = self.events.links
        kept = links.kept_of(int(links.row[entry]))
        later = [number for number in kept if links.kept_until[number] >= at]
        if later and links.kept_ranks[later[0]] <= at:
            return False
        return self._last_change(entry, kept) > at

    def _last_change(self, entry: int, kept: Sequence[int]) -> int:
        """Return the rank of the last sequence at which a row of an entry's key is known to have been updated or ended."""
        events = self.events
        links = events.links
        found = [int(events.stored_base[entry])]
        sequence = int(events.sequence[entry])
        if events.is_delete[entry] or sequence != events.stored_since[entry]:
            found.append(sequence)
        for number in kept:
            if links.kept_ranks[number] != links.kept_started[number]:
                found.append(links.kept_ranks[number])
            if self.has_left(entry, number):
                found.append(links.kept_until[number])
        return max(found)

    def _moves_of_row(self, entry: int, kept: Sequence[int]) -> list[Place]:
        """Return the changes of the key that an entry's own row went through, newest first."""
        moves = self.moves_of_entry(entry)
        n_of_kept = sum(self.n_moved(entry, number) for number in kept)
        return moves[: len(moves) - n_of_kept]

    def _moves_of_kept(self, entry: int, kept: Sequence[int]) -> list[list[Place]]:
        """Return for each of an entry's kept rows those that it went through."""
        moves = self.moves_of_entry(entry)
        end = len(moves)
        moves_of: list[list[Place]] = []
        for number in reversed(kept):
            start = end - self.n_moved(entry, number)
            moves_of.insert(0, moves[start:end])
            end = start
        return moves_of

    def n_moved(self, entry: int, number: int) -> int:
        """Return how many changes of the key are a kept row's; in older entries those of a tombstone are."""
        links = self.events.links
        n_moved = links.kept[number]["n_moved"].as_py()
        if n_moved is not None:
            return int(n_moved)
        return len(self.moves_of_entry(entry)) if self.events.is_delete[entry] else 0

    def _stored_events(self) -> Iterator[Event]:
        """Yield what the entries know of the log of the keys that are linked."""
        stored_rows = self.events.links.row.tolist()
        for entry, stored in enumerate(stored_rows):
            code = self.events.code[entry]
            if self._is_played[code]:
                yield from self._rows_followed(entry, stored)
                yield from self._own_row(entry, stored)

    def _rows_followed(self, entry: int, stored: int) -> Iterator[Event]:
        """Yield that the entry's row came under its key, and the kept rows that had it before."""
        events = self.events
        links = events.links
        code = int(events.code[entry])
        since = int(events.stored_since[entry])
        if since != UNKNOWN:
            yield Event(since, OP_UPSERT, code, is_other_row=True)
        kept = links.kept_of(stored)
        for number, moves in zip(kept, self._moves_of_kept(entry, kept), strict=True):
            until = links.kept_until[number]
            names = links.kept[number]["known"].as_py() or ()
            rank_of = dict(zip(names, links.kept_since[number], strict=True))
            started = links.kept_started[number]
            if started != UNKNOWN:
                yield Event(started, OP_UPSERT, code, is_other_row=True)
            yield from _key_changes_followed(code, moves)
            # `Events.values` puts kept rows behind all events.
            index = len(events.code) + number
            yield from self._values_known(code, index, links.kept_ranks[number], rank_of, moves)
            # It left before what else happened at that sequence, be that a delete or another row.
            if self.has_left(entry, number):
                yield Event(until, OP_DELETE, code, is_delete=True, is_departure=True)
            else:
                yield Event(until, OP_UPSERT, code, is_other_row=True)

    def _own_row(self, entry: int, stored: int) -> Iterator[Event]:
        """Yield the newest delete that an entry knows of, and its row."""
        events = self.events
        code = int(events.code[entry])
        sequence = int(events.sequence[entry])
        base = int(events.stored_base[entry])
        if base != UNKNOWN:
            yield Event(base, events.delete_rank, code, is_delete=True)
        if events.is_delete[entry]:
            return  # it is that delete
        known_since = events.known_since.get(entry, {})
        rank_of = {name: known_since.get(name, sequence) for name in events.may_be_unsent}
        moves = self._moves_of_row(entry, events.links.kept_of(stored))
        yield from _key_changes_followed(code, moves)
        yield from self._values_known(code, entry, sequence, rank_of, moves)

    def _values_known(
        self,
        code: int,
        index: int,
        sequence: int,
        rank_of: Mapping[str, int],
        moves: list[Place],
    ) -> Iterator[Event]:
        """Yield the values of a stored row: one event for each rank since when some are known, under the key that it had then.

        Args:
            code: Its key.
            index: Its event.
            sequence: Rank of its own sequence.
            rank_of: Column to the rank.
            moves: Changes of the key that it went through, newest first.
        """
        # A stored row is several events of the log in one: it holds values from different sequences.
        columns_at: dict[int, list[str]] = {}
        if sequence != UNKNOWN:
            columns_at[sequence] = []
        for name, rank in rank_of.items():
            is_dead = rank < self.events.floor
            if rank != UNKNOWN and not is_dead:
                columns_at.setdefault(rank, []).append(name)
        for rank, names in columns_at.items():
            yield Event(
                rank,
                OP_UPSERT,
                _key_at(rank, code, moves),
                index=index,
                columns=tuple(names),
                is_snapshot=rank < self.events.snapshot_ranks and not moves,
            )

    def _change_events(self) -> Iterator[Event]:
        """Yield the step's own events under the keys that are linked."""
        events = self.events
        is_change = events.order >= events.n_state
        keys = events.code[events.order]
        is_linked = self._is_played[keys]
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


def _key_changes_followed(code: int, moves: Sequence[Place]) -> Iterator[Event]:
    """Yield the changes of the key that a row went through, the newest first."""
    new_key = code
    for changed_at, old_key in moves:
        is_cut = old_key == UNKNOWN
        yield Event(changed_at, OP_UPSERT, new_key, old_key=old_key, is_other_row=True, is_cut=is_cut)
        new_key = old_key


def _key_at(rank: int, code: int, moves: Sequence[Place]) -> int:
    """Return the key that a row had at a sequence.

    Args:
        rank: Of the sequence.
        code: Its key.
        moves: Changes of the key that it went through, newest first.
    """
    key = code
    for changed_at, old_key in moves:
        if rank >= changed_at:
            return key
        key = old_key
    return key
