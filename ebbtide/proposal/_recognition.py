"""Records whose tool is known, or whose fields say what happened: how a spec's `format` reads them.

A record is recognised by several of its fields and by their values over the whole sample, never by a single field's name: a table may well have
a column `type`, `op` or `data`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ebbtide.formats import BadRecordError, FieldPath, PositionField, RecordMap, key_row
from ebbtide.proposal._sample import SampledRecord
from ebbtide.proposal._tools import KNOWN_TOOLS, Json, Tool
from ebbtide.spec import MappedFormat

_MEANINGS = {
    "insert": ("insert", "inserted", "i", "create", "created", "c", "read", "r", "snapshot", "load"),
    "update": ("update", "updated", "u", "upsert", "modify", "modified"),
    "delete": ("delete", "deleted", "d", "remove", "removed"),
}
"""Meaning to the words for it, in lower case."""
_MEANING_OF = {word: meaning for meaning, words in _MEANINGS.items() for word in words}
_FIELDS = ("op", "operation", "change_type", "op_type", "cdc_operation", "dml_type")
"""Names that such a field has, and seldom a column: one that has a single meaning in the sample must have one of them."""
_ROWS = ("after", "row", "data", "record", "payload", "new", "value", "document")
_BEFORE = ("before", "old", "changes", "previous", "before_image", "old_data", "old_record")
"""Names that the row's field usually has, and that of the values before an update."""


@dataclass(frozen=True)
class Recognised:
    """The form of records that were recognised.

    Args:
        settings: The spec's `format`.
        map: The fields of records that make up a change.
        own_columns: Beginnings of the names of the columns that the tool adds to those of the table.
        sequence: Fields that order changes, as `order.sequence` has them; empty if the records have none.
        note: What the sample leaves open, for people; empty if nothing.
    """

    settings: dict[str, Any]
    map: RecordMap
    own_columns: tuple[str, ...] = ()
    sequence: tuple[Any, ...] = ()
    note: str = ""


def recognise(records: Sequence[SampledRecord], key: Collection[str] = ()) -> Recognised | None:
    """Return how the records of a sample are read; None if nothing shows it.

    Args:
        records: The records.
        key: The key's columns. Default: those of the records' own keys.
    """
    return _of_tool(records) or _of_words(records) or _of_changefeed(records) or _of_keys(records, key)


def _of_tool(records: Sequence[SampledRecord]) -> Recognised | None:
    """Return the tool that wrote most of the records: a topic may hold a few of another kind."""
    for tool in KNOWN_TOOLS:
        n_of_tool = sum(tool.wrote(record.value) for record in records)
        if 2 * n_of_tool > len(records):
            sequence = _sequence_of(tool, [record.value for record in records])
            return Recognised({"type": tool.name}, tool.map, tool.own_columns, sequence, tool.note)
    return None


def _sequence_of(tool: Tool, values: Sequence[Json]) -> tuple[Any, ...]:
    """Return the fields that order the changes of a tool, if all changes of the sample have them; empty otherwise."""
    words = dict(tool.map.words)
    operation = tool.map.operation
    changes = []
    for value in values:
        meaning = "update" if operation is None else words.get(operation.value_in(value))
        if meaning in _MEANINGS:
            changes.append(value)
    for fields in tool.possible_orders:
        if changes and all(_has_position(change, fields, tool.map) for change in changes):
            known = dict(tool.map.positions)
            return tuple(
                field.path if known.get(field.path) == field.type else {"field": field.path, "type": field.type}
                for field in fields
            )
    return ()


def _has_position(value: Json, fields: Sequence[PositionField], record_map: RecordMap) -> bool:
    """Return whether a change has its whole position."""
    try:
        position = record_map.position(lambda path: FieldPath.of(path).value_in(value), fields)
    except BadRecordError:
        return False
    return None not in position


def _of_words(records: Sequence[SampledRecord]) -> Recognised | None:
    """Return how to read records with a textual operation, in a field of any name."""
    values = [record.value for record in records]
    for path in _text_paths(values):
        words = _words_at(path, values)
        if words is None:
            continue
        operation: dict[str, Any] = {"field": str(path), **words}
        settings: dict[str, Any] = {"type": "mapped", "operation": operation}
        settings |= _row_paths(path, values)
        named = ", ".join(f"{meaning}: {own}" for meaning, own in words.items())
        note = (
            f"format: the field {operation['field']} is taken for the operation, by its values in the sample ({named})"
        )
        return _mapped(settings, note)
    return None


def _of_keys(records: Sequence[SampledRecord], asked: Collection[str]) -> Recognised | None:
    """Return how bare rows of a topic are read: records whose key is a part of their row, or is left out of it."""
    for record in records:
        key = key_row(record.key) or {}
        agrees = all(record.value.get(name, cell) == cell for name, cell in key.items())
        is_within = key.keys() <= record.value.keys()
        is_asked = not asked or key.keys() == set(asked)
        may_lack = is_asked and not any(isinstance(cell, dict) for cell in record.value.values())
        if not key or not agrees or not (is_within or may_lack):
            return None
    note = "format: each record is taken for the row as it is now, by its key; a record without a value deletes"
    return _mapped({"type": "mapped"}, note)


def _mapped(settings: dict[str, Any], note: str) -> Recognised:
    given = MappedFormat.model_validate(settings)
    return Recognised(settings, given.map, note=note)


def _text_paths(values: Sequence[Json]) -> Iterator[FieldPath]:
    """Yield the paths of texts in records, and in their objects: those with a usual name first."""
    paths: dict[FieldPath, None] = {}
    for value in values:
        for name, cell in value.items():
            if isinstance(cell, str):
                paths[FieldPath((name,))] = None
            elif isinstance(cell, dict) and name not in (*_ROWS, *_BEFORE):
                for inner_name, text in cell.items():
                    if isinstance(text, str):
                        paths[FieldPath((name, inner_name))] = None
    yield from sorted(paths, key=lambda path: path[-1].lower().strip("_") not in _FIELDS)


def _words_at(path: FieldPath, values: Sequence[Json]) -> dict[str, list[str | None]] | None:
    """Return the values of a field by their meaning; None if it does not say what happened."""
    if any("." in name for name in path):
        return None
    found: dict[str, list[str | None]] = {}
    has_none = False
    for value in values:
        word = path.value_in(value)
        if word is None:
            has_none = True
            continue
        meaning = _MEANING_OF.get(word.lower()) if isinstance(word, str) else None
        if meaning is None:
            return None
        own = found.setdefault(meaning, [])
        if word not in own:
            own.append(word)
    is_usual = path[-1].lower().strip("_") in _FIELDS
    if not found or (len(found) < 2 and not is_usual):
        return None
    if has_none:
        # As of AWS DMS' full loads, whose rows have no operation.
        found.setdefault("insert", []).append(None)
    return {meaning: found.get(meaning) or _usual(meaning, found) for meaning in _MEANINGS}


def _usual(meaning: str, found: dict[str, list[str | None]]) -> list[str | None]:
    """Return the words for a meaning that the sample does not have, as short and in the same case as those that it has."""
    texts = [str(word) for words in found.values() for word in words if word is not None]
    is_short = len(texts[0]) == 1
    alike = [word for word in _MEANINGS[meaning] if (len(word) == 1) == is_short]
    if texts[0].isupper():
        return [word.upper() for word in alike]
    return [word.title() if texts[0].istitle() else word for word in alike]


def _row_paths(operation: FieldPath, values: Sequence[Json]) -> dict[str, str]:
    """Return the paths of the rows after and before a change: at the top level, else next to the operation, or in an object that has only them."""
    for outer in (FieldPath(), FieldPath(operation[:-1])):
        within = [FieldPath((*outer, name)) for name in _ROWS]
        for holder in (*filter(partial(_holds_rows, values), within), outer):
            objects = [holder.value_in(value) or {} for value in values]
            names = {"row": _object_field(_ROWS, objects), "before": _object_field(_BEFORE, objects)}
            if names["row"] is not None:
                return {side: ".".join((*holder, name)) for side, name in names.items() if name is not None}
    before = _object_field(_BEFORE, values)
    return {} if before is None else {"before": before}


def _holds_rows(values: Sequence[Json], path: FieldPath) -> bool:
    """Return whether a field is an object of a row after a change and one before it, as of Hasura's event triggers."""
    found = [path.value_in(value) for value in values]
    return all(isinstance(cell, dict) and len(cell) > 1 and cell.keys() <= {*_ROWS, *_BEFORE} for cell in found)


def _of_changefeed(records: Sequence[SampledRecord]) -> Recognised | None:
    """Return how a changefeed of CockroachDB is read: a row after its change, its key or the row before, and the time of the commit."""
    values = [record.value for record in records if record.value.keys() != {"resolved"}]
    clock = PositionField("updated", "hlc")
    before = next((name for name in ("before", "key") if all(name in value for value in values)), None)
    is_row = all("after" in value and _has_position(value, (clock,), RecordMap()) for value in values)
    if not values or before is None or not is_row:
        return None
    position = {"field": clock.path, "type": clock.type}
    settings = {"type": "mapped", "row": "after", "before": before, "position": [position]}
    return replace(_mapped(settings, ""), sequence=(clock.path,))


def _object_field(names: Sequence[str], values: Sequence[Json]) -> str | None:
    """Return the first of some names that is a field with an object, in a record, and an object or null in all of them."""
    for name in names:
        cells = [value.get(name) for value in values]
        objects = [cell for cell in cells if isinstance(cell, dict)]
        nulls = [cell for cell in cells if cell is None]
        if objects and len(objects) + len(nulls) == len(cells):
            return name
    return None
