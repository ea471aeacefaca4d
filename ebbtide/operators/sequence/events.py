"""The events that a step of sequence mode decides on: the usable entries, then the changes, in one order.

Sequences are compared as ranks (`ebbtide.operators.sequence.ranks`) and keys as dense codes, so that all that follows works on
integers.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.changelog import RowKind, may_be_unsent
from ebbtide.model.codes import Codes, row_codes
from ebbtide.model.entries import SINK_STEP, Step, equals, flags, ints, is_set, newest, order_struct
from ebbtide.model.sequences import OP_DELETE, OP_FINAL_DELETE, OP_SNAPSHOT, OP_UPSERT, UNKNOWN, is_log_position
from ebbtide.operators.sequence.key_changes import STORED
from ebbtide.operators.sequence.links import waits
from ebbtide.operators.sequence.ranks import rank_step
from ebbtide.operators.sequence.ties import Contents, Mask, Ties, as_changes, compare

if TYPE_CHECKING:
    from ebbtide.operators.sequence.operator import SequenceOperator


class Events:
    """The events of one call of `SequenceOperator.apply`.

    Args:
        operator: What decides.
        changes: Changes of some keys.
        state: Every stored version of those keys' entries.
        step: The step.

    Attributes:
        order: The events that count, by (key, sequence, operation, digest), in whatever order they arrived.
        code: (n,) the key of each event.
        sequence: (n,) the rank of its sequence.
        rank: (n,) the rank of its operation.
        digest: (n,) what orders different contents at one sequence.
        arrival: (n,) its place in the step; `STORED` for entries.
        rows: (n,) the user's columns.
        unsent: Column to (n,) events that did not carry its value.
        known_since: Entry to column to the rank since when its value is known, where that is not the entry's own.
        entry_of: (keys,) the entry of each key.
    """

    def __init__(
        self,
        operator: SequenceOperator,
        changes: pa.Table,
        state: pa.Table,
        step: Step,
    ) -> None:
        self.op = operator
        self.step = step
        self.metrics: Counter[str] = Counter(changes=len(changes))
        self.in_log = is_log_position(operator.sequence)
        orders = order_struct(changes)
        by_arrival = np.lexsort(orders.T[::-1])
        usable = self._usable(state)
        tied = as_changes(usable, changes.schema)
        self.changes = pa.concat_tables([tied, changes.take(by_arrival)])
        self._rank(usable)
        self.n_stored = self.n_state + len(tied)
        self._number_keys()
        self._place_events()
        self._read_operations()
        self._read_rows()
        self._order()

    def _usable(self, state: pa.Table) -> pa.Table:
        """Pick each key's entry: the newest, unless removed or expired; else the sink's row."""
        # The state keeps versions: each step appends, none is overwritten. Of a key the greatest step counts.
        codes = self._codes_of_keys(state)
        steps = ints(state, "_step")
        is_sink_row = steps == SINK_STEP
        stored = np.flatnonzero(~is_sink_row)
        latest = newest(codes[stored], steps[stored])
        newest_stored = stored[latest]
        entries = state.take(newest_stored)
        is_removed = flags(entries, "_removed")
        is_expired = self.op.has_expired(entries, self.step)
        is_readable = ~is_removed & ~is_expired
        readable = newest_stored[is_readable]
        # A row of the sink is used only where the state has no entry of its key.
        sink_rows = np.flatnonzero(is_sink_row)
        has_entry = np.isin(codes[sink_rows], codes[readable])
        sink_rows = sink_rows[~has_entry]
        usable = np.concatenate([readable, sink_rows])
        return self._without_ended_waiting(state.take(usable))

    def _without_ended_waiting(self, entries: pa.Table) -> pa.Table:
        """Make entries forget what they have waited for too long."""
        ended = self.op.stops_waiting(entries, self.step)
        if not ended.any():
            return entries
        self.metrics["waiting_expired"] += int((ended & waits(entries)).sum())
        rows = np.arange(len(entries))
        unless_ended = pa.array(rows, mask=ended)
        for name in ("_moved_from", "_kept", "_kept_before"):
            index = entries.schema.get_field_index(name)
            field = entries.schema.field(index)
            column = entries[name].take(unless_ended)
            entries = entries.set_column(index, field, column)
        return entries

    def _rank(self, state: pa.Table) -> None:
        """Rank every sequence that this step meets; forget the entries below the floor."""
        ranks = rank_step(
            state,
            self.changes,
            self.op.sequence_type,
            self.step.floor,
        )
        self.state = state.take(pa.array(ranks.usable))
        self.n_state = len(ranks.usable)
        self.floor = ranks.floor
        self.sequences = ranks.sequences
        self.sequence = np.concatenate([ranks.entries, ranks.changes])
        self.stored_base = ranks.base
        self.stored_since = ranks.since
        self.known_since = ranks.known_since
        self.links = ranks.links
        self._settle_values()

    def _settle_values(self) -> None:
        """Take values that were found under an old key to which no row is linked any more for their rows' own."""
        is_linked = is_set(self.state, "_moved_from")
        for entry, rank_of in self.known_since.items():
            if is_linked[entry]:
                continue
            for name, rank in rank_of.items():
                is_of_old_key = rank < self.stored_since[entry]
                is_found = rank == UNKNOWN and self.state[name][entry].is_valid
                if is_found or (is_of_old_key and rank != UNKNOWN):
                    rank_of[name] = int(self.sequence[entry])

    def _number_keys(self) -> None:
        """Number the keys of all events, and the old keys of the changes of keys among them."""
        key = self.op.key
        # Old keys are numbered along, though no event may stand under them: links lead to them.
        old_keys = {name: pc.struct_field(self.links.old_keys, name) for name in key}
        tables = [
            self.state.select(key),
            self.changes.select(key),
            pa.table(old_keys),
        ]
        all_keys = pa.concat_tables(tables)
        codes = self._codes_of_keys(all_keys)
        n_events = self.n_state + len(self.changes)
        old_codes = codes[n_events:]
        old_codes[self.links.old_keys.is_null().to_numpy(zero_copy_only=False)] = UNKNOWN
        self.code = codes[:n_events]
        self.old_code: list[int] = old_codes.tolist()
        self.n_codes = int(codes.max(initial=-1)) + 1

    def _codes_of_keys(self, rows: pa.Table) -> Codes:
        if not len(rows):
            return np.empty(0, np.int64)
        return row_codes(rows, self.op.key)

    def _place_events(self) -> None:
        """Note which event is each key's entry, each event's place in the step, and which changes are below the floor."""
        n = self.n_state
        entry_keys = self.code[:n]
        self.entry_of = np.full(self.n_codes, UNKNOWN)
        self.entry_of[entry_keys] = np.arange(n)
        self.arrival = np.arange(len(self.code)) - n
        self.arrival[:n] = STORED
        # Entries below the floor are left out already; of the changes they are marked, to be counted.
        self.dead = self.sequence < self.floor
        self.dead[:n] = False

    def _read_operations(self) -> None:
        """Rank the operation of each event; separate deletes from retractions, which take a row back by its content."""
        changes = self.changes
        delete_kinds = pa.array([RowKind.UPDATE_BEFORE, RowKind.DELETE])
        has_delete_kind = pc.is_in(changes["_kind"], delete_kinds)
        deletes = has_delete_kind.to_numpy()
        # A -U of a log is the old key of a changed one; a changelog's own takes its row back.
        is_update_before = equals(changes, "_op", RowKind.UPDATE_BEFORE)
        is_complete = ~is_set(changes, "_unavailable")
        is_changelog = not self.in_log
        retracts = deletes & is_update_before & is_complete & is_changelog
        is_read = equals(changes, "_op", "r")
        is_snapshot = is_read & self.in_log
        upsert_ranks = np.where(is_snapshot, OP_SNAPSHOT, OP_UPSERT)
        # A retraction ranks as the upsert that it takes back: they tie, and their contents are compared.
        delete_ranks = np.where(retracts, OP_UPSERT, self.delete_rank)
        ranks = np.where(deletes, delete_ranks, upsert_ranks)
        stored_deletes = flags(self.state, "_tombstone")
        stored_ranks = ints(self.state, "_sequence.op")
        self.is_delete = np.concatenate([stored_deletes, deletes])
        self.rank = np.concatenate([stored_ranks, ranks])
        ranks_as_upsert = self.rank == OP_UPSERT
        self.is_retraction = self.is_delete & ranks_as_upsert

    @property
    def delete_rank(self) -> int:
        """The rank of a delete's operation."""
        return OP_DELETE if self.in_log else OP_FINAL_DELETE

    def _read_rows(self) -> None:
        """Read the events' rows, which values they lack, and which contents were taken back at the entries' sequences."""
        names = self.op.columns.names
        tables = [
            self.state.select(names),
            self.changes.select(names),
        ]
        rows = pa.concat_tables(tables)
        self.rows = rows.combine_chunks()
        self.unsent = _unsent(self.changes, self.n_state)
        self.stored_retracted: dict[int, list[int]] = {}
        digests_of_entries = self.state["_retracted"].to_pylist()
        for entry, digests in enumerate(digests_of_entries):
            if digests:
                self.stored_retracted[entry] = digests

    def _order(self) -> None:
        """Bring the events of each key into one order, whatever the order of their arrival; leave out what came again.

        The events are sorted once by all that is cheap to compare. Only where two of them tie are contents compared, and all
        sorted again with what came of that. Invariant: no sort column depends on the order of arrival. Sorts keep it, so that it
        decides between events only that are the same.
        """
        alive = np.flatnonzero(~self.dead)
        group = (self.rank, self.sequence, self.code)
        order = alive[sorted_by(alive, *group)]
        is_tied = same_as_before(order, *group)
        ties = self._ties(order, is_tied)
        self.digest = ties.digest
        self.taken_back = ties.taken_back
        self.left = ties.left
        self.conflicting = np.zeros(len(self.code), dtype=bool)
        self.conflicting[ties.conflicting] = True
        is_repeat = is_tied
        if is_tied.any():
            unsent_sets = self._unsent_sets()
            content = (unsent_sets, ties.digest, ties.weight)
            order = alive[sorted_by(alive, *content, *group)]
            is_repeat = same_as_before(order, *content, *group)
        self.order = order[~is_repeat]
        self.metrics.update(
            below_floor=int(self.dead.sum()),
            duplicates=int(is_repeat.sum()),
            conflicts=ties.n_conflicts,
            superseded=self._n_superseded(order),
        )

    def _n_superseded(self, order: Codes) -> int:
        """Count the events that count and stand before their key's entry."""
        place = np.zeros(len(self.code), np.int64)
        place[order] = np.arange(len(order))
        events = self.order
        keys = self.code[events]
        entry = self.entry_of[keys]
        has_entry = entry >= 0
        is_new = events >= self.n_stored
        is_before = place[events] < place[entry]
        is_superseded = has_entry & is_new & is_before
        return int(is_superseded.sum())

    def _ties(self, order: Codes, is_tied: Mask) -> Ties:
        """Compare the upserts, and retractions, that share key, sequence and operation."""
        group = np.cumsum(~is_tied, dtype=np.int64)
        # An event is marked as tied with the one before it: the first of a group is not marked, but the next one is.
        shares = is_tied.copy()
        shares[:-1] |= is_tied[1:]
        # Deletes have a key and nothing else to differ in.
        ranks = self.rank[order]
        is_bare = (ranks == OP_DELETE) | (ranks == OP_FINAL_DELETE)
        compared = shares & ~is_bare
        is_stored = self.arrival == STORED
        contents = Contents(
            rows=self.rows,
            unsent=self._not_carried,
            is_retraction=self.is_retraction,
            retracted=self.stored_retracted,
            is_forgotten=self.is_retraction & is_stored,
            is_stored=np.arange(len(self.code)) < self.n_stored,
        )
        return compare(
            events=order[compared],
            groups=group[compared],
            contents=contents,
        )

    @cached_property
    def _not_carried(self) -> dict[str, Mask]:
        """Map column to (n,) events, entries too, that did not carry its value at their own sequence."""
        not_carried = {name: mask.copy() for name, mask in self.unsent.items()}
        for entry, since in self.known_since.items():
            own_rank = self.sequence[entry]
            for name, rank in since.items():
                if rank == own_rank:
                    continue
                if name not in not_carried:
                    not_carried[name] = self._none_of_events()
                not_carried[name][entry] = True
        return not_carried

    def _none_of_events(self) -> Mask:
        return np.zeros(len(self.code), dtype=bool)

    def _unsent_sets(self) -> Codes:
        """Number the sets of columns that events did not carry: of two that carry different values neither is the other again."""
        numbers = np.zeros(len(self.code), np.int64)
        for mask in self._not_carried.values():
            # One bit more, made dense at once: it cannot overflow, however many columns there are.
            with_one_more = numbers * 2 + mask
            _, numbers = np.unique(with_one_more, return_inverse=True)
        return numbers

    @cached_property
    def base(self) -> Codes:
        """Give each key the rank of its newest delete, at least the floor."""
        is_removal = self.is_delete & ~self.is_retraction
        return self._greatest_rank(
            stored=self.stored_base,
            marked=is_removal,
            at_least=self.floor,
        )

    @cached_property
    def since(self) -> Codes:
        """Give each key the rank of the sequence since when its row has it, `UNKNOWN` if that is not known."""
        return self._greatest_rank(
            stored=self.stored_since,
            marked=self.starts_row,
            at_least=UNKNOWN,
        )

    def _greatest_rank(
        self,
        stored: Codes,
        marked: Mask,
        at_least: int,
    ) -> Codes:
        """Give each key the greatest rank among what its entry stores and its marked events that count.

        Args:
            stored: (entries,) ranks.
            marked: (n,) events.
            at_least: The rank of a key that has neither.
        """
        is_marked = marked[self.order]
        events = self.order[is_marked]
        entry_keys = self.code[: self.n_state]
        event_keys = self.code[events]
        ranks = self.sequence[events]
        greatest = np.full(self.n_codes, at_least)
        np.maximum.at(greatest, entry_keys, stored)
        np.maximum.at(greatest, event_keys, ranks)
        return greatest

    @cached_property
    def starts_row(self) -> Mask:
        """Mark creates, and updates that gave a row its key."""
        is_create = equals(self.changes, "_op", "c")
        is_delete = self.is_delete[self.n_state :]
        is_key_change = is_set(self.changes, "_moved_from") & ~is_delete
        entry_starts = np.zeros(self.n_state, bool)
        change_starts = is_create | is_key_change
        return np.concatenate([entry_starts, change_starts])

    @cached_property
    def partly_known(self) -> list[str]:
        """Columns whose value some event does not carry, or some entry knows from before its own sequence."""
        names = set(self.unsent)
        for since in self.known_since.values():
            names.update(since)
        return sorted(names)

    @cached_property
    def may_be_unsent(self) -> list[str]:
        """Columns that a source may leave out of an update."""
        names = set(self.partly_known)
        for field in self.op.columns:
            is_of_key = field.name in self.op.key
            if not is_of_key and may_be_unsent(field.type):
                names.add(field.name)
        return sorted(names)

    @cached_property
    def snapshot_ranks(self) -> int:
        """Ranks below this one are those of snapshot rows without a position in the log."""
        if self.op.sequence[0] != "_lsn":
            return 0
        positions = pc.struct_field(self.sequences, "_lsn")
        is_before_log = positions.to_numpy(zero_copy_only=False) < 0
        return int(is_before_log.sum())

    def values(self, name: str) -> pa.ChunkedArray:
        """Return a column of all events, and of the rows kept behind them."""
        kept = self.links.kept
        if not len(kept):
            return self.rows[name]
        kept_rows = pc.struct_field(kept, "row")
        kept_values = pc.struct_field(kept_rows, name)
        chunks = self.rows[name].chunks
        return pa.chunked_array([*chunks, kept_values])

    def sequence_of(self, rank: int) -> dict[str, Any] | None:
        """Return the sequence of a rank; None for `UNKNOWN`."""
        if rank == UNKNOWN:
            return None
        return dict(self.sequences[rank].as_py())

    def sequences_of(self, ranks: Codes) -> pa.Array:
        """Return the sequences of ranks; null for `UNKNOWN`."""
        indices = pa.array(ranks, mask=ranks == UNKNOWN)
        return self.sequences.take(indices)


def sorted_by(events: Codes, *by: Any) -> Codes:
    """Return the indices that sort events by columns, the last of them first; those that are equal in all keep their order."""
    columns = tuple(column[events] for column in by)
    return np.lexsort(columns)


def same_as_before(order: Codes, *columns: Any) -> Mask:
    """Mark the events of a sorted row that are equal to the one before in some columns."""
    same = np.zeros(len(order), dtype=bool)
    same[1:] = True
    for column in columns:
        values = column[order]
        is_equal = values[1:] == values[:-1]
        same[1:] &= is_equal
    return same


def _unsent(changes: pa.Table, n_state: int) -> dict[str, Mask]:
    """Map column to (n,) events that did not carry its value."""
    unsent: dict[str, Mask] = {}
    n_events = n_state + len(changes)
    unavailable = changes["_unavailable"]
    is_partial = is_set(changes, "_unavailable")
    partial_rows = np.flatnonzero(is_partial)
    for row in partial_rows.tolist():
        event = n_state + row
        names = unavailable[row].as_py()
        for name in names:
            if name not in unsent:
                unsent[name] = np.zeros(n_events, dtype=bool)
            unsent[name][event] = True
    return unsent
