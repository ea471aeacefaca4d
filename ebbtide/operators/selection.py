"""What the sink shows of decided rows, where a transform selects from them: rows evaluated elsewhere meet their entries here.

Beside the operator's columns, the entries of such a pipeline have:

| column | meaning |
|---|---|
| `_shown` | the sink shows a row for the key |
| `_out` | that row, under the sink's columns; of a key that leaves the sink its key alone |

An operator hands both on from the entry that stood before. Whether the row is new to the sink, changes or leaves it follows
from what was shown and what fits now. Of a row whose expression failed the sink keeps what it showed, at the row's sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.model.codes import Mask
from ebbtide.model.entries import DELETE, INSERT, UPDATE, equals, flags, is_set, with_column

SELECTED_COLUMNS = ("_shown", "_out")

KeyNames = tuple[tuple[str, str], ...]
"""The sink's key columns, each with the source's column that it is."""


@dataclass(frozen=True)
class Selected:
    """What a transform makes of some rows.

    Args:
        rows: (n,) under the sink's columns; null where a row does not fit or fails.
        fits: (n,) whether it fulfils the condition.
        fails: (n,) whether an expression of it fails, or gives null to a column that may not be.
    """

    rows: pa.StructArray
    fits: Mask
    fails: Mask

    @classmethod
    def of(cls, results: pa.ChunkedArray, columns: pa.Schema) -> Self:
        """Read what was evaluated.

        Args:
            results: (n,) struct(fits, row); null where an expression failed.
            columns: The sink's.
        """
        row_type = pa.struct([field.with_nullable(True) for field in columns])
        if not len(results):
            none = np.zeros(0, dtype=bool)
            return cls(pa.array([], row_type), none, none)
        whole = results.combine_chunks()
        is_evaluated = _mask(pc.is_valid(whole))
        fits = is_evaluated & _mask(pc.struct_field(whole, "fits"))
        rows = pc.struct_field(whole, "row").cast(row_type)
        lacks_value = np.zeros(len(whole), dtype=bool)
        for field in columns:
            if not field.nullable:
                values = pc.struct_field(rows, field.name)
                lacks_value |= fits & _mask(pc.is_null(values))
        fails = ~is_evaluated | lacks_value
        return cls(rows, fits & ~fails, fails)


def to_select(entries: pa.Table) -> Mask:
    """Mark the entries of a step whose rows must be evaluated: the decided ones that are there."""
    is_decided = is_set(entries, "_change")
    is_deleted = equals(entries, "_change", DELETE)
    return is_decided & ~is_deleted


def with_selected(
    entries: pa.Table,
    asked: Mask,
    selected: Selected,
    key: KeyNames,
) -> tuple[pa.Table, Counter[str]]:
    """Return entries with what the sink must do about them, and how often it must do what.

    Args:
        entries: Entries of a step, `_shown` and `_out` as before it; those that the sink need not take have no `_change`.
        asked: (n,) which of them were evaluated.
        selected: (asked,) what became of these.
        key: See `KeyNames`.
    """
    n_rows = len(entries)
    was_shown = flags(entries, "_shown")
    fits = np.zeros(n_rows, dtype=bool)
    fails = np.zeros(n_rows, dtype=bool)
    fits[asked] = selected.fits
    fails[asked] = selected.fails
    is_deleted = equals(entries, "_change", DELETE)
    # A row whose expression failed leaves in the sink what it showed; one that was not asked about stays, unless it is deleted.
    is_shown = np.where(asked, fits | (fails & was_shown), was_shown & ~is_deleted)
    enters = is_shown & ~was_shown
    stays = is_shown & was_shown
    leaves = was_shown & ~is_shown
    is_decided = is_set(entries, "_change")
    change = np.select([enters, stays, leaves], [INSERT, UPDATE, DELETE], "")
    has_change = is_decided & (change != "")

    # The row is taken from what was selected, from the entry as it was, or is no more than the key.
    place = np.arange(n_rows)
    number_of = np.cumsum(asked) - 1
    before = place
    now = n_rows + number_of
    key_only = n_rows + len(selected.rows) + place
    source = np.select([fits, leaves], [now, key_only], before)
    has_row = is_shown | leaves
    rows = _rows(entries, selected, key)
    out = rows.take(pa.array(source, mask=~has_row))

    changed = with_column(entries, "_change", pa.array(change, mask=~has_change))
    shown = with_column(changed, "_shown", pa.array(is_shown))
    counts = Counter(
        inserted=int((has_change & enters).sum()),
        updated=int((has_change & stays).sum()),
        deleted=int((has_change & leaves).sum()),
        hidden=int((asked & ~fits & ~fails).sum()),
        transform_failed=int(fails.sum()),
    )
    return with_column(shown, "_out", out), counts


def _rows(entries: pa.Table, selected: Selected, key: KeyNames) -> pa.ChunkedArray:
    """Return the rows of the entries as they were, those that were selected, and rows of the entries' keys alone."""
    type_ = entries.schema.field("_out").type
    source_of = dict(key)
    fields = []
    for field in type_:
        source = source_of.get(field.name)
        values = pa.nulls(len(entries), field.type)
        if source is not None:
            values = entries[source].combine_chunks().cast(field.type)
        fields.append(values)
    keys = pa.StructArray.from_arrays(fields, fields=list(type_))
    before = entries["_out"].combine_chunks()
    return pa.chunked_array([before, selected.rows.cast(type_), keys], type_)


def _mask(values: pa.Array) -> Mask:
    filled = values.fill_null(False)
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)


def selected_fields(columns: pa.Schema | None) -> Sequence[pa.Field]:
    """Return what entries have beside the operator's columns; nothing without a transform."""
    if columns is None:
        return ()
    row_type = pa.struct([field.with_nullable(True) for field in columns])
    return (pa.field("_shown", pa.bool_()), pa.field("_out", row_type))
