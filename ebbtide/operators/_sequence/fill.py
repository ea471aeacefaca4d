"""Third phase: the source event of each value of a row.

Columns that some event left out may come from several events. All remaining columns come from the event that shows the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from ebbtide.changelog import UNKNOWN
from ebbtide.columns import Codes, Mask
from ebbtide.operators._sequence.choose import Rows, sorted_by
from ebbtide.operators._sequence.key_changes import follow
from ebbtide.operators._sequence.links import Link
from ebbtide.operators._sequence.rank import Ranked


@dataclass(frozen=True)
class Filled:
    """The row of each key, column by column.

    Args:
        winner: (m,) the event that shows each key's row.
        source: Column to the (m,) events that its values come from, or `UNKNOWN`; other columns come from `winner`.
        known_at: The same columns to the (m,) ranks from which the values are known.
        changed_by: (m,) the event that changed the row last.
        is_filled: (m,) true for stored rows with a column whose value or rank changed.
        links: Index in `winner` to the row's link, for rows that key changes concern.
        n_pending: Links that wait for a value from an old key.
    """

    winner: Codes
    source: Mapping[str, Codes]
    known_at: Mapping[str, Codes]
    changed_by: Codes
    is_filled: Mask
    links: Mapping[int, Link]
    n_pending: int

    def only(self, marked: Mask) -> Self:
        """Return the rows of some keys."""
        rows = np.flatnonzero(marked).tolist()
        links = {place: self.links[row] for place, row in enumerate(rows) if row in self.links}
        return type(self)(
            winner=self.winner[marked],
            source={name: events[marked] for name, events in self.source.items()},
            known_at={name: ranks[marked] for name, ranks in self.known_at.items()},
            changed_by=self.changed_by[marked],
            is_filled=self.is_filled[marked],
            links=links,
            n_pending=self.n_pending,
        )


def fill(ranked: Ranked, rows: Rows) -> Filled:
    """Find for each key and partly known column the event that its value comes from.

    Args:
        ranked: The step's events.
        rows: Those that count.
    """
    winner = rows.winner
    followed = follow(ranked, rows)
    last_change = _last_change(ranked)[ranked.key[winner]]
    is_entry = winner < ranked.n_entries
    # A row that had lost a tie is shown because this step retracted the former winner.
    had_lost = ~is_entry & (winner < ranked.n_stored)
    changed_by = np.where(had_lost, last_change, winner)
    is_stored_row = is_entry & ~ranked.is_delete[winner]
    is_filled = np.zeros(len(winner), bool)
    sources: dict[str, Codes] = {}
    known_at: dict[str, Codes] = {}
    for name in ranked.partly_known:
        since = _since(ranked, name)
        source, rank = _newest_value(ranked, rows, name, since)
        # Keys that a key change concerns are replayed as a log instead: their values may come from other keys.
        for row, values in followed.values.items():
            source[row], rank[row] = values[name]
        # A stored row is filled if the value's rank differs from the stored one; a change carries only its own values.
        is_news = is_stored_row & (rank != since[winner])
        is_filled |= is_news
        # Lower indices are entries, higher ones are kept rows after the events; only those in between belong to this step.
        is_from_change = (source >= ranked.n_entries) & (source < len(ranked))
        brings_value = is_news & is_from_change
        later = np.maximum(source, changed_by)
        changed_by = np.where(brings_value, later, changed_by)
        sources[name] = source
        known_at[name] = rank
    # Values changed, but none comes from this step: a late delete removed one, or a key change moved one.
    is_as_stored = is_filled & (changed_by < ranked.n_entries)
    return Filled(
        winner=winner,
        source=sources,
        known_at=known_at,
        changed_by=np.where(is_as_stored, last_change, changed_by),
        is_filled=is_filled,
        links=followed.links,
        n_pending=followed.n_pending,
    )


def _since(ranked: Ranked, name: str) -> Codes:
    """Return for each event the rank from which its value of a column is known: its own, unless the entry stores another."""
    stored_ranks = ranked.stored.known_since.get(name)
    if stored_ranks is None:
        return ranked.sequence
    change_ranks = ranked.sequence[ranked.n_entries :]
    return np.concatenate([stored_ranks, change_ranks])


def _newest_value(
    ranked: Ranked,
    rows: Rows,
    name: str,
    since: Codes,
) -> tuple[Codes, Codes]:
    """Find each key's newest value of a column since the key's last delete. O(n log n) in the events that carry one.

    Args:
        ranked: The events.
        rows: Those that count.
        name: The column.
        since: (n,) the rank from which each event's value is known.

    Returns:
        (m,) the event that carries it, and the value's rank; or `UNKNOWN` twice.
    """
    # 1. The events after the key's last delete that carry the value: a delete forgets all earlier values.
    carries = (since != UNKNOWN) & ~ranked.is_delete
    if name in ranked.unsent:
        carries &= ~ranked.unsent[name]
    candidates = rows.order[carries[rows.order]]
    ranks = since[candidates]
    base = rows.base[ranked.key[candidates]]
    # At one sequence, a delete precedes an upsert in a log, and follows it in a user's changelog.
    is_after_delete = ranks >= base if ranked.rules.in_log else ranks > base
    candidates = candidates[is_after_delete]
    # 2. Per key the newest value: by the rank from which it is known, not by that of the event that carries it.
    arrival = np.arange(len(ranked))
    by_newness = sorted_by(candidates, arrival, rows.ties.digest, ranked.operation, since)
    candidates = candidates[by_newness]
    newest_of = np.full(ranked.n_keys, UNKNOWN)
    newest_of[ranked.key[candidates]] = candidates  # the last one of a key stays
    # 3. From keys to winners.
    source = newest_of[ranked.key[rows.winner]]
    rank = np.where(
        source >= 0,
        since[source],
        UNKNOWN,
    )
    return source, rank


def _last_change(ranked: Ranked) -> Codes:
    """Return each key's last change. A key without one takes the step's last: that of a linked key."""
    changes = np.arange(ranked.n_entries, len(ranked))
    last_change = np.full(ranked.n_keys, len(ranked) - 1)
    last_change[ranked.key[changes]] = changes  # the last one of a key stays
    return last_change
