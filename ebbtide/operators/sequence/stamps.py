"""From when the entries live that a step of sequence mode writes."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ebbtide.model.codes import Codes
from ebbtide.model.entries import LONG_MIN, SINK_STEP, ints, last_of_group
from ebbtide.model.sequences import UNKNOWN
from ebbtide.model.ttl import UpdateType
from ebbtide.operators.sequence.events import Events
from ebbtide.operators.sequence.ties import Mask


class Stamps:
    """Stamps of the entries that a step writes.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.ttl = events.op.ttl

    def of(self, winner: Codes) -> Codes:
        """Return the stamps of keys, epoch ms.

        Args:
            winner: (m,) the event that shows each key's row.
        """
        events = self.events
        key = events.code[winner]
        now = np.full(len(winner), events.step.now_ms)
        if self.ttl is None:
            return now
        if self.ttl.update_type is UpdateType.ON_CREATE:
            created = self._created[key]
            is_known = created != UNKNOWN
            return np.where(is_known, self._event_stamps[created], now)
        if not self.ttl.by_event_time:
            return now
        # The greatest event time counts, so that it does not matter how changes are cut into steps.
        fresh = self._greatest_event_time[key]
        if not events.n_state:
            return np.asarray(fresh)
        entry = events.entry_of[key]
        has_entry = entry >= 0
        is_stored = has_entry & self._is_stored[entry]
        stored = self._stored_stamps[entry]
        renewed = np.maximum(stored, fresh)
        return np.where(is_stored, renewed, fresh)

    def renewed_by_event_time(self) -> Mask:
        """Mark the entries whose key has a change that renews them."""
        n = self.events.n_state
        ttl = self.ttl
        if ttl is None or not ttl.by_event_time or ttl.update_type is UpdateType.ON_CREATE:
            return np.zeros(n, dtype=bool)
        entry_keys = self.events.code[:n]
        fresh = self._greatest_event_time[entry_keys]
        is_renewed = fresh > self._stored_stamps
        return np.asarray(is_renewed)

    @property
    def _stored_stamps(self) -> Codes:
        return ints(self.events.state, "_stamp_ms")

    @cached_property
    def _event_stamps(self) -> Codes:
        """Give each event, entries too, the time from which an entry lives that it creates."""
        changes = self.events.changes
        times = np.full(len(changes), self.events.step.now_ms)
        if self.ttl is not None and self.ttl.by_event_time:
            times = ints(changes, "_event_ms")
        return np.concatenate([self._stored_stamps, times])

    @cached_property
    def _greatest_event_time(self) -> Codes:
        """Give each key the greatest event time of its changes in this step, whichever of them counts."""
        events = self.events
        n = events.n_state
        is_alive = ~events.dead[n:]
        keys = events.code[n:]
        times = ints(events.changes, "_event_ms", null=LONG_MIN)
        alive_keys = keys[is_alive]
        alive_times = times[is_alive]
        greatest = np.full(events.n_codes, LONG_MIN)
        np.maximum.at(greatest, alive_keys, alive_times)
        return greatest

    @cached_property
    def _is_stored(self) -> Mask:
        """Mark the entries that the state holds; a row of the sink is none: the entry that it replaces has expired."""
        steps = ints(self.events.state, "_step")
        is_stored = steps != SINK_STEP
        return np.asarray(is_stored)

    @cached_property
    def _created(self) -> Codes:
        """Give each key the event that its entry came to be with; UNKNOWN: none is known.

        A tombstone is an entry of its own, as is a row that comes after one, unless live entries age too: then one entry
        goes through both forms. In the order of the sequence it is the first event after the last change of form; changes
        that a stored entry supersedes create nothing. A few passes over the events, which are in order already.
        """
        events = self.events
        order = self._events_from_stored_on()
        code = events.code[order]
        has_two_forms = not events.op.expires_live
        is_tombstone = events.is_delete[order] & has_two_forms
        begins = np.ones(len(order), dtype=bool)
        is_next_key = code[1:] != code[:-1]
        changes_form = is_tombstone[1:] != is_tombstone[:-1]
        begins[1:] = is_next_key | changes_form
        beginnings = np.flatnonzero(begins)
        is_last = last_of_group(code[beginnings])
        last_beginnings = beginnings[is_last]
        keys = code[last_beginnings]
        created = np.full(events.n_codes, UNKNOWN)
        created[keys] = order[last_beginnings]
        return created

    def _events_from_stored_on(self) -> Codes:
        """Return the events in order; of a key with a stored entry, that entry and what comes after it."""
        events = self.events
        counts = np.ones(len(events.code), dtype=bool)
        counts[: events.n_state] = self._is_stored
        order = events.order[counts[events.order]]
        keys = events.code[order]
        is_entry = order < events.n_state
        stored_places = np.flatnonzero(is_entry)
        stored_keys = keys[stored_places]
        stored_place_of = np.full(events.n_codes, UNKNOWN)
        stored_place_of[stored_keys] = stored_places
        place = np.arange(len(order))
        is_superseded = place < stored_place_of[keys]
        return order[~is_superseded]
