"""The common form of records that a map describes, for the scan: one row, which keeps its key or is retracted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import RowKind
from ebbtide.columns import Long, Mask
from ebbtide.formats._format import BadRecordError
from ebbtide.formats._forms import RowForm, ScannedChanges, is_readable
from ebbtide.formats._positions import PositionField, are_known, snapshot_numbers
from ebbtide.formats._record_map import PER_MS, SNAPSHOT, FieldPath, RecordMap, Word, event_ms_of, says_deleted
from ebbtide.formats._scan import Cells, Fields, Path, Scanned, marked
from ebbtide.formats._scan_loops import ABSENT, ESCAPED, FALSE, INTEGER, NULL, OBJECT, TEXT, TRUE
from ebbtide.formats._scan_schemas import SchemaReading

Objects = np.ndarray[Any, Any]
_KINDS = {"insert": "+I", "snapshot": "+I", "update": "+U", "delete": "-D"}
_UNKNOWN = "unknown"
"""Stands for the meaning of a word that the scan leaves."""


def has_scanned_form(record_map: RecordMap, row: RowForm, positions: Sequence[PositionField]) -> bool:
    """Return whether `ScannedRecords` can read the records of a map: no field that is read is within another, or named like a column."""
    within = record_map.row
    marks = _other_paths(record_map, positions)
    paths = [*marks, within or FieldPath(())]
    names = {name for path in paths for name in path}
    has_one_number = all(field.n_numbers == 1 for field in positions if field.path in record_map.last_without)
    if record_map.has_text_values or not has_one_number or not all(map(is_readable, names)):
        return False
    are_apart = not any(path == other[: len(path)] for path in paths for other in paths if path and path != other)
    heads = {path[0] for path in marks}
    is_beside = heads.isdisjoint(row.names) if within is None else len(within) == 1 and within[0] not in heads
    return are_apart and is_beside


def _other_paths(record_map: RecordMap, positions: Sequence[PositionField]) -> list[FieldPath]:
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


class ScannedRecords:
    """The `ScanForm` of records that a map describes.

    Args:
        record_map: The map.
        row: How a row is read.
        key: Names of the key's columns.
        retract: Updates retract the row before.
        table: The table whose changes are read; None: of all.
        positions: Fields that order changes.
    """

    event_fields = ()

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
        self._map = record_map
        self._names = row.names
        self._key = key
        self._retracts = retract and record_map.before is not None
        self._table = table
        self._positions = positions
        self._row: FieldPath = record_map.row or FieldPath(())
        fields: dict[str, Any] = {}
        for path in _other_paths(record_map, positions):
            _put(fields, path, None)
        if record_map.before is not None:
            _put(fields, record_map.before, row.cells if self._retracts else dict.fromkeys(key))
        if record_map.row is None:
            fields |= row.cells
        else:
            _put(fields, record_map.row, row.cells)
        self.fields: Fields = fields
        # A retraction names the unknown columns of the old row.
        self.exact: list[Path] = [self._row]
        if self._retracts and record_map.before is not None:
            self.exact.append(record_map.before)

    def reading(self, head: bytes, columns: pa.Schema) -> SchemaReading | None:
        """See `ScanForm`: records with a schema are left."""
        return None

    def take(self, scanned: Scanned) -> ScannedChanges:
        """See `ScanForm`."""
        op, meaning = self._operations(scanned)
        record = None
        is_retraction = np.zeros(len(meaning), bool)
        is_update = meaning == "update"
        is_deleted, is_taken = self._deletions(scanned, meaning)
        if self._retracts:
            is_update &= ~is_deleted
            # An update is two changes, in this order: it retracts the old row, and adds the new one.
            record = np.repeat(np.arange(len(meaning)), 1 + is_update)
            scanned, op, meaning = scanned.take(record), op.take(pa.array(record)), meaning[record]
            is_update, is_deleted, is_taken = is_update[record], is_deleted[record], is_taken[record]
            is_retraction = is_update & (np.diff(record, prepend=-1) > 0)
        is_snapshot = meaning == "snapshot"
        is_taken &= meaning != _UNKNOWN
        is_taken &= self._are_of_table(scanned)
        if self._map.row is not None:
            is_taken &= scanned.cells[self._row].has(OBJECT)
        if self._map.before is not None:
            before = scanned.cells[self._map.before]
            has_before = before.has(OBJECT)
            is_taken &= before.has(OBJECT, NULL, ABSENT)  # an array is compared with the row
            is_taken &= ~is_update | (has_before if self._retracts else self._keeps_key(scanned))
        event_ms, is_time = self._event_ms(scanned)
        is_taken &= is_time
        kinds = pa.array([_KINDS.get(each) for each in meaning], pa.string())
        kinds = pc.if_else(pa.array(is_deleted), RowKind.DELETE, kinds)
        kinds = pc.if_else(pa.array(is_retraction), RowKind.UPDATE_BEFORE, kinds)
        return ScannedChanges(
            is_taken,
            kinds,
            pc.if_else(pa.array(is_snapshot), SNAPSHOT, op),
            self._rows(scanned, is_retraction),
            self._log_positions(scanned, is_snapshot, event_ms, is_taken),
            event_ms,
            record=record,
        )

    def _cells(self, scanned: Scanned, path: FieldPath | None) -> Cells:
        """Return the cells of a field; absent ones without a path."""
        if path is not None:
            return scanned.cells[path]
        nothing = np.zeros(len(scanned.is_taken), np.int32)
        return Cells(nothing.astype(np.uint8), nothing, nothing)

    def _operations(self, scanned: Scanned) -> tuple[pa.StringArray, Objects]:
        """Return the words of the operations, and their meanings."""
        cells = self._cells(scanned, self._map.operation)
        words = dict(self._map.words) if self._map.operation is not None else {None: "update"}
        known: dict[Word, str] = {word: meaning for word, meaning in words.items() if meaning in _KINDS}
        texts = scanned.texts(cells)
        meanings = np.full(len(texts), _UNKNOWN, object)
        meanings[cells.has(NULL, ABSENT)] = known.get(None, _UNKNOWN)
        for is_of_kind, as_word in _by_form(cells):
            found = _of_distinct(texts, is_of_kind, as_word, lambda word: known.get(word, _UNKNOWN))
            meanings[is_of_kind] = found[is_of_kind]
        return texts, meanings

    def _deletions(self, scanned: Scanned, meaning: Objects) -> tuple[Mask, Mask]:
        """Mark the deleted rows, and the records that say so or not."""
        cells = self._cells(scanned, self._map.deleted)
        is_deleted: Mask = (meaning == "delete") | cells.has(TRUE)
        is_known = cells.has(TRUE, FALSE, NULL, ABSENT)
        texts = scanned.texts(cells)
        for is_of_kind, as_mark in _by_form(cells):
            says = _of_distinct(texts, is_of_kind, as_mark, says_deleted)
            is_deleted |= is_of_kind & (says == True)  # noqa: E712
            is_known |= is_of_kind & (says != None)  # noqa: E711
        return is_deleted, is_known

    def _are_of_table(self, scanned: Scanned) -> Mask:
        """Mark the records of the requested table; records whose table is not named by texts are not marked."""
        if self._table is None:
            return np.ones(len(scanned.is_taken), bool)
        cells = [scanned.cells[path] for path in self._map.table]
        texts = [scanned.texts(own) for own in cells]
        are_texts = np.logical_and.reduce([own.has(TEXT, ESCAPED) for own in cells])
        full_names = pc.binary_join_element_wise(*texts, ".")
        is_named = pc.or_kleene(pc.equal(full_names, self._table), pc.equal(texts[-1], self._table))
        is_own: Mask = are_texts & marked(is_named)
        return is_own

    def _keeps_key(self, scanned: Scanned) -> Mask:
        """Mark the records whose values before do not have another key; they may leave it out."""
        keeps = np.ones(len(scanned.is_taken), bool)
        for name in self._key:
            old = scanned.cells[*self._map.before, name]  # type: ignore[misc]
            keeps &= old.has(ABSENT) | scanned.are_same(old, scanned.cells[*self._row, name])
        return keeps

    def _rows(self, scanned: Scanned, is_retraction: Mask) -> dict[str, Cells]:
        """Return the cells of the rows; columns missing from the values before did not change."""
        rows = {}
        for name in self._names:
            rows[name] = scanned.cells[*self._row, name]
            if self._retracts:
                before = scanned.cells[*self._map.before, name]  # type: ignore[misc]
                rows[name] = rows[name].but(is_retraction & ~before.has(ABSENT), before)
        return rows

    def _event_ms(self, scanned: Scanned) -> tuple[pa.Int64Array, Mask]:
        """Return the times of the changes, epoch ms, and a mask of records whose time is known, or has none."""
        cells = self._cells(scanned, self._map.event_time)
        unit = self._map.event_unit
        times, over = PER_MS[unit]
        numbers = scanned.integers(cells).fill_null(0).to_numpy()
        is_small = np.abs(numbers) <= Long.MAX // times
        is_number = cells.has(INTEGER)
        is_text = cells.has(TEXT, ESCAPED)
        ms = np.where(is_small, numbers, 0) * times // over
        if is_text.any():
            texts = scanned.texts(cells)
            read = _of_distinct(texts, is_text, str, lambda text: _read_ms(text, unit))
            is_text &= read != None  # noqa: E711
            ms[is_text] = read[is_text].astype(np.int64)
        has_time = (is_number & is_small) | is_text
        return pa.array(ms, mask=~has_time), has_time | cells.has(NULL, ABSENT)

    def _log_positions(
        self, scanned: Scanned, is_snapshot: Mask, event_ms: pa.Int64Array, is_taken: Mask
    ) -> list[pa.Int64Array]:
        """Return the numbers of the position, in order; records without one are dropped from `is_taken`."""
        of_snapshot = snapshot_numbers(is_snapshot, event_ms)
        position = []
        for field in self._positions:
            instead = of_snapshot
            if field.path in self._map.last_without:
                instead = of_snapshot.fill_null(Long.MAX)
            numbers = field.scanned(scanned, scanned.cells[FieldPath.of(field.path)], instead)
            is_taken &= are_known(numbers)
            position += numbers
        return position


def _put(fields: dict[str, Any], path: FieldPath, within: Any) -> None:
    """Put what a path holds into the fields of a form."""
    *outer, name = path
    for each in outer:
        fields = fields.setdefault(each, {})
    fields[name] = within


def _by_form(cells: Cells) -> Iterator[tuple[Mask, Callable[[str], Any]]]:
    """Yield the cells that are texts, and those that are integers, each with what makes a value of what is written."""
    for kinds, of_text in ((TEXT, ESCAPED), str), ((INTEGER,), int):
        is_of_kind = cells.has(*kinds)
        if is_of_kind.any():
            yield is_of_kind, of_text


def _of_distinct(
    texts: pa.StringArray, is_asked: Mask, of_text: Callable[[str], Any], read: Callable[[Any], Any]
) -> Objects:
    """Return (n,) what is read of the values of some texts, each distinct one once; None for the rest."""
    asked = pc.if_else(pa.array(is_asked), texts, None).dictionary_encode()
    values = map(of_text, asked.dictionary.to_pylist())
    found = np.array([*map(read, values), None], object)
    numbers = asked.indices.fill_null(len(asked.dictionary)).to_numpy()
    of_each: Objects = found[numbers]
    return of_each


def _read_ms(text: str, unit: Any) -> int | None:
    try:
        return event_ms_of(text, unit, "")
    except BadRecordError:
        return None
