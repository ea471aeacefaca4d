"""Stamps of the entries that a step of sequence mode writes."""

from __future__ import annotations

import numpy as np

from ebbtide.changelog import UNKNOWN
from ebbtide.columns import Codes, Long, Mask, ints
from ebbtide.entries import SINK_STEP, Step
from ebbtide.keyed_state import StateTtlConfig, UpdateType
from ebbtide.operators._sequence.choose import Rows
from ebbtide.operators._sequence.rank import Ranked


def stamps(
    ranked: Ranked,
    rows: Rows,
    winner: Codes,
    step: Step,
) -> Codes:
    """Return the stamps of some keys' entries, epoch ms.

    Args:
        ranked: The step's events.
        rows: Those that count.
        winner: (m,) the event that shows each key's row.
        step: Number, clocks and floor of the step.
    """
    ttl = ranked.rules.ttl
    key = ranked.key[winner]
    now = np.full(len(winner), step.now_ms)
    if ttl is None:
        return now
    if ttl.update_type is UpdateType.ON_CREATE:
        created_of = _created(ranked, rows, has_two_forms=not ranked.rules.expires_live)
        created = created_of[key]
        created_at = _event_stamps(ranked, ttl, step)[created]
        return np.where(created != UNKNOWN, created_at, now)
    if not ttl.by_event_time:
        return now
    # The greatest event time counts, so the result does not depend on how changes are divided into steps.
    fresh = _greatest_event_time(ranked)[key]
    is_stored = _is_stored(ranked)
    stamps_of_entries = ints(ranked.entries, "_stamp_ms")
    stored = np.where(is_stored, stamps_of_entries, Long.MIN)
    before = ranked.of_entry(stored, key, otherwise=Long.MIN)
    return np.asarray(np.maximum(before, fresh))


def renewed_by_event_time(ranked: Ranked) -> Mask:
    """Mark the entries that a change with a greater event time renews."""
    n = ranked.n_entries
    ttl = ranked.rules.ttl
    if ttl is None or not ttl.by_event_time or ttl.update_type is UpdateType.ON_CREATE:
        return np.zeros(n, bool)
    entry_keys = ranked.key[:n]
    fresh = _greatest_event_time(ranked)[entry_keys]
    stored = ints(ranked.entries, "_stamp_ms")
    return np.asarray(fresh > stored)


def _event_stamps(
    ranked: Ranked,
    ttl: StateTtlConfig,
    step: Step,
) -> Codes:
    """Return for each event, entries included, the stamp of an entry that it creates."""
    stored = ints(ranked.entries, "_stamp_ms")
    fresh = np.full(len(ranked.changes), step.now_ms)
    if ttl.by_event_time:
        fresh = ints(ranked.changes, "_event_ms")
    return np.concatenate([stored, fresh])


def _greatest_event_time(ranked: Ranked) -> Codes:
    """Return each key's greatest event time in this step, superseded changes included."""
    n = ranked.n_entries
    is_alive = ~ranked.is_dead[n:]
    keys = ranked.key[n:]
    times = ints(ranked.changes, "_event_ms", null=Long.MIN)
    alive_keys = keys[is_alive]
    alive_times = times[is_alive]
    greatest = np.full(ranked.n_keys, Long.MIN)
    np.maximum.at(greatest, alive_keys, alive_times)
    return greatest


def _is_stored(ranked: Ranked) -> Mask:
    """Mark the entries that the state holds. All remaining ones are rows of the sink in place of expired entries."""
    steps = ints(ranked.entries, "_step")
    return np.asarray(steps != SINK_STEP)


def _created(
    ranked: Ranked,
    rows: Rows,
    *,
    has_two_forms: bool,
) -> Codes:
    """Return the event that created each key's entry, or `UNKNOWN`.

    Row and tombstone are two forms. With `has_two_forms` each change of form creates a new entry: the creating event is the first
    one after the last change of form, in sequence order. Otherwise one entry may have both forms. Changes that a stored entry
    supersedes create nothing. O(n): the events are already sorted.
    """
    # Events of a key are adjacent: a form begins where the key or the form differs from the event before.
    order = _from_stored_on(ranked, rows)
    key = ranked.key[order]
    is_tombstone = ranked.is_delete[order] & has_two_forms
    begins = np.ones(len(order), dtype=bool)
    is_next_key = key[1:] != key[:-1]
    changes_form = is_tombstone[1:] != is_tombstone[:-1]
    begins[1:] = is_next_key | changes_form
    beginnings = np.flatnonzero(begins)
    keys = key[beginnings]
    created = np.full(ranked.n_keys, UNKNOWN)
    created[keys] = order[beginnings]  # the last one of a key stays
    return created


def _from_stored_on(ranked: Ranked, rows: Rows) -> Codes:
    """Return the events in order; for a key with a stored entry only that entry and later events."""
    counts = np.ones(len(ranked), bool)
    counts[: ranked.n_entries] = _is_stored(ranked)
    order = rows.order[counts[rows.order]]
    key = ranked.key[order]
    place = np.arange(len(order))
    is_entry = order < ranked.n_entries
    stored_keys = key[is_entry]
    place_of_stored = np.full(ranked.n_keys, UNKNOWN)
    place_of_stored[stored_keys] = place[is_entry]
    # A key without a stored entry has `UNKNOWN`, which is before all places.
    is_superseded = place < place_of_stored[key]
    return order[~is_superseded]
