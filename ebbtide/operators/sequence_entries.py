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
from ebbtide.operators.linked_keys import NO_LINK, Link, LinkedKeys
from ebbtide.operators.sequence_events import Events, sorted_by
from ebbtide.operators.sequence_stamps import Stamps
from ebbtide.operators.ties import Mask, digests


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
        return Rows(
            winner=self.winner[marked],
            source={name: events[marked] for name, events in self.source.items()},
            known_at={name: ranks[marked] for name, ranks in self.known_at.items()},
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
        self.stamps = Stamps(events)
        self.metrics: Counter[str] = events.metrics

    def run(self) -> Reconciled:
        """Decide each key's row and build its entry.

        The last event of a key in the order wins. Only columns that some event left out are composed of several events, and only
        keys whose row or memory differs from what is stored get an entry.
        """
        order = self.events.order
        winner = order[last_of_group(self.events.code[order])]
        rows = self._composed(winner)
        links = self.linked.links(winner, rows.known_at)
        is_change = winner >= self.events.n_state
        shows = is_change | rows.is_filled
        is_written = shows | self._is_noted(winner, links)
        written_links = [links.get(i, NO_LINK) for i in np.flatnonzero(is_written).tolist()]
        filled = shows & ~is_change
        self.metrics["filled"] += int(filled.sum())
        self.metrics["pending_key_changes"] += sum(bool(link.moved_from) for link in links.values())
        return self._entries(rows.only(is_written), shows[is_written], written_links)

    def _composed(self, winner: Codes) -> Rows:
        """Find for each key and partly known column the event that its value comes from."""
        events = self.events
        sources: dict[str, Codes] = {}
        known_at: dict[str, Codes] = {}
        changed_by = winner.copy()
        is_filled = np.zeros(len(winner), dtype=bool)
        is_row = ~events.is_delete[winner]
        is_stored = winner < events.n_state
        for name in events.partly_known:
            since = self._stored_knowledge.get(name, events.sequence)
            source, rank = self._newest_value(winner, name, since)
            # Keys that a change of the key concerns are played as a log instead: values may come from other keys.
            for i, linked_source, linked_rank in self.linked.values(winner, name):
                source[i] = linked_source
                rank[i] = linked_rank
            # Of a row that is stored it is news if the value is newer than the entry knew; of a change all is its own.
            rank_before = np.where(is_stored, since[winner], rank)
            is_news = is_row & (rank != rank_before)
            is_filled |= is_news
            # A value of this step's: not an entry's, nor that of a row kept behind the events.
            is_from_change = (source >= events.n_state) & (source < len(events.code))
            is_later = is_news & is_from_change & (source > changed_by)
            changed_by = np.where(is_later, source, changed_by)
            sources[name] = source
            known_at[name] = rank
        return Rows(winner, sources, known_at, changed_by, is_filled)

    def _newest_value(self, winner: Codes, name: str, since: Codes) -> tuple[Codes, Codes]:
        """Find each key's newest value of a column since the key's last delete.

        Args:
            winner: (n,) the event that shows each key's row.
            name: The column.
            since: (events,) the rank since when each event's value is known.

        Returns:
            (n,) the event that carries it, and the value's rank; or `UNKNOWN` twice.
        """
        events = self.events
        # 1. Events that carry the value, from after the key's last delete: a delete forgets all that was known.
        carries = ~events.is_delete & (since != UNKNOWN)
        if name in events.unsent:
            carries &= ~events.unsent[name]
        candidates = events.order[carries[events.order]]
        base = events.base[events.code[candidates]]
        # In a log a delete stands before an upsert at its sequence, else behind it.
        is_after_delete = since[candidates] >= base if events.in_log else since[candidates] > base
        candidates = candidates[is_after_delete]
        # 2. Per key the one whose value is newest: by the sequence since when it is known, not by that of the event.
        by = (events.arrival, events.digest, events.rank, since, events.code)
        candidates = candidates[sorted_by(candidates, *by)]
        newest = candidates[last_of_group(events.code[candidates])]
        newest_of = np.full(events.n_codes, UNKNOWN)
        newest_of[events.code[newest]] = newest
        # 3. From keys to winners.
        source = newest_of[events.code[winner]]
        rank = np.where(source >= 0, since[source], UNKNOWN)
        return source, rank

    @cached_property
    def _stored_knowledge(self) -> dict[str, Codes]:
        """Map column to the (events,) rank since when each value is known: its own, unless the entry says another."""
        known_since: dict[str, Codes] = {}
        for entry, rank_of in self.events.known_since.items():
            for name, rank in rank_of.items():
                if name not in known_since:
                    known_since[name] = self.events.sequence.copy()
                known_since[name][entry] = rank
        return known_since

    def _entries(self, rows: Rows, shows: Mask, links: list[Link]) -> Reconciled:
        """Build the entries.

        Args:
            rows: (n,) those of the keys to write.
            shows: (n,) whether the sink must take the row.
            links: (n,) what their keys are linked to.
        """
        events = self.events
        winner = rows.winner
        key = events.code[winner]
        is_delete = events.is_delete[winner]
        change = self._sink_changes(winner, shows)
        stamp = self.stamps.of(winner)
        # An entry may have expired as it is written, by an event time long past: the sink takes it, the state does not.
        may_expire = is_delete | events.op.expires_live
        is_late = may_expire & has_expired(stamp, events.op.ttl, events.step)
        known_columns, n_waiting = self._known_columns(rows)
        columns: dict[str, object] = self._user_columns(rows)
        columns |= {
            "_step": np.full(len(winner), events.step.number),
            "_change": pa.array(change, mask=change == ""),
            "_removed": is_late,
            "_stamp_ms": stamp,
            "_changed_by": self._orders.take(rows.changed_by),
            "_sequence": self._stored_sequences(winner),
            "_columns": known_columns,
            "_base": events.sequences_of(events.base[key]),
            "_since": events.sequences_of(events.since[key]),
            "_moved_from": self.linked.moved_from(links),
            "_kept": self.linked.kept(links),
            "_retracted": self._retracted(winner),
            "_conflict": self._conflicts[winner],
            "_tombstone": is_delete,
        }
        self.metrics.update(
            inserted=int((change == INSERT).sum()),
            updated=int((change == UPDATE).sum()),
            deleted=int((change == DELETE).sum()),
            late=int(is_late.sum()),
            waiting=n_waiting,
        )
        entries = entry_table(events.op.schema, columns, len(winner))
        return Reconciled(entries, self.metrics)

    def _sink_changes(self, winner: Codes, shows: Mask) -> NDArray[np.str_]:
        """Return what the sink must do for each key; empty: nothing."""
        events = self.events
        entry = events.entry_of[events.code[winner]]
        is_in_sink = (entry >= 0) & ~events.is_delete[entry]
        if_deleted = np.where(is_in_sink, DELETE, "")
        if_row = np.where(is_in_sink, UPDATE, INSERT)
        change = np.where(events.is_delete[winner], if_deleted, if_row)
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
            indices = pa.array(np.maximum(source, 0), mask=is_null)
            columns[name] = events.values(name).take(indices)
        return columns

    @cached_property
    def _orders(self) -> pa.ChunkedArray:
        """The order of the change that caused each event: an entry's was stored."""
        stored = self.events.state["_changed_by"]
        own = self.events.changes["_order"]
        return pa.chunked_array([*stored.chunks, *own.chunks], stored.type)

    def _is_noted(self, winner: Codes, links: dict[int, Link]) -> Mask:
        """Mark stored rows about which something must be remembered that the sink does not show."""
        events = self.events
        state = events.state
        n = events.n_state
        # A late delete below the row, if a column may yet be filled.
        base = events.base[events.code[:n]]
        has_new_base = is_set(state, "_columns") & (base > events.stored_base)
        has_new_conflict = events.conflicting[:n] & ~flags(state, "_conflict")
        # Marked by event, since a key's entry is noted only where it still is its key's winner.
        is_noted = np.zeros(len(events.code), dtype=bool)
        is_noted[:n] = has_new_base | has_new_conflict | self.stamps.renewed_by_event_time()
        for event, taken_back in events.taken_back.items():
            if event < n and taken_back != events.stored_retracted.get(event):
                is_noted[event] = True
        for i, link in links.items():
            event = int(winner[i])
            if event < n and self.linked.is_news(event, link):
                is_noted[event] = True
        return is_noted[winner]

    def _stored_sequences(self, winner: Codes) -> pa.Array:
        """Return `_sequence`: the row's, and the rank of its operation."""
        events = self.events
        sequences = events.sequences_of(events.sequence[winner])
        parts = [pc.struct_field(sequences, name) for name in events.op.sequence]
        operations = events.rank[winner].astype(np.int32)
        type_ = events.op.schema.field("_sequence").type
        return pa.StructArray.from_arrays([*parts, pa.array(operations)], fields=list(type_))

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
            lists.append(taken_back.get(event))
            if event not in taken_back and events.is_retraction[event]:
                alone.append(i)
        contents = events.rows.take(pa.array(winner[alone]))
        for i, digest in zip(alone, digests(contents).tolist(), strict=True):
            lists[i] = [digest]
        return pa.array(lists, type_)

    @cached_property
    def _conflicts(self) -> Mask:
        """Mark the events at whose sequence another content stands or stood."""
        stored = flags(self.events.state, "_conflict")
        is_stored_conflict = np.zeros(len(self.events.code), dtype=bool)
        is_stored_conflict[: self.events.n_state] = stored
        return np.asarray(self.events.conflicting | is_stored_conflict)

    def _known_columns(self, rows: Rows) -> tuple[pa.Array, int]:
        """Build `_columns`, and count the rows that still wait for a value."""
        events = self.events
        # Only exceptions are stored: a value that is as new as its row needs no word.
        own_rank = events.sequence[rows.winner]
        is_row = ~events.is_delete[rows.winner]
        items: list[list[tuple[str, dict[str, Any] | None]] | None] = [None] * len(own_rank)
        waits = np.zeros(len(own_rank), dtype=bool)
        for name, ranks in rows.known_at.items():
            is_older = is_row & (ranks != own_rank)
            waits |= is_older & (ranks == UNKNOWN)
            for i in np.flatnonzero(is_older).tolist():
                known_at = events.sequence_of(int(ranks[i]))
                items[i] = [*(items[i] or []), (name, known_at)]
        type_ = events.op.schema.field("_columns").type
        return pa.array(items, type_), int(waits.sum())
