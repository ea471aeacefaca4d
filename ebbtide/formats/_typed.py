"""Types the JSON values of changes, column by column; a value that does not fit makes its record bad."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import RowKind
from ebbtide.formats._columns import Coding, Converted, holds_binary
from ebbtide.formats._encodings import Encoding, decoded, is_precise, of_bytes
from ebbtide.formats._format import BadRecordError, DecodedChange, Json, RecordSchema, shortened
from ebbtide.formats._reading import Contents
from ebbtide.formats._settings import DELETING, DecodingSettings

Columns = dict[str, pa.Array]
_ABSENT = object()


class ColumnTyper:
    """Types the changes of one batch, a column at a time.

    Args:
        settings: Settings of the pipeline.
        contents: The changes and their records; records with a value that does not fit are marked as bad.
    """

    def __init__(self, settings: DecodingSettings, contents: Contents) -> None:
        self._settings = settings
        self._changes = contents.changes
        self._records = contents.records
        self._has_own_units = any(change.units for change in contents.changes)
        self._have_schemas = any(change.schema for change in contents.changes)

    def user_columns(self) -> Columns:
        """Return the user's columns, and `_unavailable`: the columns of each change whose values were not sent."""
        columns: Columns = {}
        n_changes = len(self._changes)
        unsent: list[list[str] | None] = [None] * n_changes
        names = self._settings.columns.names
        # Row by row: a column at a time would fetch each row's object from memory again, for half of the whole time.
        cells = [[row.get(name, _ABSENT) for name in names] for row in self._needed_rows()]
        by_column = zip(*cells, strict=True) if cells else repeat((), len(names))
        for column, column_cells in zip(self._settings.columns, by_column, strict=True):
            name = column.name
            values = list(column_cells)
            own_unsent = self._settings.unavailable.take_out(values, column.type)
            if pa.types.is_nested(column.type):
                self._refuse_unsent_within(column, values)
            for i in own_unsent:
                earlier = unsent[i] or []
                unsent[i] = [*earlier, name]
            columns[name] = self._typed(column, values)
        columns["_unavailable"] = self._staged("_unavailable", unsent)
        return columns

    def _refuse_unsent_within(self, column: pa.Field, values: list[Any]) -> None:
        for i in unsent_within(self._settings, column, values):
            error = BadRecordError.of(
                "value_not_sent",
                column.name,
                got=shortened(values[i]),
                allowed="the mark of an unsent value only for a whole column, which then keeps its last known value",
            )
            self._records[i].refuse(error)

    def sequence(self, columns: Columns) -> pa.StructArray:
        """Return `_sequence`: log positions of the source, and the user's columns."""
        settings = self._settings
        type_ = settings.sequence_columns.type
        components = []
        n_positions = 0
        for component in type_:
            name = component.name
            if name in columns:
                array = columns[name]
            else:
                positions = self._log_positions(n_positions)
                n_positions += 1
                array = pa.array(positions, component.type)
            components.append(array)
        return pa.StructArray.from_arrays(components, fields=list(type_))

    def _log_positions(self, index: int) -> list[int | None]:
        """Return one component of the changes' positions in the source's log."""
        return [change.position[index] for change in self._changes]

    def event_ms(self, columns: Columns) -> pa.Array:
        """Return event times, epoch ms, from the source or from the user's column."""
        event_ms = [change.event_ms for change in self._changes]
        of_source = self._staged("_event_ms", event_ms)
        return event_times(self._settings, columns, of_source)

    def key_changes(self, sequence: pa.StructArray | None) -> pa.Array:
        """Return `_moved_from`: for each good update that changed the key, a list with its sequence and old key.

        Args:
            sequence: (n,) sequences of the changes; None: set later, see `placed`.
        """
        n_changes = len(self._changes)
        key_changes: list[list[Json] | None] = [None] * n_changes
        for i, change in enumerate(self._changes):
            record = self._records[i]
            if change.other_row is None or record.bad is not None:
                continue
            own_sequence = None if sequence is None else sequence[i].as_py()
            key_change = {
                "sequence": own_sequence,
                "key": self._old_key(change),
            }
            key_changes[i] = [key_change]
        return self._staged("_moved_from", key_changes)

    def _staged(self, name: str, values: list[Any]) -> pa.Array:
        """Return values as a column of the staged rows, with its type."""
        column = self._settings.schema.field(name)
        return pa.array(values, column.type)

    def _needed_rows(self) -> list[Json]:
        """Return the JSON row of each change, reduced to the needed columns.

        A delete in sequence mode needs only key and sequence: its other columns may be absent or stale. But a retraction in a
        changelog with a user's sequence carries the content that it retracts.
        """
        settings = self._settings
        names = settings.columns.names
        empty_row: Json = dict.fromkeys(names)
        needed_names = needed_of_delete(settings)
        keeps_content = takes_back_by_content(settings)
        rows = []
        for change in self._changes:
            row = change.row
            if row is None:
                rows.append(empty_row)
                continue
            is_delete = settings.sequence and change.kind in DELETING
            is_retraction = change.op == RowKind.UPDATE_BEFORE
            has_content = keeps_content and is_retraction
            if is_delete and not has_content:
                needed = {name: row[name] for name in row if name in needed_names}
                row = empty_row | needed
            rows.append(row)
        return rows

    def _with_default(self, name: str, values: list[Any]) -> list[Any]:
        """Return a column's values, with its default for records that lack it; without a default such records are bad."""
        if _ABSENT not in values:
            return values
        absent = indices_of(values, _ABSENT)
        default = self._settings.defaults.get(name, _ABSENT)
        filled = list(values)
        for i in absent:
            filled[i] = None if default is _ABSENT else default
        if default is not _ABSENT:
            return filled
        allowed = "a value, or a DEFAULT in the schema for records from before it was added"
        detail = f"{name}: the record has no such column; allowed: {allowed}"
        error = BadRecordError("missing_column", detail, masked=detail)
        for i in absent:
            record = self._records[i]
            record.refuse(error)
        return filled

    def _typed(self, column: pa.Field, values: list[Any]) -> pa.Array:
        misread = self._misread(column, values)
        plain = self._without_encoding(column, values, self._changes)
        plain = self._with_default(column.name, plain)
        for i in misread:
            plain[i] = None
        array, misfits = self._convert(column, plain)
        for i in (*misread, *misfits):
            record = self._records[i]
            value = values[i]
            allowed = self._allowed(column, value, self._changes[i])
            error = BadRecordError.of(
                "wrong_type",
                column.name,
                got=shortened(value),
                allowed=allowed,
            )
            record.refuse(error)
        return array

    def _misread(self, column: pa.Field, values: list[Any]) -> list[int]:
        """Return the changes whose value the column would misread, according to the record's schema."""
        if not self._have_schemas:
            return []
        misread = []
        encoding = self._settings.encodings.get(column.name)
        is_coded = of_bytes(encoding) is not None
        verdicts: dict[int, bool] = {}  # by the schema's identity: many records share one
        for i, change in enumerate(self._changes):
            value = values[i]
            schema = change.schema
            if not schema or value is None or value is _ABSENT:
                continue
            if id(schema) not in verdicts:
                verdicts[id(schema)] = schema.reads_wrongly(column.name, column.type, is_coded=is_coded)
            if verdicts[id(schema)]:
                misread.append(i)
        return misread

    def _allowed(
        self,
        column: pa.Field,
        value: Any,
        change: DecodedChange,
    ) -> str:
        """Return the allowed values of a column, for the message about one that does not fit."""
        name = column.name
        type_ = str(column.type)
        encoding = self._settings.encodings.get(name)
        if holds_binary(column.type):
            return type_ + _allowed_bytes(name, encoding, change.schema)
        if pa.types.is_temporal(column.type):
            type_ = _named_time(column.type)
        if change.schema:
            return type_ + change.schema.described(name)
        if pa.types.is_integer(column.type) and isinstance(value, float | Decimal):
            return f"{type_} without a fraction; from 2^53 on not as a float, which may have lost digits"
        if encoding == "precise":
            return f"base64 of a decimal that fits {type_}, as format.encodings says precise"
        if pa.types.is_decimal(column.type) and is_precise(value):
            way_out = f"format: {{type: debezium, encodings: {{{name}: precise}}}}"
            return f"{type_} as a number. Next: for base64 of the connector's decimal.handling.mode=precise {way_out}"
        return type_

    def _without_encoding(
        self,
        column: pa.Field,
        values: list[Any],
        changes: Sequence[DecodedChange],
    ) -> list[Any]:
        """Return a column's values, decoded if the spec names an encoding."""
        encoding = self._settings.encodings.get(column.name)
        schemas = (change.schema for change in changes)
        return decoded(values, encoding, column.type, schemas)

    def _convert(self, column: pa.Field, values: list[Any]) -> Converted:
        """Convert a column, each value by its record's coding.

        Records with schemas may differ in coding. The column is then converted once for each coding, with null for all
        other values, and the results are coalesced. O(n) for each coding.
        """
        name = column.name
        type_ = column.type
        if not (self._has_own_units or self._have_schemas):
            return self._settings.coding(name).convert(values, type_)
        codings = self._codings(column)
        distinct = set(codings)
        if len(distinct) == 1:
            return codings[0].convert(values, type_)
        array = pa.nulls(len(values), type_)
        misfits: list[int] = []
        for coding in distinct:
            with_codings = zip(values, codings, strict=True)
            so_coded = [value if own == coding else None for value, own in with_codings]
            part, part_misfits = coding.convert(so_coded, type_)
            array = pc.coalesce(array, part)
            misfits += part_misfits
        return array, misfits

    def _codings(self, column: pa.Field) -> list[Coding]:
        """Return (n,) the column's coding in each change's record; one is found for all that share units and schema."""
        by_record: dict[tuple[int, int], Coding] = {}
        codings = []
        for change in self._changes:
            shared = id(change.units), id(change.schema)
            if shared not in by_record:
                by_record[shared] = self._coding(change, column)
            codings.append(by_record[shared])
        return codings

    def _coding(self, change: DecodedChange, column: pa.Field) -> Coding:
        """Return a column's coding in a record: by its schema, else by the spec."""
        name = column.name
        coding = self._settings.coding(name)
        if change.units and name in change.units:
            coding = coding._replace(unit=change.units[name])
        has_bytes = change.schema is not None and holds_binary(column.type) and change.schema.has_bytes(name)
        return coding._replace(binary="base64") if has_bytes else coding

    def _old_key(self, change: DecodedChange) -> Json:
        """Return the typed key of a change's old row; None for values that do not fit."""
        settings = self._settings
        other_row = change.other_row or {}
        key: Json = {}
        for name in settings.key:
            value = other_row.get(name)
            column = settings.columns.field(name)
            values = self._without_encoding(column, [value], [change])
            array, _ = self._coding(change, column).convert(values, column.type)
            [typed_value] = array.to_pylist()
            key[name] = typed_value
        return key


def needed_of_delete(settings: DecodingSettings) -> set[str | None]:
    """Return the columns that a delete needs in sequence mode."""
    return {*settings.key, *settings.sequence, settings.event_time}


def takes_back_by_content(settings: DecodingSettings) -> bool:
    """Return whether retractions match rows by content: if a user's columns order changes."""
    return not settings.sequence_columns.are_positions


def event_times(
    settings: DecodingSettings,
    columns: Columns,
    of_source: pa.Array,
) -> pa.Array:
    """Return event times, epoch ms.

    Args:
        settings: Settings of the pipeline; they may name a user's column.
        columns: The user's columns.
        of_source: (n,) event times of the source.
    """
    if settings.event_time is None:
        return of_source
    times = columns[settings.event_time]
    if pa.types.is_date(times.type):
        in_us = pa.timestamp("us")
        times = times.cast(in_us)
    if pa.types.is_timestamp(times.type):
        in_ms = pa.timestamp("ms", times.type.tz)
        times = times.cast(in_ms, safe=False)  # cut to whole milliseconds
    return times.cast(pa.int64())


def _named_time(type_: pa.DataType) -> str:
    unfit = "BC, infinity and parts of a microsecond"
    if pa.types.is_date(type_):
        named, unfit = "a DATE", "BC and infinity"
    elif type_.tz is None:
        named = "a TIMESTAMP_NTZ, without a zone,"
    else:
        named = "a TIMESTAMP, with a zone,"
    return f"{named} of the years 1 to 9999. {unfit} are kept by BIGINT, or by STRING if they are text"


def _allowed_bytes(
    name: str,
    encoding: Encoding | None,
    schema: RecordSchema | None,
) -> str:
    if encoding is not None:
        return f" as {encoding}, as format.encodings says"
    described = schema.described(name) if schema else " as base64 that is not hex, too"
    way_out = f"format: {{encodings: {{{name}: base64}}}}, base64url or hex"
    return f"{described}. Next: for the connector's binary.handling.mode {way_out}"


def unsent_within(settings: DecodingSettings, column: pa.Field, values: Sequence[Any]) -> list[int]:
    """Return the indices of the values of a nested column that lack a part."""
    is_within = settings.unavailable.is_within
    return [i for i, value in enumerate(values) if is_within(value, column.type)]


def indices_of(values: list[Any], wanted: Any) -> list[int]:
    """Return the indices of a value."""
    return [i for i, value in enumerate(values) if value == wanted]
