"""Removes erased keys from the entries and changes of other keys, which keep everything else.

If a row came from an erased key `K` at the sequence `m`, its entry has `{sequence: m, key: K}` in `_moved_from`. For values
that the row already had under `K`, `_columns` has a sequence before `m`.

Records of `K` are no longer accepted, so no value can come from there. The entry is rewritten as if the key change had
carried all values: they are known since `m`. Later changes of the row still win and earlier ones still lose, so the entry
decides as before on all records of other keys. Key changes before `m` are removed too: a late record of a key before `K`
could reach the row only through `K`. A late TRUNCATE does not reach these values either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask
from ebbtide.operators._sequence.linked_keys import linked_keys
from ebbtide.operators._sequence.links import in_one_piece

Erased = Callable[[pa.Table], Mask]
"""Marks erased keys."""
_REWRITTEN = ("_moved_from", "_columns", "_kept", "_kept_before", "_moved_ms")
"""Columns of an entry that change with its links."""
_Item = Mapping[str, Any]
"""A key change: `sequence`, `key`."""


@dataclass(frozen=True)
class FormerKeys:
    """Finds and removes erased keys among the former keys of rows, in `COLUMN`.

    Args:
        key: Names of the key's columns there.
        erased: See `Erased`.
    """

    COLUMN: ClassVar[str] = "_moved_from"
    key: Sequence[str]
    erased: Erased

    @staticmethod
    def linked(changes: Iterable[pa.Table], entries: Iterable[pa.Table], key: Sequence[str]) -> pa.Table | None:
        """Return the keys that a step decides together, since rows had them one after the other; None if there are none.

        Args:
            changes: The step's changes, with key, `_sequence` and `COLUMN`.
            entries: Versions of all entries with key changes, with key and `COLUMN`.
            key: Names of the key's columns.
        """
        return linked_keys(changes, entries, key)

    def named(self, rows: pa.Table) -> Mask:
        """Mark the entries or changes that name an erased key."""
        lists = in_one_piece(rows[self.COLUMN])
        items = pc.list_flatten(lists)
        is_erased = self.marks(items)
        row_of_item = pc.list_parent_indices(lists).to_numpy()
        marks = np.zeros(len(rows), bool)
        marks[row_of_item[is_erased]] = True
        return marks

    def cut_changes(self, changes: pa.Table) -> pa.Table:
        """Return changes without erased keys: an upsert from an erased key starts a row, a delete to one ends it."""
        lists = in_one_piece(changes[self.COLUMN])
        items = pc.list_flatten(lists)
        is_erased = self.marks(items)
        if not is_erased.any():
            return changes
        numbers = np.arange(len(items))
        kept = pa.array(numbers, mask=is_erased)
        keys = pc.struct_field(items, "key")
        parts = [
            pc.struct_field(items, "sequence"),
            keys.take(kept),  # null if the index is null
        ]
        fields = list(items.type)
        cut = pa.StructArray.from_arrays(parts, fields=fields)
        # The lists have as many items as before.
        lengths = pc.list_value_length(lists)
        lengths = lengths.fill_null(0)
        ends = np.cumsum(lengths.to_numpy())
        offsets = pa.array([0, *ends], pa.int32())
        moved = pa.ListArray.from_arrays(
            offsets,
            cut,
            type=lists.type,
            mask=lists.is_null(),
        )
        return _with_column(changes, self.COLUMN, moved)

    def cut_entries(self, entries: pa.Table) -> pa.Table:
        """Return entries, with all columns, without erased keys."""
        is_named = self.named(entries)
        if not is_named.any():
            return entries
        named = np.flatnonzero(is_named)
        columns = [*_REWRITTEN, "_tombstone"]
        rows = entries.select(columns)
        rows = rows.take(pa.array(named))
        type_ = entries.schema.field(self.COLUMN).type
        cut = _Cut(type_.value_type, self)
        # Row by row: few entries are linked, and each has at most a few links.
        rewritten = [cut.entry(row) for row in rows.to_pylist()]
        # The entries, followed by the rewritten ones: each affected entry is taken from the second part.
        place = np.arange(len(entries))
        place[named] = len(entries) + np.arange(len(named))
        for name in _REWRITTEN:
            before = in_one_piece(entries[name])
            values = [row[name] for row in rewritten]
            new = pa.array(values, before.type)
            both = pa.concat_arrays([before, new])
            column = both.take(pa.array(place))
            entries = _with_column(entries, name, column)
        return entries

    def marks(self, items: pa.StructArray) -> Mask:
        """Mark the key changes from an erased key. One without a key is already cut off."""
        keys = pc.struct_field(items, "key")
        columns = {name: pc.struct_field(keys, name) for name in self.key}
        marks = self.erased(pa.table(columns))
        has_key = keys.is_valid()
        marks &= has_key.to_numpy(zero_copy_only=False)
        return marks


def _with_column(
    rows: pa.Table,
    name: str,
    column: pa.Array,
) -> pa.Table:
    index = rows.column_names.index(name)
    field = rows.schema.field(name)
    return rows.set_column(index, field, column)


@dataclass(frozen=True)
class _Cut:
    """Cuts entries off from erased keys.

    Args:
        type: Type of a key change.
        former: Marks the key changes.
    """

    type: pa.StructType
    former: FormerKeys

    def entry(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the rewritten columns of an entry."""
        earlier = row["_kept_before"] or []
        newest = row["_kept"]
        kept_rows = [*earlier, newest] if newest else earlier
        left = row["_moved_from"]
        times = row["_moved_ms"] or [None] * len(left)
        left = [{**item, "event_ms": ms} for item, ms in zip(left, times, strict=True)]
        rows: list[dict[str, Any]] = []
        items: list[_Item] = []
        # As in `StoredLinks.read`, the key changes of the kept rows follow those of the entry's row.
        for kept in reversed(kept_rows):
            n_own = kept["n_moved"]
            if n_own is None:
                n_own = len(left) if row["_tombstone"] else 0
            n_rest = len(left) - n_own
            own, own_items = self._kept(kept, left[n_rest:])
            rows.insert(0, own)
            items = own_items + items
            left = left[:n_rest]
        columns = row["_columns"]
        place = self._first_erased(left)
        if place is not None:
            since = left[place]["sequence"]
            left = left[:place]
            if columns:
                columns = [(name, _later(at, since)) for name, at in columns]
        moved = left + items
        return {
            "_moved_from": moved or None,
            "_moved_ms": [item["event_ms"] for item in moved] or None,
            "_columns": columns,
            "_kept": rows[-1] if rows else None,
            "_kept_before": rows[:-1] or None,
        }

    def _kept(
        self,
        kept: dict[str, Any],
        items: list[_Item],
    ) -> tuple[dict[str, Any], list[_Item]]:
        """Return a kept row and its key changes."""
        place = self._first_erased(items)
        if place is None:
            return kept, items
        at_least = items[place]["sequence"]
        since = kept["since"]
        if since:
            since = [_later(at, at_least) for at in since]
        cut = {**kept, "since": since, "n_moved": place}
        return cut, items[:place]

    def _first_erased(self, items: Sequence[_Item]) -> int | None:
        """Return the index of the newest key change from an erased key; None if there is none."""
        array = pa.array(items, self.type)
        marks = self.former.marks(array)
        places = np.flatnonzero(marks)
        return int(places[0]) if len(places) else None


def _later(at: _Item | None, since: _Item) -> _Item:
    """Return the later one of two sequences; null is before all."""
    if at is None:
        return since
    is_before = _order(at) < _order(since)
    return since if is_before else at


def _order(sequence: _Item) -> list[tuple[bool, Any]]:
    return [(part is not None, part) for part in sequence.values()]
