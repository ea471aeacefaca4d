"""Records of any tool, read by a map: which field says what happened, where the row is, where its former values are.

```json
{"action": "update", "record": {"id": 1, "v": "B"}, "changes": {"v": "A"}, "metadata": {"table_name": "orders"}}
```

Fields are named by dotted paths (`metadata.table_name`). A row is an object, or an array of objects, which are changed in their order.
The values before an update may leave out the columns that did not change; an update that changes the key deletes the row of the old key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from ebbtide.formats.format import BadRecordError, DecodedChange, Format, Json, shortened
from ebbtide.formats.mysql_types import MysqlSchema
from ebbtide.model.changelog import TRUNCATE, RowKind

Path = tuple[str, ...]
"""Names of fields, each within the one before."""
Word = str | int | None
"""A value of the field that says what happened; None: the field is null, or not there."""
Meaning = Literal["insert", "update", "delete", "truncate", "ignore"]
EpochUnit = Literal["s", "ms", "us", "ns", "tso"]
"""Unit of a number that counts since 1970; `tso`: TiDB's timestamps, milliseconds times 2^18."""
NO_ROW = "message"
"""The kind of a record that changes no row."""
_KINDS: dict[Meaning, str] = {
    "insert": RowKind.INSERT,
    "update": RowKind.UPDATE_AFTER,
    "delete": RowKind.DELETE,
    "truncate": TRUNCATE,
    "ignore": NO_ROW,
}
_PER_MS: dict[EpochUnit, tuple[int, int]] = {
    "s": (1_000, 1),
    "ms": (1, 1),
    "us": (1, 1_000),
    "ns": (1, 1_000_000),
    "tso": (1, 2**18),
}
"""Unit to what a number in it is multiplied with, and divided by."""
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_TIME_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?")
_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}
_NOT_DELETED = (None, False, 0, "", "0", "false")
_DELETED = (True, 1, "1", "true")


def path_of(name: str) -> Path:
    """Return the path that a dotted name stands for."""
    return tuple(name.split("."))


@dataclass(frozen=True)
class RecordMap:
    """Where a tool's records have what a change is made of.

    Args:
        operation: The field that says what happened; None: each record is the row as it is now.
        words: Its values, and what they mean.
        row: The field with the row; None: its columns stand in the record itself.
        before: The field with the values before an update.
        deleted: The field that marks a deleted row: true, 1, or the time of the deletion.
        table: The fields that name the table, such as database and table.
        event_time: The field with the time of the change: a number, or ISO 8601.
        event_unit: Unit of a number there.
        has_text_values: All values are text, as MySQL prints them.
        mysql_types: The field with the MySQL type of each column.
    """

    operation: Path | None = None
    words: tuple[tuple[Word, Meaning], ...] = ()
    row: Path | None = None
    before: Path | None = None
    deleted: Path | None = None
    table: tuple[Path, ...] = ()
    event_time: Path | None = None
    event_unit: EpochUnit = "ms"
    has_text_values: bool = False
    mysql_types: Path | None = None

    @cached_property
    def marks(self) -> frozenset[str]:
        """Fields of a record that are no columns where the columns stand in the record itself."""
        paths = [self.operation, self.before, self.deleted, self.event_time, *self.table]
        names = {path[0] for path in paths if path is not None and len(path) == 1}
        return frozenset(names)


@dataclass(frozen=True)
class MappedDecoder(Format):
    """The `Format` of records that a map describes.

    Args:
        map: Where records have what a change is made of.
        key: Names of the key's columns.
        columns: The pipeline's columns; None while they are unknown.
        retract: Retract the whole row before a change (arrival mode), instead of deleting old keys only.
        table: Take only changes of this table, `orders` or `shop.orders`; None takes all.
        in_utc: Times without a zone are UTC where the column has one.
    """

    map: RecordMap
    _: KW_ONLY
    key: tuple[str, ...] = ()
    columns: pa.Schema | None = None
    retract: bool = False
    table: str | None = None
    in_utc: bool = False
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
        word, meaning = self._operation(value)
        if meaning == "ignore":
            return [DecodedChange(NO_ROW, None, word)]
        if not self._takes(value):
            return []
        event_ms = self._event_ms(value)
        if meaning == "truncate":
            return [DecodedChange(TRUNCATE, None, word, event_ms=event_ms)]
        schema = self._schema(value)
        made: list[DecodedChange] = []
        for row, before in self._rows(value, meaning):
            is_deleted = meaning == "delete" or self._is_deleted(value, row)
            for kind, own_row, other_row in self._changes_of(row, before, meaning, is_deleted=is_deleted):
                change = DecodedChange(kind, own_row, word, (), event_ms, other_row, None, None, schema)
                made.append(change)
        return made

    def _operation(self, value: Json) -> tuple[str | None, Meaning]:
        """Return the word that says what happened, and its meaning."""
        path = self.map.operation
        if path is None:
            return None, "update"
        word = found_at(value, path)
        # A boolean is an integer to Python, and a list is not hashable: neither is a word.
        is_word = word is None or type(word) in (str, int)
        if not is_word or word not in self._kinds:
            words = ["null" if word is None else str(word) for word in self._kinds]
            raise BadRecordError.of(
                "unknown_operation",
                ".".join(path),
                got=shortened(word),
                allowed=", ".join(words),
            )
        return None if word is None else str(word), self._kinds[word]

    def _takes(self, value: Json) -> bool:
        """Return whether a change is of the table that is asked for."""
        if self.table is None:
            return True
        names = [found_at(value, path) for path in self.map.table]
        if None in names:
            paths = ", ".join(".".join(path) for path in self.map.table)
            raise BadRecordError.of("missing_table", paths, got="null", allowed="the name of the change's table")
        full_name = ".".join(map(str, names))
        return self.table in (full_name, str(names[-1]))

    def _event_ms(self, value: Json) -> int | None:
        path = self.map.event_time
        if path is None:
            return None
        return event_ms_of(found_at(value, path), self.map.event_unit, ".".join(path))

    def _schema(self, value: Json) -> MysqlSchema | None:
        path = self.map.mysql_types
        types = None if path is None else found_at(value, path)
        return MysqlSchema(types) if isinstance(types, dict) else None

    def _rows(self, value: Json, meaning: Meaning) -> Iterator[tuple[Json, Json | None]]:
        """Yield a record's rows, each with the values before the change, if there are any.

        A delete may have its row among the values before the change alone.
        """
        path = self.map.row
        rows = self._columns_in(value) if path is None else found_at(value, path)
        before = None if self.map.before is None else found_at(value, self.map.before)
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
        name = "the record" if path is None else ".".join(path)
        for row, own_before in zip(rows, befores, strict=True):
            if not isinstance(row, dict):
                raise BadRecordError.of(
                    "not_a_row", name, got=shortened(row), allowed="an object, or objects in an array"
                )
            has_before = isinstance(own_before, dict)
            yield self._typed(row), self._typed(own_before) if has_before else None

    def _columns_in(self, value: Json) -> Json:
        """Return the columns that stand in the record itself: a field of the map is one where the schema says so."""
        known = () if self.columns is None else self.columns.names
        marks = self.map.marks
        return {name: cell for name, cell in value.items() if name not in marks or name in known}

    def _is_deleted(self, value: Json, row: Json) -> bool:
        path = self.map.deleted
        if path is None:
            return False
        mark = found_at(value, path)
        if mark in _NOT_DELETED:
            return False
        is_time = isinstance(mark, str) and bool(re.match(r"\d{4}-\d\d-\d\d", mark))
        if mark in _DELETED or is_time:
            return True
        raise BadRecordError.of(
            "bad_deleted",
            ".".join(path),
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
        """Return the changes of one row: kind, row, and the row or key that it had before where its key changed."""
        if is_deleted:
            return [(RowKind.DELETE, row, None)]
        kind = _KINDS[meaning]
        if meaning != "update" or self.map.before is None:
            return [(kind, row, None)]
        # What the values before leave out did not change.
        old = None if before is None else row | before
        if self.retract:
            if old is None:
                path = ".".join(self.map.before)
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

    def _typed(self, row: Json) -> Json:
        """Return a row's values in the forms that their columns take, where the map gives them another form."""
        if self.columns is None or not (self.map.has_text_values or self.in_utc):
            return row
        typed = dict(row)
        for column in self.columns:
            cell = row.get(column.name)
            if not isinstance(cell, str):
                continue
            if self.map.has_text_values:
                cell = of_text(cell, column.type)
            if self.in_utc and isinstance(cell, str) and pa.types.is_timestamp(column.type) and column.type.tz:
                cell = f"{cell}Z" if _TIME_WITHOUT_ZONE.fullmatch(cell) else cell
            typed[column.name] = cell
        return typed


def found_at(value: Json, path: Path) -> Any:
    """Return the value at a path; None if there is none.

    Example:
        >>> found_at({"metadata": {"table": "t"}}, ("metadata", "table")), found_at({"metadata": 1}, ("metadata", "table"))
        ('t', None)
    """
    found: Any = value
    for name in path:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found


def event_ms_of(time: Any, unit: EpochUnit, name: str) -> int | None:
    """Read the time of a change.

    Args:
        time: A number in a unit, also as text, or ISO 8601, without a zone in UTC.
        unit: The unit.
        name: Name of its field, for messages.

    Raises:
        BadRecordError: It is neither.

    Example:
        >>> event_ms_of(1477053217, "s", "ts"), event_ms_of("2024-10-28T21:37:01.127470Z", "ms", "at")
        (1477053217000, 1730151421127)
    """
    if time is None:
        return None
    if isinstance(time, str) and _INTEGER.fullmatch(time):
        time = int(time)
    if type(time) is int:
        times, over = _PER_MS[unit]
        ms = time * times // over
        if -(2**63) <= ms < 2**63:
            return ms
    if isinstance(time, str):
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            pass
        else:
            in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (in_zone - _EPOCH) // _MS
    raise BadRecordError.of("bad_event_time", name, got=shortened(time), allowed=f"ISO 8601, or an integer in {unit}")


def of_text(text: str, type_: pa.DataType) -> Any:
    """Return a value that a tool prints as text, in the form that a column takes; text that is none is left to the column.

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


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = datetime.resolution * 1000
