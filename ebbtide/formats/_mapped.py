"""Reads records of any tool by a map of their fields: the operation, the row, its former values.

```json
{"action": "update", "record": {"id": 1, "v": "B"}, "changes": {"v": "A"}, "metadata": {"table_name": "orders"}}
```

Fields are named by dotted paths (`metadata.table_name`). A row is an object, or an array of objects, which are changed in their order.
The values before an update may leave out the columns that did not change; an update that changes the key deletes the
old key's row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial
from types import NoneType
from typing import Any, TypeGuard
from zoneinfo import ZoneInfo

import pyarrow as pa

from ebbtide.changelog import TRUNCATE, RowKind
from ebbtide.formats._connect import Fields, has_schema, plain_row, row_fields, schema_of, time_units
from ebbtide.formats._format import NOT_A_ROW, BadRecordError, DecodedChange, Format, Json, shortened
from ebbtide.formats._forms import RowForm, ScanForm
from ebbtide.formats._mapped_scan import ScannedRecords, has_scanned_form
from ebbtide.formats._mysql_types import MysqlSchema
from ebbtide.formats._positions import PositionField
from ebbtide.formats._record_map import (
    SNAPSHOT,
    FieldPath,
    Meaning,
    RecordMap,
    Word,
    event_ms_of,
    is_of_table,
    is_resolved,
    says_deleted,
)
from ebbtide.formats._unavailable import DEFAULT, Unavailable

_KINDS: dict[Meaning, str] = {
    "insert": RowKind.INSERT,
    "snapshot": RowKind.INSERT,
    "update": RowKind.UPDATE_AFTER,
    "delete": RowKind.DELETE,
    "truncate": TRUNCATE,
    "ignore": NOT_A_ROW,
}
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_TIME_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?")
_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True)
class MappedDecoder(Format):
    """The `Format` of records that a map describes.

    Args:
        map: The fields that make up a change.
        key: Names of the key's columns.
        columns: The pipeline's columns; None while they are unknown.
        retract: Retract the whole row before a change (arrival mode), instead of deleting old keys only.
        table: Read only changes of this table, `orders` or `shop.orders`; None: of all.
        in_utc: Times without a zone are UTC if the column has a zone.
        encoded: Columns with a stated encoding. If all values are text, bytes of other columns are characters.
        unavailable: Recognizes values that were not sent.
        positions: Fields that order changes; empty if columns or the records' places do.
    """

    map: RecordMap
    _: KW_ONLY
    key: tuple[str, ...] = ()
    columns: pa.Schema | None = None
    retract: bool = False
    table: str | None = None
    in_utc: bool = False
    encoded: frozenset[str] = frozenset()
    unavailable: Unavailable = DEFAULT
    positions: tuple[PositionField, ...] = ()
    _kinds: Mapping[Word, Meaning] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kinds", dict(self.map.words))

    def changes(
        self,
        value: Json,
        key: str | None,
        other_key: str | None = None,
    ) -> list[DecodedChange]:
        """See `Format.changes`."""
        value, fields = self._without_schema(value)
        if is_resolved(value):
            return [DecodedChange(NOT_A_ROW, None)]
        word, meaning = self._operation(value)
        if meaning == "ignore":
            return [DecodedChange(NOT_A_ROW, None, word)]
        if not self._takes(value):
            return []
        event_ms = self._event_ms(value)
        is_snapshot = meaning == "snapshot"
        snapshot_ms = event_ms or 0 if is_snapshot else None
        position = self.map.position(partial(_at, value), self.positions, snapshot_ms)
        if meaning == "truncate":
            return [DecodedChange(TRUNCATE, None, word, position, event_ms)]
        op = SNAPSHOT if is_snapshot else word
        schema = schema_of(fields) or self._mysql_schema(value)
        units = time_units(fields)
        made: list[DecodedChange] = []
        for row, before in self._rows(value, meaning, fields):
            is_deleted = meaning == "delete" or self._is_deleted(value, row)
            for kind, own_row, other_row in self._changes_of(row, before, meaning, is_deleted=is_deleted):
                change = DecodedChange(kind, own_row, op, position, event_ms, other_row, units, None, schema)
                made.append(change)
        return made

    def scanned(self, row: RowForm) -> Sequence[ScanForm]:
        """See `Format.scanned`."""
        lacks_table = self.table is not None and not self.map.table
        if self.in_utc or self.map.mysql_types or lacks_table or not has_scanned_form(self.map, row, self.positions):
            return ()
        form = ScannedRecords(
            self.map, row, key=self.key, retract=self.retract, table=self.table, positions=self.positions
        )
        return (form,)

    def _without_schema(self, value: Json) -> tuple[Json, Fields]:
        """Return a value without its Connect schema, and the schema's row fields, empty without one."""
        is_wrapped = has_schema(value) and isinstance(value["schema"], dict) and isinstance(value["payload"], dict)
        if not is_wrapped or "fields" not in value["schema"]:
            return value, {}
        within = self.map.row[0] if self.map.row else None
        return value["payload"], row_fields(value["schema"], within)

    def _operation(self, value: Json) -> tuple[str | None, Meaning]:
        """Return the operation's word, and its meaning."""
        path = self.map.operation
        if path is None:
            return None, "delete" if self._has_only_before(value) else "update"
        word = path.value_in(value)
        # A boolean is an integer to Python, and a list is not hashable: neither is a word.
        is_word = word is None or type(word) in (str, int)
        if not is_word or word not in self._kinds:
            words = ["null" if word is None else str(word) for word in self._kinds]
            raise BadRecordError.of(
                "unknown_operation",
                str(path),
                got=shortened(word),
                allowed=", ".join(words),
            )
        return None if word is None else str(word), self._kinds[word]

    def _has_only_before(self, value: Json) -> bool:
        """Return whether a record without an operation shows a row before its change, and none after it."""
        row, before = self.map.row, self.map.before
        if row is None or before is None or row.value_in(value) is not None:
            return False
        found = before.value_in(value)
        return isinstance(found, dict) or _is_key(found)

    def _takes(self, value: Json) -> bool:
        """Return whether a change belongs to the requested table."""
        if self.table is None:
            return True
        names = self.map.table_in(value)
        if None in names:
            paths = ", ".join(map(str, self.map.table))
            raise BadRecordError.of("missing_table", paths, got="null", allowed="the name of the change's table")
        return is_of_table(names, self.table)

    def _event_ms(self, value: Json) -> int | None:
        path = self.map.event_time
        if path is None:
            return None
        return event_ms_of(path.value_in(value), self.map.event_unit, str(path))

    def _mysql_schema(self, value: Json) -> MysqlSchema | None:
        path = self.map.mysql_types
        types = None if path is None else path.value_in(value)
        return MysqlSchema(types) if isinstance(types, dict) else None

    def _rows(self, value: Json, meaning: Meaning, fields: Fields) -> Iterator[tuple[Json, Json | None]]:
        """Yield a record's rows, each with the values before the change, if any.

        A delete may have its row only in the values before the change.
        """
        path = self.map.row
        rows = self._columns_in(value) if path is None else path.value_in(value)
        before = None if self.map.before is None else self.map.before.value_in(value)
        if _is_key(before):
            before = self._row_of_key(before, rows)
        if rows is None and meaning == "delete":
            rows, before = before, None
        if not isinstance(rows, list):
            rows, before = [rows], [before]
        befores = before if isinstance(before, list) else [before] * len(rows)
        if len(befores) != len(rows):
            raise BadRecordError(
                "not_a_row",
                f"got {len(rows)} rows and {len(befores)} rows before them; allowed: as many",
            )
        name = "the record" if path is None else str(path)
        for row, own_before in zip(rows, befores, strict=True):
            if not isinstance(row, dict):
                raise BadRecordError.of(
                    "not_a_row", name, got=shortened(row), allowed="an object, or objects in an array"
                )
            old = own_before if isinstance(own_before, dict) else None
            yield self._typed(row, name, fields), None if old is None else self._typed(old, name, fields)

    def _row_of_key(self, values: list[Any], row: Any) -> Json | None:
        """Return the row of a key whose values are an array; None if there is a row, in which the key must be the same."""
        key = dict(zip(self.key, values, strict=False))
        is_same = row is None or not self.key or (isinstance(row, dict) and key.items() <= row.items())
        if is_same and len(values) == (len(self.key) or len(values)):
            return key if row is None else None
        raise BadRecordError.of(
            "not_a_row",
            str(self.map.before),
            got=f"an array of {len(values)} values",
            allowed=f"the values of the key ({', '.join(self.key)}) in the order of 'key' in the spec, as the row has them",
        )

    def _columns_in(self, value: Json) -> Json:
        """Return the columns at the top level of the record. A field of the map is a column only if the schema has it."""
        known = () if self.columns is None else self.columns.names
        marks = self.map.marks
        return {name: cell for name, cell in value.items() if name not in marks or name in known}

    def _is_deleted(self, value: Json, row: Json) -> bool:
        path = self.map.deleted
        if path is None:
            return False
        mark = path.value_in(value)
        is_deleted = says_deleted(mark)
        if is_deleted is not None:
            return is_deleted
        raise BadRecordError.of(
            "bad_deleted",
            str(path),
            got=shortened(mark),
            allowed="true, false, 1, 0, null, or the time of the deletion",
        )

    def _changes_of(
        self,
        row: Json,
        before: Json | None,
        meaning: Meaning,
        *,
        is_deleted: bool,
    ) -> list[tuple[str, Json, Json | None]]:
        """Return the changes of one row: kind, row, and the previous row or key if the key changed."""
        if is_deleted:
            return [(RowKind.DELETE, row, None)]
        kind = _KINDS[meaning]
        if meaning != "update" or self.map.before is None:
            return [(kind, row, None)]
        # Columns missing from the values before did not change.
        old = None if before is None else row | before
        if self.retract:
            if old is None:
                path = str(self.map.before)
                raise BadRecordError.of(
                    "missing_before",
                    path,
                    got="null",
                    allowed="the values before the update, which order: arrival needs. Next: order: upsert",
                )
            return [(RowKind.UPDATE_BEFORE, old, None), (kind, row, None)]
        if old is None or not self._changes_key(old, row):
            return [(kind, row, None)]
        return [(RowKind.UPDATE_BEFORE, old, None), (kind, row, old)]

    def _changes_key(self, old: Json, new: Json) -> bool:
        return any(old.get(name) != new.get(name) for name in self.key)

    def _typed(self, row: Json, side: str, fields: Fields) -> Json:
        """Convert a row's values to the forms of their columns, if the map or the record's schema gives another form."""
        row = plain_row(row, side, fields, self.unavailable) or {}
        if self.columns is None or not (self.map.has_text_values or self.in_utc):
            return row
        typed = dict(row)
        for column in self.columns:
            cell = row.get(column.name)
            if isinstance(cell, dict) and pa.types.is_timestamp(column.type) and column.type.tz:
                typed[column.name] = with_zone(cell)
            if not isinstance(cell, str):
                continue
            if self.map.has_text_values and column.name not in self.encoded:
                cell = of_text(cell, column.type)
            if self.in_utc and isinstance(cell, str) and pa.types.is_timestamp(column.type) and column.type.tz:
                cell = f"{cell}Z" if _TIME_WITHOUT_ZONE.fullmatch(cell) else cell
            typed[column.name] = cell
        return typed


def _is_key(before: Any) -> TypeGuard[list[Any]]:
    """Return whether values before a change are an array of the key's values, as CockroachDB writes it: `"key": [1]`."""
    return isinstance(before, list) and bool(before) and not any(isinstance(cell, dict | NoneType) for cell in before)


def _at(value: Json, name: str) -> Any:
    return FieldPath.of(name).value_in(value)


def with_zone(cell: Json) -> Any:
    """Convert a time with a separate zone name, as TiCDC writes it, to ISO 8601; other objects are returned unchanged.

    Example:
        >>> with_zone({"location": "Asia/Shanghai", "value": "2026-01-31 12:00:00.5"}), with_zone({"value": "x"})
        ('2026-01-31T12:00:00.500000+08:00', {'value': 'x'})
    """
    location, value = cell.get("location"), cell.get("value")
    if not isinstance(location, str) or not isinstance(value, str):
        return cell
    try:
        return datetime.fromisoformat(value).replace(tzinfo=ZoneInfo(location)).isoformat()
    except (ValueError, KeyError, OSError):  # unknown zone: the column refuses the object
        return cell


def of_text(text: str, type_: pa.DataType) -> Any:
    """Convert a value printed as text to the form of its column; text that does not parse is left to the column.

    Example:
        >>> of_text("12", pa.int64()), of_text("1.50", pa.float64()), of_text("1", pa.bool_()), of_text("012", pa.string())
        (12, 1.5, True, '012')
    """
    if pa.types.is_integer(type_) and _INTEGER.fullmatch(text):
        return int(text)
    if pa.types.is_floating(type_) and _NUMBER.fullmatch(text):
        return float(text)
    if pa.types.is_boolean(type_):
        return _BOOLEANS.get(text.lower(), text)
    if pa.types.is_binary(type_) and max(text, default="") <= "\xff":
        # Each byte is the character of its number (ISO 8859-1).
        return text.encode("latin-1")
    return text
