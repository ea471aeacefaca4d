"""The common form of records that a map describes: one row with an unchanged key, parsed directly into structs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ebbtide.formats._format import BadRecordError
from ebbtide.formats._forms import Field, RowForm, TakenChange, TakenChanges, is_readable, struct
from ebbtide.formats._positions import PositionField
from ebbtide.formats._record_map import (
    SNAPSHOT,
    FieldPath,
    RecordMap,
    event_ms_of,
    is_of_table,
    says_deleted,
)

Find = Callable[[Any], Any]
"""Returns a field of a struct or of a nested one; None if absent."""
Path = tuple[str, ...]
"""A `FieldPath`, or the rest of one within a struct."""
KINDS = {"insert": "+I", "snapshot": "+I", "update": "+U", "delete": "-D"}


def has_common_form(record_map: RecordMap, row: RowForm, positions: Sequence[PositionField]) -> bool:
    """Return whether structs can hold the records of a map: no field that is read is within the row or named like a column."""
    within = record_map.row
    paths = other_paths(record_map, positions)
    names = {name for path in [*paths, within or ()] for name in path}
    if record_map.has_text_values or not all(map(is_readable, names)):
        return False
    heads = {path[0] for path in paths}
    if within is None:
        return heads.isdisjoint(row.names)
    return len(within) == 1 and within[0] not in heads


def other_paths(record_map: RecordMap, positions: Sequence[PositionField]) -> list[FieldPath]:
    """Return the paths of all fields that are read, except the row's."""
    in_log = [FieldPath.of(field.path) for field in positions]
    given = [
        *in_log,
        record_map.operation,
        record_map.before,
        record_map.deleted,
        record_map.event_time,
        *record_map.table,
    ]
    return list(dict.fromkeys(path for path in given if path is not None))


class TypedRecords:
    """The `TypedForm` of records that a map describes.

    Args:
        record_map: The map.
        row: How a row is read.
        key: Names of the key's columns.
        retract: Updates retract the row before: the exact path must read them.
        table: The table whose changes are read; None: of all.
        positions: Fields that order changes.
    """

    def __init__(
        self,
        record_map: RecordMap,
        row: RowForm,
        *,
        key: Sequence[str],
        retract: bool,
        table: str | None,
        positions: Sequence[PositionField],
    ) -> None:
        self._positions = positions
        self._map = record_map
        self._words = dict(record_map.words)
        self._retract = retract
        self._table = table
        self._key = [(name, row.attributes[name]) for name in key]
        fields, finders = _fields_of(other_paths(record_map, positions))
        if record_map.row is None:
            self.value = row.struct(fields)
            self._row: Find = lambda value: value
            self.rows: Sequence[str | None] = (None,)
        else:
            [name] = record_map.row
            row_struct = row.struct()
            nested: Field = name, "row", row_struct | None, None
            self.value = struct("Record", [*fields, nested])
            self._row = lambda value: value.row
            self.rows = (name,)
        self._operation = _finder(finders, record_map.operation)
        self._before = _finder(finders, record_map.before)
        self._deleted = _finder(finders, record_map.deleted)
        self._event_time = _finder(finders, record_map.event_time)
        self._finders = {field.path: finders[FieldPath.of(field.path)] for field in positions}
        self._tables = [finders[path] for path in record_map.table]

    def take(self, values: Sequence[Any]) -> TakenChanges:
        """See `TypedForm`."""
        return TakenChanges.of_each(self._take, values)

    def _take(self, value: Any) -> Sequence[TakenChange]:
        word = self._operation(value)
        is_word = word is None or type(word) in (str, int)
        meaning = self._words.get(word) if is_word else None
        if self._map.operation is None:
            meaning = "update"
        row = self._row(value)
        is_deleted = says_deleted(self._deleted(value))
        is_kept = meaning in KINDS and row is not None and is_deleted is not None
        if not is_kept or not self._is_of_table(value):
            return ()
        if meaning == "update" and not self._keeps_key(value, row):
            return ()
        try:
            event_ms = event_ms_of(self._event_time(value), self._map.event_unit, "")
            snapshot_ms = event_ms or 0 if meaning == "snapshot" else None
            position = self._map.position(lambda path: self._finders[path](value), self._positions, snapshot_ms)
        except BadRecordError:
            return ()
        kind = "-D" if is_deleted else KINDS[str(meaning)]
        op = None if word is None else str(word)
        if meaning == "snapshot":
            op = SNAPSHOT
        change = TakenChange(row, kind, op, position, event_ms)  # type: ignore[arg-type]
        return (change,)

    def _is_of_table(self, value: Any) -> bool:
        if self._table is None:
            return True
        names = [find(value) for find in self._tables]
        return None not in names and is_of_table(names, self._table)

    def _keeps_key(self, value: Any, row: Any) -> bool:
        """Return whether an update has the common form: it keeps the key and retracts nothing."""
        if self._map.before is None:
            return True
        before = self._before(value)
        if self._retract or not isinstance(before, dict | None):
            return False
        old = before or {}
        return all(name not in old or old[name] == getattr(row, attribute) for name, attribute in self._key)


def _finder(finders: Mapping[Path, Find], path: Path | None) -> Find:
    return (lambda value: None) if path is None else finders[path]


def _fields_of(paths: Sequence[Path]) -> tuple[list[Field], dict[Path, Find]]:
    """Return the fields of a struct for some paths, and a finder for each path."""
    fields: list[Field] = []
    finders: dict[Path, Find] = {}
    heads = dict.fromkeys(path[0] for path in paths)
    for number, head in enumerate(heads):
        attribute = f"mark{number}"
        inner_paths = [path[1:] for path in paths if path[0] == head and len(path) > 1]
        json_type: Any = Any
        if inner_paths:
            inner_fields, inner_finders = _fields_of(inner_paths)
            json_type = struct("Marks", inner_fields) | None
            for inner, find in inner_finders.items():
                finders[head, *inner] = _within(attribute, find)
        else:
            finders[head,] = _own(attribute)
        fields.append((head, attribute, json_type, None))
    return fields, finders


def _own(attribute: str) -> Find:
    return lambda value: getattr(value, attribute)


def _within(attribute: str, find: Find) -> Find:
    def found(value: Any) -> Any:
        inner = getattr(value, attribute)
        return None if inner is None else find(inner)

    return found
