"""Plain changelogs: a kind, a row, and optionally where the record stands in its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ebbtide.formats.change import BadRecordError, Change, Json
from ebbtide.model.changelog import RowKind

KINDS = tuple(RowKind)


@dataclass(frozen=True)
class PlainDecoder:
    """Decodes objects such as `{"subtask": 0, "seq": 7, "kind": "+I", "row": {...}}`.

    Args:
        kind: Name of the field with the row kind: +I, -U, +U, -D.
        row: Name of the field with the row; None if the columns stand beside the kind.
        position: Names of the fields with the record's partition and position in it; empty if it has none.
    """

    kind: str = "kind"
    row: str | None = "row"
    position: tuple[str, ...] = ()

    def changes(self, value: Json, key: str | None) -> list[Change]:
        """See `Decoder.changes`."""
        place, kind = self._place(value), value.get(self.kind)
        if kind not in KINDS:
            raise BadRecordError("unknown_kind", f"{self.kind}: got {kind!r}; allowed: {', '.join(KINDS)}", place)
        row = (
            value.get(self.row)
            if self.row
            else {c: v for c, v in value.items() if c != self.kind and c not in self.position}
        )
        if not isinstance(row, dict):
            raise BadRecordError("not_a_row", f"{self.row}: got {str(row)[:80]!r}; allowed: an object", place)
        return [Change(RowKind(kind), row, kind, place=place)]

    def _place(self, value: Json) -> tuple[int, int] | None:
        places: list[Any] = [value.get(name) for name in self.position]
        for name, place in zip(self.position, places, strict=True):
            if type(place) is not int or not 0 <= place < 2**63:
                raise BadRecordError("bad_position", f"{name}: got {place!r}; allowed: an integer from 0")
        return None if not places else (0, places[0]) if len(places) == 1 else (places[0], places[1])
