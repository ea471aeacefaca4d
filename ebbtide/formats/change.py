"""What a decoder makes of one record: changes, or a reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ebbtide.formats.columns import TimeUnit

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One change, its values still JSON.

    Args:
        kind: A `RowKind`, or `T` for TRUNCATE.
        row: Column to JSON value; of a delete in sequence mode at least the key. None for TRUNCATE.
        op: The source's own operation.
        position: Where the source's log says that the change stands, for each such column of the sequence in its order; None where it says nothing.
        event_ms: Event time, epoch ms; None if unknown.
        old_row: The row under its old key, where an update changed the key.
        units: What integers mean in timestamp columns, where the record itself says so.
        place: Position columns of the record: partition and position in its source; None where it has none.
    """

    kind: str
    row: Json | None
    op: str | None = None
    position: tuple[int | None, ...] = ()
    event_ms: int | None = None
    old_row: Json | None = None
    units: dict[str, TimeUnit] | None = None
    place: tuple[int, int] | None = None


class BadRecordError(Exception):
    """Raised by decoders for a record that goes to the quarantine.

    Args:
        reason: Short code, the same for all records of this kind.
        detail: What was got and what is allowed.
        place: As in `Change`, where the record has one that can be read.
    """

    def __init__(self, reason: str, detail: str, place: tuple[int, int] | None = None) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail, self.place = reason, detail, place


class Decoder(Protocol):
    """Turns a parsed record into changes."""

    def changes(self, value: Json, key: str | None) -> list[Change]:
        """Return the record's changes in order, none if it is of another table.

        Args:
            value: The record's value.
            key: The record's key as text, not yet parsed; None if it has none.

        Raises:
            BadRecordError: The record cannot be understood.
        """
        ...
