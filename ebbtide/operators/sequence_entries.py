"""What a step of sequence mode decides: each key's row, and the entry that remembers it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.codes import Codes
from ebbtide.model.entries import (
    DELETE,
    INSERT,
    LONG_MIN,
    SINK_STEP,
    UPDATE,
    Reconciled,
    entry_table,
    flags,
    has_expired,
    ints,
    last_of_group,
)
from ebbtide.model.sequences import UNKNOWN
from ebbtide.model.ttl import UpdateType
from ebbtide.operators.linked_keys import NO_LINK, Link, LinkedKeys
from ebbtide.operators.sequence_events import Events, sorted_by
from ebbtide.operators.ties import Mask, digests


class Decision:
    """Decides on the events of one step.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events, self.linked = events, LinkedKeys(events)
        self.metrics: Counter[str] = events.metrics

    def run(self) -> Reconciled:
        """Decide each key's row and build its entry."""
        order = self.events.order
        winner = order[last_of_group(self.events.code[order])]
        source, known_at, changed_by, touched = self._columns(winner)
        return self._entries(winner, touched, source, known_at, changed_by)

    def _columns(self, winner: Codes) -> tuple[dict[str, Codes], dict[str, Codes], Codes, Mask]:
        """Find for each key and partly known column the event that its value comes from.

        Returns:
            column -> (n,) event, or UNKNOWN; column -> (n,) rank of that knowledge; (n,) the event that changed the
            row last; (n,) whether a column's value or knowledge changed.
        """
        events = self.events
        stored = self._stored_knowledge
        source: dict[str, Codes] = {}
        known_at: dict[str, Codes] = {}
        changed_by, touched = winner.copy(), np.zeros(len(winner), dtype=bool)
        for name in events.partly_known:
            since = stored.get(name, events.sequence)
            absent = events.unsent.get(name, np.zeros(len(events.code), dtype=bool))
            event, rank = self._newest_value(winner, since, absent)
            for i, *found in self.linked.values(winner, name):
                event[i], rank[i] = found
            before = np.where(winner < events.n_state, since[winner], rank)
            fresh = (rank != before) & ~events.is_delete[winner]
            touched |= fresh
            newer = fresh & (event >= events.n_state) & (event < len(events.code)) & (event > changed_by)
            changed_by = np.where(newer, event, changed_by)
            source[name], known_at[name] = event, rank
        return source, known_at, changed_by, touched

    def _newest_value(self, winner: Codes, since: Codes, absent: Mask) -> tuple[Codes, Codes]:
        """Return each key's event with the newest value of a column since the key's last delete, and the value's rank."""
        events = self.events
        candidates = events.order[~events.is_delete[events.order] & ~absent[events.order]]
        base = events.base[events.code[candidates]]
        # In a log a delete stands before an upsert at its sequence, else behind it.
        after_base = since[candidates] >= base if events.in_log else since[candidates] > base
        candidates = candidates[after_base & (since[candidates] != UNKNOWN)]
        by_column = candidates[sorted_by(candidates, events.arrival, events.digest, events.rank, since, events.code)]
        best = by_column[last_of_group(events.code[by_column])]
        best_of = np.full(events.n_codes, UNKNOWN)
        best_of[events.code[best]] = best
        event = best_of[events.code[winner]]
        return event, np.where(event >= 0, since[event], UNKNOWN)

    @cached_property
    def _stored_knowledge(self) -> dict[str, Codes]:
        """Map column to the (n,) rank since when each event's value is known: its own, unless the entry says another."""
        events = self.events
        found: dict[str, Codes] = {}
        for i, since in events.known_since.items():
            for name, rank in since.items():
                found.setdefault(name, events.sequence.copy())[i] = rank
        return found

    def _entries(
        self,
        winner: Codes,
        touched: Mask,
        source: dict[str, Codes],
        known_at: dict[str, Codes],
        changed_by: Codes,
    ) -> Reconciled:
        events = self.events
        shows = (winner >= events.n_state) | touched
        links = self.linked.links(winner, known_at)
        changed = shows | self._noted(winner, links)
        rows = winner[changed]
        n, at = len(rows), events.at
        dead = events.is_delete[rows]
        entry = events.entry_of[events.code[rows]]
        shown = (entry >= 0) & ~events.is_delete[entry]
        change = np.where(dead, np.where(shown, DELETE, ""), np.where(shown, UPDATE, INSERT))
        change = np.where(shows[changed], change, "")
        out: dict[str, object] = {}
        for name in events.op.columns.names:
            index = source[name][changed] if name in source else rows
            hidden = (index < 0) | (dead & (name not in events.op.key))
            out[name] = events.values(name).take(pa.array(np.maximum(index, 0), mask=hidden))
        stamp = self._stamps(rows, entry)
        mortal = dead | bool(events.op.ttl and events.op.ttl.expire_live)
        removed = mortal & has_expired(stamp, events.op.ttl, at)
        written = [links.get(i, NO_LINK) for i in np.flatnonzero(changed).tolist()]
        columns, waiting = self._knowledge(rows, {c: v[changed] for c, v in known_at.items()}, dead)
        orders = pa.concat_tables(
            [events.state.select(["_changed_by"]), events.changes.select(["_order"]).rename_columns(["_changed_by"])]
        )
        out |= {
            "_step": np.full(n, at.number),
            "_change": pa.array(change, mask=change == ""),
            "_removed": removed,
            "_stamp_ms": stamp,
            "_changed_by": orders["_changed_by"].take(changed_by[changed]),
            "_sequence": self._stored_sequences(rows),
            "_columns": columns,
            "_base": events.sequences_of(events.base[events.code[rows]]),
            "_since": events.sequences_of(events.since[events.code[rows]]),
            "_moved_from": self.linked.moved_from(written),
            "_kept": self.linked.kept(written),
            "_retracted": self._retracted(rows, dead),
            "_conflict": self._conflicts(rows),
            "_tombstone": dead,
        }
        filled = shows & (winner < events.n_state)
        self.metrics.update(
            inserted=int((change == INSERT).sum()),
            updated=int((change == UPDATE).sum()),
            deleted=int((change == DELETE).sum()),
            filled=int(filled.sum()),
            late=int(removed.sum()),
            waiting=sum(waiting),
            pending_key_changes=sum(bool(link.moved_from) for link in links.values()),
        )
        return Reconciled(entry_table(events.op.schema, out, n), self.metrics)

    def _noted(self, winner: Codes, links: dict[int, Link]) -> Mask:
        """Mark stored rows about which something must be remembered that the sink does not show."""
        events = self.events
        n, state = events.n_state, events.state
        code = events.code[:n]
        # A late delete below the row, if a column may yet be filled.
        fillable = state["_columns"].is_valid().to_numpy()
        noted = np.zeros(len(events.code), dtype=bool)
        noted[:n] = fillable & (events.base[code] > events.stored_base)
        noted[:n] |= events.conflicting[:n] & ~flags(state, "_conflict")
        if self._renews_by_event_time:
            noted[:n] |= self._event_time[code] > ints(state, "_stamp_ms")
        for event, taken_back in events.taken_back.items():
            noted[event] |= event < n and taken_back != events.stored_retracted.get(event)
        for i, link in links.items():
            event = int(winner[i])
            if event < n and self.linked.is_news(event, link):
                noted[event] = True
        return noted[winner]

    def _stored_sequences(self, rows: Codes) -> pa.Array:
        events = self.events
        sequences = events.sequences_of(events.sequence[rows])
        parts = [pc.struct_field(sequences, name) for name in events.op.sequence]
        parts.append(pa.array(events.rank[rows].astype(np.int32)))
        return pa.StructArray.from_arrays(parts, fields=list(events.op.schema.field("_sequence").type))

    def _retracted(self, rows: Codes, dead: Mask) -> pa.Array:
        """Give each row the digests of the contents that were taken back at its sequence."""
        events, type_ = self.events, self.events.op.schema.field("_retracted").type
        if not self._may_retract:
            return pa.nulls(len(rows), type_)
        found = [self._taken_back(event) for event in rows.tolist()]
        by_retraction = dead & events.is_retraction[rows]
        alone = [at for at, known in enumerate(found) if known is None and by_retraction[at]]
        made = digests(events.rows.take(pa.array(rows[alone])))
        for at, digest in zip(alone, made.tolist(), strict=True):
            found[at] = [digest]
        return pa.array(found, type_)

    @property
    def _may_retract(self) -> bool:
        return bool(self.events.is_retraction.any() or self.events.stored_retracted)

    def _taken_back(self, event: int) -> list[int] | None:
        return self.events.taken_back.get(event, self.events.stored_retracted.get(event))

    def _conflicts(self, rows: Codes) -> Mask:
        events = self.events
        before = np.concatenate([flags(events.state, "_conflict"), np.zeros(len(events.changes), bool)])
        found: Mask = events.conflicting | before
        return found[rows]

    @property
    def _renews_by_event_time(self) -> bool:
        ttl = self.events.op.ttl
        return ttl is not None and ttl.by_event_time and ttl.update_type is not UpdateType.ON_CREATE

    @cached_property
    def _event_time(self) -> Codes:
        """Give each key the greatest event time of its changes in this step, whichever of them counts."""
        events = self.events
        greatest = np.full(events.n_codes, LONG_MIN)
        changes = np.arange(events.n_state, len(events.code))[~events.dead[events.n_state :]]
        times = ints(events.changes, "_event_ms", null=LONG_MIN)
        np.maximum.at(greatest, events.code[changes], times[changes - events.n_state])
        return greatest

    def _stamps(self, rows: Codes, entry: Codes) -> Codes:
        events = self.events
        ttl, now = events.op.ttl, np.full(len(rows), events.at.now_ms)
        if ttl is None:
            return now
        if ttl.update_type is UpdateType.ON_CREATE:
            created = self._created[events.code[rows]]
            changes = (
                ints(events.changes, "_event_ms")
                if ttl.by_event_time
                else np.full(len(events.changes), events.at.now_ms)
            )
            times = np.concatenate([ints(events.state, "_stamp_ms"), changes])
            return np.where(created != UNKNOWN, times[created], now)
        if not ttl.by_event_time:
            return now
        # The greatest event time counts, so that it does not matter how changes are cut into steps.
        fresh = self._event_time[events.code[rows]]
        if not events.n_state:
            return np.asarray(fresh)
        is_stored = (entry >= 0) & self._is_stored[entry]
        return np.where(is_stored, np.maximum(ints(events.state, "_stamp_ms")[entry], fresh), fresh)

    @cached_property
    def _is_stored(self) -> Mask:
        """Mark the entries that the state holds; the sink's row is none: what it stands in for has expired."""
        return np.asarray(ints(self.events.state, "_step") != SINK_STEP)

    @cached_property
    def _created(self) -> Codes:
        """Give each key the event that its entry came to be with; UNKNOWN: none is known.

        A tombstone is an entry of its own, as is a row that comes after one, unless live entries age too: then one entry
        goes through both forms. In the order of the sequence it is the first event after the last change of form; changes
        that a stored entry supersedes create nothing.
        """
        events = self.events
        counts = np.ones(len(events.code), dtype=bool)
        counts[: events.n_state] = self._is_stored
        order = events.order[counts[events.order]]
        stored_at = np.full(events.n_codes, UNKNOWN)
        stored = np.flatnonzero(order < events.n_state)
        stored_at[events.code[order[stored]]] = stored
        order = order[np.arange(len(order)) >= stored_at[events.code[order]]]
        is_mortal_row = events.op.ttl is not None and events.op.ttl.expire_live
        code, form = events.code[order], events.is_delete[order] & (not is_mortal_row)
        begins = np.ones(len(order), dtype=bool)
        begins[1:] = (code[1:] != code[:-1]) | (form[1:] != form[:-1])
        last_begin = np.flatnonzero(begins)[last_of_group(code[begins])]
        created = np.full(events.n_codes, UNKNOWN)
        created[code[last_begin]] = order[last_begin]
        return created

    def _knowledge(self, rows: Codes, known_at: dict[str, Codes], dead: Mask) -> tuple[pa.Array, list[bool]]:
        """Build `_columns`, and tell which rows still wait for a value."""
        events = self.events
        items: list[list[tuple[str, dict[str, Any] | None]] | None] = [None] * len(rows)
        waits = [False] * len(rows)
        for name, ranks in known_at.items():
            for i in np.flatnonzero((ranks != events.sequence[rows]) & ~dead).tolist():
                items[i] = [*(items[i] or []), (name, events.sequence_of(int(ranks[i])))]
                waits[i] |= bool(ranks[i] == UNKNOWN)
        return pa.array(items, events.op.schema.field("_columns").type), waits
