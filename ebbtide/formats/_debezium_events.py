"""Debezium events that are not row changes, in separate topics or, with one sink for all topics, among the changes.

| event | recognized by |
|---|---|
| heartbeat | `ts_ms`, and only times |
| transaction metadata | `status` BEGIN or END, `id`, `event_count`, and only fields of such events |
| schema change | `source`, `databaseName`, and `ddl` or `tableChanges` |
| notification of a snapshot | `aggregate_type`, `type`, `id`, and only fields of such events |
| logical decoding message | `op` or `__op` is `m` |

Source: Debezium 3.7, "Heartbeats", "Transaction metadata", "Schema change topic", "Notifications".
"""

from __future__ import annotations

from typing import Any

from ebbtide.formats._connect import has_schema
from ebbtide.formats._format import Json

_TIMES = {"ts_ms", "ts_us", "ts_ns"}
_OF_TRANSACTION = {*_TIMES, "status", "id", "event_count", "data_collections"}
_OF_NOTIFICATION = {"id", "aggregate_type", "type", "additional_data", "timestamp"}


def is_message(fields: Json) -> bool:
    """Return whether an event is a message that an application wrote into the log."""
    return fields.get("op") == "m" or fields.get("__op") == "m"


def is_beside_rows(value: Json) -> bool:
    """Return whether a record is an event that changes no row.

    Example:
        >>> is_beside_rows({"ts_ms": 1767225600000}), is_beside_rows({"ts_ms": 1767225600000, "id": 7})
        (True, False)
    """
    fields = value["payload"] if has_schema(value) else value
    if not isinstance(fields, dict):
        return False
    if "op" in fields or "__op" in fields:
        return is_message(fields)
    is_heartbeat = type(fields.get("ts_ms")) is int and fields.keys() <= _TIMES
    return is_heartbeat or _is_of_transaction(fields) or _is_schema_change(fields) or _is_notification(fields)


def _is_of_transaction(fields: Json) -> bool:
    is_bound = fields.get("status") in ("BEGIN", "END") and "event_count" in fields
    return is_bound and _is_text(fields.get("id")) and fields.keys() <= _OF_TRANSACTION


def _is_schema_change(fields: Json) -> bool:
    is_of_database = isinstance(fields.get("source"), dict) and "databaseName" in fields
    return is_of_database and (_is_text(fields.get("ddl")) or isinstance(fields.get("tableChanges"), list))


def _is_notification(fields: Json) -> bool:
    names = ("aggregate_type", "type", "id")
    return all(_is_text(fields.get(name)) for name in names) and fields.keys() <= _OF_NOTIFICATION


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
