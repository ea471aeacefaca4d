"""Ties: changes of one key at one sequence. Finds repeated changes, and the winner among different ones.

Two changes with the same operation and content are one change, delivered twice. A retraction (-U of a changelog sequenced by
a column of the user's) takes back the row with its own content. If several contents remain, the sequence does not determine the
row: the greatest digest wins, independently of arrival, and the conflict is reported. Values that were not sent are not
compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import RowKind, SequenceColumns
from ebbtide.columns import Codes, Mask, entry_table, equality_key, row_codes


@dataclass(frozen=True)
class Contents:
    """The contents of events, for comparison.

    Args:
        rows: (n,) the user's columns.
        unsent: Column to (n,) events that did not carry its value.
        is_retraction: (n,) events that take their content back.
        retracted: Entry to the digests of contents that were retracted at its sequence.
        is_forgotten: (n,) entries that store only a digest of their content, the last one in `retracted`.
        is_stored: (n,) events that were stored before this step.
    """

    rows: pa.Table
    unsent: Mapping[str, Mask]
    is_retraction: Mask
    retracted: Mapping[int, list[int]]
    is_forgotten: Mask
    is_stored: Mask

    def of(
        self,
        events: Codes,
        groups: Codes,
    ) -> pa.Table:
        """Return the rows of some events, without values that any event of their group did not send.

        Args:
            events: (m,) indices, at least one.
            groups: (m,) dense numbers of their groups.
        """
        columns: dict[str, pa.ChunkedArray] = {}
        n_groups = int(groups.max()) + 1
        for name in self.rows.column_names:
            # A value that one event of a group did not send is hidden for the whole group: it cannot make contents differ.
            is_hidden = np.zeros(n_groups, dtype=bool)
            if name in self.unsent:
                is_unsent = self.unsent[name][events]
                groups_without_it = groups[is_unsent]
                is_hidden[groups_without_it] = True
            indices = pa.array(events, mask=is_hidden[groups])
            values = self.rows[name]
            columns[name] = values.take(indices)
        return pa.table(columns)


RETRACTED, RETRACTION, LIVE = 0, 1, 2
"""Weights of the events at one sequence: a retracted content, a retraction, a remaining content. The greatest wins."""


@dataclass(frozen=True)
class Ties:
    """The comparison of tied events.

    Args:
        weight: (n,) `RETRACTED`, `RETRACTION` or `LIVE`; the greater wins.
        digest: (n,) order of different contents with one weight; 0 if all contents of the group are equal.
        conflicting: (m,) events at whose sequence several contents remain, or all of several were retracted.
        n_conflicts: Remaining contents beyond the first of each group, without those stored before this step.
        left: Event to the remaining contents at its sequence, one event for each, if there are several.
        taken_back: Event to the digests of the contents that were retracted at its sequence, if digests were computed.
    """

    weight: Codes
    digest: Codes
    conflicting: Codes
    n_conflicts: int
    left: dict[int, list[int]]
    taken_back: dict[int, list[int]]

    def beside(
        self,
        earlier: Mapping[int, list[int]],
        undecided: Codes,
        n_conflicts: int,
    ) -> Ties:
        """Return the comparison with the decisions by places of records.

        Args:
            earlier: Event to the digests of the contents that came before it at its sequence.
            undecided: Further events at whose sequence several contents remain.
            n_conflicts: Further conflicts.
        """
        if not (earlier or len(undecided)):
            return self
        return replace(
            self,
            conflicting=np.concatenate([self.conflicting, undecided]),
            n_conflicts=self.n_conflicts + n_conflicts,
            taken_back={**self.taken_back, **earlier},
        )


def compare(
    events: Codes,
    groups: Codes,
    contents: Contents,
) -> Ties:
    """Compare the events of each group, all of one key, sequence and operation.

    Contents are compared exactly, in columns. Each digest costs a Python call, so digests are computed
    only for groups with several contents or stored retractions. All events of any other group have one content, so one
    retraction retracts all of them. O(n log n) in the tied events.

    Args:
        events: (m,) indices of the tied events, group after group.
        groups: (m,) ascending numbers of their groups.
        contents: Their contents.
    """
    n_events = len(contents.is_retraction)
    weight = np.where(contents.is_retraction, RETRACTION, LIVE)
    digest = np.zeros(n_events, np.int64)
    if not len(events):
        return Ties(
            weight,
            digest,
            conflicting=events,
            n_conflicts=0,
            left={},
            taken_back={},
        )
    _, groups = np.unique(groups, return_inverse=True)
    rows = contents.of(events, groups)
    is_mixed = _mixed_groups(events, groups, rows, contents)
    _take_back_alike(
        events,
        groups,
        is_mixed=is_mixed,
        contents=contents,
        weight=weight,
    )

    # From here on only groups of several contents, which are few. Digests order contents the same way in every process.
    mixed = np.flatnonzero(is_mixed[groups])
    mixed_events = events[mixed]
    mixed_groups = groups[mixed]
    mixed_rows = rows.take(pa.array(mixed))
    digest[mixed_events] = _digests_of(mixed_events, mixed_rows, contents)
    taken_back = _taken_back(mixed_events, mixed_groups, digest, contents)
    for event in mixed_events.tolist():
        is_live = weight[event] == LIVE
        if is_live and digest[event] in taken_back.get(event, ()):
            weight[event] = RETRACTED

    # Several remaining contents are a conflict: the sequence does not determine which one is the row.
    content_groups, content_events = _contents_left(mixed_events, mixed_groups, weight, digest)
    n_contents = np.bincount(content_groups, minlength=len(is_mixed))
    has_conflict = n_contents > 1
    is_known = contents.is_stored[content_events]
    n_known = np.bincount(content_groups[is_known], minlength=len(is_mixed))
    # Only contents that are new in this step are counted, and the first content of a group never is.
    n_new = n_contents - np.maximum(n_known, 1)
    n_conflicts = n_new[has_conflict]
    left = _beside_each_other(content_groups, content_events, has_conflict)
    # If all of several contents are retracted, one of them may have been added again: that looks like a repeated delivery.
    is_emptied = np.zeros(len(is_mixed), dtype=bool)
    for event, group in zip(mixed_events.tolist(), mixed_groups.tolist(), strict=True):
        n_taken_back = len(taken_back.get(event, ()))
        is_emptied[group] = n_taken_back > 1 and n_contents[group] == 0
    is_undecided = has_conflict | is_emptied
    return Ties(
        weight,
        digest,
        conflicting=events[is_undecided[groups]],
        n_conflicts=int(n_conflicts.sum()),
        left=left,
        taken_back=taken_back,
    )


def _mixed_groups(
    events: Codes,
    groups: Codes,
    rows: pa.Table,
    contents: Contents,
) -> Mask:
    """Mark the groups, by number, whose contents need digests: they differ, or stored digests exist."""
    codes = row_codes(rows, rows.column_names)
    n_groups = int(groups[-1]) + 1
    # Groups are ascending: each begins where its number would be inserted.
    numbers = np.arange(n_groups)
    first_of_group = np.searchsorted(groups, numbers)
    first_codes = codes[first_of_group]
    differs = codes != first_codes[groups]
    has_stored_digests = np.isin(events, list(contents.retracted))
    needs_digest = differs | has_stored_digests
    is_mixed = np.zeros(n_groups, dtype=bool)
    is_mixed[groups[needs_digest]] = True
    return is_mixed


def _take_back_alike(
    events: Codes,
    groups: Codes,
    is_mixed: Mask,
    contents: Contents,
    weight: Codes,
) -> None:
    """Set the weights in groups of one content: a retraction retracts all its rows."""
    is_retraction = contents.is_retraction[events]
    retracted_groups = groups[is_retraction]
    takes_back = np.zeros(len(is_mixed), dtype=bool)
    takes_back[retracted_groups] = True
    takes_all_back = takes_back & ~is_mixed
    is_taken_back = takes_all_back[groups] & ~is_retraction
    weight[events[is_taken_back]] = RETRACTED


def _contents_left(
    events: Codes,
    groups: Codes,
    weight: Codes,
    digest: Codes,
) -> tuple[Codes, Codes]:
    """Return the group and the first event of each distinct remaining content, by group and digest."""
    is_live = weight[events] == LIVE
    live_events = events[is_live]
    live_groups = groups[is_live]
    live_digests = digest[live_events]
    pairs = np.stack([live_groups, live_digests])
    [content_groups, _], first = np.unique(pairs, axis=1, return_index=True)
    return content_groups, live_events[first]


def _beside_each_other(
    groups: Codes,
    events: Codes,
    has_conflict: Mask,
) -> dict[int, list[int]]:
    """Map each event in a conflict to the events of its group; the events of a group share one list."""
    is_in_conflict = has_conflict[groups]
    conflict_groups = groups[is_in_conflict].tolist()
    conflict_events = events[is_in_conflict].tolist()
    pairs = zip(conflict_groups, conflict_events, strict=True)
    of_group: dict[int, list[int]] = {}
    of_event: dict[int, list[int]] = {}
    for group, event in pairs:
        together = of_group.setdefault(group, [])
        together.append(event)
        of_event[event] = together
    return of_event


def _digests_of(
    events: Codes,
    rows: pa.Table,
    contents: Contents,
) -> Codes:
    """Return the digests of rows; the stored one for entries that store only a digest."""
    made = digests(rows)
    is_forgotten = contents.is_forgotten[events]
    forgotten = np.flatnonzero(is_forgotten)
    for i in forgotten.tolist():
        stored = contents.retracted[int(events[i])]
        made[i] = stored[-1]
    return made


def _taken_back(
    events: Codes,
    groups: Codes,
    digest: Codes,
    contents: Contents,
) -> dict[int, list[int]]:
    """Map each event to the digests retracted in its group; the events of a group share one list."""
    pairs = zip(events.tolist(), groups.tolist(), strict=True)
    group_of = dict(pairs)
    digests_of: dict[int, set[int]] = {}
    for event, group in group_of.items():
        stored = contents.retracted.get(event, ())
        taken_back = digests_of.setdefault(group, set())
        taken_back.update(stored)
        if contents.is_retraction[event]:
            taken_back.add(int(digest[event]))
    lists = {group: sorted(taken_back) for group, taken_back in digests_of.items()}
    taken_back_at: dict[int, list[int]] = {}
    for event, group in group_of.items():
        taken_back_digests = lists[group]
        if taken_back_digests:
            taken_back_at[event] = taken_back_digests
    return taken_back_at


def digests(rows: pa.Table) -> Codes:
    """Return a number from 1 for each row's content, the same in every process."""
    columns = []
    for column in rows.columns:
        values = column.to_pylist(maps_as_pydicts="strict")
        columns.append(values)
    contents = zip(*columns, strict=True)
    made = [_digest(content) for content in contents]
    return np.array(made, dtype=np.int64)


def _digest(values: Sequence[Any]) -> int:
    key = equality_key(values)
    text = repr(key).encode()
    hashed = hashlib.blake2b(text, digest_size=8)
    unsigned = int.from_bytes(hashed.digest(), "big")
    return (unsigned >> 1) | 1  # fits a signed column, and is never 0


def as_changes(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the stored rows that lost a tie as changes, in the order of their entries.

    Args:
        entries: Entries, one per key.
        schema: Columns of a change.
    """
    lists = entries["_tied"].combine_chunks()
    if lists.null_count == len(lists):
        return schema.empty_table()
    rows = pc.list_flatten(lists)
    entry_of_row = pc.list_parent_indices(lists)
    own = entries.take(entry_of_row)
    stored_sequences = own["_sequence"].combine_chunks()
    columns: dict[str, object] = {field.name: pc.struct_field(rows, field.name) for field in rows.type}
    columns |= {
        "_kind": pa.repeat(RowKind.UPDATE_AFTER.value, len(rows)),
        "_op": pa.repeat(RowKind.UPDATE_AFTER.value, len(rows)),
        "_event_ms": own["_stamp_ms"],
        "_order": own["_changed_by"],
        "_sequence": SequenceColumns.without_op(stored_sequences),
    }
    return entry_table(schema, columns, len(rows))
