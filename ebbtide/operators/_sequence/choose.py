"""Second phase: the order of the events that count, and the winner of each key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ebbtide.changelog import UNKNOWN, SequenceColumns
from ebbtide.columns import Codes, Long, Mask, equals, ints, is_set
from ebbtide.entries import Step, last_of_group
from ebbtide.operators._sequence.ops import OP_DELETE, OP_FINAL_DELETE, OP_UPSERT
from ebbtide.operators._sequence.places import at_one_position
from ebbtide.operators._sequence.rank import Ranked
from ebbtide.operators._sequence.ties import Contents, Ties, compare

UNKNOWN_TIME = Long.MIN
"""Marks an unknown event time."""


@dataclass(frozen=True)
class Rows:
    """The events that count, and the row of each key.

    Args:
        order: The events that count, sorted by (key, sequence, operation, content), regardless of arrival.
        winner: (m,) the event that shows each key's row, by key.
        ties: Comparison of events that share key, sequence and operation.
        retracted: Entry to the digests of contents that were retracted at its sequence.
        base: (keys,) rank of each key's newest delete, at least the floor.
        since: (keys,) rank of the sequence at which its row got the key, or `UNKNOWN`.
        counts: Metrics of this phase.
    """

    order: Codes
    winner: Codes
    ties: Ties
    retracted: Mapping[int, list[int]]
    base: Codes
    since: Codes
    counts: Counter[str]


def choose(ranked: Ranked) -> Rows:
    """Sort the events of each key independently of their arrival, and drop repeated ones.

    The events are sorted once by the columns that are cheap to compare. Contents are compared only for events that tie; then all
    are sorted again with the result. Invariant: no sort column depends on arrival. The sort is stable, so that arrival decides
    only between identical events. If a log gives several changes the same position,
    the place of their records in the source decides first.
    O(n log n).
    """
    alive = np.flatnonzero(~ranked.is_dead)
    group = (ranked.operation, ranked.sequence, ranked.key)
    order = alive[sorted_by(alive, *group)]
    retracted = _retracted(ranked.entries)
    at_one = at_one_position(ranked, order, retracted)
    if len(at_one.earlier):
        alive = np.setdiff1d(alive, at_one.earlier, assume_unique=True)
        order = order[np.isin(order, at_one.earlier, invert=True)]
    is_tied = _same_as_before(order, *group)
    not_carried = _not_carried(ranked)
    ties = _ties(ranked, order, is_tied, retracted, not_carried)
    is_repeat = is_tied
    if is_tied.any():
        content = (_unsent_sets(len(ranked), not_carried), ties.digest, ties.weight)
        order = alive[sorted_by(alive, *content, *group)]
        is_repeat = _same_as_before(order, *content, *group)
    ties = ties.beside(at_one.known_earlier, at_one.undecided, at_one.n_conflicts)
    counting = order[~is_repeat]
    is_removal = ranked.is_delete & ~ranked.is_retraction
    counts = Counter(
        below_floor=int(ranked.is_dead.sum()),
        duplicates=int(is_repeat.sum()),
        conflicts=ties.n_conflicts,
        superseded=_n_superseded(ranked, order, counting) + _n_new(ranked, at_one.earlier),
    )
    return Rows(
        order=counting,
        winner=counting[last_of_group(ranked.key[counting])],
        ties=ties,
        retracted=retracted,
        base=_greatest(
            ranked,
            counting,
            ranked.stored.base,
            is_removal,
            at_least=ranked.scale.floor,
        ),
        since=_greatest(
            ranked,
            counting,
            ranked.stored.since,
            ranked.starts_row,
            at_least=UNKNOWN,
        ),
        counts=counts,
    )


def sorted_by(events: Codes, *by: Any) -> Codes:
    """Return the indices that sort events by columns; the last column is the primary one. The sort is stable."""
    columns = tuple(column[events] for column in by)
    return np.lexsort(columns)


def _same_as_before(order: Codes, *columns: Any) -> Mask:
    """Mark the events of a sorted sequence that equal their predecessor in the columns."""
    same = np.zeros(len(order), dtype=bool)
    same[1:] = True
    for column in columns:
        values = column[order]
        same[1:] &= values[1:] == values[:-1]
    return same


def _retracted(entries: pa.Table) -> dict[int, list[int]]:
    """Map each entry to the digests of contents that were retracted at its sequence."""
    has_digests = is_set(entries, "_retracted")
    rows = np.flatnonzero(has_digests)
    lists = entries["_retracted"].take(pa.array(rows))
    digests_of = zip(rows.tolist(), lists.to_pylist(), strict=True)
    return {entry: digests for entry, digests in digests_of if digests}


def _not_carried(ranked: Ranked) -> dict[str, Mask]:
    """Map column to (n,) events, entries included, that did not carry its value at their own sequence."""
    n = ranked.n_entries
    own = ranked.sequence[:n]
    not_carried = {}
    for name in ranked.partly_known:
        marked = np.zeros(len(ranked), bool)
        marked |= ranked.unsent.get(name, False)
        since = ranked.stored.known_since.get(name, own)
        marked[:n] |= since != own
        not_carried[name] = marked
    return not_carried


def _unsent_sets(n: int, not_carried: Mapping[str, Mask]) -> Codes:
    """Number the sets of columns that events did not carry. Events with different sets are never repeats of each other."""
    numbers = np.zeros(n, np.int64)
    for mask in not_carried.values():
        # One more bit, made dense at once: it cannot overflow for any number of columns.
        with_one_more = numbers * 2 + mask
        _, numbers = np.unique(with_one_more, return_inverse=True)
    return numbers


def _ties(
    ranked: Ranked,
    order: Codes,
    is_tied: Mask,
    retracted: Mapping[int, list[int]],
    not_carried: Mapping[str, Mask],
) -> Ties:
    """Compare the upserts, and retractions, that share key, sequence and operation.

    Args:
        ranked: The events.
        order: The live events, sorted so that tied ones are adjacent.
        is_tied: Those of them that tie with their predecessor.
        retracted: See `Rows`.
        not_carried: Column to (n,) events that did not carry its value.
    """
    group = np.cumsum(~is_tied, dtype=np.int64)
    # An event is marked as tied with the one before it: the first of a group is not marked, but the next one is.
    shares = is_tied.copy()
    shares[:-1] |= is_tied[1:]
    # Deletes have only a key, so they cannot differ.
    is_bare = np.isin(ranked.operation[order], (OP_DELETE, OP_FINAL_DELETE))
    compared = shares & ~is_bare
    number = np.arange(len(ranked))
    contents = Contents(
        rows=ranked.rows,
        unsent=not_carried,
        is_retraction=ranked.is_retraction,
        retracted=retracted,
        is_forgotten=ranked.is_retraction & (number < ranked.n_entries),
        is_stored=number < ranked.n_stored,
    )
    return compare(order[compared], group[compared], contents)


def _n_new(ranked: Ranked, events: Codes) -> int:
    """Count the events that are changes of this step."""
    return int((events >= ranked.n_stored).sum())


def _n_superseded(
    ranked: Ranked,
    order: Codes,
    counting: Codes,
) -> int:
    """Count the new events that sort before their key's entry."""
    # Repeats have places too: an entry may itself repeat a redelivered change.
    place = np.zeros(len(ranked), np.int64)
    place[order] = np.arange(len(order))
    place_of_entries = place[: ranked.n_entries]
    key = ranked.key[counting]
    place_of_entry = ranked.of_entry(place_of_entries, key, otherwise=-1)
    is_new = counting >= ranked.n_stored
    is_before = place[counting] < place_of_entry
    is_superseded = is_new & is_before
    return int(is_superseded.sum())


def n_newer_superseded(ranked: Ranked, rows: Rows, step: Step) -> int:
    """Count new changes that lost to a row whose event time is older by more than the allowed delay.

    In a log that only grows, sequences and event times of one key rise together. If they contradict each other, the
    log has restarted below stored positions. A stored row's time is unknown, so the newest event time of all earlier steps is
    used: it can only lower the count.
    """
    delay_ms = ranked.rules.allowed_delay_ms
    if delay_ms is None:
        return 0
    n = ranked.n_entries
    is_winner = np.zeros(len(ranked), bool)
    is_winner[rows.winner] = True
    lost = rows.order[~is_winner[rows.order] & (rows.order >= ranked.n_stored)]
    if not len(lost):
        return 0
    is_of_snapshot = equals(ranked.changes, "_op", "r")  # a snapshot row's time is its time of reading
    lost = lost[~is_of_snapshot[lost - n] & ~ranked.is_retraction[lost]]
    if not len(lost):
        return 0
    winner_of_key = np.full(ranked.n_keys, UNKNOWN)
    winner_of_key[ranked.key[rows.winner]] = rows.winner
    winner = winner_of_key[ranked.key[lost]]
    newest_before = UNKNOWN_TIME if step.watermark_ms is None else step.watermark_ms + delay_ms
    of_stored = np.full(ranked.n_stored, newest_before)
    of_changes = ints(ranked.changes, "_event_ms", null=UNKNOWN_TIME)
    times = np.concatenate([of_stored, of_changes[ranked.n_stored - n :]])
    is_known = (times[lost] != UNKNOWN_TIME) & (times[winner] != UNKNOWN_TIME)
    is_newer = times[lost] > times[winner] + delay_ms
    return int((is_known & is_newer).sum())


def n_created_over_rows(ranked: Ranked, rows: Rows) -> int:
    """Count new creates right behind a row of their key that no delete took away.

    A database creates a row only under a key that has none: a delete is missing, or late; or the rows of several tables have one
    key; or a transaction gave a row the key of another one, before that one got its own new key. Rows of snapshots do not count:
    the changes that they contain may follow.
    """
    rules = ranked.rules
    if not rules.in_log or rules.sequence == SequenceColumns.PLACE:
        return 0
    n = ranked.n_entries
    before, event = rows.order[:-1], rows.order[1:]
    is_behind_row = _same_as_before(rows.order, ranked.key)[1:] & (ranked.operation[before] == OP_UPSERT)
    behind_rows = event[is_behind_row & (event >= ranked.n_stored)]
    is_create = equals(ranked.changes, "_op", "c")
    return int(is_create[behind_rows - n].sum())


def n_late_deletes(ranked: Ranked, rows: Rows) -> int:
    """Count new deletes right below a stored row: what it replaced was deleted in time, and only the delete came late."""
    event, above = rows.order[:-1], rows.order[1:]
    is_delete = np.isin(ranked.operation[event], (OP_DELETE, OP_FINAL_DELETE)) & (event >= ranked.n_stored)
    is_below_row = (ranked.operation[above] == OP_UPSERT) & (above < ranked.n_stored)
    is_of_key = _same_as_before(rows.order, ranked.key)[1:]
    return int((is_delete & is_below_row & is_of_key).sum())


def _greatest(
    ranked: Ranked,
    counting: Codes,
    stored: Codes,
    marked: Mask,
    at_least: int,
) -> Codes:
    """Return each key's greatest rank among its stored rank and its marked events that count.

    Args:
        ranked: The events.
        counting: Those that count.
        stored: (entries,) ranks.
        marked: (n,) events.
        at_least: The rank of keys without either.
    """
    is_marked = marked[counting]
    events = counting[is_marked]
    entry_keys = ranked.key[: ranked.n_entries]
    event_keys = ranked.key[events]
    # A key may have several events: `maximum.at` looks at each, where plain assignment would keep the last.
    greatest = np.full(ranked.n_keys, at_least)
    np.maximum.at(greatest, entry_keys, stored)
    np.maximum.at(greatest, event_keys, ranked.sequence[events])
    return greatest
