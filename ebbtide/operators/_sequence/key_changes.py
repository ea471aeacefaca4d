"""Rows whose key changed: their values may be stored under other keys. `follow` is the entry point.

Entries and changes of these keys become one log, which is replayed (`ebbtide.operators._sequence.log`). Its final state
gives the values and the links of these keys' rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from ebbtide.changelog import UNKNOWN
from ebbtide.columns import Codes, Mask, is_set
from ebbtide.operators._sequence.choose import Rows
from ebbtide.operators._sequence.links import NO_LINK, KeptRow, KeyChanges, Link
from ebbtide.operators._sequence.log import AwaitedRow, Event, KeyChange, KnownRow, chain, play
from ebbtide.operators._sequence.ops import OP_DELETE, OP_UPSERT
from ebbtide.operators._sequence.rank import Ranked


@dataclass(frozen=True)
class Followed:
    """Values and links of the rows of some keys, by the row's place among the winners.

    Args:
        values: Place to column to (event that carries the value, rank from which it is known); both `UNKNOWN` for an
            unknown value.
        links: Place to the row's link.
        n_pending: Links of rows that lack a value which may be found under an old key.
    """

    values: Mapping[int, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    links: Mapping[int, Link] = field(default_factory=dict)
    n_pending: int = 0


def follow(ranked: Ranked, rows: Rows) -> Followed:
    """Find the values and links of rows that key changes concern. O(n log n) in the events of their keys.

    Args:
        ranked: The step's events.
        rows: Those that count.
    """
    sent_apart = _sent_apart(ranked)
    is_played = _concerned(ranked, rows, sent_apart)
    if not is_played.any():
        return Followed()
    log = _Log(ranked, rows, sent_apart, is_played)
    events = list(log.events())
    played = play(events, log.forgets)
    values: dict[int, dict[str, tuple[int, int]]] = {}
    links: dict[int, Link] = {}
    n_pending = 0
    key_of_winner = ranked.key[rows.winner]
    is_row = ~ranked.is_delete[rows.winner]
    is_played_row = is_played[key_of_winner]
    # In Python, key by key: few keys are replayed, and each has its chain of key changes.
    for place in np.flatnonzero(is_played_row).tolist():
        key = int(key_of_winner[place])
        row = played.rows.get(key)
        own_ranks: list[int] = []
        if is_row[place]:
            own_values = _values(ranked, rows, key, row)
            own_ranks = [rank for _, rank in own_values.values()]
            values[place] = own_values
        key_changes = _needed(row.change, own_ranks) if row else ()
        awaited_rows = played.kept.get(key, ())
        kept_rows = [_kept_row(awaited, sent_apart) for awaited in awaited_rows]
        row_lacks_value = bool(key_changes) and UNKNOWN in own_ranks
        kept_lacks_value = any(_lacks_value(kept, sent_apart) for kept in kept_rows)
        n_pending += row_lacks_value or kept_lacks_value
        links[place] = Link(key_changes, tuple(kept_rows))
    return Followed(values, links, n_pending)


def _sent_apart(ranked: Ranked) -> list[str]:
    """Return the columns that a source may leave out of an update."""
    names = set(ranked.partly_known)
    for column in ranked.rules.columns:
        if column.name not in ranked.rules.key and may_be_unsent(column.type):
            names.add(column.name)
    return sorted(names)


def _concerned(
    ranked: Ranked,
    rows: Rows,
    sent_apart: Sequence[str],
) -> Mask:
    """Mark the keys that a key change concerns or may still concern."""
    concerned = np.zeros(ranked.n_keys, bool)
    # Both ends of a key change: the old key's row may hold a value that the new key's row lacks.
    old_codes = ranked.stored.old_codes
    is_linked = old_codes != UNKNOWN
    concerned[old_codes[is_linked]] = True
    is_key_change = is_set(ranked.changes, "_moved_from")
    change_keys = ranked.key[ranked.n_entries :]
    concerned[change_keys[is_key_change]] = True
    linked_entries = list(ranked.stored.links)
    concerned[ranked.key[linked_entries]] = True
    if sent_apart:
        earlier = _rows_of_before(ranked, rows)
        concerned[ranked.key[earlier]] = True
    return concerned


def _rows_of_before(ranked: Ranked, rows: Rows) -> Codes:
    """Find rows that had their key before another row got it and whose delete is unknown.

    Such a row may have moved to another key, by a change that has not arrived and may lack some values.
    """
    is_delete = ranked.is_delete[rows.order]
    event = rows.order[~is_delete]
    key = ranked.key[event]
    sequence = ranked.sequence[event]
    since = rows.since[key]
    base = rows.base[key]
    # Snapshot rows rank below all changes, though their true position in the log is unknown: they are left out.
    is_in_log = sequence >= ranked.scale.snapshot_ranks
    is_before = is_in_log & (sequence < since)
    # A delete between the two rows removed the earlier one; a delete above both removed the later one too.
    has_no_later_delete = base < sequence
    return np.asarray(event[is_before & has_no_later_delete])


def _values(
    ranked: Ranked,
    rows: Rows,
    key: int,
    row: KnownRow | None,
) -> dict[str, tuple[int, int]]:
    """Return the event and the rank of each partly known column's value."""
    known = row.values if row else {}
    values = {}
    for name in ranked.partly_known:
        value = known.get(name)
        if value is not None:
            values[name] = value.event, value.since
        else:
            entry = _entry_of_same_row(ranked, rows, key, name)
            values[name] = entry, UNKNOWN
    return values


def _entry_of_same_row(
    ranked: Ranked,
    rows: Rows,
    key: int,
    name: str,
) -> int:
    """Return a key's entry if it holds the present row, and a value of unknown age; else `UNKNOWN`.

    Older entries hold such values: they were found under an old key before its delete arrived.
    """
    stored = ranked.stored
    entry = int(ranked.entry_of[key])
    if entry == UNKNOWN or ranked.is_delete[entry] or name not in stored.known_since:
        return UNKNOWN
    is_undated = stored.known_since[name][entry] == UNKNOWN
    has_same_since = rows.since[key] == stored.since[entry]
    stored_base = max(stored.base[entry], ranked.scale.floor)
    has_same_base = rows.base[key] == stored_base
    is_same_row = has_same_since and has_same_base
    return entry if is_undated and is_same_row else UNKNOWN


def _kept_row(row: AwaitedRow, sent_apart: Sequence[str]) -> KeptRow:
    """Return a kept row as stored in an entry."""
    since = {name: known.since for name, known in row.values.items()}
    carriers = {name: known.event for name, known in row.values.items()}
    ranks = [since.get(name, UNKNOWN) for name in sent_apart]
    return KeptRow(
        sequence=row.sequence,
        until=row.until,
        has_left=row.has_left,
        started=row.started,
        key_changes=_needed(row.change, ranks),
        since=since,
        carriers=carriers,
    )


def _lacks_value(row: KeptRow, sent_apart: Sequence[str]) -> bool:
    """Return whether a kept row lacks a value that may be found under an old key."""
    is_whole = row.since.keys() >= set(sent_apart)
    return bool(row.key_changes) and not is_whole


def _needed(change: KeyChange | None, ranks: Sequence[int]) -> KeyChanges:
    """Return a row's key changes since its oldest value is known.

    Earlier ones can no longer contribute a value.

    Args:
        change: The last key change.
        ranks: Ranks from which the row's values are known; empty if all are its own.
    """
    if not ranks:
        return ()
    oldest = min(ranks)
    needed = [change for change in chain(change) if change.sequence > oldest]
    return tuple((change.sequence, change.old_key, change.event_ms) for change in needed)


@dataclass(frozen=True)
class _Log:
    """The log of the keys that are played, from entries and changes.

    Args:
        ranked: The step's events.
        rows: Those that count.
        sent_apart: Columns that a source may leave out of an update.
        is_played: (keys,) true for the keys that are played.
    """

    ranked: Ranked
    rows: Rows
    sent_apart: Sequence[str]
    is_played: Mask

    def events(self) -> Iterator[Event]:
        """Yield the events of the log, unordered."""
        ranked = self.ranked
        n = ranked.n_entries
        entry_keys = ranked.key[:n]
        entries = np.flatnonzero(self.is_played[entry_keys])
        for entry in entries.tolist():
            link = ranked.stored.links.get(entry, NO_LINK)
            yield from self._earlier_rows(entry, link)
            yield from self._own_row(entry, link)
        order = self.rows.order
        is_linked = self.is_played[ranked.key[order]]
        changes = order[is_linked & (order >= n)]
        for change in changes.tolist():
            yield self._change(change)

    def forgets(
        self,
        key: int,
        rank: int,
    ) -> bool:
        """Return whether values of a row, under a key before a sequence, may have been forgotten.

        This is so if a later row of the key was updated or ended before this step. Nothing of a kept row is forgotten. The
        start of a later row forgets nothing either, since the entry then keeps the earlier row.

        Args:
            key: Code of the key.
            rank: Rank of the sequence.
        """
        ranked = self.ranked
        entry = int(ranked.entry_of[key])
        if entry == UNKNOWN:
            return False
        link = ranked.stored.links.get(entry, NO_LINK)
        ended_later = [row for row in link.kept if row.until >= rank]
        if ended_later and ended_later[0].sequence <= rank:
            return False
        # The last known sequences at which a row of the key was updated or ended.
        changed_at = [int(ranked.stored.base[entry])]
        sequence = int(ranked.sequence[entry])
        if ranked.is_delete[entry] or sequence != ranked.stored.since[entry]:
            changed_at.append(sequence)
        changed_at += [row.sequence for row in link.kept if row.sequence != row.started]
        changed_at += [row.until for row in link.kept if row.has_left]
        return max(changed_at) > rank

    def _earlier_rows(
        self,
        entry: int,
        link: Link,
    ) -> Iterator[Event]:
        """Yield the start of the entry's row, and the kept rows that had its key before."""
        key = int(self.ranked.key[entry])
        since = int(self.ranked.stored.since[entry])
        if since != UNKNOWN:
            yield Event(since, OP_UPSERT, key, is_other_row=True)
        for row in link.kept:
            if row.started != UNKNOWN:
                yield Event(row.started, OP_UPSERT, key, is_other_row=True)
            yield from _key_change_events(key, row.key_changes)
            # A row without a known value is an event too, with an index after all events.
            index = max(row.carriers.values(), default=len(self.ranked))
            yield from self._stored_row(
                key,
                index,
                row.sequence,
                row.since,
                row.key_changes,
            )
            # At the sequence of its end the row leaves first; then the delete or the next row applies.
            if row.has_left:
                yield Event(row.until, OP_DELETE, key, is_delete=True, new_key=UNKNOWN)
            else:
                yield Event(row.until, OP_UPSERT, key, is_other_row=True)

    def _own_row(
        self,
        entry: int,
        link: Link,
    ) -> Iterator[Event]:
        """Yield the newest delete that an entry stores, and its row."""
        ranked = self.ranked
        key = int(ranked.key[entry])
        sequence = int(ranked.sequence[entry])
        base = int(ranked.stored.base[entry])
        if base != UNKNOWN:
            yield Event(base, ranked.rules.delete_rank, key, is_delete=True)
        if ranked.is_delete[entry]:
            return  # the entry is that delete
        since = dict.fromkeys(self.sent_apart, sequence)
        for name, ranks in ranked.stored.known_since.items():
            since[name] = int(ranks[entry])
        yield from _key_change_events(key, link.key_changes)
        yield from self._stored_row(key, entry, sequence, since, link.key_changes)

    def _stored_row(
        self, key: int, index: int, sequence: int, since: Mapping[str, int], key_changes: KeyChanges
    ) -> Iterator[Event]:
        """Yield a stored row: one event for each rank from which some of its values are known, under the key that it had then.

        Args:
            key: Code of its key.
            index: Its event.
            sequence: Rank of its sequence.
            since: Column to the rank from which its value is known.
            key_changes: Its key changes.
        """
        # A stored row combines several events of the log: it holds values from different sequences.
        columns_at: dict[int, list[str]] = {}
        if sequence != UNKNOWN:
            columns_at[sequence] = []
        for name, rank in since.items():
            is_dead = rank < self.ranked.scale.floor
            if rank != UNKNOWN and not is_dead:
                columns_at.setdefault(rank, []).append(name)
        for rank, names in columns_at.items():
            # A value from a snapshot row has no position in the log: it stays with the row that has it.
            is_snapshot = rank < self.ranked.scale.snapshot_ranks
            yield Event(
                rank,
                OP_UPSERT,
                key if is_snapshot else _key_at(rank, key, key_changes),
                index=index,
                columns=tuple(names),
                is_snapshot=is_snapshot,
                row_sequence=sequence if is_snapshot else UNKNOWN,
                event_ms=self.ranked.scale.read_ms(rank),
            )

    def _change(self, change: int) -> Event:
        """Return the log's event for a change of this step."""
        ranked = self.ranked
        key = int(ranked.key[change])
        sequence = int(ranked.sequence[change])
        arrival = change - ranked.n_entries
        other_key = ranked.stored.other_key.get(change, UNKNOWN)
        unsent = [name for name, is_unsent in ranked.unsent.items() if is_unsent[change]]
        carried = [name for name in self.sent_apart if name not in unsent]
        is_snapshot = sequence < ranked.scale.snapshot_ranks
        if ranked.is_delete[change]:
            return Event(
                sequence,
                ranked.rules.delete_rank,
                key,
                arrival=arrival,
                is_delete=True,
                new_key=None if other_key == UNKNOWN else other_key,
                event_ms=ranked.event_ms[arrival],
            )
        return Event(
            sequence,
            phase=int(ranked.operation[change]),
            key=key,
            index=change,
            columns=tuple(carried),
            arrival=arrival,
            old_key=other_key,
            is_other_row=bool(ranked.starts_row[change]),
            is_cut=other_key == UNKNOWN and change in ranked.stored.other_key,
            is_snapshot=is_snapshot,
            event_ms=ranked.scale.read_ms(sequence) if is_snapshot else ranked.event_ms[arrival],
        )


def _key_change_events(key: int, key_changes: KeyChanges) -> Iterator[Event]:
    """Yield a row's key changes, the newest first."""
    for changed_at, old_key, event_ms in key_changes:
        is_cut = old_key == UNKNOWN
        yield Event(
            changed_at,
            OP_UPSERT,
            key,
            old_key=old_key,
            is_other_row=True,
            is_cut=is_cut,
            event_ms=event_ms,
        )
        key = old_key


def _key_at(
    rank: int,
    key: int,
    key_changes: KeyChanges,
) -> int:
    """Return the key that a row had at a sequence, from its present key and its key changes."""
    for changed_at, old_key, _ in key_changes:
        if rank >= changed_at:
            return key
        key = old_key
    return key


def may_be_unsent(type_: pa.DataType) -> bool:
    """Return whether a database may leave an unchanged value of this type out of its log (Postgres: TOAST columns)."""
    is_text = pa.types.is_string(type_) or pa.types.is_binary(type_)
    is_list = pa.types.is_list(type_)
    return bool(is_text or is_list)
