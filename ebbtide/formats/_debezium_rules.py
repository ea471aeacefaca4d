"""Settings of the Debezium format, the origin of an event, and its position in the database's log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from ebbtide.columns import Long
from ebbtide.formats._connect import has_schema
from ebbtide.formats._debezium_envelope import (
    LEFT_OUT,
    ORDERS,
    SHORT_NAMES,
    is_metadata,
    names_in_row,
    position_field,
    value_in,
    value_in_row,
)
from ebbtide.formats._debezium_events import is_beside_rows
from ebbtide.formats._format import BadRecordError, Json, shortened
from ebbtide.formats._forms import LogPosition
from ebbtide.formats._positions import PositionField, log_position
from ebbtide.formats._unavailable import DEFAULT, Unavailable


@dataclass(frozen=True)
class DebeziumRules:
    """Settings of a pipeline that reads Debezium events.

    Args:
        key: Names of the key's columns.
        sequence: Columns that order a key's changes; empty in arrival mode.
        retract: In arrival mode, retract the row as it was before the change, with all its columns, instead of only deleting its old key.
        table: Read only events of this source table, `orders` or `public.orders`; None: of all.
        columns: Names of the pipeline's columns.
        unavailable: Recognizes values that were not sent.
        positions: Envelope fields that order changes. Default: those that `sequence` names by short name.
    """

    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    retract: bool = False
    table: str | None = None
    columns: tuple[str, ...] = ()
    unavailable: Unavailable = DEFAULT
    positions: tuple[PositionField, ...] | None = None

    def takes(self, schema: Any, table: Any) -> bool:
        """Return whether events of a source table are read; without a schema only the names are compared."""
        if not self.table or table == self.table:
            return True
        if not schema:
            _, _, bare_name = self.table.rpartition(".")
            return bool(table == bare_name)
        return self.table == f"{schema}.{table}"

    def position(
        self,
        op: Any,
        event_ms: int | None,
        event: Json,
        *,
        is_row: bool = False,
    ) -> LogPosition:
        """Return the position of a change in the database's log, see `log_position`.

        Args:
            op: The operation.
            event_ms: Time of the event, epoch ms.
            event: The envelope, or the flattened row.
            is_row: The event is a flattened row.
        """
        value_of = value_in_row if is_row else value_in
        values = [value_of(event, path) for path in self._paths]
        snapshot_ms = self.snapshot_ms(op, event_ms)
        return log_position(self.log_fields, values, self._names_in_row if is_row else self._paths, snapshot_ms)

    @staticmethod
    def snapshot_ms(op: Any, event_ms: int | None) -> int | None:
        """Return when a snapshot row was read, epoch ms, 0 if unknown; None for a change."""
        return (event_ms or 0) if op == "r" else None

    @cached_property
    def log_fields(self) -> tuple[PositionField, ...]:
        """Envelope fields that order changes, most significant first."""
        if self.positions is not None:
            return self.positions
        named = [position_field(name) for name in self.sequence if name in SHORT_NAMES]
        return tuple(field for field in named if field is not None)

    @cached_property
    def _paths(self) -> list[str]:
        """Paths of these fields in an envelope."""
        return [field.path for field in self.log_fields]

    @cached_property
    def _names_in_row(self) -> list[str]:
        """Names of these fields in a flattened row."""
        return [names_in_row(path)[-1] for path in self._paths]

    @cached_property
    def names_logs(self) -> bool:
        """Return whether a position names a file of a binary log; the file's name shows which log it is."""
        return [field.path for field in self.log_fields][:1] == ["source.file"]

    @property
    def own_sequence(self) -> list[str]:
        """Columns of the sequence that are neither log positions nor part of the key."""
        excluded = {*(column for field in self.log_fields for column in field.columns), *self.key}
        return [name for name in self.sequence if name not in excluded]

    def is_of_event(self, name: str) -> bool:
        """Return whether a flattened row's field belongs to the event and is not a column."""
        return name.startswith("__") and is_metadata(name) and name not in self.columns


_SHORT_NAME_OF = {path: name for name, path in SHORT_NAMES.items()}
FLATTENED_MARKS = ("__op", "__deleted")
"""A record with one of these fields is a flattened row."""


def is_flattened(fields: Json) -> bool:
    """Return whether an event is a flattened row."""
    return "__op" in fields or "__deleted" in fields


def integer(value: Any, name: str, reason: str) -> int | None:
    """Read a 64-bit integer or null.

    Args:
        value: The value in the record.
        name: Name of its field.
        reason: Reason of the error.

    Raises:
        BadRecordError: The value is neither.
    """
    if value is None:
        return None
    if type(value) is int and Long.MIN <= value <= Long.MAX:
        return value
    raise BadRecordError.of(
        reason,
        name,
        got=shortened(value),
        allowed="an integer of 64 bits",
    )


@dataclass(frozen=True)
class DebeziumEvent:
    """An event by its own fields: its table, the fields that order it, and its form.

    Args:
        table: `schema.table`, for MySQL and MariaDB `database.table`; None if the event names none.
        sequence: Fields that order this database's changes, by their names in specs; empty if the event has none.
        is_flattened: The event is a flattened row.
        changes_rows: False for heartbeats, transaction metadata, schema changes, notifications and messages.
    """

    table: str | None = None
    sequence: tuple[str, ...] = ()
    is_flattened: bool = False
    changes_rows: bool = True

    @classmethod
    def of(cls, value: Json) -> DebeziumEvent | None:
        """Return the event in a record's value, in any of its forms; None if the value is not an event."""
        if is_beside_rows(value):
            return cls(changes_rows=False)
        payload = value["payload"] if has_schema(value) else value
        if not isinstance(payload, dict):
            return None
        if is_flattened(payload):
            return _event(payload, partial(value_in_row, payload), "__")
        source = payload.get("source")
        if "op" in payload and isinstance(source, dict):
            return _event(source, partial(value_in, payload), "")
        return None


def _event(fields: Json, value_of: Callable[[str], Any], prefix: str) -> DebeziumEvent:
    schema = fields.get(f"{prefix}schema")
    database = fields.get(f"{prefix}db")
    namespace = schema or database
    table = fields.get(f"{prefix}table")
    if namespace and table:
        table = f"{namespace}.{table}"
    return DebeziumEvent(table, _order_of(value_of), is_flattened=bool(prefix))


def _order_of(value_of: Callable[[str], Any]) -> tuple[str, ...]:
    """Return the fields that order changes of the event's connector, without those of `LEFT_OUT` that the event lacks.

    If the event lacks another of these fields, its `source.lsn` is used if it has one, as for Postgres. Without a known connector, the
    first known order that the event has is used.
    """
    connector = value_of("source.connector")
    named = ORDERS.get(connector.lower()) if isinstance(connector, str) else None
    for order in ORDERS.values() if named is None else (named, ORDERS["postgresql"]):
        there = tuple(path for path in order if _has(value_of, path))
        if there and set(order) - set(there) <= set(LEFT_OUT):
            return tuple(_SHORT_NAME_OF.get(path, path) for path in there)
    return ()


def _has(value_of: Callable[[str], Any], path: str) -> bool:
    """Return whether an event has a field with a value of its type."""
    field = position_field(path)
    value = value_of(path)
    if field is None or value is None:
        return False
    try:
        field.read(value)
    except BadRecordError:
        return False
    return True
