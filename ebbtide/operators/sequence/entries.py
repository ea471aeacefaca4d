"""What a step of sequence mode decides: each key's row, and the entry that remembers it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.model.codes import Codes
from ebbtide.model.entries import (
    DELETE,
    INSERT,
    UPDATE,
    Reconciled,
    entry_table,
    flags,
    has_expired,
    is_set,
    last_of_group,
)
from ebbtide.model.sequences import UNKNOWN
from ebbtide.operators.selection import SELECTED_COLUMNS
from ebbtide.operators.sequence.events import Events, sorted_by
from ebbtide.operators.sequence.linked_keys import NO_LINK, Link, LinkedKeys
from ebbtide.operators.sequence.stamps import Stamps
from ebbtide.operators.sequence.tied_rows import TiedRows
from ebbtide.operators.sequence.ties import Mask, digests

KnownSince = tuple[str, dict[str, Any] | None]
"""A column, and the sequence at which its value was last known; None if it never was."""


@dataclass(frozen=True)
class Rows:
    """The row of each key, column by column.

    Args:
        winner: (n,) the event that shows each key's row.
        source: Column to the (n,) events that its values come from, or `UNKNOWN`; other columns come from `winner`.
        known_at: The same columns to the (n,) ranks of that knowledge.
        changed_by: (n,) the event that changed the row last.
        is_filled: (n,) whether a column's value or knowledge changed.
    """

    winner: Codes
    source: dict[str, Codes]
    known_at: dict[str, Codes]
    changed_by: Codes
    is_filled: Mask

    def only(self, marked: Mask) -> Rows:
        """Return the rows of some keys."""
        source = {name: events[marked] for name, events in self.source.items()}
        known_at = {name: ranks[marked] for name, ranks in self.known_at.items()}
        return Rows(
            winner=self.winner[marked],
            source=source,
            known_at=known_at,
            changed_by=self.changed_by[marked],
            is_filled=self.is_filled[marked],
        )


class Decision:
    """Decides on the events of one step.

    Args:
        events: The step's.
    """

    def __init__(self, events: Events) -> None:
        self.events = events
        self.linked = LinkedKeys(events)
        self.tied = TiedRows(events)
        self.stamps = Stamps(events)
        self.metrics: Counter[str] = events.metrics

    def run(self) -> Reconciled:
        """Decide each key's row and build its entry.

        The last event of a key in the order wins. Only columns that some event left out are composed of several events, and only
        keys whose row or memory differs from what is stored get an entry.
        """
        events = self.events
        keys = events.code[events.order]
        is_last = last_of_group(keys)
        winner = events.order[is_last]
        rows = self._composed(winner)
        links = self.linked.links(winner, rows.known_at)
        is_change = winner >= events.n_state
        shows = is_change | rows.is_filled
        is_noted = self._is_noted(winner, links)
        is_written = shows | is_noted
        written = np.flatnonzero(is_written)
        filled = shows & ~is_change
        pending = [link for link in links.values() if link.is_pending]
        self.metrics["filled"] += int(filled.sum())
        self.metrics["pending_key_changes"] += len(pending)
        return self._entries(
            rows=rows.only(is_written),
            shows=shows[is_written],
            links=[links.get(i, NO_LINK) for i in written.tolist()],
        )

    def _composed(self, winner: Codes) -> Rows:
        """Find for each key and partly known column the event that its value comes from."""
        events = self.events
        sources: dict[str, Codes] = {}
        known_at: dict[str, Codes] = {}
        # A row that had lost a tie is shown since the one that won is taken back: by a change of this step.
        had_lost = (winner >= events.n_state) & (winner < events.n_stored)
        changed_by = np.where(had_lost, self._last_change[events.code[winner]], winner)
        is_filled = np.zeros(len(winner), dtype=bool)
        is_row = ~events.is_delete[winner]
        is_stored = winner < events.n_state
        for name in events.partly_known:
            since = self._stored_knowledge.get(name, events.sequence)
            source, rank = self._newest_value(winner, name, since)
            # Keys that a change of the key concerns are played as a log instead: values may come from other keys.
            linked_values = self.linked.values(winner, name)
            for i, linked_source, linked_rank in linked_values:
                source[i] = linked_source
                rank[i] = linked_rank
            # A value of this step's: not an entry's, nor that of a row kept behind the events.
            is_entry = source < events.n_state
            is_kept_row = source >= len(events.code)
            is_from_change = ~is_entry & ~is_kept_row
            # Of a row that is stored it is news if the value is newer than the entry knew; of a change all is its own.
            differs = rank != since[winner]
            is_news = is_row & is_stored & differs
            is_filled |= is_news
            is_later = is_from_change & (source > changed_by)
            changed_by = np.where(is_news & is_later, source, changed_by)
            sources[name] = source
            known_at[name] = rank
        # No value of this step's, and yet other ones: a late delete took one away, or a change of the key moved one.
        is_as_stored = is_filled & (changed_by < events.n_state)
        cause = self._last_change[events.code[winner]]
        changed_by = np.where(is_as_stored, cause, changed_by)
        return Rows(
            winner=winner,
            source=sources,
            known_at=known_at,
            changed_by=changed_by,
            is_filled=is_filled,
        )

    def _newest_value(
        self,
        winner: Codes,
        name: str,
        since: Codes,
    ) -> tuple[Codes, Codes]:
        """Find each key's newest value of a column since the key's last delete.

        Args:
            winner: (n,) the event that shows each key's row.
            name: The column.
            since: (events,) the rank since when each event's value is known.

        Returns:
            (n,) the event that carries it, and the value's rank; or `UNKNOWN` twice.
        """
        events = self.events
        code = events.code
        # 1. Events that carry the value, from after the key's last delete: a delete forgets all that was known.
        is_known = since != UNKNOWN
        carries = is_known & ~events.is_delete
        if name in events.unsent:
            carries &= ~events.unsent[name]
        candidates = events.order[carries[events.order]]
        ranks = since[candidates]
        keys = code[candidates]
        base = events.base[keys]
        is_after_delete = ranks > base
        if events.in_log:
            # In a log a delete stands before an upsert at its sequence, else behind it.
            is_after_delete |= ranks == base
        candidates = candidates[is_after_delete]
        # 2. Per key the one whose value is newest: by the sequence since when it is known, not by that of the event.
        by_newness = sorted_by(
            candidates,
            events.arrival,
            events.digest,
            events.rank,
            since,
        )
        candidates = candidates[by_newness]
        newest_of = np.full(events.n_codes, UNKNOWN)
        newest_of[code[candidates]] = candidates  # the last one of a key stays
        # 3. From keys to winners.
        source = newest_of[code[winner]]
        has_value = source >= 0
        rank = np.where(has_value, since[source], UNKNOWN)
        return source, rank

    @cached_property
    def _last_change(self) -> Codes:
        """The last change of each key; of a key that has none, the last one that it was decided with: one of a linked key."""
        events = self.events
        n_events = len(events.code)
        changes = np.arange(events.n_state, n_events)
        last_change = np.full(events.n_codes, n_events - 1)
        last_change[events.code[changes]] = changes  # the last one of a key stays
        return last_change

    @cached_property
    def _stored_knowledge(self) -> dict[str, Codes]:
        """Map column to the (events,) rank since when each value is known: its own, unless the entry stores another."""
        events = self.events
        known_since: dict[str, Codes] = {}
        for entry, rank_of in events.known_since.items():
            for name, rank in rank_of.items():
                if name not in known_since:
                    known_since[name] = events.sequence.copy()
                known_since[name][entry] = rank
        return known_since

    def _entries(
        self,
        rows: Rows,
        shows: Mask,
        links: list[Link],
    ) -> Reconciled:
        """Build the entries.

        Args:
            rows: (n,) those of the keys to write.
            shows: (n,) whether the sink must take the row.
            links: (n,) what their keys are linked to.
        """
        events = self.events
        winner = rows.winner
        n = len(winner)
        key = events.code[winner]
        base = events.base[key]
        since = events.since[key]
        is_delete = events.is_delete[winner]
        change = self._sink_changes(winner, shows)
        stamp = self.stamps.of(winner)
        # An entry may have expired as it is written, by an event time long past: the sink takes it, the state does not.
        is_past = has_expired(stamp, events.op.ttl, events.step)
        may_expire = is_delete | events.op.expires_live
        is_late = is_past & may_expire
        known_columns, n_waiting = self._known_columns(rows)
        is_undecided = self.tied.is_undecided(winner)
        columns = self._user_columns(rows)
        columns |= {
            "_step": np.full(n, events.step.number),
            "_change": pa.array(change, mask=change == ""),
            "_removed": is_late,
            "_stamp_ms": stamp,
            "_changed_by": self._orders.take(rows.changed_by),
            "_sequence": self._stored_sequences(winner),
            "_columns": known_columns,
            "_base": events.sequences_of(base),
            "_since": events.sequences_of(since),
            "_moved_from": self.linked.moved_from(links),
            **self.linked.kept(links),
            "_retracted": self._retracted(winner),
            "_tied": self.tied.kept(winner, is_undecided),
            "_conflict": is_undecided,
            "_tombstone": is_delete,
            **self._shown_before(key),
        }
        is_inserted = change == INSERT
        is_updated = change == UPDATE
        is_deleted = change == DELETE
        self.metrics.update(
            inserted=int(is_inserted.sum()),
            updated=int(is_updated.sum()),
            deleted=int(is_deleted.sum()),
            late=int(is_late.sum()),
            waiting=n_waiting,
            conflicts=self.tied.n_lost(winner, is_undecided),
        )
        entries = entry_table(events.op.schema, columns, n)
        return Reconciled(entries, self.metrics)

    def _shown_before(self, key: Codes) -> dict[str, object]:
        """Hand on what the sink shows of keys, where a transform selects that; see `ebbtide.operators.selection`."""
        events = self.events
        if events.op.output is None:
            return {}
        entry = events.entry_of[key]
        indices = pa.array(entry, mask=entry < 0)
        return {name: events.state[name].take(indices) for name in SELECTED_COLUMNS}

    def _sink_changes(self, winner: Codes, shows: Mask) -> NDArray[np.str_]:
        """Return what the sink must do for each key; empty: nothing."""
        events = self.events
        key = events.code[winner]
        entry = events.entry_of[key]
        has_entry = entry >= 0
        is_in_sink = has_entry & ~events.is_delete[entry]
        if_deleted = np.where(is_in_sink, DELETE, "")
        if_row = np.where(is_in_sink, UPDATE, INSERT)
        is_delete = events.is_delete[winner]
        change = np.where(is_delete, if_deleted, if_row)
        return np.where(shows, change, "")

    def _user_columns(self, rows: Rows) -> dict[str, object]:
        """Take each column's values from where they are; of a deleted row only the key stays."""
        events = self.events
        is_delete = events.is_delete[rows.winner]
        columns: dict[str, object] = {}
        for name in events.op.columns.names:
            source = rows.source.get(name, rows.winner)
            is_null = source < 0
            if name not in events.op.key:
                is_null = is_null | is_delete
            event_of_value = np.maximum(source, 0)
            indices = pa.array(event_of_value, mask=is_null)
            values = events.values(name)
            columns[name] = values.take(indices)
        return columns

    @cached_property
    def _orders(self) -> pa.ChunkedArray:
        """The order of the change that caused each event: an entry's was stored."""
        stored = self.events.state["_changed_by"]
        own = self.events.changes["_order"]
        chunks = [*stored.chunks, *own.chunks]
        return pa.chunked_array(chunks, stored.type)

    def _is_noted(self, winner: Codes, links: dict[int, Link]) -> Mask:
        """Mark stored rows about which something must be remembered that the sink does not show."""
        events = self.events
        state = events.state
        n = events.n_state
        # A late delete below the row, if a column may yet be filled.
        entry_keys = events.code[:n]
        base = events.base[entry_keys]
        is_newer_base = base > events.stored_base
        has_new_base = is_newer_base & is_set(state, "_columns")
        has_conflict = flags(state, "_conflict")
        has_new_conflict = events.conflicting[:n] & ~has_conflict
        is_renewed = self.stamps.renewed_by_event_time()
        # Marked by event, since a key's entry is noted only where it still is its key's winner.
        is_noted = np.zeros(len(events.code), dtype=bool)
        is_noted[:n] = has_new_base | has_new_conflict | is_renewed
        is_noted[winner] |= self.tied.is_news(winner)
        for event, taken_back in events.taken_back.items():
            stored = events.stored_retracted.get(event)
            is_entry = event < n
            if is_entry and taken_back != stored:
                is_noted[event] = True
        for i, link in links.items():
            event = int(winner[i])
            is_entry = event < n
            if is_entry and self.linked.is_news(event, link):
                is_noted[event] = True
        return is_noted[winner]

    def _stored_sequences(self, winner: Codes) -> pa.Array:
        """Return `_sequence`: the row's, and the rank of its operation."""
        events = self.events
        ranks = events.sequence[winner]
        sequences = events.sequences_of(ranks)
        operations = events.rank[winner].astype(np.int32)
        parts = [pc.struct_field(sequences, name) for name in events.op.sequence]
        parts.append(pa.array(operations))
        type_ = events.op.schema.field("_sequence").type
        return pa.StructArray.from_arrays(parts, fields=list(type_))

    def _retracted(self, winner: Codes) -> pa.Array:
        """Give each row the digests of the contents that were taken back at its sequence.

        They are known where contents were compared, or stored. Of a lone retraction that shows its key the digest is made here.
        """
        events = self.events
        type_ = events.op.schema.field("_retracted").type
        may_retract = events.is_retraction.any() or events.stored_retracted
        if not may_retract:
            return pa.nulls(len(winner), type_)
        taken_back = events.stored_retracted | events.taken_back
        lists: list[list[int] | None] = []
        alone: list[int] = []
        for i, event in enumerate(winner.tolist()):
            known = taken_back.get(event)
            lists.append(known)
            if known is None and events.is_retraction[event]:
                alone.append(i)
        lone_events = pa.array(winner[alone])
        contents = events.rows.take(lone_events)
        own_digests = digests(contents).tolist()
        for i, digest in zip(alone, own_digests, strict=True):
            lists[i] = [digest]
        return pa.array(lists, type_)

    def _known_columns(self, rows: Rows) -> tuple[pa.Array, int]:
        """Build `_columns`, and count the rows that still wait for a value."""
        events = self.events
        n = len(rows.winner)
        # Only exceptions are stored: a value that is as new as its row is not listed.
        own_rank = events.sequence[rows.winner]
        is_row = ~events.is_delete[rows.winner]
        items_of: dict[int, list[KnownSince]] = {}
        waits = np.zeros(n, dtype=bool)
        for name, ranks in rows.known_at.items():
            is_unknown = ranks == UNKNOWN
            differs = ranks != own_rank
            is_older = is_row & differs
            waits |= is_older & is_unknown
            older = np.flatnonzero(is_older)
            for i in older.tolist():
                rank = int(ranks[i])
                known_at = events.sequence_of(rank)
                items = items_of.setdefault(i, [])
                items.append((name, known_at))
        lists: list[list[KnownSince] | None] = [None] * n
        for i, items in items_of.items():
            lists[i] = items
        type_ = events.op.schema.field("_columns").type
        return pa.array(lists, type_), int(waits.sum())
