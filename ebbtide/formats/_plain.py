"""Plain changelogs: a kind, a row, and optionally the record's position; with or without a Connect schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import RowKind
from ebbtide.formats import _scan as scan
from ebbtide.formats._connect import Fields, has_schema, plain_row, row_fields, schema_of, time_units
from ebbtide.formats._connect_scan import schema_reading
from ebbtide.formats._format import BadRecordError, DecodedChange, Format, Json
from ebbtide.formats._forms import OriginOffset, RowForm, ScanForm, ScannedChanges, is_readable
from ebbtide.formats._parsing import is_natural
from ebbtide.formats._scan_loops import OBJECT
from ebbtide.formats._scan_schemas import SchemaReading
from ebbtide.formats._unavailable import DEFAULT, Unavailable

ROW_KINDS = tuple(RowKind)


@dataclass(frozen=True)
class PlainDecoder(Format):
    """The `Format` of objects such as `{"subtask": 0, "seq": 7, "kind": "+I", "row": {...}}`.

    Args:
        kind: Name of the field with the row kind: +I, -U, +U, -D.
        row: Name of the field with the row; None if the columns are next to the kind.
        position: Names of the fields with the record's partition and the position in it; empty if there are none.
        unavailable: Recognizes values that were not sent.
    """

    kind: str = "kind"
    row: str | None = "row"
    position: tuple[str, ...] = ()
    unavailable: Unavailable = DEFAULT

    def changes(
        self,
        value: Json,
        key: str | None,
        other_key: str | None = None,
    ) -> list[DecodedChange]:
        """See `Format.changes`."""
        value, fields = self._without_schema(value)
        origin_offset = self._origin_offset(value)
        kind = value.get(self.kind)
        if kind not in ROW_KINDS:
            raise BadRecordError.of(
                "unknown_kind",
                self.kind,
                got=repr(kind),
                allowed=", ".join(ROW_KINDS),
                origin_offset=origin_offset,
            )
        row = self._row(value)
        if not isinstance(row, dict):
            head = str(row)[:80]
            raise BadRecordError.of(
                "not_a_row",
                str(self.row),
                got=repr(head),
                allowed="an object",
                origin_offset=origin_offset,
            )
        change = DecodedChange(
            RowKind(kind),
            plain_row(row, str(self.row), fields, self.unavailable),
            kind,
            origin_offset=origin_offset,
            units=time_units(fields),
            schema=schema_of(fields),
        )
        return [change]

    def _without_schema(self, value: Json) -> tuple[Json, Fields]:
        """Return a value without its schema, and the schema's row fields, empty without one."""
        if not has_schema(value):
            return value, {}
        payload = value["payload"]
        if not isinstance(payload, dict):
            payload = {}
        fields = row_fields(value["schema"], self.row)
        return payload, fields

    def scanned(self, row: RowForm) -> Sequence[ScanForm]:
        """See `Format.scanned`."""
        beside = row.names if self.row is None else [self.row]
        names = [self.kind, *self.position, *beside]
        are_distinct = len(set(names)) == len(names)
        are_readable = all(is_readable(name) for name in names)
        return (_ScannedRows(self, row),) if are_distinct and are_readable else ()

    def _row(self, value: Json) -> Any:
        if self.row:
            return value.get(self.row)
        reserved = (self.kind, *self.position)
        return {name: value[name] for name in value if name not in reserved}

    def _origin_offset(self, value: Json) -> OriginOffset | None:
        """Return the record's partition and position; a position without a partition is in partition 0."""
        numbers: list[int] = []
        for name in self.position:
            number = value.get(name)
            if not is_natural(number, below=2**63):
                raise BadRecordError.of(
                    "bad_position",
                    name,
                    got=repr(number),
                    allowed="an integer from 0",
                )
            numbers.append(number)
        if not numbers:
            return None
        return _offset_of_fields(numbers)


def _offset_of_fields(numbers: Sequence[int]) -> OriginOffset:
    """Return partition and position from the fields that have them: the last one has the position, one before it the partition."""
    partition = numbers[0] if len(numbers) > 1 else 0
    return partition, numbers[-1]


class _ScannedRows:
    """The `ScanForm` of plain rows.

    Args:
        decoder: The format.
        row: How a row is read.
    """

    def __init__(self, decoder: PlainDecoder, row: RowForm) -> None:
        self._kind = decoder.kind
        self._position = decoder.position
        self._row: scan.Path = () if decoder.row is None else (decoder.row,)
        self._names = row.names
        within: scan.Fields = row.cells if decoder.row is None else {decoder.row: row.cells}
        self.fields: scan.Fields = {self._kind: None, **dict.fromkeys(self._position), **within}
        self.exact = [self._row]
        self.event_fields = ()

    def reading(self, head: bytes, columns: pa.Schema) -> SchemaReading | None:
        """See `ScanForm`."""
        row_in, *_ = (*self._row, None)
        return schema_reading(head, row_in, columns)

    def take(self, scanned: scan.Scanned) -> ScannedChanges:
        """See `ScanForm`."""
        kind_cells = scanned.cells[self._kind,]
        kind = scanned.texts(kind_cells)
        known_kinds = pa.array(ROW_KINDS, pa.string())
        is_known = pc.is_in(kind, known_kinds)
        is_taken = scan.marked(is_known)
        if self._row:
            row = scanned.cells[self._row]
            is_taken = is_taken & row.has(OBJECT)
        cells = {}
        for name in self._names:
            path = (*self._row, name)
            cells[name] = scanned.cells[path]
        places = [scanned.integers(scanned.cells[name,]) for name in self._position]
        for numbers in places:
            is_taken &= scan.marked(pc.greater_equal(numbers, 0))
        return ScannedChanges(is_taken, kind, kind, cells, place=self._place(places))

    def _place(self, numbers: Sequence[pa.Int64Array]) -> tuple[pa.Int64Array, pa.Int64Array] | None:
        """Return partitions and positions, as `_offset_of_fields` does; None: records do not name them."""
        if not numbers:
            return None
        zeros = pa.repeat(pa.scalar(0, pa.int64()), len(numbers[0]))
        return numbers[0] if len(numbers) > 1 else zeros, numbers[-1]
