"""Converts scanned cells to typed columns. A change with a cell that does not fit its column is not taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask
from ebbtide.formats._columns import InexactNumberError, TimeUnit, are_plain_decimals, dates_of, timestamps_of
from ebbtide.formats._encodings import decoded
from ebbtide.formats._forms import ScannedChanges
from ebbtide.formats._scan import Cells, Scanned, Scanner, marked
from ebbtide.formats._scan_loops import (
    ABSENT,
    ANY,
    BYTES,
    DOUBLE,
    ESCAPED,
    FALSE,
    FLOAT,
    INTEGER,
    LIST,
    NULL,
    NUMBER,
    OBJECT,
    TEXT,
    TRUE,
)
from ebbtide.formats._scan_schemas import WITHOUT_SCHEMA, SchemaReading, decimal_texts
from ebbtide.formats._settings import DecodingSettings
from ebbtide.formats._typed import needed_of_delete, unsent_within
from ebbtide.formats._unavailable import RESERVED_POINT, Unavailable

_TEXTS = (TEXT, ESCAPED)
Leave = Callable[[Mask], None]
"""Leaves the changes of some cells to the other paths."""


def _is_scannable(column: pa.Field) -> bool:
    """Return whether a column's values are typed from their cells."""
    type_ = column.type
    within = [type_.field(i) for i in range(type_.num_fields)]
    are_distinct = len({each.name for each in within}) == len(within)
    is_empty = pa.types.is_struct(type_) and not within
    return bool(_kinds_of(type_)) and are_distinct and not is_empty and all(map(_is_scannable, within))


def _kinds_of(type_: pa.DataType) -> Sequence[int]:
    """Return the kinds of cells that a column of a type accepts, null aside; empty: its values are not scanned."""
    return next((kinds for is_of_type, kinds in _KINDS.items() if is_of_type(type_)), ())


_KINDS: dict[Callable[[pa.DataType], bool], Sequence[int]] = {
    pa.types.is_string: _TEXTS,
    pa.types.is_integer: (INTEGER,),
    pa.types.is_boolean: (TRUE, FALSE),
    pa.types.is_floating: (INTEGER, NUMBER, FLOAT, DOUBLE),
    pa.types.is_date32: (*_TEXTS, INTEGER),
    pa.types.is_timestamp: (*_TEXTS, INTEGER),
    pa.types.is_decimal: (*_TEXTS, INTEGER),
    pa.types.is_list: (LIST,),
    pa.types.is_struct: (OBJECT,),
    pa.types.is_map: (OBJECT,),
}
_READ_ONE_BY_ONE = (*_TEXTS, INTEGER, TRUE, FALSE, LIST, OBJECT)
"""Kinds of cells of columns that have an encoding, are BINARY or hold it, null aside."""


@dataclass(frozen=True)
class _Typing:
    """Types the cells of one column, and within it.

    Args:
        scanned: The records.
        unit: Unit of integers in timestamps.
        scale: Scale of encoded decimals; None: they are not encoded.
        unavailable: Recognizes values that were not sent.
    """

    scanned: Scanned
    unit: TimeUnit
    scale: int | None
    unavailable: Unavailable

    def kinds_of(self, type_: pa.DataType) -> Sequence[int]:
        """Return the kinds of cells that the column accepts, see `_kinds_of`."""
        return (*_TEXTS, BYTES) if self.scale is not None else _kinds_of(type_)

    def typed_column(self, column: pa.Field, cells: Cells, leave: Leave, take_out: Leave) -> pa.Array:
        """Return the values of a whole column, see `typed`."""
        return self.typed(cells, column.type, leave, take_out)

    def typed(self, cells: Cells, type_: pa.DataType, leave: Leave, take_out: Leave | None = None) -> pa.Array:
        """Return (n,) values; raise one of `REFUSALS` if a value does not fit.

        Args:
            cells: (n,) cells, of kinds that the type accepts, or null.
            type_: The type.
            leave: Called with the cells that are left.
            take_out: Called with the marks of values that were not sent. Default: the cells are of values within a column.
        """
        if pa.types.is_boolean(type_):
            return pa.array(cells.kind == TRUE, mask=cells.kind == NULL)
        if pa.types.is_integer(type_):
            return self.scanned.integers(cells).cast(type_)
        if pa.types.is_floating(type_):
            return self._floats(cells, type_, leave)
        if pa.types.is_nested(type_):
            return self._nested(cells, type_, leave)
        return self._of_texts(cells, type_, leave, take_out)

    def _floats(self, cells: Cells, type_: pa.DataType, leave: Leave) -> pa.Array:
        texts = self.scanned.texts(cells)
        # -0.0 becomes 0.0; JSON's numbers are doubles, then rounded to a narrower type
        doubles = pc.add(texts.cast(pa.float64()), 0.0)
        is_binary = cells.has(FLOAT, DOUBLE)
        if is_binary.any():
            binary = self.scanned.doubles(cells)
            leave(~np.isfinite(binary))
            doubles = pc.if_else(pa.array(is_binary), pa.array(binary + 0.0), doubles)
        numbers = doubles.cast(type_)
        leave(marked(pc.is_inf(numbers)))
        return numbers

    def _of_texts(self, cells: Cells, type_: pa.DataType, leave: Leave, take_out: Leave | None) -> pa.Array:
        is_text = cells.has(*_TEXTS)
        texts = self.scanned.texts(cells)
        texts = self._without_marks(texts, is_text, take_out or leave, is_within=take_out is None)
        if pa.types.is_string(type_):
            return texts
        if not pa.types.is_decimal(type_):
            texts_alone = pc.if_else(pa.array(is_text), texts, None)
            return self._times(cells, texts_alone, type_)
        if self.scale is not None:
            if cells.has(BYTES).any():
                return self._unscaled(cells, type_, self.scale, leave)
            texts, is_bad = decimal_texts(texts, self.scale)
            leave(marked(is_bad))
        is_plain = are_plain_decimals(texts, type_)
        leave(marked(pc.invert(is_plain)))
        plain_texts = pc.if_else(is_plain, texts, None)
        return plain_texts.cast(type_)

    def _unscaled(self, cells: Cells, type_: pa.Decimal128Type, scale: int, leave: Leave) -> pa.Array:
        decimals, is_bad = self.scanned.unscaled(cells, scale)
        is_mark = cells.has(BYTES) & (cells.stop - cells.start == self.unavailable.n_spelt)
        leave(is_bad | is_mark | cells.has(*_TEXTS))
        return decimals.cast(type_)

    def _without_marks(
        self, texts: pa.StringArray, is_text: Mask, take_out: Leave, *, is_within: bool
    ) -> pa.StringArray:
        marks = self.unavailable.texts_within if is_within else self.unavailable.texts
        is_mark = is_text & marked(pc.is_in(texts, pa.array(sorted(marks), pa.string())))
        if not is_mark.any():
            return texts
        take_out(is_mark)
        return pc.if_else(pa.array(is_mark), None, texts)

    def _times(self, cells: Cells, texts: pa.StringArray, type_: pa.DataType) -> pa.Array:
        numbers = self.scanned.integers(cells)
        if pa.types.is_date32(type_):
            days = numbers.cast(pa.int32())
            return dates_of(days, texts, type_)
        return timestamps_of(numbers, texts, type_, self.unit)

    def _fitting(self, cells: Cells, type_: pa.DataType, leave: Leave) -> pa.Array:
        """Return the values of cells within a column; those that do not fit are left."""
        within = _Typing(self.scanned, self.unit, None, self.unavailable)
        is_unfit = ~cells.has(NULL, ABSENT, *_kinds_of(type_))
        leave(is_unfit)
        return within.typed(cells.filled(is_unfit | cells.has(ABSENT), NULL), type_, leave)

    def _nested(self, cells: Cells, type_: pa.DataType, leave: Leave) -> pa.Array:
        if pa.types.is_list(type_):
            return self._lists(cells, type_, leave)
        if pa.types.is_map(type_):
            return self._maps(cells, type_, leave)
        return self._structs(cells, type_, leave)

    def _lists(self, cells: Cells, type_: pa.ListType, leave: Leave) -> pa.Array:
        elements = self.scanned.elements(cells)
        leave(cells.has(LIST) & (np.diff(elements.offsets) == self.unavailable.n_spelt))
        items = self._fitting(elements.cells, type_.value_type, lambda are_left: leave(elements.owners(are_left)))
        is_null = cells.kind == NULL
        return pa.ListArray.from_arrays(pa.array(elements.offsets), items, type=type_, mask=pa.array(is_null))

    def _structs(self, cells: Cells, type_: pa.StructType, leave: Leave) -> pa.Array:
        fields = {field.name: ANY if pa.types.is_nested(field.type) else None for field in type_}
        is_object = cells.has(OBJECT)
        begins, ends = (np.where(is_object, at, np.int32(0)) for at in (cells.start, cells.stop))
        within = Scanner(fields, exact=((),)).scan_within(self.scanned.data, begins, ends)
        leave(is_object & ~within.is_taken)
        columns = []
        for field in type_:
            own = within.cells[field.name,]
            own = own.filled(~within.is_taken, NULL)
            if field.name in ("x", "y"):
                leave(self._are_reserved(own))
            columns.append(self._fitting(own, field.type, leave))
        return pa.StructArray.from_arrays(columns, fields=list(type_), mask=pa.array(cells.kind == NULL))

    def _maps(self, cells: Cells, type_: pa.MapType, leave: Leave) -> pa.Array:
        elements = self.scanned.elements(cells)

        def leave_owners(are_left: Mask) -> None:
            leave(elements.owners(are_left))

        leave_owners(self._are_reserved(elements.cells))
        names = self.scanned.texts(elements.names)
        leave_owners(_are_repeated(elements.offsets, names))
        keys = self._fitting(elements.names, type_.key_type, leave_owners)
        items = self._fitting(elements.cells, type_.item_type, leave_owners)
        # A map is null if its offset is null; the last offset only ends the last map.
        is_null = np.append(cells.kind == NULL, False)
        offsets = pa.array(elements.offsets, mask=is_null)
        return pa.MapArray.from_arrays(offsets, keys, items).cast(type_)

    def _are_reserved(self, cells: Cells) -> Mask:
        """Mark the numbers that may be a reserved point's."""
        is_number = cells.has(INTEGER, NUMBER)
        numbers = self.scanned.texts(cells.filled(~is_number, NULL)).cast(pa.float64())
        return marked(pc.is_in(numbers, pa.array(RESERVED_POINT)))


def _mask_of(rows: Sequence[int], n: int) -> Mask:
    """Mark some of n rows."""
    mask = np.zeros(n, bool)
    mask[list(rows)] = True
    return mask


def _are_repeated(offsets: np.ndarray, names: pa.StringArray) -> Mask:
    """Mark the (m,) names that occur again in the same object."""
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    encoded = names.dictionary_encode()
    codes = owners * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
    _, firsts = np.unique(codes, return_index=True)
    is_repeated = np.ones(len(codes), bool)
    is_repeated[firsts] = False
    return is_repeated


class ScanColumns:
    """Types and judges the columns of scanned changes.

    Args:
        settings: Settings of the pipeline.
        scanned: The records.
        changes: Their changes.
        is_delete: (n,) deletes of sequence mode.
        is_key_only: (n,) deletes that need only key and sequence.
        reading: How to read values by their record's schema.

    Attributes:
        columns: The typed columns, and `_unavailable` if a value was not sent.
        is_taken: (n,) all cells of the change fit.
    """

    def __init__(
        self,
        settings: DecodingSettings,
        scanned: Scanned,
        changes: ScannedChanges,
        is_delete: Mask,
        is_key_only: Mask,
        reading: SchemaReading,
    ) -> None:
        self._settings = settings
        self._reading = reading
        self._scanned = scanned
        self._unsent: dict[int, list[str]] = {}
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
        if self._unsent:
            type_ = settings.schema.field("_unavailable").type
            unsent = [self._unsent.get(change) for change in range(len(is_delete))]
            self.columns["_unavailable"] = pa.array(unsent, type_)

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
        unit = settings.time_units.get(name, "us")
        typing = _Typing(self._scanned, unit, self._reading.scales.get(name), settings.unavailable)
        is_one_by_one = name in settings.encodings or not _is_scannable(column)
        kinds = self._kinds_one_by_one(column) if is_one_by_one else typing.kinds_of(column.type)
        is_fit = is_absent | cells.has(NULL, *kinds)
        if name in settings.key:
            is_fit &= ~is_null & ~cells.has(ABSENT)  # the record's key may have it
        elif not column.nullable:
            is_fit &= ~is_null | is_delete
        self._leave(~is_fit)
        is_left_out = is_absent | ~is_fit
        if is_left_out.any():
            cells = cells.filled(is_left_out, NULL)
        may_lack = name not in settings.key and not settings.needs_whole_rows
        take_out = partial(self._take_out, name) if may_lack else self._leave
        read = self._one_by_one if is_one_by_one else typing.typed_column
        array = read(column, cells, self._leave, take_out)
        if default is None or not is_absent.any():
            return array
        defaults, _ = settings.coding(name).convert([default], column.type)
        return pc.if_else(pa.array(is_absent), defaults[0], array)

    def _kinds_one_by_one(self, column: pa.Field) -> Sequence[int]:
        """Return the kinds of cells of a column that are read one by one; those with a schema are bytes of Avro, or left."""
        if self._reading is WITHOUT_SCHEMA:
            return _READ_ONE_BY_ONE
        return (BYTES,) if pa.types.is_binary(column.type) else ()

    def _one_by_one(self, column: pa.Field, cells: Cells, leave: Leave, take_out: Leave) -> pa.Array:
        """Return the values of a column that has an encoding, or bytes, as the exact path reads them."""
        settings = self._settings
        name, type_ = column.name, column.type
        if cells.has(BYTES).any():
            raw = self._scanned.raw(cells)
            is_mark = marked(pc.equal(raw, settings.unavailable.raw))
            take_out(is_mark)
            return pc.if_else(pa.array(is_mark), None, raw)
        values = self._scanned.values(cells)
        take_out(_mask_of(settings.unavailable.take_out(values, type_), len(values)))
        if pa.types.is_nested(type_):
            leave(_mask_of(unsent_within(settings, column, values), len(values)))
        plain = decoded(values, settings.encodings.get(name), type_, repeat(False))
        try:
            array, misfits = settings.coding(name).convert(plain, type_)
        except InexactNumberError:
            array, misfits = pa.nulls(len(values), type_), list(range(len(values)))
        leave(_mask_of(misfits, len(values)))
        return array

    def _take_out(self, name: str, are_unsent: Mask) -> None:
        """Note the changes that leave out a column's value."""
        for change in np.flatnonzero(are_unsent).tolist():
            self._unsent.setdefault(change, []).append(name)

    def _leave(self, are_left: Mask) -> None:
        """Leave changes to the other paths."""
        self.is_taken &= ~are_left
