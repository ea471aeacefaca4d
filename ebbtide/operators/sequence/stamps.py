"""From when the entries live that a step of sequence mode writes."""

from __future__ import annotations

import numpy as np

from ebbtide.model.codes import Codes, Mask
from ebbtide.model.entries import LONG_MIN, SINK_STEP, Step, ints, last_of_group
from ebbtide.model.sequences import UNKNOWN
from ebbtide.model.ttl import StateTtlConfig, UpdateType
from ebbtide.operators.sequence.choose import Rows
from ebbtide.operators.sequence.rank import Ranked
from ebbtide.operators.sequence.rules import SequenceRules


def stamps(ranked: Ranked, rows: Rows, winner: Codes, rules: SequenceRules, step: Step) -> Codes:
    """Return the stamps of some keys' entries, epoch ms.

    Args:
        ranked: The step's events.
        rows: Those that count.
        winner: (m,) the event that shows each of these keys' row.
        rules: The pipeline's.
        step: The step.
    """
    ttl = rules.ttl
    key = ranked.key[winner]
    now = np.full(len(winner), step.now_ms)
    if ttl is None:
        return now
    if ttl.update_type is UpdateType.ON_CREATE:
        created = _created(ranked, rows, has_two_forms=not rules.expires_live)[key]
        return np.where(created != UNKNOWN, _event_stamps(ranked, ttl, step)[created], now)
    if not ttl.by_event_time:
        return now
    # The greatest event time counts, so that it does not matter how changes are cut into steps.
    fresh = _greatest_event_time(ranked)[key]
    stored = np.where(_is_stored(ranked), ints(ranked.entries, "_stamp_ms"), LONG_MIN)
    return np.asarray(np.maximum(ranked.of_entry(stored, key, otherwise=LONG_MIN), fresh))


def renewed_by_event_time(ranked: Ranked, ttl: StateTtlConfig | None) -> Mask:
    """Mark the entries whose key has a change that renews them."""
    if ttl is None or not ttl.by_event_time or ttl.update_type is UpdateType.ON_CREATE:
        return np.zeros(ranked.n_entries, bool)
    fresh = _greatest_event_time(ranked)[ranked.key[: ranked.n_entries]]
    return np.asarray(fresh > ints(ranked.entries, "_stamp_ms"))


def _event_stamps(ranked: Ranked, ttl: StateTtlConfig, step: Step) -> Codes:
    """Give each event, entries too, the time from which an entry lives that it creates."""
    times = np.full(len(ranked.changes), step.now_ms)
    if ttl.by_event_time:
        times = ints(ranked.changes, "_event_ms")
    return np.concatenate([ints(ranked.entries, "_stamp_ms"), times])


def _greatest_event_time(ranked: Ranked) -> Codes:
    """Give each key the greatest event time of its changes in this step, whichever of them counts."""
    n = ranked.n_entries
    is_alive = ~ranked.is_dead[n:]
    times = ints(ranked.changes, "_event_ms", null=LONG_MIN)
    greatest = np.full(ranked.n_keys, LONG_MIN)
    np.maximum.at(greatest, ranked.key[n:][is_alive], times[is_alive])
    return greatest


def _is_stored(ranked: Ranked) -> Mask:
    """Mark the entries that the state holds; a row of the sink is none: the entry that it replaces has expired."""
    return np.asarray(ints(ranked.entries, "_step") != SINK_STEP)


def _created(ranked: Ranked, rows: Rows, *, has_two_forms: bool) -> Codes:
    """Give each key the event that its entry came to be with; UNKNOWN: none is known.

    A tombstone is an entry of its own, as is a row that comes after one, unless live entries age too: then one entry
    goes through both forms. In the order of the sequence it is the first event after the last change of form; changes
    that a stored entry supersedes create nothing. A few passes over the events, which are in order already.
    """
    order = _from_stored_on(ranked, rows)
    key = ranked.key[order]
    is_tombstone = ranked.is_delete[order] & has_two_forms
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (key[1:] != key[:-1]) | (is_tombstone[1:] != is_tombstone[:-1])
    beginnings = np.flatnonzero(begins)
    last_beginnings = beginnings[last_of_group(key[beginnings])]
    created = np.full(ranked.n_keys, UNKNOWN)
    created[key[last_beginnings]] = order[last_beginnings]
    return created


def _from_stored_on(ranked: Ranked, rows: Rows) -> Codes:
    """Return the events in order; of a key with a stored entry, that entry and what comes after it."""
    counts = np.ones(len(ranked), bool)
    counts[: ranked.n_entries] = _is_stored(ranked)
    order = rows.order[counts[rows.order]]
    key = ranked.key[order]
    place = np.arange(len(order))
    is_entry = order < ranked.n_entries
    place_of_stored = np.full(ranked.n_keys, UNKNOWN)
    place_of_stored[key[is_entry]] = place[is_entry]
    return order[place >= place_of_stored[key]]
