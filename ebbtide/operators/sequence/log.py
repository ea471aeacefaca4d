"""Rows that changed their key: where a value that an update did not carry may still be found.

An update that changes a row's key arrives as a delete under the old key and an upsert under the new one. A column that it
left out (an unavailable value) has the value that the row had under the old key, or under the keys before that.

The log of the keys concerned is played in the order of its sequences, row by row: a change of the key takes what is known
of the row along, a delete forgets it. O(n log n) in the changes and entries of those keys.

State keeps one row per key, so that more must be remembered beside it while changes arrive out of order:

- `_columns` and `_moved_from`: since when each value is known, be that under an old key, and the changes of the key since then. They
  say where in the log a value stands, so that a change of the old key that arrives late is compared with it as any other.
- `_kept`: the key's last rows, while the change that takes them elsewhere has yet to arrive and may not carry all its values: where
  another row came under the key and they are not known to have left, or where a delete names the key under which they go on.

Not all can be remembered: where a later row of the key was updated, or ended, before all of the earlier one had come, values of the
earlier one are forgotten, and an older value that arrives then looks like the newest. So a row that left the key before that, and of
which this is known only now, is cut off: it shows what is known, waits for all that it was not sent, and nothing else reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ebbtide.model.sequences import UNKNOWN

STORED = -1
"""`arrival` of what was stored before this step."""


class Known(NamedTuple):
    """A known value.

    Args:
        event: The event that carries it.
        since: Rank of the sequence since when it holds, be that under an old key.
        snapshot: Arrival of the snapshot row that carries it, if it is one's.
    """

    event: int
    since: int
    snapshot: int | None = None


Forgets = Callable[[int, int], bool]
"""Of a key's code and the rank of a sequence: whether values that a row had under the key before may have been forgotten."""


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
        arrival: Place in this step, `STORED` for what was there before.
        old_key: The key from which the row came; `UNKNOWN` if this did not change its key, or where that is not known.
        is_other_row: Another row has the key from here on.
        is_delete: It removes the key's row.
        new_key: The key for which the row leaves this one, `UNKNOWN` where it is not known; None if it does not leave.
        is_snapshot: A snapshot row without a position: it was read at some time, and stands below all changes.
        is_cut: It changed its key, and the row is cut off from the values that it had before.
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
        started: Rank of the sequence since when it has the key; `UNKNOWN` if that is not known.
    """

    values: dict[str, Known] = field(default_factory=dict)
    last: int = UNKNOWN
    change: KeyChange | None = None
    started: int = UNKNOWN


class AwaitedRow(NamedTuple):
    """A row that a change of the key has yet to take elsewhere.

    Args:
        sequence: Rank of its last sequence; `UNKNOWN` if nothing is known of it.
        until: Rank of the sequence at which another row followed it, or it was deleted.
        values: What is known of it.
        change: The last change of the key that brought it.
        has_left: It was deleted, to go on under another key; else another row followed it.
        started: Rank of the sequence since when it had the key; `UNKNOWN` if that is not known.
    """

    sequence: int
    until: int
    values: dict[str, Known]
    change: KeyChange | None = None
    has_left: bool = False
    started: int = UNKNOWN


MOST_KEPT = 3
"""Rows that are kept of one key at most, the last: a source that hides its deletes would else add one with each create."""


@dataclass
class Played:
    """What is known at the end of the log.

    Args:
        rows: Key to its row.
        kept: Key to the rows to remember, in order: the last that were followed, or left.
    """

    rows: dict[int, KnownRow]
    kept: dict[int, list[AwaitedRow]]


def forgets_nothing(key: int, rank: int) -> bool:
    """Say that all is known that has come."""
    return False


def play(events: list[Event], forgets: Forgets = forgets_nothing) -> Played:
    """Play the log of some keys. O(n log n) in the events, for the sort.

    Args:
        events: All that is known of those keys, in any order.
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
    """What is known after each event, of all keys.

    Args:
        events: In order.
        forgets: See `Forgets`.
    """

    def __init__(
        self,
        events: list[Event],
        forgets: Forgets,
    ) -> None:
        self._forgets = forgets
        # Whether a stored change of the key had cut its row off: once decided, it stays so.
        self._was_cut: dict[tuple[int, int], bool] = {}
        for event in events:
            is_key_change = event.is_cut or event.old_key != UNKNOWN
            if is_key_change and event.arrival == STORED:
                self._was_cut[event.key, event.sequence] = event.is_cut
        self.rows: dict[int, KnownRow] = {}
        self.kept: dict[int, list[AwaitedRow]] = {}
        # A row leaves its old key before it comes under the new one; between the two it stands here.
        self._departed: dict[tuple[int, int], KnownRow] = {}
        self._deleted_at = {event.key: event.sequence for event in events if event.is_delete}

    def apply(self, event: Event) -> None:
        """Take the next event, which does one thing to the row under its key: it leaves, is deleted, is followed by another one, or gets values."""
        if event.new_key is not None:
            self._leave(event)
        elif event.is_delete:
            self._delete(event)
        else:
            self._carry(event)

    def _leave(self, event: Event) -> None:
        place = event.key, event.sequence
        if place in self._departed:
            return  # a stored delete again
        here = self.rows.pop(event.key, KnownRow())
        # Values of a snapshot row that was read later are another row's.
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
        # What was forgotten of a row cannot be kept of it: it is cut off when it arrives.
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
        """Return the row that follows another one under a key."""
        # A row that is followed and was not deleted may yet turn up under another key.
        if here is not None and UNKNOWN < here.last < event.sequence:
            self._keep(event, here, has_left=False)
        before = self._before(event)
        if self._is_cut(event):
            return _cut_off(event, before)
        return _arrived(event, here, before)

    def _is_cut(self, event: Event) -> bool:
        """Return whether values may be missing between those that are known of a row that changed its key."""
        was_cut = self._was_cut.get((event.key, event.sequence))
        if was_cut is not None:
            return was_cut
        return event.old_key != UNKNOWN and self._forgets(event.old_key, event.sequence)

    def _before(self, event: Event) -> KnownRow:
        """Return the row under the old key just before it left: in a log its delete stands before the change of the key."""
        place = event.old_key, event.sequence
        if place in self._departed:
            return self._departed[place]
        here = self.rows.get(event.old_key, KnownRow())
        was_deleted = self._deleted_at.get(event.old_key, UNKNOWN) >= event.sequence
        if was_deleted:
            # That delete is not in the log that is played: of a key only the newest is known.
            self.rows.pop(event.old_key, None)
            self._departed[place] = here
        return here


def _awaited(
    event: Event,
    row: KnownRow,
    *,
    has_left: bool,
) -> AwaitedRow:
    """Return what is kept of a row until an event."""
    values = {name: known for name, known in row.values.items() if known.since != UNKNOWN}
    known_since = max((known.since for known in values.values()), default=UNKNOWN)
    return AwaitedRow(
        sequence=max(row.last, known_since),
        until=event.sequence,
        values=values,
        change=row.change,
        has_left=has_left,
        started=row.started,
    )


def _own_values(row: KnownRow, event: Event) -> dict[str, Known]:
    """Return the values that are of the row which an event takes away: not those of a snapshot row that was read after it."""
    own = {}
    for name, known in row.values.items():
        is_of_later_snapshot = known.snapshot is not None and known.snapshot >= event.arrival
        if not is_of_later_snapshot:
            own[name] = known
    return own


def _arrivals(events: list[Event]) -> set[tuple[int, int]]:
    """Return the old keys, and sequences, of the rows that have arrived under their new keys."""
    arrived: set[tuple[int, int]] = set()
    came: set[tuple[int, int]] = set()
    for event in events:
        arrived.add((event.old_key, event.sequence))
        has_row = event.is_other_row or event.index != UNKNOWN
        if has_row:
            came.add((event.key, event.sequence))
    # A delete that names the new key has its row there once anything of that row has come.
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
) -> KnownRow:
    """Return the row that a change of the key brings.

    Args:
        event: The change of the key.
        here: The row under the new key; the values known of it from a snapshot row are the last choice.
        before: The row under the old key. Values of a snapshot row that was read after the change are not its own.
    """
    known_here = {} if here is None else here.values
    values = {name: known for name, known in known_here.items() if known.snapshot is not None}
    # From here on they are the row's own, whatever read them.
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
    """Return a row that a change of the key brings, and that is cut off from the values that it had before: it shows those that are known."""
    own = _own_values(before, event)
    values = {name: Known(known.event, UNKNOWN) for name, known in own.items()}
    change = KeyChange(event.sequence, UNKNOWN)
    return KnownRow(values, change=change, started=event.sequence)


def chain(change: KeyChange | None) -> Iterator[KeyChange]:
    """Yield the changes of the key that a row went through, the newest first."""
    while change is not None:
        yield change
        change = change.before
