"""Plain changelogs: a kind, a row, and optionally where the record stands in its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ebbtide.formats.format import BadRecordError, DecodedChange, Json
from ebbtide.model.changelog import RowKind

KINDS = tuple(RowKind)


@dataclass(frozen=True)
class PlainDecoder:
    """The `Format` of objects such as `{"subtask": 0, "seq": 7, "kind": "+I", "row": {...}}`.

    Args:
        kind: Name of the field with the row kind: +I, -U, +U, -D.
        row: Name of the field with the row; None if the columns stand beside the kind.
        position: Names of the fields with the record's partition and position in it; empty if it has none.
    """

    kind: str = "kind"
    row: str | None = "row"
    position: tuple[str, ...] = ()

    def changes(self, value: Json, key: str | None) -> list[DecodedChange]:
        """See `Format.changes`."""
        origin_offset = self._origin_offset(value)
        kind = value.get(self.kind)
        if kind not in KINDS:
            allowed = ", ".join(KINDS)
            detail = f"{self.kind}: got {kind!r}; allowed: {allowed}"
            raise BadRecordError("unknown_kind", detail, origin_offset)
        row = self._row(value)
        if not isinstance(row, dict):
            got = str(row)[:80]
            detail = f"{self.row}: got {got!r}; allowed: an object"
            raise BadRecordError("not_a_row", detail, origin_offset)
        return [DecodedChange(RowKind(kind), row, kind, origin_offset=origin_offset)]

    def _row(self, value: Json) -> Any:
        if self.row:
            return value.get(self.row)
        reserved = (self.kind, *self.position)
        return {name: cell for name, cell in value.items() if name not in reserved}

    def _origin_offset(self, value: Json) -> tuple[int, int] | None:
        """Return the record's partition and position; a position alone is in partition 0."""
        numbers: list[int] = []
        for name in self.position:
            number = value.get(name)
            if type(number) is not int or not 0 <= number < 2**63:
                detail = f"{name}: got {number!r}; allowed: an integer from 0"
                raise BadRecordError("bad_position", detail)
            numbers.append(number)
        if not numbers:
            return None
        partition = numbers[0] if len(numbers) > 1 else 0
        return partition, numbers[-1]
