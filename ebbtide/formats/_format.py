"""The contract of formats: one parsed record in, its changes out, or the reason why the record is bad.

A new format is one module, with a class that derives from `Format`, and an entry point that names it (docs/how-to/extending.md). The generic
decoder (`ebbtide.formats._decoding`) knows no format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import pyarrow as pa
from pydantic import BaseModel

from ebbtide.formats._columns import TimeUnit
from ebbtide.formats._forms import LogPosition, OriginOffset, RowForm, ScanForm, TypedForm
from ebbtide.model import NoOptions
from ebbtide.redaction import MASK

Json = dict[str, Any]
Value = TypeVar("Value")
TimeUnits = dict[str, TimeUnit]
"""Timestamp column to the unit of its integers."""

OLD_KEY = "__debezium.oldkey"
"""Header of a record that names the key that its row had before."""
NEW_KEY = "__debezium.newkey"
"""Header of a record that deletes a row: it names the key that the row has afterwards."""

WHOLE_ROWS = (
    "have the database log whole rows (Postgres: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL; "
    "Oracle: supplemental logging of ALL columns)"
)
"""The way out where a record lacks the row before a change, whatever database it is of."""
REASONS = frozenset(
    {
        "bad_avro",
        "bad_deleted",
        "bad_event_time",
        "bad_json",
        "bad_position",
        "bad_schema",
        "bad_sequence",
        "event_time_ahead",
        "missing_after",
        "missing_before",
        "missing_column",
        "missing_source",
        "missing_table",
        "no_magic_byte",
        "no_registry",
        "not_a_change",
        "not_a_record",
        "not_a_row",
        "not_an_object",
        "not_utf8",
        "null_event_time",
        "null_key",
        "null_sequence",
        "null_value",
        "retraction",
        "schema_mismatch",
        "too_deep",
        "too_large",
        "transform_failed",
        "truncate",
        "unknown_column",
        "unknown_kind",
        "unknown_operation",
        "unknown_schema",
        "value_not_sent",
        "wrong_type",
    }
)
"""Reasons of bad records that Ebbtide's own formats and transforms give; a format of a project's own may have more."""


class RecordSchema(Protocol):
    """The schema that a record carries itself."""

    def type_of(self, column: str) -> str | None:
        """Return a column's type as DDL, empty if it is not certain, None if the schema has no such column."""

    def reads_wrongly(self, column: str, type_: pa.DataType, *, is_coded: bool) -> bool:
        """Return whether a column of this type would silently misread the values.

        Args:
            column: Name of the column.
            type_: Its type.
            is_coded: The spec says how its bytes are written as text.
        """

    def has_bytes(self, column: str) -> bool:
        """Return whether the column has bytes, which JSON has as base64, whatever the spec says of texts."""

    def described(self, column: str) -> str:
        """Return a description of a column for messages; empty if the schema has no such column."""

    def renamed(self, new_names: Mapping[str, str]) -> RecordSchema:
        """Return the schema with its columns renamed; `new_names` maps old names to new ones."""


NOT_A_ROW = "not_a_row"
"""The kind of a record that a format knows, and that changes no row of any table."""


@dataclass(frozen=True, slots=True)
class DecodedChange:
    """One change, its values still JSON.

    Args:
        kind: A `RowKind`, `T` for TRUNCATE, or `NOT_A_ROW`.
        row: Column to JSON value; a delete in sequence mode needs the key only. None for TRUNCATE.
        op: The source's own operation.
        position: Position in the source's log; empty if there is none.
        event_ms: Event time, epoch ms; None if unknown.
        other_row: For an update that changed the key: the old row, or its key alone; for its delete the new key.
        units: Units of timestamp columns, if the record itself gives them.
        origin_offset: Partition and offset, if the record itself names them.
        schema: The record's own schema, if it has one.
        snapshot: The mark of a row that a snapshot of the whole table read, as Debezium's `source.snapshot` has it.
        log: The log that it was read from, see `log_named` of Debezium's envelope; None: the record does not say.
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
    snapshot: str | None = None
    log: str | None = None


class BadRecordError(Exception):
    """Raised for a record that goes to the quarantine.

    Args:
        reason: Short code, the same for all records that are bad in this way.
        detail: The value got, and the allowed ones.
        origin_offset: As in `DecodedChange`, if it can be read.
        masked: The detail without values. Default: no detail.
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
        """Compose the detail about a single field, always in the same order.

        Example:
            >>> BadRecordError.of("bad_sequence", "lsn", got="-1", allowed="0 to 2^63 - 1").detail
            'lsn: got -1; allowed: 0 to 2^63 - 1'
        """
        detail = f"{field}: got {got}; allowed: {allowed}"
        masked_got = got if got == "null" else MASK
        masked = f"{field}: got {masked_got}; allowed: {allowed}"
        return cls(reason, detail, origin_offset, masked=masked, field=field)


class Format(ABC):
    """Turns the parsed value of a record into changes.

    A format of a project's own derives from this class. It is created as `Class(options, columns, key)`: its options, the user's columns,
    the names of the key's columns. Its package names it by an entry point of the group `ebbtide.formats`; the entry point's name is the
    `type` in a spec's `format`. Instances are sent to the workers: they must be picklable, and keep nothing between records.

    Attributes:
        Options: Model of the fields beside `type` and `time_units` in a spec's `format`.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions

    @abstractmethod
    def changes(
        self,
        value: Json,
        key: str | None,
        other_key: str | None = None,
    ) -> list[DecodedChange]:
        """Return the record's changes in order; none if it belongs to another table.

        Args:
            value: The record's value.
            key: The record's key as text, not yet parsed; None if it has none.
            other_key: The key that its row had before, or has afterwards, if a header of the record names it; in the form of `key`.

        Raises:
            BadRecordError: The record cannot be understood.
        """

    def typed(self, row: RowForm) -> TypedForm | None:
        """Return the common form of records, for the quick path; None: all records go through `changes`.

        The form must return the same changes as `changes`.

        Args:
            row: The form of a row.
        """
        return None

    def scanned(self, row: RowForm) -> Sequence[ScanForm]:
        """Return the common forms of records for the scan, which is quicker still; none: records are not scanned.

        What one form leaves is scanned by the next one. They must return the same changes as `changes`.

        Args:
            row: The form of a row.
        """
        return ()


def under_new_names(values: Mapping[str, Value], new_names: Mapping[str, str]) -> dict[str, Value]:
    """Return values by name, some of them under new names.

    Args:
        values: The values.
        new_names: Old names to new ones; a name that is not among them stays.
    """
    renamed = {}
    for name, value in values.items():
        new_name = new_names.get(name, name)
        renamed[new_name] = value
    return renamed


def shortened(value: Any) -> str:
    """Return a value as a message shows it: at most 80 characters."""
    text = repr(value)
    if len(text) <= 80:
        return text
    head = text[:77]
    return f"{head}..."
