"""Selection by a transform: joins evaluated rows with their entries.

In addition to the operator's columns, these entries have:

| column | meaning |
|---|---|
| `_shown` | the sink shows a row for the key |
| `_out` | that row with the sink's columns; only the key columns if the key leaves the sink |

An operator copies both from the previous entry. The row enters the sink, changes or leaves it,
depending on what was shown before and whether it now fits the condition. If an expression of a row fails, the sink
keeps its previous row, at the new row's sequence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask, equals, flags, is_set, with_column
from ebbtide.entries import SinkChange

KeyNames = tuple[tuple[str, str], ...]
"""The sink's key columns, each with its source column."""


@dataclass(frozen=True)
class Selected:
    """Results of a transform for some rows.

    Args:
        rows: (n,) rows with the sink's columns; null if a row does not fit or fails.
        fits: (n,) true if the row fulfils the condition.
        fails: (n,) true if an expression fails or yields null for a non-nullable column.

    Attributes:
        COLUMNS: Columns of an entry that hold what was selected.
    """

    COLUMNS: ClassVar[tuple[str, ...]] = ("_shown", "_out")
    rows: pa.StructArray
    fits: Mask
    fails: Mask

    @classmethod
    def of(
        cls,
        results: pa.ChunkedArray,
        columns: pa.Schema,
    ) -> Self:
        """Read the results of the evaluation.

        Args:
            results: (n,) struct(fits, row); null if an expression failed.
            columns: The sink's columns.
        """
        nullable_columns = [field.with_nullable(True) for field in columns]
        row_type = pa.struct(nullable_columns)
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

    @staticmethod
    def asked_of(entries: pa.Table) -> Mask:
        """Mark the entries of a step whose rows must be evaluated: decided rows that exist."""
        is_decided = is_set(entries, "_change")
        is_deleted = equals(entries, "_change", SinkChange.DELETE)
        return is_decided & ~is_deleted

    def into(self, entries: pa.Table, asked: Mask, key: KeyNames) -> tuple[pa.Table, Counter[str]]:
        """Return entries with the sink's action for each, and counts of the actions.

        Args:
            entries: Entries of a step, with `_shown` and `_out` from before it. Entries without a `_change` do not concern the sink.
            asked: True for the entries that were evaluated: those that these results are of.
            key: The sink's key columns, each with its source column.
        """
        n_rows = len(entries)
        was_shown = flags(entries, "_shown")
        fits = np.zeros(n_rows, dtype=bool)
        fails = np.zeros(n_rows, dtype=bool)
        fits[asked] = self.fits
        fails[asked] = self.fails
        is_deleted = equals(entries, "_change", SinkChange.DELETE)
        # A row whose expression failed leaves the sink as it was. An entry that was not evaluated stays shown unless it is deleted.
        if_evaluated = fits | (fails & was_shown)
        if_not = was_shown & ~is_deleted
        is_shown = np.where(asked, if_evaluated, if_not)
        enters = is_shown & ~was_shown
        stays = is_shown & was_shown
        leaves = was_shown & ~is_shown
        is_decided = is_set(entries, "_change")
        change = np.select(
            [enters, stays, leaves],
            [SinkChange.INSERT, SinkChange.UPDATE, SinkChange.DELETE],
            "",
        )
        has_change = is_decided & (change != "")

        # The sink's rows come from one array of three parts: the previous rows, the selected rows, and rows with only the key.
        # `source` is each entry's index in it.
        index = np.arange(n_rows)
        number_of_asked = np.cumsum(asked) - 1
        previous_row = index
        selected_row = n_rows + number_of_asked
        key_only_row = n_rows + len(self.rows) + index
        source = np.select([fits, leaves], [selected_row, key_only_row], previous_row)
        has_row = is_shown | leaves
        rows = _rows(entries, self, key)
        out = rows.take(pa.array(source, mask=~has_row))

        changed = with_column(
            entries,
            "_change",
            pa.array(change, mask=~has_change),
        )
        shown = with_column(changed, "_shown", pa.array(is_shown))
        counts = Counter(
            inserted=int((has_change & enters).sum()),
            updated=int((has_change & stays).sum()),
            deleted=int((has_change & leaves).sum()),
            hidden=int((asked & ~fits & ~fails).sum()),
            transform_failed=int(fails.sum()),
        )
        return with_column(shown, "_out", out), counts


def _rows(
    entries: pa.Table,
    selected: Selected,
    key: KeyNames,
) -> pa.ChunkedArray:
    """Return the entries' previous rows, the selected rows, and rows with only the entries' keys."""
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
    """Return the fields that a transform adds to entries; none without a transform."""
    if columns is None:
        return ()
    nullable_columns = [field.with_nullable(True) for field in columns]
    shown = pa.field("_shown", pa.bool_())
    out = pa.field("_out", pa.struct(nullable_columns))
    return (shown, out)
