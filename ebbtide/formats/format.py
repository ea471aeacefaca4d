"""The contract of formats: one parsed record in, its changes out, or the reason why it is bad.

A new format is one module, with a class that derives from `Format`, and an entry point that names it (docs/how-to/extending.md). The generic
decoder (`ebbtide.formats.decoding`) knows no format.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa
from pydantic import BaseModel

from ebbtide.formats.columns import TimeUnit
from ebbtide.formats.forms import LogPosition, OriginOffset, RowForm, TypedForm
from ebbtide.model.options import NoOptions
from ebbtide.redaction import MASK

Json = dict[str, Any]
TimeUnits = dict[str, TimeUnit]
"""What integers mean in timestamp columns, by column."""

OLD_KEY = "__debezium.oldkey"
"""The header of a record that names the key that its row had before."""
NEW_KEY = "__debezium.newkey"
"""The header of a record that deletes a row, and names the key that the row has afterwards."""
UNAVAILABLE = "__debezium_unavailable_value"
"""Stands in a record for a value that its source did not send because it had not changed. The text is Debezium's, in any format."""
UNAVAILABLE_BYTES = base64.b64encode(UNAVAILABLE.encode()).decode()
"""The same in a binary column."""


def unavailable_form(type_: pa.DataType) -> str | list[str] | None:
    """Return the JSON value that stands, in a column of this type, for one that was not sent; None if the type has none."""
    if pa.types.is_list(type_):
        return [UNAVAILABLE]
    if pa.types.is_binary(type_):
        return UNAVAILABLE_BYTES
    if pa.types.is_string(type_):
        return UNAVAILABLE
    return None


class RecordSchema(Protocol):
    """What a record's own schema says of its columns."""

    def type_of(self, column: str) -> str | None:
        """Return a column's type as DDL, empty where it is not certain, None where the schema has no such column."""

    def reads_wrongly(self, column: str, type_: pa.DataType) -> bool:
        """Return whether a column of this type would take the values for something that they are not."""

    def described(self, column: str) -> str:
        """Return what a column is, for messages; empty where the schema has no such column."""

    def renamed(self, new_names: Mapping[str, str]) -> RecordSchema:
        """Return the schema with columns under their new names, by their old ones."""


@dataclass(frozen=True, slots=True)
class DecodedChange:
    """One change, its values still JSON.

    Args:
        kind: A `RowKind`, or `T` for TRUNCATE.
        row: Column to JSON value; of a delete in sequence mode at least the key. None for TRUNCATE.
        op: The source's own operation.
        position: Where it stands in the source's log; empty if that has none.
        event_ms: Event time, epoch ms; None if unknown.
        other_row: Where an update changed the key: the row as it was, or its old key alone; of a delete the new key.
        units: Of timestamp columns, where the record itself says so.
        origin_offset: Where the record itself names it; else None.
        schema: The record's own; None where it has none.
    """

    kind: str
    row: Json | None
    op: str | None = None
    position: LogPosition = ()
    event_ms: int | None = None
    other_row: Json | None = None
    units: TimeUnits | None = None
    origin_offset: OriginOffset | None = None
    schema: RecordSchema | None = None


class BadRecordError(Exception):
    """Raised for a record that goes to the quarantine.

    Args:
        reason: Short code, the same for all records that are bad in this way.
        detail: What was got and what is allowed.
        origin_offset: As in `DecodedChange`, where the record has one that can be read.
        masked: The detail where no value may be shown. Default: nothing of it.
        field: The one field that the detail is about.
    """

    def __init__(
        self,
        reason: str,
        detail: str,
        origin_offset: OriginOffset | None = None,
        *,
        masked: str = MASK,
        field: str | None = None,
    ) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.origin_offset = origin_offset
        self.masked = masked
        self.field = field

    @classmethod
    def of(
        cls,
        reason: str,
        field: str,
        *,
        got: str,
        allowed: str,
        origin_offset: OriginOffset | None = None,
    ) -> Self:
        """Compose the detail in the one order that those of a single field share.

        Example:
            >>> BadRecordError.of("bad_sequence", "lsn", got="-1", allowed="0 to 2^63 - 1").detail
            'lsn: got -1; allowed: 0 to 2^63 - 1'
        """
        detail = f"{field}: got {got}; allowed: {allowed}"
        masked = detail if got == "null" else f"{field}: got {MASK}; allowed: {allowed}"
        return cls(reason, detail, origin_offset, masked=masked, field=field)


class Format(ABC):
    """Knows what the values of records look like: turns a parsed one into changes.

    A project's own derives from this, and is made as `Class(options, columns, key)`: its options, the user's columns, the names of the
    key's. Its package names it by an entry point of the group `ebbtide.formats`; the entry point's name is the `type` in a spec's `format`.
    An instance is sent to the workers, so that it can be pickled; it keeps nothing between records.

    Attributes:
        Options: Model of what stands beside `type` and `time_units` in a spec's `format`.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions

    @abstractmethod
    def changes(self, value: Json, key: str | None, other_key: str | None = None) -> list[DecodedChange]:
        """Return the record's changes in order, none if it is of another table.

        Args:
            value: The record's value.
            key: The record's key as text, not yet parsed; None if it has none.
            other_key: The key that its row had before, or has afterwards, in the form of `key`, where a header of the record names it.

        Raises:
            BadRecordError: The record cannot be understood.
        """

    def typed(self, row: RowForm) -> TypedForm | None:
        """Say how most records look, so that these are read quickly; None: all go through `changes`.

        What it takes must be what `changes` returns.

        Args:
            row: How a row is read.
        """
        return None


def shortened(value: Any) -> str:
    """Return a value as a message shows it: at most 80 characters."""
    text = repr(value)
    if len(text) <= 80:
        return text
    head = text[:77]
    return f"{head}..."
