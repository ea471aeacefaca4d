"""The log of keys whose rows changed their key: finds values that an update did not carry.

An update that changes a row's key arrives as a delete under the old key and an upsert under the new one. A column that it
left out (an unavailable value) keeps the value that the row had under the old key, or under the keys before that.

The log of the keys concerned is played in the order of its sequences, event by event: a change of the key moves the known
values along, a delete forgets them. O(n log n) in the changes and entries of those keys.

State stores one row per key. While changes arrive out of order, an entry stores more beside it:

- `_columns` and `_moved_from`: the sequence since when each value is known, possibly under an old key, and the changes of the
  key since then. They give each value its position in the log, so that a late change of the old key is compared with it.
- `_kept`: the key's last rows, as long as a change of the key may yet take them elsewhere without all their values. That is so
  if another row followed and no delete is known, or if a delete names the key under which they go on.

Not everything is stored. If a later row of the key was updated or ended before all changes of the earlier one had arrived, values
of the earlier one are lost, and an older value that arrives then would look like the newest. If such an earlier row turns out to
have left for another key, it is cut off: it shows its known values and waits for those that it was not sent. No value from the
old key reaches it any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ebbtide.model.sequences import UNKNOWN

STORED = -1
"""`arrival` of events that were stored before this step."""


class Known(NamedTuple):
    """A known value.

    Args:
        event: The event that carries it.
        since: Rank of the sequence since when it holds, possibly under an old key.
        snapshot: Arrival of the snapshot row that carries it; None if a change does.
    """

    event: int
    since: int
    snapshot: int | None = None


Forgets = Callable[[int, int], bool]
"""Of (code of a key, rank of a sequence): returns whether values that a row had under the key before may be forgotten."""


class KeyChange(NamedTuple):
    """An update that gave a row its key; `before` is the one that had given it the old key, if that is known.

    Its `old_key` is `UNKNOWN` where the row is cut off from the values that it had before.
    """

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
        arrival: Place in this step; `STORED` for stored events.
        old_key: The key from which the row came; `UNKNOWN` if the event did not change the key, or the old key is unknown.
        is_other_row: Another row has the key from this event on.
        is_delete: It removes the key's row.
        new_key: The key for which the row leaves this one, or `UNKNOWN`; None if it does not leave.
        is_snapshot: A snapshot row without a position: it ranks below all changes.
        is_cut: It changed the key, and the row is cut off from its earlier values, or came from an erased key.
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
    new_key: int | None = None
    is_snapshot: bool = False
    is_cut: bool = False

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Order in the log. At one sequence the key passes to another row first; then its origin and its values apply."""
        part = 0
        if self.index != UNKNOWN:
            part = 2
        is_known_cut = self.is_cut and self.index != UNKNOWN
        if self.old_key != UNKNOWN or is_known_cut:  # a redelivered one must not end the values that the row has by now
            part = 1
        return self.sequence, self.phase, part, self.arrival


@dataclass(slots=True)
class KnownRow:
    """The known part of the row under a key.

    Args:
        values: Column to its value.
        last: Rank of the sequence of the last event that carried a row, or `UNKNOWN`.
        change: The last change of the key, which brought it here.
        started: Rank of the sequence since when it has the key, or `UNKNOWN`.
    """

    values: dict[str, Known] = field(default_factory=dict)
    last: int = UNKNOWN
    change: KeyChange | None = None
    started: int = UNKNOWN


class AwaitedRow(NamedTuple):
    """A row that a change of the key has yet to take elsewhere.

    Args:
        sequence: Rank of its last sequence; `UNKNOWN` if none is known.
        until: Rank of the sequence at which it was deleted, or another row followed it.
        values: Column to its known value.
        change: The last change of the key, which brought it here.
        has_left: It was deleted and goes on under another key; false if another row followed it.
        started: Rank of the sequence since when it had the key, or `UNKNOWN`.
    """

    sequence: int
    until: int
    values: dict[str, Known]
    change: KeyChange | None = None
    has_left: bool = False
    started: int = UNKNOWN


MOST_KEPT = 3
"""Maximum of rows kept per key, the last ones. Without it a source that hides its deletes would add one with each create."""


@dataclass
class Played:
    """The state at the end of the log.

    Args:
        rows: Key to its row.
        kept: Key to the rows that wait for a change of the key, in order.
    """

    rows: dict[int, KnownRow]
    kept: dict[int, list[AwaitedRow]]


def forgets_nothing(key: int, rank: int) -> bool:
    """Return that no value is forgotten."""
    return False


def play(events: list[Event], forgets: Forgets = forgets_nothing) -> Played:
    """Play the log of some keys. O(n log n) in the events, for the sort.

    Args:
        events: All events of those keys, in any order.
        forgets: See `Forgets`.
    """
    in_order = sorted(events, key=lambda event: event.place)
    log = _Log(in_order, forgets)
    for event in in_order:
        log.apply(event)
    arrived = _arrivals(in_order)
    still_kept = {}
    for key, rows in log.kept.items():
        awaited = [row for row in rows if (key, row.until) not in arrived]
        if awaited:
            still_kept[key] = awaited[-MOST_KEPT:]
    return Played(log.rows, still_kept)


class _Log:
    """The rows of all keys, event by event.

    Args:
        events: All events, in order.
        forgets: See `Forgets`.
    """

    def __init__(
        self,
        events: list[Event],
        forgets: Forgets,
    ) -> None:
        self._forgets = forgets
        # A stored change of the key was cut off, or not, when it first applied. That decision is final.
        self._was_cut: dict[tuple[int, int], bool] = {}
        for event in events:
            is_key_change = event.is_cut or event.old_key != UNKNOWN
            if is_key_change and event.arrival == STORED:
                self._was_cut[event.key, event.sequence] = event.is_cut
        self.rows: dict[int, KnownRow] = {}
        self.kept: dict[int, list[AwaitedRow]] = {}
        # Rows between the delete under their old key and the upsert under the new one, by (old key, sequence).
        self._departed: dict[tuple[int, int], KnownRow] = {}
        self._deleted_at = {event.key: event.sequence for event in events if event.is_delete}

    def apply(self, event: Event) -> None:
        """Apply the next event to the row under its key: it leaves, is deleted, is followed by another one, or gets values."""
        if event.new_key is not None:
            self._leave(event)
        elif event.is_delete:
            self._delete(event)
        else:
            self._carry(event)

    def _leave(self, event: Event) -> None:
        place = event.key, event.sequence
        if place in self._departed:
            return  # the delete is stored already
        here = self.rows.pop(event.key, KnownRow())
        # A snapshot row that was read later belongs to another row.
        departed = replace(here, values=_own_values(here, event))
        self._departed[place] = departed
        self._keep(event, departed, has_left=True)

    def _delete(self, event: Event) -> None:
        here = self.rows.pop(event.key, None)
        if here is not None:
            self._departed[event.key, event.sequence] = here

    def _keep(
        self,
        event: Event,
        row: KnownRow,
        *,
        has_left: bool,
    ) -> None:
        # A row of which values are forgotten is not kept: it is cut off when it arrives under its new key.
        if self._forgets(event.key, event.sequence):
            return
        kept = _awaited(event, row, has_left=has_left)
        self.kept.setdefault(event.key, []).append(kept)

    def _carry(self, event: Event) -> None:
        here = self.rows.get(event.key)
        if event.is_other_row:
            here = self._followed(event, here)
        if here is None:
            here = KnownRow()
        _note_values(event, here)
        self.rows[event.key] = here

    def _followed(
        self,
        event: Event,
        here: KnownRow | None,
    ) -> KnownRow:
        """Return the row that follows the present one under a key."""
        # No delete of the earlier row is known: it may yet arrive under another key.
        if here is not None and UNKNOWN < here.last < event.sequence:
            self._keep(event, here, has_left=False)
        before = self._before(event)
        if self._is_cut(event):
            return _cut_off(event, before)
        return _arrived(event, here, before)

    def _is_cut(self, event: Event) -> bool:
        """Return whether values of a row that changed its key may have been forgotten."""
        was_cut = self._was_cut.get((event.key, event.sequence))
        if was_cut is not None:
            return was_cut
        return event.old_key != UNKNOWN and self._forgets(event.old_key, event.sequence)

    def _before(self, event: Event) -> KnownRow:
        """Return the row under the old key just before it left. In a log, the delete precedes the upsert of a key change."""
        place = event.old_key, event.sequence
        if place in self._departed:
            return self._departed[place]
        here = self.rows.get(event.old_key, KnownRow())
        deleted_at = self._deleted_at.get(event.old_key, UNKNOWN)
        if deleted_at >= event.sequence:
            # The key change's own delete is not among the events: an entry stores only its key's newest delete.
            self.rows.pop(event.old_key, None)
            self._departed[place] = here
        return here


def _awaited(
    event: Event,
    row: KnownRow,
    *,
    has_left: bool,
) -> AwaitedRow:
    """Return a row as it is kept from an event on; values of unknown age are left out."""
    values = {name: known for name, known in row.values.items() if known.since != UNKNOWN}
    ranks = [known.since for known in values.values()]
    return AwaitedRow(
        sequence=max([row.last, *ranks]),
        until=event.sequence,
        values=values,
        change=row.change,
        has_left=has_left,
        started=row.started,
    )


def _own_values(row: KnownRow, event: Event) -> dict[str, Known]:
    """Return the values of the row that an event takes away, without those of a snapshot row that was read after the event."""
    own = {}
    for name, known in row.values.items():
        is_of_later_snapshot = known.snapshot is not None and known.snapshot >= event.arrival
        if not is_of_later_snapshot:
            own[name] = known
    return own


def _arrivals(events: list[Event]) -> set[tuple[int, int]]:
    """Return (old key, sequence) of the rows that have arrived under their new keys."""
    arrived: set[tuple[int, int]] = set()
    known: set[tuple[int, int]] = set()
    for event in events:
        arrived.add((event.old_key, event.sequence))
        has_row = event.is_other_row or event.index != UNKNOWN
        if has_row:
            known.add((event.key, event.sequence))
    # A delete that names the new key: its row has arrived once any event of it is known under that key.
    for event in events:
        if (event.new_key, event.sequence) in known:
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
) -> KnownRow:
    """Return the row that a change of the key brings.

    Args:
        event: The change of the key.
        here: The present row under the new key. Its values from a snapshot row fill columns that have no other value.
        before: The row under the old key.
    """
    known_here = {} if here is None else here.values
    values = {name: known for name, known in known_here.items() if known.snapshot is not None}
    # From here on they are the row's own values: the mark of the snapshot goes.
    for name, known in _own_values(before, event).items():
        values[name] = Known(known.event, known.since)
    if event.old_key == UNKNOWN:
        return KnownRow(values, started=event.sequence)
    change = KeyChange(
        sequence=event.sequence,
        old_key=event.old_key,
        before=before.change,
    )
    return KnownRow(values, change=change, started=event.sequence)


def _cut_off(event: Event, before: KnownRow) -> KnownRow:
    """Return the row that a change of the key brings, cut off: its known values stay, of unknown age."""
    own = _own_values(before, event)
    values = {name: Known(known.event, UNKNOWN) for name, known in own.items()}
    change = KeyChange(event.sequence, UNKNOWN)
    return KnownRow(values, change=change, started=event.sequence)


def chain(change: KeyChange | None) -> Iterator[KeyChange]:
    """Yield the changes of the key that a row went through, the newest first."""
    while change is not None:
        yield change
        change = change.before
