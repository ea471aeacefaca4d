"""Decides a step: in a worker, or in the driver for a small step, an operator runs over some slices of the step's keys.

Changes come from staged files, entries from local copies of the state's files, looked up by key. The result is written as files of
the state table, which the driver then commits. No row passes through the JVM.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa

from ebbtide.changelog import OffsetRanges
from ebbtide.columns import entry_table, equals, key_hashes, only
from ebbtide.delta import Action, KeyBounds, KeyIndex
from ebbtide.entries import SINK_STEP, Reconciled, Step, count_lone
from ebbtide.formats import StagedKind
from ebbtide.operators import Operator, StatefulOperator
from ebbtide.runtime._workers.staging import Share
from ebbtide.storage import ArrowFile, Location
from ebbtide.tables import FoundRows, StateWriter, Stored


@dataclass(frozen=True)
class Found:
    """The rows under some keys.

    Args:
        state: Entries.
        sink: Rows of the sink that replace entries that have expired.
    """

    state: list[FoundRows]
    sink: list[FoundRows]


@dataclass(frozen=True)
class Decider:
    """Decides changes and expiry of some keys of a step, and writes the result as files of the state table.

    Args:
        operator: Returns the operator, with the user's code that it needs.
        writer: Writes files of the state table.
        step: The step.
        state: The stored entries.
        sink: The sink's rows, if they replace entries that have expired; else None.
        group_bytes: Approximate bytes that are decided together, in whole keys; None: all.
        drafts: Folder of entries whose rows a transform still has to select; None: entries go to the state table.
        notes: Notes that the first file takes along: a commit syncs each file. Default: none.
    """

    operator: Callable[[], Operator]
    writer: StateWriter
    step: Step
    state: Stored
    sink: Stored | None = None
    group_bytes: int | None = None
    drafts: str | None = None
    notes: pa.Table | None = None

    def decide(
        self,
        changes: pa.Table,
        read_before: OffsetRanges | None,
        linked: pa.Table | None = None,
    ) -> Decided:
        """Decide all changes of some keys.

        Args:
            changes: The changes, and tombstones whose delete was not seen.
            read_before: Offsets whose records are repeats; None: the operator detects repeats itself.
            linked: Keys that are decided together, those of all changes among them; None: each key is independent.
        """
        operator = self.operator()
        n_redelivered = 0
        if read_before is not None:
            # A redelivered record was decided by an earlier step. Tombstones in doubt are filtered too, but not counted.
            is_repeat = read_before.repeats(changes)
            is_change = ~equals(changes, "_kind", StagedKind.IN_DOUBT)
            n_redelivered = int((is_repeat & is_change).sum())
            changes = only(changes, pa.array(~is_repeat))
        decided = Decided(metrics={"redelivered": n_redelivered})
        if linked is None:
            groups = self._groups(changes, operator)
        else:
            found = self._find(linked, operator)
            entries = self._entries(found, operator)
            # One group: a linked key may need a value from any of them.
            all_in_one = (changes, entries)
            groups = iter([all_in_one])
        notes = self.notes
        for group, entries in groups:
            own_changes, tombstones = doubts_apart(group)
            result = operator.apply(own_changes, entries, self.step)
            lone = count_lone(
                tombstones,
                entries,
                result.entries,
                key=operator.key,
                entry_key=operator.entry_key,
            )
            written = self._write(result, operator, notes)
            notes = None
            counted = Decided(metrics=lone)
            decided = decided.plus(written).plus(counted)
        if notes is not None:
            decided = decided.plus(Decided(self.writer.write(notes.slice(0, 0), operator.key, notes=notes)))
        return decided

    def expire(self, keys: pa.Table) -> Decided:
        """Decide entries that have expired and timers that are due.

        Args:
            keys: The keys to examine, once each.
        """
        return self._of_keys(keys, lambda operator, entries: operator.expire(entries, self.step))

    def transform(self, keys: pa.Table, since: int) -> Decided:
        """Hand entries of a function to their snapshot transformers.

        Args:
            keys: Their keys, once each.
            since: See `StatefulOperator.untransformed`.
        """
        return self._of_keys(
            keys, lambda operator, entries: cast("StatefulOperator", operator).transform(entries, self.step, since)
        )

    def _of_keys(self, keys: pa.Table, decide: Callable[[Operator, pa.Table], Reconciled]) -> Decided:
        """Decide the entries of some keys, each once, and write the results."""
        operator = self.operator()
        decided = Decided()
        for _, entries in self._groups(keys, operator):
            written = self._write(decide(operator, entries), operator)
            decided = decided.plus(written)
        return decided

    def _groups(self, rows: pa.Table, operator: Operator) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield rows in groups of whole keys, each with the entries of its keys.

        Groups bound memory: an operator needs many times the bytes of its input.
        """
        if not len(rows):
            return
        found = self._find(rows, operator)
        n_groups = self._n_groups(rows, found)
        if n_groups <= 1:
            entries = self._entries(found, operator)
            yield rows, entries
            return
        # By hash: all rows of a key fall into one group, and no key is ever compared. Entries are looked up again for each
        # group, from mapped memory: those found so far would otherwise be held all at once.
        hashes = key_hashes(rows, operator.key)
        number_of = hashes % np.uint64(n_groups)
        for number in range(n_groups):
            is_in_group = number_of == number
            group = rows.filter(pa.array(is_in_group))
            if len(group):
                found = self._find(group, operator)
                entries = self._entries(found, operator)
                yield group, entries

    def _n_groups(self, rows: pa.Table, found: Found) -> int:
        """Return the number of groups for some rows and the entries under their keys."""
        if self.group_bytes is None:
            return 1
        n_bytes = int(rows.nbytes)
        for each in found.state:
            n_bytes += each.n_bytes
        return -(-n_bytes // self.group_bytes)  # rounded up

    def _find(self, rows: pa.Table, operator: Operator) -> Found:
        """Find the entries under the keys of some rows, and the sink's rows."""
        keys, hashes = KeyIndex.distinct_keys(rows, operator.key)
        in_state = self.state.find(keys, hashes)
        if self.sink is None:
            return Found(in_state, [])
        in_sink = self.sink.find(keys, hashes, KeyBounds(keys))
        return Found(in_state, in_sink)

    def _entries(self, found: Found, operator: Operator) -> pa.Table:
        """Read the found rows as entries."""
        schema = operator.schema
        tables = [schema.empty_table()]
        for each in found.state:
            entries = each.read().cast(schema)
            tables.append(entries)
        for each in found.sink:
            entries = _as_entries(each.read(), schema)
            tables.append(entries)
        return pa.concat_tables(tables)

    def _write(self, result: Reconciled, operator: Operator, notes: pa.Table | None = None) -> Decided:
        """Write a result, and notes, as a file of the state table; or a result alone as a draft of one."""
        metrics = dict(result.metrics)
        if self.drafts is not None:
            drafts = draft(self.drafts, result.entries)
            return Decided(metrics=metrics, drafts=drafts)
        tables = []
        if result.emitted is not None:
            metrics["emitted"] = len(result.emitted)
            emitted = self.writer.emitted_rows(result.emitted, self.step.number)
            tables.append(emitted)
        # In the order of hashes: a range of hashes is then a range of the file, even without a local copy.
        in_order, _, _ = KeyIndex.in_hash_order(result.entries, operator.key)
        tables.append(self.writer.entry_rows(in_order))
        adds = self.writer.write(pa.concat_tables(tables), operator.key, notes=notes)
        n_entries = len(result.entries)
        return Decided(adds, metrics, n_entries)


@dataclass(frozen=True)
class Decided:
    """The result of a worker: plain values, and log actions, which are JSON.

    Args:
        adds: The actions that add its files to the state.
        metrics: Counts by name.
        n_entries: Entries in the files.
        drafts: Files of entries whose rows are still to be selected.
    """

    adds: Sequence[Action] = ()
    metrics: Mapping[str, int] = field(default_factory=dict)
    n_entries: int = 0
    drafts: Sequence[str] = ()

    @classmethod
    def total(cls, parts: Iterable[Decided]) -> Decided:
        """Return all parts together."""
        total = cls()
        for part in parts:
            total = total.plus(part)
        return total

    def plus(self, other: Decided) -> Decided:
        """Return both together."""
        metrics = Counter(self.metrics)
        metrics.update(other.metrics)
        return Decided(
            adds=[*self.adds, *other.adds],
            metrics=metrics,
            n_entries=self.n_entries + other.n_entries,
            drafts=[*self.drafts, *other.drafts],
        )


@dataclass(frozen=True)
class DecideShare:
    """Decides a share of a step's changes; runs in workers.

    Args:
        work: Decides.
        columns: Columns of a change.
        key: Names of the key's columns.
        read_before: Offsets that earlier steps read; None if the operator detects redelivered records itself.
    """

    work: Decider
    columns: pa.Schema
    key: tuple[str, ...]
    read_before: OffsetRanges | None

    def __call__(self, share: Share) -> Decided:
        """Decide a share."""
        changes = share.changes(self.columns, self.key)
        linked = share.linked if share.has_linked else None
        return self.work.decide(
            changes,
            self.read_before,
            linked,
        )


def doubts_apart(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split rows into changes and tombstones whose delete was not seen."""
    is_in_doubt = equals(rows, "_kind", StagedKind.IN_DOUBT)
    changes = only(rows, pa.array(~is_in_doubt))
    doubts = rows.filter(pa.array(is_in_doubt))
    return changes, doubts


def draft(folder: str, entries: pa.Table) -> list[str]:
    """Write entries as a draft; return its location, nothing without entries."""
    if not len(entries):
        return []
    unique = uuid.uuid4().hex
    location = Location(folder) / f"{unique}.draft.arrow"
    with ArrowFile(location).writing(entries.schema) as file:
        file.write_table(entries)
    return [location]


def read_draft(location: str) -> pa.Table:
    """Read a draft."""
    with ArrowFile(location).reading() as file:
        return file.read_all()


def _as_entries(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the sink's rows as entries, for keys whose entries have expired."""
    # Older than any entry, by their step and their stamp: if the state still has one, it wins.
    n_rows = len(rows)
    columns: dict[str, object] = dict(zip(rows.column_names, rows.columns, strict=True))
    columns["_step"] = [SINK_STEP] * n_rows
    columns["_stamp_ms"] = [0] * n_rows
    return entry_table(schema, columns, n_rows)
