"""From changes with JSON values to typed columns; a value that does not fit makes its record bad."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.columns import TimeUnit, convert
from ebbtide.formats.encodings import decode_integer
from ebbtide.formats.format import DecodedChange, Json, shortened, unavailable_form
from ebbtide.formats.reading import Contents
from ebbtide.formats.settings import DecodingSettings
from ebbtide.model.changelog import RowKind
from ebbtide.model.sequences import LOG_POSITIONS, is_log_position, sequence_type

Columns = dict[str, pa.Array]
_ABSENT = object()
_DELETING = (RowKind.DELETE, RowKind.UPDATE_BEFORE)


class ColumnTyper:
    """Types the changes of one batch, a column at a time.

    Args:
        settings: The pipeline's.
        contents: The changes and their records, which are marked where a value does not fit.
    """

    def __init__(self, settings: DecodingSettings, contents: Contents) -> None:
        self._settings = settings
        self._changes = contents.changes
        self._records = contents.records
        own_units = (change.units for change in contents.changes)
        self._has_own_units = any(own_units)

    def user_columns(self) -> Columns:
        """Return the user's columns, and `_unavailable`: the names of those whose values were not sent."""
        columns: Columns = {}
        unsent: list[list[str] | None] = [None] * len(self._changes)
        rows = self._needed_rows()
        for column in self._settings.columns:
            name = column.name
            values = self._values(name, rows)
            for i in self._take_out_unsent(column, values):
                others = unsent[i] or []
                unsent[i] = [*others, name]
            columns[name] = self._typed(column, values)
        columns["_unavailable"] = pa.array(unsent, pa.list_(pa.string()))
        return columns

    def sequence(self, columns: Mapping[str, pa.Array]) -> pa.StructArray:
        """Return `_sequence`: what orders each change, the source's positions and the user's columns."""
        settings = self._settings
        type_ = sequence_type(settings.columns, settings.sequence)
        components = []
        n_positions = 0
        for component in type_:
            if component.name in LOG_POSITIONS:
                positions = self._log_positions(n_positions)
                array = pa.array(positions, component.type)
                n_positions += 1
            else:
                array = columns[component.name]
            components.append(array)
        return pa.StructArray.from_arrays(components, fields=list(type_))

    def _log_positions(self, index: int) -> list[int | None]:
        """Return one component of the changes' positions in the source's log."""
        positions = [change.position for change in self._changes]
        return [position[index] if position else None for position in positions]

    def event_ms(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return event times, epoch ms, from the source or from the user's column."""
        column = self._settings.event_time
        if column is None:
            event_ms = [change.event_ms for change in self._changes]
            return pa.array(event_ms, pa.int64())
        times = columns[column]
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(times.type):
            in_ms = pa.timestamp("ms", times.type.tz)
            times = times.cast(in_ms, safe=False)
        return times.cast(pa.int64())

    def key_changes(self, sequence: pa.StructArray) -> pa.Array:
        """Return `_moved_from`: of each good update that changed the key the old key, as a list of one."""
        moves: list[list[Json] | None] = [None] * len(self._changes)
        for i, change in enumerate(self._changes):
            record = self._records[i]
            if change.old_row is None or record.bad is not None:
                continue
            old_key = self._old_key(change)
            key_change = {"sequence": sequence[i].as_py(), "key": old_key}
            moves[i] = [key_change]
        column = self._settings.schema.field("_moved_from")
        return pa.array(moves, column.type)

    def _needed_rows(self) -> list[Json]:
        """Return the JSON row of each change, with the columns that it must have.

        A delete by sequence needs the key and the sequence only; its other columns may be absent or stale. But one that
        takes back a row by the user's own sequence has that row's content.
        """
        settings = self._settings
        names = settings.columns.names
        nothing: Json = dict.fromkeys(names)
        wanted = {*settings.key, *settings.sequence, settings.event_time}
        takes_back_by_content = not is_log_position(settings.sequence)
        rows = []
        for change in self._changes:
            row = change.row
            if row is None:
                rows.append(nothing)
                continue
            is_retraction = takes_back_by_content and change.op == RowKind.UPDATE_BEFORE
            if settings.sequence and change.kind in _DELETING and not is_retraction:
                row = {name: row.get(name) if name in wanted else None for name in names}
            rows.append(row)
        return rows

    def _values(self, name: str, rows: list[Json]) -> list[Any]:
        """Return a column's JSON values; where there is neither one nor a default the record is bad."""
        default = self._settings.defaults.get(name, _ABSENT)
        values = [row.get(name, default) for row in rows]
        if default is _ABSENT and _ABSENT in values:
            allowed = "a value, or a DEFAULT in the schema for records from before it was added"
            detail = f"{name}: the record has no such column; allowed: {allowed}"
            for i in _indices(values, _ABSENT):
                self._records[i].refuse("missing_column", detail)
                values[i] = None
        return values

    def _take_out_unsent(self, column: pa.Field, values: list[Any]) -> list[int]:
        """Set the values that were not sent to null, and return their indices."""
        stand_in = unavailable_form(column.type)
        if stand_in is None or stand_in not in values:
            return []
        unsent = _indices(values, stand_in)
        for i in unsent:
            values[i] = None
        return unsent

    def _typed(self, column: pa.Field, values: list[Any]) -> pa.Array:
        encoding = self._settings.encodings.get(column.name)
        if encoding is not None:
            values = [decode_integer(value, encoding) for value in values]
        array, misfits = self._convert(column, values)
        for i in misfits:
            got = shortened(values[i])
            detail = f"{column.name}: got {got}; allowed: {column.type}"
            self._records[i].refuse("wrong_type", detail)
        return array

    def _convert(self, column: pa.Field, values: list[Any]) -> tuple[pa.Array, list[int]]:
        """Convert a column, each value by the unit that its own record gives.

        Records with schemas of their own may differ in their units. The column is then converted once for each unit,
        with the values of the others null, and the results are laid over each other.
        """
        default = self._default_unit(column.name)
        if not self._has_own_units:
            return convert(values, column.type, default)
        units = [self._unit(change, column.name) for change in self._changes]
        distinct = set(units)
        if len(distinct) == 1:
            return convert(values, column.type, units[0])
        array = pa.nulls(len(values), column.type)
        misfits: list[int] = []
        for unit in distinct:
            own = [value if other == unit else None for value, other in zip(values, units, strict=True)]
            part, unfit = convert(own, column.type, unit)
            array = pc.coalesce(array, part)
            misfits += unfit
        return array, misfits

    def _default_unit(self, column: str) -> TimeUnit:
        return self._settings.time_units.get(column, "us")

    def _unit(self, change: DecodedChange, column: str) -> TimeUnit:
        """Return what integers mean in a timestamp column: the record's own schema goes before the spec."""
        default = self._default_unit(column)
        return change.units.get(column, default) if change.units else default

    def _old_key(self, change: DecodedChange) -> Json:
        """Return the typed key of a change's old row; a value that does not fit is None."""
        settings = self._settings
        old_row = change.old_row or {}
        key: Json = {}
        for name in settings.key:
            value = old_row.get(name)
            encoding = settings.encodings.get(name)
            if encoding is not None:
                value = decode_integer(value, encoding)
            column = settings.columns.field(name)
            unit = self._unit(change, name)
            array, _ = convert([value], column.type, unit)
            key[name] = array[0].as_py()
        return key


def _indices(values: list[Any], wanted: Any) -> list[int]:
    """Return where a value stands; one that is equal but of another class is another value."""
    class_ = wanted.__class__
    indices = []
    for i, value in enumerate(values):
        is_equal = value.__class__ is class_ and value == wanted
        if value is wanted or is_equal:
            indices.append(i)
    return indices
