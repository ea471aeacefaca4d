"""Replays the log of keys whose rows changed their key, to find values that an update did not carry.

An update that changes a row's key arrives as a delete under the old key and an upsert under the new one. A
column that was left out (an unavailable value) keeps the value that the row had under the old key or earlier ones.

The log of these keys is replayed in sequence order, event by event: a key change moves the known values along, a delete
forgets them. O(n log n) in the changes and entries of the keys.

The state stores one row per key. While changes arrive out of order, an entry also stores:

- `_columns` and `_moved_from`: the sequence from which each value is known, possibly under an old key, and the key changes
  since then. They give each value its position in the log, so a late change of the old key can be compared with it.
- `_kept`: former rows of the key, as long as a key change that lacks some of their values may still move them. This is so if
  another row followed and no delete is known, or if a delete names the key under which they continue.

A snapshot row without a position in the log fills columns whose value no change has sent, in the row that had its key when it
was read. The arrival determines which row that was: the records of its key that arrived before the snapshot row were sent before it.
If the known times of reading and of the changes contradict this, records came out of order and the row that was read is
unknown: nothing is filled. In the state such a value stays with its row. A late change that turns out to lie in between removes
it again, unless the row was read after that change.

Not everything is stored. Suppose a later row of the key was updated or ended before all changes of the earlier row had arrived.
Then values of the earlier row are lost, and an older value that arrives later would look like the newest. If such an earlier
row turns out to have moved to another key, it is cut off: it waits for all values that the key change did not send, and no
value from the old key reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ebbtide.changelog import UNKNOWN
from ebbtide.columns import Long
from ebbtide.operators._sequence.ops import OP_FINAL_DELETE, OP_TRUNCATE

STORED = -1
"""`arrival` of events that were stored before this step."""


class Known(NamedTuple):
    """A known value.

    Args:
        event: The event that carries it.
        since: Rank of the sequence from which it holds, possibly under an old key.
        read_ms: When the snapshot row that carries it was read, epoch ms; None if a change carries it.
        is_unplaced: A snapshot row carries it, and no earlier event of its key is known.
    """

    event: int
    since: int
    read_ms: int | None = None
    is_unplaced: bool = False


Forgets = Callable[[int, int], bool]
"""Called with (code of a key, rank of a sequence): returns whether earlier values of a row under that key may be forgotten."""


class KeyChange(NamedTuple):
    """An update that gave a row its key; `before` is the one that gave it the old key, if known.

    `old_key` is `UNKNOWN` if the row is cut off from its earlier values. `event_ms` is the commit time, if known.
    """

    sequence: int
    old_key: int
    before: KeyChange | None = None
    event_ms: int | None = None


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
        old_key: The row's old key; `UNKNOWN` if the event did not change the key or the old key is unknown.
        is_other_row: Another row has the key from this event on.
        is_delete: It removes the key's row.
        new_key: The key that the row moves to, or `UNKNOWN`; None if it does not move.
        is_snapshot: A snapshot row without a position, or values from one: they rank below all changes.
        row_sequence: For a snapshot row: rank of the sequence that it follows in the log. For stored values from one: rank of the
            row that has them. `UNKNOWN` if nothing else is known about the key.
        is_before_end: It precedes the delete at `row_sequence`.
        event_ms: Time of commit, or of reading a snapshot row, epoch ms; None if unknown.
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
    row_sequence: int = UNKNOWN
    is_before_end: bool = False
    event_ms: int | None = None
    is_cut: bool = False

    @property
    def place(self) -> tuple[int, int, int, int]:
        """Order in the log. At one sequence the key passes to another row first; then its origin and its values apply."""
        if self.is_before_end:
            return self.row_sequence, OP_TRUNCATE, 0, self.arrival
        if self.row_sequence > self.sequence:
            return self.row_sequence, OP_FINAL_DELETE, 0, self.arrival
        part = 0
        if self.index != UNKNOWN:
            part = 2
        is_known_cut = self.is_cut and self.index != UNKNOWN
        if self.old_key != UNKNOWN or is_known_cut:  # a redelivered one must not end the row's present values
            part = 1
        return self.sequence, self.phase, part, self.arrival


@dataclass(slots=True)
class KnownRow:
    """The known part of the row under a key.

    Args:
        values: Column to its value.
        last: Rank of the sequence of the last event that carried a row, or `UNKNOWN`.
        change: The last key change, which brought it here.
        started: Rank of the sequence at which it got the key, or `UNKNOWN`.
        started_ms: Time of that, epoch ms, if known.
        late_ms: Time at which, as this step learned, another row ended before it or it got its key; `NEVER_KNOWN` if the time
            is unknown; None if the step learned nothing about it.
    """

    values: dict[str, Known] = field(default_factory=dict)
    last: int = UNKNOWN
    change: KeyChange | None = None
    started: int = UNKNOWN
    started_ms: int | None = None
    late_ms: int | None = None


NEVER_KNOWN = Long.MAX
"""An unknown time: no snapshot row is known to have been read after it."""


class AwaitedRow(NamedTuple):
    """A former row of a key. A key change that has not arrived yet may move it to another key.

    Args:
        sequence: Rank of its last sequence; `UNKNOWN` if none is known.
        until: Rank of the sequence at which it was deleted or replaced by another row.
        values: Column to its known value.
        change: The last key change, which brought it here.
        has_left: It was deleted and continues under another key; false if another row replaced it.
        started: Rank of the sequence at which it got the key, or `UNKNOWN`.
    """

    sequence: int
    until: int
    values: dict[str, Known]
    change: KeyChange | None = None
    has_left: bool = False
    started: int = UNKNOWN


MOST_FOLLOWED = 3
"""Maximum number of replaced rows kept per key, the last ones. Otherwise a source that hides its deletes would add one with each
create."""
MOST_LEFT = 64
"""Maximum number of rows kept per key that moved away, the last ones. Each waits for its create, which may be in a partition
read later: rotating keys leave one with each rotation."""


@dataclass
class Played:
    """The state at the end of the log.

    Args:
        rows: Key to its row.
        kept: Key to the rows that wait for a key change, in order.
    """

    rows: dict[int, KnownRow]
    kept: dict[int, list[AwaitedRow]]


def forgets_nothing(key: int, rank: int) -> bool:
    """Return false: no value is forgotten."""
    return False


def play(events: list[Event], forgets: Forgets = forgets_nothing) -> Played:
    """Replay the log of some keys. O(n log n) in the events, for the sort.

    Args:
        events: All events of those keys, in any order.
        forgets: See `Forgets`.
    """
    in_order = sorted(_with_read_rows_placed(events), key=lambda event: event.place)
    log = _Log(in_order, forgets)
    for event in in_order:
        log.apply(event)
    arrived = _arrivals(in_order)
    still_kept = {}
    for key, rows in log.kept.items():
        awaited = [row for row in rows if (key, row.until) not in arrived]
        if awaited:
            still_kept[key] = _last_ones(awaited)
    return Played(log.rows, still_kept)


def _last_ones(rows: list[AwaitedRow]) -> list[AwaitedRow]:
    """Return a key's kept rows, in order."""
    left = [row for row in rows if row.has_left][-MOST_LEFT:]
    followed = [row for row in rows if not row.has_left][-MOST_FOLLOWED:]
    return sorted(left + followed, key=lambda row: row.until)


def _with_read_rows_placed(events: list[Event]) -> list[Event]:
    """Give each snapshot row without a position its place in its key's log: after all events that arrived before it.

    After a delete no row is left that could have been read, so the snapshot row came late. It is placed before the
    delete if it is known to have been read before. Stored values from a snapshot row are placed at their row. O(n log n).
    """
    if not any(event.is_snapshot for event in events):
        return events
    left_ms = {(event.old_key, event.sequence): event.event_ms for event in events if event.old_key != UNKNOWN}
    placed = []
    newest: dict[int, Event] = {}
    for event in sorted(events, key=lambda event: event.arrival):
        last = newest.get(event.key)
        if not event.is_snapshot and (last is None or last.place < event.place):
            newest[event.key] = event
        if not event.is_snapshot or event.arrival == STORED or last is None:
            placed.append(event)
            continue
        ended_ms = last.event_ms
        if ended_ms is None:
            ended_ms = left_ms.get((last.key, last.sequence))
        is_before_end = last.is_delete and _is_before(event.event_ms, ended_ms)
        in_its_place = replace(event, row_sequence=last.sequence, is_before_end=is_before_end)
        placed.append(in_its_place)
    return placed


def _is_before(one_ms: int | None, other_ms: int | None) -> bool:
    """Return whether a time is known to be before another one."""
    return one_ms is not None and other_ms is not None and one_ms < other_ms


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
        # Whether a stored key change is cut off was decided when it first applied. That decision is final.
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
        self._known_before = {_bound(event) for event in events if event.arrival == STORED}
        # Deleted keys without a row: `late_ms` of their next row.
        self._vacant: dict[int, int | None] = {}

    def apply(self, event: Event) -> None:
        """Apply the next event to the row under its key: it moves away, is deleted or replaced, or gets values."""
        if event.new_key is not None:
            self._leave(event)
        elif event.is_delete:
            self._delete(event)
        elif event.is_snapshot:
            self._read(event)
        else:
            self._carry(event)

    def _leave(self, event: Event) -> None:
        place = event.key, event.sequence
        if place in self._departed:
            return  # the delete is already stored
        departed = self._row_at(event.key)
        departed = replace(departed, values=_taken(departed, event))
        self._departed[place] = departed
        self._keep(event, departed, has_left=True)
        self._vacate(event)

    def _delete(self, event: Event) -> None:
        here = self.rows.get(event.key)
        if here is not None:
            self._departed[event.key, event.sequence] = replace(here, values=_taken(here, event))
        self._vacate(event)

    def _vacate(self, event: Event) -> None:
        self.rows.pop(event.key, None)
        self._vacant[event.key] = self._late_ms(event)

    def _row_at(self, key: int) -> KnownRow:
        """Return the row under a key; an unknown row if there is none."""
        here = self.rows.get(key)
        return KnownRow(late_ms=self._vacant.get(key)) if here is None else here

    def _late_ms(self, event: Event) -> int | None:
        """Return the commit time of an event that is new to the state: a stored row may lie after it; see `KnownRow.late_ms`."""
        if event.arrival == STORED or _bound(event) in self._known_before:
            return None
        return NEVER_KNOWN if event.event_ms is None else event.event_ms

    def _keep(
        self,
        event: Event,
        row: KnownRow,
        *,
        has_left: bool,
    ) -> None:
        # A row with forgotten values is not kept: it is cut off when it arrives under its new key.
        if self._forgets(event.key, event.sequence):
            return
        kept = _awaited(event, row, has_left=has_left)
        self.kept.setdefault(event.key, []).append(kept)

    def _carry(self, event: Event) -> None:
        here = self.rows.get(event.key)
        if event.is_other_row:
            here = self._followed(event, here)
        if here is None:
            here = self._row_at(event.key)
        _note_values(event, here)
        self.rows[event.key] = here

    def _read(self, event: Event) -> None:
        """Give the row under a key the values of a snapshot row, if that row was read."""
        here = self.rows.get(event.key)
        if here is None and event.key in self._vacant:
            return  # no known row could have been read
        if here is None:
            here = KnownRow()
        if event.arrival != STORED:
            is_of_other_row = _is_before(event.event_ms, here.started_ms)
        elif here.late_ms is None:
            is_of_other_row = False
        else:  # an event new to this step lies between the row and its values, unless they were read after it
            is_of_other_row = not _is_before(here.late_ms, event.event_ms)
        if is_of_other_row:
            return
        is_unplaced = event.row_sequence <= event.sequence
        known = Known(event.index, event.sequence, event.event_ms, is_unplaced)
        for name in event.columns:
            present = here.values.get(name)
            if present is None or UNKNOWN < present.since < known.since:
                here.values[name] = known
        self.rows[event.key] = here

    def _followed(
        self,
        event: Event,
        here: KnownRow | None,
    ) -> KnownRow:
        """Return the row that follows the present one under a key."""
        # No delete of the earlier row is known: it may still arrive under another key.
        if here is not None and UNKNOWN < here.last < event.sequence:
            self._keep(event, here, has_left=False)
        late_ms = self._late_ms(event)
        before = self._before(event)
        if event.old_key != UNKNOWN:
            late_ms = _latest(late_ms, before.late_ms)
        if self._is_cut(event):
            # Values under the old key may be older values of the row, or another row's, so it gets none of them.
            cut_off = KeyChange(event.sequence, UNKNOWN, event_ms=event.event_ms)
            arrived = KnownRow(change=cut_off)
        else:
            arrived = _arrived(event, here, before)
        return replace(arrived, started=event.sequence, started_ms=event.event_ms, late_ms=late_ms)

    def _is_cut(self, event: Event) -> bool:
        """Return whether values of a row with a changed key may have been forgotten."""
        was_cut = self._was_cut.get((event.key, event.sequence))
        if was_cut is not None:
            return was_cut
        return event.old_key != UNKNOWN and self._forgets(event.old_key, event.sequence)

    def _before(self, event: Event) -> KnownRow:
        """Return the row under the old key just before it left. In a log, the delete precedes the upsert of a key change."""
        place = event.old_key, event.sequence
        if place in self._departed:
            return self._departed[place]
        here = self._row_at(event.old_key)
        here = replace(here, values=_taken(here, event))
        deleted_at = self._deleted_at.get(event.old_key, UNKNOWN)
        if deleted_at >= event.sequence:
            # The delete of this key change is not among the events: an entry stores only its key's newest delete.
            self.rows.pop(event.old_key, None)
            self._departed[place] = here
        return here


def _awaited(
    event: Event,
    row: KnownRow,
    *,
    has_left: bool,
) -> AwaitedRow:
    """Return the row to keep from an event on, without values of unknown age."""
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
    known = Known(event.index, event.sequence)
    for name in event.columns:
        row.values[name] = known
    if event.index != UNKNOWN:
        row.last = event.sequence


def _bound(event: Event) -> tuple[int, int, bool]:
    """Return the identity of a row's end or start."""
    return event.key, event.sequence, event.is_delete


def _latest(one_ms: int | None, other_ms: int | None) -> int | None:
    """Return the later one of two times; None is before all."""
    if one_ms is None or other_ms is None:
        return other_ms if one_ms is None else one_ms
    return max(one_ms, other_ms)


def _taken(row: KnownRow, event: Event) -> dict[str, Known]:
    """Return the values that a row takes to its new key, without those read later, which belong to another row."""
    return {name: known for name, known in row.values.items() if not _is_before(event.event_ms, known.read_ms)}


def _arrived(
    event: Event,
    here: KnownRow | None,
    before: KnownRow,
) -> KnownRow:
    """Return the row that a key change brings.

    Args:
        event: The key change.
        here: The present row under the new key. If all its known values were read after the key change, it is the row that moved.
        before: The row under the old key.
    """
    known_here = {} if here is None else here.values
    values = {
        name: known
        for name, known in known_here.items()
        if known.is_unplaced and _is_before(event.event_ms, known.read_ms)
    }
    # From here on they are the row's own values.
    for name, known in before.values.items():
        values[name] = known._replace(is_unplaced=False)
    if event.old_key == UNKNOWN:
        return KnownRow(values)
    change = KeyChange(
        sequence=event.sequence,
        old_key=event.old_key,
        before=before.change,
        event_ms=event.event_ms,
    )
    return KnownRow(values, change=change)


def chain(change: KeyChange | None) -> Iterator[KeyChange]:
    """Yield a row's key changes, the newest first."""
    while change is not None:
        yield change
        change = change.before
