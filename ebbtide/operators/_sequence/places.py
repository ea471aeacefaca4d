"""Decides which of several changes of a key at one log position came last, by the place of their records.

A log may give several changes of a key one position: MySQL with `binlog_transaction_compression`, or a connector's order without
its last field. Within one partition or file the source wrote them in order, also when it delivers them again. So the last one
there counts in each step. The entry stores digests of the contents before it (`_retracted`).

Places in different partitions, files or steps cannot be compared. If all of them end in the same change, that is the last one.
Otherwise the position does not determine the row: a conflict, like two contents (`ebbtide.operators._sequence.ties`). A content
that is known to precede another one then loses to it, so a partial redelivery does not change the row.

Key changes are not decided here: they are a delete and a create at one position, each naming the other key. Snapshot rows and
changes that left values out are not decided here either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ebbtide.columns import Codes, Mask, flags, is_set, row_codes
from ebbtide.operators._sequence.ops import OP_DELETE, OP_UPSERT
from ebbtide.operators._sequence.rank import Ranked
from ebbtide.operators._sequence.ties import digests

DELETED = 0
"""The content of a delete; digests are above it."""


@dataclass(frozen=True)
class AtOnePosition:
    """The known order of changes of one key at one position.

    Args:
        earlier: Events followed by another one at their position: they do not count.
        known_earlier: Event to the digests of contents that preceded it, or the events that it ties with, at its position.
        undecided: Events of positions that do not determine the row.
        n_conflicts: Number of such positions that were not stored before this step.
    """

    earlier: Codes = field(default_factory=lambda: np.zeros(0, np.int64))
    known_earlier: Mapping[int, list[int]] = field(default_factory=dict)
    undecided: Codes = field(default_factory=lambda: np.zeros(0, np.int64))
    n_conflicts: int = 0


class _Event(NamedTuple):
    """An event of a group.

    Args:
        number: Its index.
        content: Digest of its row, or `DELETED`.
        origin: Partition or file of its record; None for an entry.
        position: Place in it.
    """

    number: int
    content: int
    origin: tuple[str, int] | None
    position: int


def at_one_position(
    ranked: Ranked,
    order: Codes,
    stored: Mapping[int, list[int]],
) -> AtOnePosition:
    """Find the changes of a key that another change at their position follows. O(n) in the events.

    Args:
        ranked: The events.
        order: Those that count, sorted by key and sequence.
        stored: Entry to the digests of the contents that came before it at its position.
    """
    if not ranked.rules.in_log:
        return AtOnePosition()
    groups = _groups(ranked, order)
    if groups is None:
        return AtOnePosition()
    earlier: list[int] = []
    undecided: list[int] = []
    known_earlier: dict[int, list[int]] = {}
    n_conflicts = 0
    had_conflict = flags(ranked.entries, "_conflict")
    for events in _events(ranked, *groups):
        known = {digest for event in events if event.origin is None for digest in stored.get(event.number, ())}
        outcome = _outcome(events, known)
        earlier += [event.number for event in events if event.number not in outcome.counting]
        known_earlier |= dict.fromkeys(outcome.counting, sorted(outcome.before)) if outcome.before else {}
        if outcome.is_open:
            undecided += outcome.counting
            n_conflicts += not any(event.origin is None and had_conflict[event.number] for event in events)
    return AtOnePosition(np.array(earlier, np.int64), known_earlier, np.array(undecided, np.int64), n_conflicts)


class _Outcome(NamedTuple):
    """The decision that places make on the events of a group.

    Args:
        counting: Events that count.
        before: Contents known to precede theirs.
        is_open: Partitions or files end in different changes.
    """

    counting: set[int]
    before: set[int]
    is_open: bool


def _outcome(events: list[_Event], known: set[int]) -> _Outcome:
    """Return the decision that places make.

    Args:
        events: All of one key at one position.
        known: Contents known to precede the stored one.
    """
    stored = [event for event in events if event.origin is None]
    stored_contents = {event.content for event in stored}
    of_origin: defaultdict[Any, list[_Event]] = defaultdict(list)
    for event in events:
        if event.origin is not None:
            of_origin[event.origin].append(event)
    followed = set(known)
    candidates = list(stored)
    ends = set(stored_contents)
    for own in of_origin.values():
        contents = {event.content for event in own}
        last = max(own, key=lambda event: (event.position, event.number))
        ends.add(last.content)
        # A redelivery of known changes: the known order stays.
        if not contents <= known | stored_contents:
            candidates.append(last)
            followed |= contents - {last.content}
    left = [event for event in candidates if event.content not in followed] or candidates
    contents = {event.content for event in left}
    # A delete before a row stays, so that older values do not fill the row.
    deletes = {DELETED} if DELETED not in contents else set()
    counting = {event.number for event in events if event.content in contents | deletes}
    return _Outcome(counting, followed - contents, is_open=len(ends) > 1)


def _groups(ranked: Ranked, order: Codes) -> tuple[Codes, Codes] | None:
    """Return the events of shared positions with several contents, group after group, and the numbers of their groups; None without any."""
    key = ranked.key[order]
    sequence = ranked.sequence[order]
    is_same = (key[1:] == key[:-1]) & (sequence[1:] == sequence[:-1])
    if not is_same.any():
        return None
    group = np.concatenate([[0], np.cumsum(~is_same)])
    is_left_alone = np.zeros(int(group[-1]) + 1, bool)
    is_left_alone[group[_left_alone(ranked)[order]]] = True
    n_events = np.bincount(group)
    is_member = (n_events[group] > 1) & ~is_left_alone[group]
    if not is_member.any():
        return None
    events = order[is_member]
    groups = group[is_member]
    rows = ranked.rows.take(pa.array(events))
    contents = row_codes(rows, rows.column_names)
    contents[ranked.is_delete[events]] = -1  # a delete has only a key
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    differs = contents != contents[np.repeat(first, np.diff(first, append=len(groups)))]
    mixed = np.unique(groups[differs])
    is_mixed = np.isin(groups, mixed)
    return (events[is_mixed], groups[is_mixed]) if len(mixed) else None


def _left_alone(ranked: Ranked) -> Mask:
    """Mark the events that are not decided here."""
    is_other = ~np.isin(ranked.operation, (OP_DELETE, OP_UPSERT))
    changes = ranked.changes
    n = ranked.n_entries
    is_other[n:] |= is_set(changes, "_moved_from") | is_set(changes, "_unavailable")
    is_other[:n] |= is_set(ranked.entries, "_columns")
    return np.asarray(is_other)


def _events(ranked: Ranked, events: Codes, groups: Codes) -> Iterator[list[_Event]]:
    """Yield the events of each group, with their contents and places."""
    rows = ranked.rows.take(pa.array(events))
    contents = digests(rows)
    contents[ranked.is_delete[events]] = DELETED
    n = ranked.n_stored
    is_change = events >= n
    of_changes = pa.array(events[is_change] - ranked.n_entries)
    origins = iter(ranked.changes["_origin"].take(of_changes).to_pylist())
    last = -1
    members: list[_Event] = []
    of_events = zip(events.tolist(), groups.tolist(), contents.tolist(), is_change.tolist(), strict=True)
    for event, group, content, is_new in of_events:
        if group != last and members:
            yield members
            members = []
        last = group
        if is_new:
            origin = next(origins)
            members.append(_Event(event, content, (origin["source"], origin["partition"]), origin["position"]))
        else:
            members.append(_Event(event, content, None, 0))
    yield members
