"""From when the entries live that a step of sequence mode writes."""

from __future__ import annotations

import numpy as np

from ebbtide.model.codes import Codes, Mask
from ebbtide.model.entries import LONG_MIN, SINK_STEP, Step, ints
from ebbtide.model.sequences import UNKNOWN
from ebbtide.model.ttl import StateTtlConfig, UpdateType
from ebbtide.operators.sequence.choose import Rows
from ebbtide.operators.sequence.rank import Ranked


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
        winner: (m,) the event that shows each of these keys' row.
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
    # The greatest event time counts, so that it does not matter how changes are cut into steps.
    fresh = _greatest_event_time(ranked)[key]
    is_stored = _is_stored(ranked)
    stamps_of_entries = ints(ranked.entries, "_stamp_ms")
    stored = np.where(is_stored, stamps_of_entries, LONG_MIN)
    before = ranked.of_entry(stored, key, otherwise=LONG_MIN)
    return np.asarray(np.maximum(before, fresh))


def renewed_by_event_time(ranked: Ranked) -> Mask:
    """Mark the entries whose key has a change that renews them."""
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
    """Give each event, entries too, the time from which an entry lives that it creates."""
    stored = ints(ranked.entries, "_stamp_ms")
    fresh = np.full(len(ranked.changes), step.now_ms)
    if ttl.by_event_time:
        fresh = ints(ranked.changes, "_event_ms")
    return np.concatenate([stored, fresh])


def _greatest_event_time(ranked: Ranked) -> Codes:
    """Give each key the greatest event time of its changes in this step, whichever of them counts."""
    n = ranked.n_entries
    is_alive = ~ranked.is_dead[n:]
    keys = ranked.key[n:]
    times = ints(ranked.changes, "_event_ms", null=LONG_MIN)
    alive_keys = keys[is_alive]
    alive_times = times[is_alive]
    greatest = np.full(ranked.n_keys, LONG_MIN)
    np.maximum.at(greatest, alive_keys, alive_times)
    return greatest


def _is_stored(ranked: Ranked) -> Mask:
    """Mark the entries that the state holds; a row of the sink is none: the entry that it replaces has expired."""
    steps = ints(ranked.entries, "_step")
    return np.asarray(steps != SINK_STEP)


def _created(
    ranked: Ranked,
    rows: Rows,
    *,
    has_two_forms: bool,
) -> Codes:
    """Give each key the event that its entry came to be with; UNKNOWN: none is known.

    A tombstone is an entry of its own, as is a row that comes after one, unless live entries age too: then one entry
    goes through both forms. In the order of the sequence it is the first event after the last change of form; changes
    that a stored entry supersedes create nothing. A few passes over the events, which are in order already.
    """
    # Events of a key stand together: a form begins where the key, or the form, is not that of the event before.
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
    """Return the events in order; of a key with a stored entry, that entry and what comes after it."""
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
