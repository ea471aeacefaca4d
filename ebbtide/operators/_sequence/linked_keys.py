"""Keys that a step must decide together because key changes link their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import rank_sequences
from ebbtide.columns import Codes, Long, count_codes, key_hashes, row_codes
from ebbtide.operators._sequence.links import in_one_piece


@dataclass(frozen=True)
class LinkedKeyChanges:
    """The key changes stored in some rows.

    Args:
        row: (n,) index of the row that stores each.
        keys: (n,) key of that row.
        old_keys: (n,) the key before; for a delete, the key after.
        sequences: (n,) sequence of each.
    """

    row: Codes
    keys: pa.Table
    old_keys: pa.Table
    sequences: pa.StructArray

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        key: Sequence[str],
    ) -> LinkedKeyChanges:
        """Read `_moved_from` of changes or entries."""
        lists = in_one_piece(rows["_moved_from"])
        items = pc.list_flatten(lists)
        has_key = pc.struct_field(items, "key").is_valid()  # a row cut off has no link
        row = pc.list_parent_indices(lists).filter(has_key)
        items = items.filter(has_key)
        old_key = pc.struct_field(items, "key")
        return cls(
            row=row.to_numpy(),
            keys=_keys(rows.select(key).take(row), key),
            old_keys=pa.table({name: pc.struct_field(old_key, name) for name in key}),
            sequences=pc.struct_field(items, "sequence"),
        )


def linked_keys(
    changes: Iterable[pa.Table],
    entries: Iterable[pa.Table],
    key: Sequence[str],
) -> pa.Table | None:
    """Return the keys that a step decides together; None if there are none.

    These are the keys of the step's key changes, and the keys of entries whose row had a touched key at the touched sequence:
    a late change of an old key may belong to a row that now has another key.

    Args:
        changes: The step's changes, with key, `_sequence` and `_moved_from`.
        entries: Versions of all entries with key changes, with key and `_moved_from`.
        key: Names of the key's columns.
    """
    stored = LinkedKeyChanges.of(pa.concat_tables(entries), key)
    hashes_of_old_keys = key_hashes(stored.old_keys, key)
    changed_keys: list[pa.Table] = []
    touched_keys: list[pa.Table] = []
    touched_at: list[pa.StructArray] = []
    for rows in changes:
        # Hashes first: only keys that some row had are then compared exactly.
        own = LinkedKeyChanges.of(rows, key)
        changed_keys += [own.keys, own.old_keys]
        is_touched = np.isin(key_hashes(rows, key), hashes_of_old_keys)
        touched = rows.filter(pa.array(is_touched))
        touched_keys += [_keys(touched, key), own.old_keys]
        touched_at += [in_one_piece(touched["_sequence"]), own.sequences]
    if not changed_keys:
        return None
    changed = pa.concat_tables(changed_keys)
    linked = _linked_key_changes(stored, changed, pa.concat_tables(touched_keys), touched_at, key)
    linked_now = stored.keys.filter(linked)
    linked_before = stored.old_keys.filter(linked)
    keys = pa.concat_tables([changed, linked_now, linked_before])
    return keys if len(keys) else None


def _linked_key_changes(
    stored: LinkedKeyChanges,
    changed: pa.Table,
    touched: pa.Table,
    touched_at: Sequence[pa.StructArray],
    key: Sequence[str],
) -> pa.BooleanArray:
    """Mark the stored key changes whose entries a step must decide.

    Args:
        stored: The key changes in all entries.
        changed: Old and new keys of the step's key changes.
        touched: Keys that the step touches.
        touched_at: Sequences of these touches.
        key: Names of the key's columns.
    """
    n_stored, n_changed = len(stored.keys), len(changed)
    if not n_stored:
        return pa.array([], pa.bool_())
    # Keys as codes and sequences as ranks, numbered together so that they compare.
    all_keys = pa.concat_tables([stored.keys, stored.old_keys, changed, touched])
    codes = row_codes(all_keys, key)
    ends = np.cumsum([n_stored, n_stored, n_changed])
    own, old, of_changed, of_touched = np.split(codes, ends)
    [changed_at, *ranks], _ = rank_sequences([stored.sequences, *touched_at])
    touched_ranks = np.concatenate(ranks)
    # The row had its old key up to the change: a touch of the old key at or before the key change may concern the row.
    earliest = np.full(count_codes(codes), Long.MAX)
    np.minimum.at(earliest, of_touched, touched_ranks)
    is_touched = earliest[old] <= changed_at
    is_own = np.isin(own, of_changed)
    # Deciding a row needs all keys that it ever had, so all of its key changes are marked.
    rows = stored.row[is_touched | is_own]
    return pa.array(np.isin(stored.row, rows))


def _keys(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    return pa.table({name: rows[name] for name in key})
