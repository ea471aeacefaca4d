"""Rows that changed their key: where a value that an update did not carry may still be found.

An update that changes a row's key arrives as a delete under the old key and an upsert under the new one. A column that it
left out (an unavailable value) has the value that the row had under the old key, or under the keys before that.

The log of the keys concerned is played in the order of its sequences, row by row: a change of the key takes what is known
of the row along, a delete forgets it. O(n log n) in the changes and entries of those keys.

State keeps one row per key, so that two things must be remembered beside it while changes arrive out of order:

- `_moved_from`: a row that waits for a value keeps the changes of the key that it went through.
- `_kept`: the key's last row, while the change that takes it elsewhere has yet to arrive and may not carry all its values: where
  another row came under its key and it is not known to have left, or where a delete names the key under which it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ebbtide.model.sequences import UNKNOWN

STORED = -1
"""`arrival` of what was stored before this step."""


class Known(NamedTuple):
    """A known value.

    Args:
        event: The event that carries it.
        since: Rank of the sequence since when it holds. `UNKNOWN`: it was found under an old key whose delete has yet to arrive, and
            with it perhaps a newer value.
        snapshot: Arrival of the snapshot row that carries it, if it is one's.
    """

    event: int
    since: int
    snapshot: int | None = None


class KeyChange(NamedTuple):
    """An update that gave a row its key; `before` is the one that had given it the old key, if that is known."""

    sequence: int
    old_key: int
    before: KeyChange | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One event in the log of a key.

    Args:
        sequence: Rank of its sequence.
        phase: Order among events at one sequence.
        key: Code of the key.
        index: The event that carries the row; `UNKNOWN` for a delete.
        columns: Columns whose values it carries.
        arrival: Place in this step, `STORED` for what was there before.
        old_key: The key from which the row came; `UNKNOWN` if this did not change its key, or where that is not known.
        is_other_row: Another row has the key from here on.
        is_delete: It removes the key's row.
        is_departure: The row leaves its key for another one. It is deleted, unless another row follows it at once.
        new_key: That other key; `UNKNOWN` where it is not known.
        is_snapshot: A snapshot row without a position: it was read at some time, and stands below all changes.
    """

    sequence: int
    phase: int
    key: int
    index: int = UNKNOWN
    columns: tuple[str, ...] = ()
    arrival: int = STORED
    old_key: int = UNKNOWN
    is_other_row: bool = False
    is_delete: bool = False
    is_departure: bool = False
    new_key: int = UNKNOWN
    is_snapshot: bool = False

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Order in the log: at one sequence a key passes to another row, of which is then known where it came from, and what it holds."""
        part = 0
        if self.index != UNKNOWN:
            part = 2
        if self.old_key != UNKNOWN:
            part = 1
        return self.sequence, self.phase, part, self.arrival


@dataclass(slots=True)
class KnownRow:
    """What is known of the row under a key.

    Args:
        values: Column to its value.
        last: Rank of the sequence of the last event that carried a row; `UNKNOWN` if none did.
        change: The last change of the key that brought it here.
    """

    values: dict[str, Known] = field(default_factory=dict)
    last: int = UNKNOWN
    change: KeyChange | None = None


class Kept(NamedTuple):
    """A row that a change of the key has yet to take elsewhere.

    Args:
        sequence: Rank of its last sequence; `UNKNOWN` if nothing is known of it.
        until: Rank of the sequence at which another row followed it, or it was deleted.
        values: What is known of it.
        change: The last change of the key that brought it.
    """

    sequence: int
    until: int
    values: dict[str, Known]
    change: KeyChange | None = None


@dataclass
class Played:
    """What is known at the end of the log.

    Args:
        rows: Key to its row.
        kept: Key to the row to remember: the last that was followed, or left.
    """

    rows: dict[int, KnownRow]
    kept: dict[int, Kept]


Departures = dict[int, tuple[int, KnownRow]]
"""Key to its last row that was deleted, and the rank of the sequence at which."""


def play(events: list[Event]) -> Played:
    """Play the log of some keys. O(n log n) in the events, for the sort.

    Args:
        events: All that is known of those keys, in any order.
    """
    in_order = sorted(events, key=lambda event: event.place)
    log = _Log(in_order)
    for event in in_order:
        log.take(event)
    arrived = _arrivals(in_order)
    still_kept = {key: row for key, row in log.kept.items() if (key, row.until) not in arrived}
    return Played(log.rows, still_kept)


class _Log:
    """What is known after each event, of all keys.

    Args:
        events: In order.
    """

    def __init__(self, events: list[Event]) -> None:
        self.rows: dict[int, KnownRow] = {}
        self.kept: dict[int, Kept] = {}
        self._departures: Departures = {}
        self._deleted_at = {event.key: event.sequence for event in events if event.is_delete}

    def take(self, event: Event) -> None:
        """Take the next event, which does one thing to the row under its key: it leaves, is deleted, is followed by another one, or gets values."""
        if event.is_departure:
            self._leave(event)
        elif event.is_delete:
            self._delete(event)
        else:
            self._carry(event)

    def _leave(self, event: Event) -> None:
        departed = _departed(event, self.rows.get(event.key))
        self._departures[event.key] = (event.sequence, departed)
        if event.is_delete:
            self.kept[event.key] = _kept(event, departed)
            self.rows.pop(event.key, None)

    def _delete(self, event: Event) -> None:
        here = self.rows.pop(event.key, None)
        if here is not None:
            self._departures[event.key] = (event.sequence, here)

    def _carry(self, event: Event) -> None:
        here = self.rows.get(event.key)
        if event.is_other_row:
            here = self._followed(event, here)
        if here is None:
            here = KnownRow()
        _note_values(event, here)
        self.rows[event.key] = here

    def _followed(self, event: Event, here: KnownRow | None) -> KnownRow:
        """Return the row that follows another one under a key."""
        if here is not None and UNKNOWN < here.last < event.sequence:
            self.kept[event.key] = Kept(
                sequence=here.last,
                until=event.sequence,
                values=here.values,
            )
        # What happened under the old key before its delete may arrive later than this.
        is_final = self._deleted_at.get(event.old_key, UNKNOWN) >= event.sequence
        before = self._before(event)
        return _arrived(event, here, before, is_final=is_final)

    def _before(self, event: Event) -> KnownRow:
        """Return the row under the old key just before it left: in a log its delete stands before the change of the key."""
        departure = self._departures.get(event.old_key)
        if departure is not None:
            deleted_at, departed = departure
            if deleted_at == event.sequence:
                return departed
        return self.rows.get(event.old_key, KnownRow())


def _departed(event: Event, here: KnownRow | None) -> KnownRow:
    """Return the row that leaves a key, with what is its own: values of a snapshot row that was read later are another's."""
    if here is None:
        return KnownRow()
    values = {name: known for name, known in here.values.items() if _is_own(known, event)}
    return KnownRow(values, here.last, here.change)


def _kept(event: Event, departed: KnownRow) -> Kept:
    """Return what is kept of a row that leaves by a delete: values that are not final are looked for again."""
    final = {name: known for name, known in departed.values.items() if known.since != UNKNOWN}
    known_since = max((known.since for known in final.values()), default=UNKNOWN)
    return Kept(
        sequence=max(departed.last, known_since),
        until=event.sequence,
        values=final,
        change=departed.change,
    )


def _is_own(known: Known, event: Event) -> bool:
    """Return whether a value is of the row that an event takes away."""
    return known.snapshot is None or known.snapshot < event.arrival


def _arrivals(events: list[Event]) -> set[tuple[int, int]]:
    """Return the old keys, and sequences, of the rows that have arrived under their new keys."""
    arrived: set[tuple[int, int]] = set()
    came: set[tuple[int, int]] = set()
    for event in events:
        arrived.add((event.old_key, event.sequence))
        has_row = event.is_other_row or event.index != UNKNOWN
        if has_row:
            came.add((event.key, event.sequence))
    for event in events:
        if (event.new_key, event.sequence) in came:
            arrived.add((event.key, event.sequence))
    return arrived


def _note_values(event: Event, row: KnownRow) -> None:
    """Note the values that an event carries."""
    known = Known(
        event=event.index,
        since=event.sequence,
        snapshot=event.arrival if event.is_snapshot else None,
    )
    for name in event.columns:
        row.values[name] = known
    if event.index != UNKNOWN and not event.is_snapshot:
        row.last = event.sequence


def _arrived(
    event: Event,
    here: KnownRow | None,
    before: KnownRow,
    *,
    is_final: bool,
) -> KnownRow:
    """Return the row that a change of the key brings.

    Args:
        event: The change of the key.
        here: The row under the new key; the values known of it from a snapshot row are the last choice.
        before: The row under the old key. Values of a snapshot row that was read after the change are not its own.
        is_final: All that happened to it under the old key is known.
    """
    known_here = {} if here is None else here.values
    values = {name: known for name, known in known_here.items() if known.snapshot is not None}
    for name, known in before.values.items():
        if _is_own(known, event):
            is_known = is_final and known.since != UNKNOWN
            since = event.sequence if is_known else UNKNOWN
            values[name] = Known(known.event, since)
    if event.old_key == UNKNOWN:
        return KnownRow(values)
    change = KeyChange(
        sequence=event.sequence,
        old_key=event.old_key,
        before=before.change,
    )
    return KnownRow(values, change=change)


def chain(change: KeyChange | None) -> Iterator[KeyChange]:
    """Yield the changes of the key that a row went through, the newest first."""
    while change is not None:
        yield change
        change = change.before
