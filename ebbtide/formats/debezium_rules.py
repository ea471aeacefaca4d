"""Settings of the Debezium format, where an event comes from, and where it stands in its database's log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ebbtide.formats.connect import has_schema
from ebbtide.formats.format import BadRecordError, Json, shortened
from ebbtide.formats.forms import LogPosition
from ebbtide.model.entries import LONG_MIN
from ebbtide.model.sequences import LOG_POSITIONS

LONG_MAX = 2**63 - 1


@dataclass(frozen=True)
class DebeziumRules:
    """How a pipeline reads Debezium events.

    Args:
        key: Names of the key's columns.
        sequence: What orders a key's changes; empty in arrival mode.
        retract: Give the whole row before a change as a retraction (arrival mode), instead of only deleted keys.
        table: Take only events of this source table, `orders` or `public.orders`; None takes all.
        columns: Names of the pipeline's columns.
    """

    key: tuple[str, ...]
    sequence: tuple[str, ...] = ("_lsn",)
    retract: bool = False
    table: str | None = None
    columns: tuple[str, ...] = ()

    def takes(self, schema: Any, table: Any) -> bool:
        """Return whether events of a source table are taken; where the schema is not known, the bare names are compared."""
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
        """Return where a change stands in the database's log: each column of the sequence that is such a place.

        Args:
            op: The operation.
            event_ms: The event's time.
            source: The fields that say where it stands.
            prefix: What stands before their names in the record, for messages.
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
                # An incremental snapshot's row stands below all changes, by its time.
                since_epoch = max(event_ms or 0, 0)
                number = LONG_MIN + since_epoch
            position.append(number)
        return tuple(position)

    @property
    def own_sequence(self) -> list[str]:
        """The user's columns of the sequence that are not of the key."""
        others = {*LOG_POSITIONS, *self.key}
        return [name for name in self.sequence if name not in others]


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
        value: As it stands in the record.
        name: Of its field.
        reason: Why the record is bad where it is none.

    Raises:
        BadRecordError: It is none.
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
    """Where an event comes from.

    Args:
        table: `schema.table`, of MySQL and MariaDB `database.table`; None if the event does not say.
        sequence: What orders changes of this database's log; empty if the event does not say where it stands there.
        is_flattened: It is a flattened row.
    """

    table: str | None
    sequence: tuple[str, ...]
    is_flattened: bool


def origin_of(value: Json) -> EventOrigin | None:
    """Return where an event comes from, in any of its forms; None if the value is no event."""
    payload = value["payload"] if has_schema(value) else value
    if not isinstance(payload, dict):
        return None
    source = payload.get("source")
    if "op" in payload and isinstance(source, dict):
        return _origin(source, "")
    is_flattened = "__op" in payload or "__deleted" in payload
    return _origin(payload, "__") if is_flattened else None


def _origin(fields: Json, prefix: str) -> EventOrigin:
    schema = fields.get(f"{prefix}schema") or fields.get(f"{prefix}db")
    table = fields.get(f"{prefix}table")
    qualified = f"{schema}.{table}" if schema and table else table
    is_flattened = bool(prefix)
    for sequence in (("_lsn",), ("_file", "_pos", "_row")):
        name = sequence[0].removeprefix("_")
        has_place = f"{prefix}{name}" in fields or f"{prefix}source_{name}" in fields
        if has_place:
            return EventOrigin(qualified, sequence, is_flattened)
    return EventOrigin(qualified, (), is_flattened)
