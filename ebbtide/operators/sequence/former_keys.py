"""Former keys that were erased: entries and changes of other keys name them no more, and keep all else.

A row that came from an erased key `K` at the sequence `m` has in its entry `{sequence: m, key: K}` in `_moved_from`, and in `_columns`, for values that it
had there already, a sequence before `m`. No record of `K` is accepted any more, so that no value can come from there: the entry then says
that those values are known since `m`, as if the change of the key had carried them all. Later changes of the row still take precedence, and
earlier ones still do not, so that the entry decides as before on every record of a key that is not erased. What goes too are the changes of
the key before `m`: a record that comes late for a key before `K` could reach the row through `K` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.codes import Mask
from ebbtide.operators.sequence.links import in_one_piece

Erased = Callable[[pa.Table], Mask]
"""Marks the keys that are erased."""
_REWRITTEN = ("_moved_from", "_columns", "_kept", "_kept_before")
"""Columns of an entry that change with its links."""
_Item = Mapping[str, Any]
"""A change of the key: `sequence`, `key`."""


def names_erased(rows: pa.Table, key: Sequence[str], erased: Erased) -> Mask:
    """Mark the rows that name an erased key in `_moved_from`.

    Args:
        rows: Entries or changes, with `_moved_from`.
        key: Names of the key's columns there.
        erased: See `Erased`.
    """
    lists = in_one_piece(rows["_moved_from"])
    row = pc.list_parent_indices(lists).to_numpy()
    marks = np.zeros(len(rows), bool)
    marks[row[_marks(pc.list_flatten(lists), key, erased)]] = True
    return marks


def cut_changes(changes: pa.Table, key: Sequence[str], erased: Erased) -> pa.Table:
    """Return changes that name no erased key: an upsert from one starts a row, a delete to one ends it.

    Args:
        changes: With `_moved_from`.
        key: Names of the key's columns there.
        erased: See `Erased`.
    """
    lists = in_one_piece(changes["_moved_from"])
    items = pc.list_flatten(lists)
    marks = _marks(items, key, erased)
    if not marks.any():
        return changes
    numbers = pa.array(np.arange(len(items)), mask=marks)  # an index that is null takes null
    parts = [pc.struct_field(items, "sequence"), pc.struct_field(items, "key").take(numbers)]
    cut = pa.StructArray.from_arrays(parts, fields=list(items.type))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    moved = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), cut, type=lists.type, mask=lists.is_null())
    return changes.set_column(changes.column_names.index("_moved_from"), changes.schema.field("_moved_from"), moved)


def cut_entries(entries: pa.Table, key: Sequence[str], erased: Erased) -> pa.Table:
    """Return entries that name no erased key.

    Args:
        entries: Rows of the state, with all columns.
        key: Names of the key's columns.
        erased: See `Erased`.
    """
    is_named = names_erased(entries, key, erased)
    if not is_named.any():
        return entries
    # Row by row: few entries are linked, and each has at most a few links.
    named = np.flatnonzero(is_named)
    rows = entries.select([*_REWRITTEN, "_tombstone"]).take(pa.array(named)).to_pylist()
    cut = [_cut_entry(row, lambda items: _first_erased(items, key, erased, entries.schema)) for row in rows]
    place = np.arange(len(entries))
    place[named] = len(entries) + np.arange(len(named))
    for name in _REWRITTEN:
        field = entries.schema.field(name)
        new = pa.array([row[name] for row in cut], field.type)
        both = pa.concat_arrays([in_one_piece(entries[name]), new])
        entries = entries.set_column(entries.column_names.index(name), field, both.take(pa.array(place)))
    return entries


def _marks(items: pa.StructArray, key: Sequence[str], erased: Erased) -> Mask:
    """Mark the changes of the key that name an erased key; one without a key is cut off already."""
    keys = pc.struct_field(items, "key")
    named = pa.table({name: pc.struct_field(keys, name) for name in key})
    marks: Mask = erased(named) & keys.is_valid().to_numpy(zero_copy_only=False)
    return marks


def _first_erased(items: Sequence[_Item], key: Sequence[str], erased: Erased, schema: pa.Schema) -> int | None:
    """Return the place of the newest change of the key from an erased key; None if there is none."""
    array = pa.array(items, schema.field("_moved_from").type.value_type)
    [places] = np.nonzero(_marks(array, key, erased))
    return int(places[0]) if len(places) else None


def _cut_entry(row: dict[str, Any], first_erased: Callable[[Sequence[_Item]], int | None]) -> dict[str, Any]:
    """Return the rewritten columns of an entry."""
    kept_rows = [*(row["_kept_before"] or ()), *([row["_kept"]] if row["_kept"] else ())]
    left = list(row["_moved_from"])
    kept: list[tuple[dict[str, Any], list[_Item]]] = []
    # As `StoredLinks.read` has it: the changes of the key of the kept rows follow those of the entry's row.
    for each in reversed(kept_rows):
        n_own = each["n_moved"]
        if n_own is None:
            n_own = len(left) if row["_tombstone"] else 0
        n_rest = len(left) - n_own
        kept.insert(0, _cut_kept(each, left[n_rest:], first_erased))
        left = left[:n_rest]
    place = first_erased(left)
    columns = row["_columns"]
    if place is not None:
        since = left[place]["sequence"]
        left = left[:place]
        columns = columns and [(name, _later(at, since)) for name, at in columns]
    moved = left + [item for _, items in kept for item in items]
    rows = [each for each, _ in kept]
    return {
        "_moved_from": moved or None,
        "_columns": columns,
        "_kept": rows[-1] if rows else None,
        "_kept_before": rows[:-1] or None,
    }


def _cut_kept(
    kept: dict[str, Any], items: list[_Item], first_erased: Callable[[Sequence[_Item]], int | None]
) -> tuple[dict[str, Any], list[_Item]]:
    """Return a kept row, and its changes of the key."""
    place = first_erased(items)
    if place is None:
        return kept, items
    since = kept["since"] and [_later(at, items[place]["sequence"]) for at in kept["since"]]
    return {**kept, "since": since, "n_moved": place}, items[:place]


def _later(at: _Item | None, since: _Item) -> _Item:
    """Return the later one of two sequences."""
    return since if at is None or _order(at) < _order(since) else at


def _order(sequence: _Item) -> list[tuple[bool, Any]]:
    return [(part is not None, part) for part in sequence.values()]
