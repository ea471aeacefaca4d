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
        self._has_own_units = any(change.units for change in contents.changes)

    def user_columns(self) -> Columns:
        """Return the user's columns, and `_unavailable`: the names of those whose values were not sent."""
        columns: Columns = {}
        unsent: list[list[str] | None] = [None] * len(self._changes)
        rows = self._needed_rows()
        for column in self._settings.columns:
            values = self._values(column.name, rows)
            for i in self._take_out_unsent(column, values):
                unsent[i] = [*(unsent[i] or []), column.name]
            columns[column.name] = self._typed(column, values)
        columns["_unavailable"] = pa.array(unsent, pa.list_(pa.string()))
        return columns

    def sequence(self, columns: Mapping[str, pa.Array]) -> pa.StructArray:
        """Return `_sequence`: what orders each change, the source's positions and the user's columns."""
        type_ = sequence_type(self._settings.columns, self._settings.sequence)
        in_log = [name for name in self._settings.sequence if name in LOG_POSITIONS]
        parts = []
        for component in type_:
            if component.name not in LOG_POSITIONS:
                parts.append(columns[component.name])
                continue
            index = in_log.index(component.name)
            positions = [change.position[index] if change.position else None for change in self._changes]
            parts.append(pa.array(positions, component.type))
        return pa.StructArray.from_arrays(parts, fields=list(type_))

    def event_ms(self, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return event times, epoch ms, from the source or from the user's column."""
        if self._settings.event_time is None:
            return pa.array([change.event_ms for change in self._changes], pa.int64())
        times = columns[self._settings.event_time]
        if pa.types.is_date(times.type):
            times = times.cast(pa.timestamp("us"))
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("ms", times.type.tz), safe=False)
        return times.cast(pa.int64())

    def key_changes(self, sequence: pa.StructArray) -> pa.Array:
        """Return `_moved_from`: of each good update that changed the key the old key, as a list of one."""
        moves: list[list[Json] | None] = [None] * len(self._changes)
        for i, change in enumerate(self._changes):
            if change.old_row is None or self._records[i].bad is not None:
                continue
            old_key = {name: self._one_value(change, name) for name in self._settings.key}
            moves[i] = [{"sequence": sequence[i].as_py(), "key": old_key}]
        return pa.array(moves, self._settings.schema.field("_moved_from").type)

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
            detail = f"{column.name}: got {shortened(values[i])}; allowed: {column.type}"
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

    def _one_value(self, change: DecodedChange, column: str) -> Any:
        """Return the typed value of a column of a change's old row; None where it does not fit."""
        value = (change.old_row or {}).get(column)
        encoding = self._settings.encodings.get(column)
        if encoding is not None:
            value = decode_integer(value, encoding)
        type_ = self._settings.columns.field(column).type
        array, _ = convert([value], type_, self._unit(change, column))
        return array[0].as_py()


def _indices(values: list[Any], wanted: Any) -> list[int]:
    """Return where a value stands; one that is equal but of another class is another value."""
    class_ = wanted.__class__
    return [i for i, value in enumerate(values) if value is wanted or (value.__class__ is class_ and value == wanted)]
