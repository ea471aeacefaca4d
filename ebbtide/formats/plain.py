"""Plain changelogs: a kind, a row, and optionally where the record stands in its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ebbtide.formats.format import BadRecordError, DecodedChange, Json, OriginOffset
from ebbtide.formats.forms import Field, RowForm, TakenChange, TypedForm, is_readable, struct
from ebbtide.formats.parsing import is_natural
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
            raise BadRecordError.of(
                "unknown_kind",
                self.kind,
                got=repr(kind),
                allowed=", ".join(KINDS),
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
            row,
            kind,
            origin_offset=origin_offset,
        )
        return [change]

    def typed(self, row: RowForm) -> TypedForm | None:
        """See `Format.typed`."""
        beside = row.names if self.row is None else [self.row]
        names = [self.kind, *self.position, *beside]
        are_different = len(set(names)) == len(names)
        can_be_read = are_different and all(map(is_readable, names))
        return _TypedRows(self, row) if can_be_read else None

    def _row(self, value: Json) -> Any:
        if self.row:
            return value.get(self.row)
        reserved = (self.kind, *self.position)
        return {name: cell for name, cell in value.items() if name not in reserved}

    def _origin_offset(self, value: Json) -> OriginOffset | None:
        """Return the record's partition and position; a position alone is in partition 0."""
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
        has_partition = len(numbers) > 1
        partition = numbers[0] if has_partition else 0
        position = numbers[-1]
        return partition, position


class _TypedRows:
    """The `TypedForm` of plain rows.

    Args:
        decoder: The format.
        row: How a row is read.
    """

    def __init__(self, decoder: PlainDecoder, row: RowForm) -> None:
        places = [(name, f"place{number}", int | None, None) for number, name in enumerate(decoder.position)]
        reserved: list[Field] = [(decoder.kind, "kind", str | None, None), *places]
        self._is_nested = decoder.row is not None
        if decoder.row is None:
            self.value = row.struct(reserved)
        else:
            nested = (decoder.row, "row", row.struct() | None, None)
            self.value = struct("Record", [*reserved, nested])
        self._places = [attribute for _, attribute, _, _ in places]

    def take(self, value: Any) -> Sequence[TakenChange]:
        """See `TypedForm`."""
        kind = value.kind
        row = value.row if self._is_nested else value
        if kind not in KINDS or row is None:
            return ()
        offset = None
        if self._places:
            numbers = [getattr(value, name) for name in self._places]
            if not all(number is not None and 0 <= number < 2**63 for number in numbers):
                return ()
            partition = numbers[0] if len(numbers) > 1 else 0
            offset = partition, numbers[-1]
        return (TakenChange(row, kind, kind, offset=offset),)
