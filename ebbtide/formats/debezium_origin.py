"""Where a Debezium event comes from, and what orders the changes of its database's log."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.formats.connect import has_schema
from ebbtide.formats.format import Json


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
