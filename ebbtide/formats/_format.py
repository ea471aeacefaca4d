"""The contract of formats: a parsed record becomes changes, or is bad for a reason.

A new format is one module with a class that derives from `Format` and an entry point that names it
(docs/how-to/extending.md). The generic decoder (`ebbtide.formats._decoding`) knows no format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, TypeVar

import pyarrow as pa
from pydantic import BaseModel

from ebbtide.formats._columns import TimeUnit
from ebbtide.formats._forms import LogPosition, OriginOffset, RowForm, ScanForm
from ebbtide.model import NoOptions
from ebbtide.redaction import MASK

Json = dict[str, Any]
Value = TypeVar("Value")
TimeUnits = dict[str, TimeUnit]
"""Timestamp column to the unit of its integers."""

OLD_KEY = "__debezium.oldkey"
"""Header with the key that the record's row had before."""
NEW_KEY = "__debezium.newkey"
"""Header of a deleting record with the key that the row has afterwards."""


class RecordSchema(Protocol):
    """The schema that a record carries."""

    def type_of(self, column: str) -> str | None:
        """Return a column's type as DDL, empty if uncertain, None if the schema has no such column."""

    def reads_wrongly(self, column: str, type_: pa.DataType, *, is_coded: bool) -> bool:
        """Return whether a column of this type would silently misread the values.

        Args:
            column: Name of the column.
            type_: Type of the column.
            is_coded: The spec gives the encoding of its bytes.
        """

    def has_bytes(self, column: str) -> bool:
        """Return whether the column has bytes. JSON has these as base64, regardless of encodings in the spec."""

    def described(self, column: str) -> str:
        """Return a description of a column for messages; empty if the schema has no such column."""

    def renamed(self, new_names: Mapping[str, str]) -> RecordSchema:
        """Return the schema with its columns renamed; `new_names` maps old names to new ones."""


NOT_A_ROW = "not_a_row"
"""The kind of a known record that changes no row of any table."""


@dataclass(slots=True)  # not frozen: there is one for each record, and a frozen one is made at a quarter of the speed
class DecodedChange:
    """One change, its values still JSON.

    Args:
        kind: A `RowKind`, `T` for TRUNCATE, or `NOT_A_ROW`.
        row: Column to JSON value; a delete in sequence mode needs the key only. None for TRUNCATE.
        op: The source's own operation.
        position: Position in the source's log; empty if there is none.
        event_ms: Event time, epoch ms; None if unknown.
        other_row: For an update that changed the key: the old row, or only its key; for its delete the new key.
        units: Units of timestamp columns, if the record gives them.
        origin_offset: Partition and offset, if the record names them.
        schema: The record's schema, if it has one.
        snapshot: Mark of a row from a snapshot of the whole table, as in Debezium's `source.snapshot`.
        log: The log that it was read from, see `log_named` in `_debezium_envelope`; None: unknown.
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
        reason: Short code, the same for all records with this defect.
        detail: The value got, and the allowed values.
        origin_offset: As in `DecodedChange`, if it can be read.
        masked: The detail without values. Default: no detail.
        field: The only field that the detail is about.

    Attributes:
        NULL_KEY: Reason of a row without a value in a key column.
        OF_DRIFT: Reasons of records that do not fit the schema.
        REASONS: Reasons in Ebbtide's formats and transforms; a project's format may add more.
        NEEDS_WHOLE_ROWS: The next step for a record without the row before a change, for any database.
    """

    NULL_KEY: ClassVar = "null_key"
    OF_DRIFT: ClassVar = frozenset({"missing_column", "unknown_column", "wrong_type"})
    REASONS: ClassVar[frozenset[str]] = OF_DRIFT | frozenset(
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
            NULL_KEY,
            "null_sequence",
            "null_value",
            "retraction",
            "schema_mismatch",
            "too_deep",
            "too_large",
            "transform_failed",
            "truncate",
            "unknown_kind",
            "unknown_operation",
            "unknown_schema",
            "value_not_sent",
        }
    )
    NEEDS_WHOLE_ROWS: ClassVar[str] = (
        "have the database log whole rows (Postgres: REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL; "
        "Oracle: supplemental logging of ALL columns)"
    )

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
        """Return an error about a single field; its detail has a fixed form.

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

    A project's format derives from this class. It is created as `Class(options, columns, key)`: its options, the user's
    columns, the names of the key's columns. Its package registers it as an entry point in the group `ebbtide.formats`;
    the entry point's name is the `type` in a spec's `format`. Instances are sent to workers: they must be picklable and
    keep no state between records.

    Attributes:
        Options: Model of the fields other than `type` and `time_units` in a spec's `format`.
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
            key: The record's key as text, not parsed; None if it has none.
            other_key: The key that the row had before, or has afterwards, if a header names it; in the form of `key`.

        Raises:
            BadRecordError: The record cannot be understood.
        """

    def scanned(self, row: RowForm) -> Sequence[ScanForm]:
        """Return the common forms of records for the scan, the fast path; none: all records go through `changes`.

        Records that one form leaves are scanned by the next. The forms must return the same changes as `changes`.

        Args:
            row: The form of a row.
        """
        return ()


def under_new_names(values: Mapping[str, Value], new_names: Mapping[str, str]) -> dict[str, Value]:
    """Return values with some names replaced.

    Args:
        values: The values.
        new_names: Old names to new ones; other names stay.
    """
    renamed = {}
    for name, value in values.items():
        new_name = new_names.get(name, name)
        renamed[new_name] = value
    return renamed


def shortened(value: Any) -> str:
    """Return a value as shown in messages: at most 80 characters."""
    text = repr(value)
    if len(text) <= 80:
        return text
    head = text[:77]
    return f"{head}..."
