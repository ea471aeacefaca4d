"""Settings of the Debezium format, the origin of an event, and its position in the database's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ebbtide.formats.connect import has_schema
from ebbtide.formats.format import BadRecordError, Json, shortened
from ebbtide.formats.forms import LogPosition
from ebbtide.formats.unavailable import DEFAULT, Unavailable
from ebbtide.model.entries import LONG_MIN
from ebbtide.model.sequences import LOG_POSITIONS
from ebbtide.model.ttl import LONG_MAX


@dataclass(frozen=True)
class DebeziumRules:
    """Settings of a pipeline that reads Debezium events.

    Args:
        key: Names of the key's columns.
        sequence: Columns that order a key's changes; empty in arrival mode.
        retract: Retract the whole row before a change (arrival mode), instead of deleting old keys only.
        table: Take only events of this source table, `orders` or `public.orders`; None takes all.
        columns: Names of the pipeline's columns.
        unavailable: Recognizes values that were not sent.
    """

    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    retract: bool = False
    table: str | None = None
    columns: tuple[str, ...] = ()
    unavailable: Unavailable = DEFAULT

    def takes(self, schema: Any, table: Any) -> bool:
        """Return whether events of a source table are taken; without a schema the bare names are compared."""
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
        source: Json,
        prefix: str,
    ) -> LogPosition:
        """Return the position of a change in the database's log: one number for each log column of the sequence.

        Args:
            op: The operation.
            event_ms: Time of the event, epoch ms.
            source: The fields with the position.
            prefix: Prefix of their names in the record, for messages.
        """
        position: list[int | None] = []
        for column in self.sequence:
            if column not in LOG_POSITIONS:
                continue
            name = column.removeprefix("_")
            label = prefix + name
            value = source.get(name)
            if column == "_file":
                value = file_number(value, label)
            number = integer(value, label, "bad_sequence")
            if number is not None and number < 0:
                raise BadRecordError.of(
                    "bad_sequence",
                    label,
                    got=str(number),
                    allowed="0 to 2^63 - 1",
                )
            is_snapshot_row = column == "_lsn" and op == "r"
            if number is None and is_snapshot_row:
                # A row of an incremental snapshot has no LSN. It ranks below all changes, and by its time among such rows.
                since_epoch = max(event_ms or 0, 0)
                number = LONG_MIN + since_epoch
            position.append(number)
        return tuple(position)

    @property
    def position_fields(self) -> list[str]:
        """Names in the source of the components of the position, in their order."""
        log_columns = [name for name in self.sequence if name in LOG_POSITIONS]
        return [name.removeprefix("_") for name in log_columns]

    @property
    def own_sequence(self) -> list[str]:
        """Columns of the sequence that are neither log positions nor part of the key."""
        excluded = {*LOG_POSITIONS, *self.key}
        return [name for name in self.sequence if name not in excluded]


FLATTENED_MARKS = ("__op", "__deleted")
"""Fields of the record by which it is a flattened row, whatever else stands in it."""


def is_flattened(fields: Json) -> bool:
    """Return whether an event is a flattened row."""
    return any(name in fields for name in FLATTENED_MARKS)


def file_number(name: Any, field: str) -> int | None:
    """Read the number of a binary log's file: `mariadb-bin.000003` is 3, and 1000000 comes after 999999."""
    if name is None:
        return None
    number = ""
    if isinstance(name, str):
        _, _, number = name.rpartition(".")
    is_decimal = number.isascii() and number.isdigit()
    fits = len(number) <= 18
    if not is_decimal or not fits:
        raise BadRecordError.of(
            "bad_sequence",
            field,
            got=shortened(name),
            allowed="a name that ends in . and a number",
        )
    return int(number)


def integer(value: Any, name: str, reason: str) -> int | None:
    """Read an integer of 64 bits, or null.

    Args:
        value: The value in the record.
        name: Name of its field.
        reason: Reason of the error.

    Raises:
        BadRecordError: It is neither.
    """
    if value is None:
        return None
    if type(value) is int and LONG_MIN <= value <= LONG_MAX:
        return value
    raise BadRecordError.of(
        reason,
        name,
        got=shortened(value),
        allowed="an integer of 64 bits",
    )


@dataclass(frozen=True)
class EventOrigin:
    """The origin of an event.

    Args:
        table: `schema.table`, for MySQL and MariaDB `database.table`; None if the event names none.
        sequence: Columns that order changes of this database's log; empty if the event has no position.
        is_flattened: The event is a flattened row.
    """

    table: str | None
    sequence: tuple[str, ...]
    is_flattened: bool


def origin_of(value: Json) -> EventOrigin | None:
    """Return the origin of an event in any of its forms; None if the value is not an event."""
    payload = value["payload"] if has_schema(value) else value
    if not isinstance(payload, dict):
        return None
    if is_flattened(payload):
        return _origin(payload, "__")
    source = payload.get("source")
    if "op" in payload and isinstance(source, dict):
        return _origin(source, "")
    return None


def _origin(fields: Json, prefix: str) -> EventOrigin:
    schema = fields.get(f"{prefix}schema")
    database = fields.get(f"{prefix}db")
    namespace = schema or database
    table = fields.get(f"{prefix}table")
    if namespace and table:
        table = f"{namespace}.{table}"
    is_of_row = bool(prefix)
    # The first column of a sequence shows whose log it is: `lsn` is Postgres's, `file` that of MySQL and MariaDB.
    for sequence in (("_lsn",), ("_file", "_pos", "_row")):
        first, *_ = sequence
        name = first.removeprefix("_")
        names = {f"{prefix}{name}", f"{prefix}source_{name}"}
        if not names.isdisjoint(fields):
            return EventOrigin(table, sequence, is_of_row)
    return EventOrigin(table, (), is_of_row)
