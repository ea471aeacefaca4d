"""Converts scanned cells to typed columns. A change with a cell that does not fit its column is not taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask
from ebbtide.formats._columns import are_plain_decimals, dates_of, timestamps_of
from ebbtide.formats._forms import ScannedChanges
from ebbtide.formats._scan import Cells, Scanned, marked
from ebbtide.formats._scan_loops import ABSENT, ESCAPED, FALSE, INTEGER, NULL, NUMBER, TEXT, TRUE
from ebbtide.formats._scan_schemas import decimal_texts
from ebbtide.formats._settings import DecodingSettings
from ebbtide.formats._typed import needed_of_delete

_TEXTS = (TEXT, ESCAPED)


def is_scannable(column: pa.Field) -> bool:
    """Return whether a column's values can be scanned."""
    return bool(_kinds_of(column.type))


def _kinds_of(type_: pa.DataType) -> Sequence[int]:
    """Return the kinds of cells that a column of a type accepts, null aside; empty: its values are not scanned."""
    if pa.types.is_string(type_):
        return _TEXTS
    if pa.types.is_integer(type_):
        return (INTEGER,)
    if pa.types.is_boolean(type_):
        return (TRUE, FALSE)
    if pa.types.is_floating(type_):
        return (INTEGER, NUMBER)
    is_time = pa.types.is_date32(type_) or pa.types.is_timestamp(type_)
    if is_time or pa.types.is_decimal(type_):
        return (*_TEXTS, INTEGER)
    return ()


class ScanColumns:
    """Types and judges the columns of scanned changes.

    Args:
        settings: Settings of the pipeline.
        scanned: The records.
        changes: Their changes.
        is_delete: (n,) deletes of sequence mode.
        is_key_only: (n,) deletes that need only key and sequence.
        scales: Column to the scale of its encoded decimals.

    Attributes:
        columns: The typed columns.
        is_taken: (n,) all cells of the change fit.
    """

    def __init__(
        self,
        settings: DecodingSettings,
        scanned: Scanned,
        changes: ScannedChanges,
        is_delete: Mask,
        is_key_only: Mask,
        scales: Mapping[str, int],
    ) -> None:
        self._settings = settings
        self._scales = scales
        self._scanned = scanned
        self.is_taken = changes.is_taken.copy()
        self.columns: dict[str, pa.Array] = {}
        needed = needed_of_delete(settings)
        for column in settings.columns:
            cells = changes.cells[column.name]
            # Stale or absent columns of a delete are nulls: they must not make it bad.
            is_unread = is_key_only
            if column.name in needed:
                is_unread = is_key_only & cells.has(ABSENT)
            if is_unread.any():
                cells = cells.filled(is_unread, NULL)
            self.columns[column.name] = self._column(column, cells, is_delete)

    def _column(self, column: pa.Field, cells: Cells, is_delete: Mask) -> pa.Array:
        """Return a column; raise one of `REFUSALS` if a value does not fit."""
        settings = self._settings
        name = column.name
        default = settings.defaults.get(name)
        is_absent = np.zeros(len(is_delete), bool)
        if name in settings.defaults:
            is_absent = cells.has(ABSENT)
        is_null = cells.has(NULL)
        if default is None:
            is_null |= is_absent
        allowed = _TEXTS if name in self._scales else _kinds_of(column.type)
        is_fit = is_absent | cells.has(NULL, *allowed)
        if name in settings.key:
            is_fit &= ~is_null
        elif not column.nullable:
            is_fit &= ~is_null | is_delete
        self.is_taken &= is_fit
        is_left_out = is_absent | ~is_fit
        if is_left_out.any():
            cells = cells.filled(is_left_out, NULL)
        array = self._typed(cells, column.type, name)
        if default is None or not is_absent.any():
            return array
        defaults, _ = settings.coding(name).convert([default], column.type)
        return pc.if_else(pa.array(is_absent), defaults[0], array)

    def _typed(self, cells: Cells, type_: pa.DataType, name: str) -> pa.Array:
        scanned = self._scanned
        if pa.types.is_boolean(type_):
            is_true = cells.kind == TRUE
            is_null = cells.kind == NULL
            return pa.array(is_true, mask=is_null)
        if pa.types.is_integer(type_):
            integers = scanned.integers(cells)
            return integers.cast(type_)
        if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
            return self._times(cells, type_, name)
        texts = scanned.texts(cells)
        if name in self._scales:
            texts, is_bad = decimal_texts(texts, self._scales[name])
            self._leave(is_bad)
        if pa.types.is_string(type_):
            marks = pa.array(sorted(self._settings.unavailable.texts), pa.string())
            is_unsent = pc.is_in(texts, marks)
            self._leave(is_unsent)
            return texts
        if pa.types.is_floating(type_):
            doubles = pc.add(
                texts.cast(pa.float64()), 0.0
            )  # -0.0 becomes 0.0; JSON's numbers are doubles, then rounded to a narrower type
            numbers = doubles.cast(type_)
            self._leave(pc.is_inf(numbers))
            return numbers
        is_plain = are_plain_decimals(texts, type_)
        self._leave(pc.invert(is_plain))
        plain_texts = pc.if_else(is_plain, texts, None)
        return plain_texts.cast(type_)

    def _times(self, cells: Cells, type_: pa.DataType, name: str) -> pa.Array:
        scanned = self._scanned
        is_integer = cells.has(INTEGER)
        without_integers = cells.filled(is_integer, NULL)
        texts = scanned.texts(without_integers)
        numbers = scanned.integers(cells)
        if pa.types.is_date32(type_):
            days = numbers.cast(pa.int32())
            return dates_of(days, texts, type_)
        unit = self._settings.time_units.get(name, "us")
        return timestamps_of(numbers, texts, type_, unit)

    def _leave(self, is_left: pa.BooleanArray) -> None:
        """Leave changes to the other paths."""
        self.is_taken &= ~marked(is_left)
