"""Debezium change events, in the three forms that Kafka Connect writes.

| form | looks like |
|---|---|
| envelope | `{"before", "after", "source": {"lsn", "ts_ms", ...}, "op"}` |
| with schema | `{"schema": ..., "payload": <envelope or flattened>}`; decimals, times and bits as the schema says |
| flattened | the columns, and `__op`, `__lsn`, `__source_ts_ms`, `__deleted` (ExtractNewRecordState) |

Operations: c, u, r (snapshot) add a row; d removes one; t empties the table; m, a message that an application wrote into the
log, changes no row and is skipped. Where a change stands in the database's log:

| sequence column | Postgres | MySQL, MariaDB |
|---|---|---|
| `_lsn` | `source.lsn`; of a snapshot row without one `source.ts_ms` - 2^63 | |
| `_file`, `_pos`, `_row` | | the number after the last dot of `source.file`, `source.pos`, `source.row` |
| `_ts_ms` | `source.ts_ms` | |

A flattened row has them as `__lsn` or `__source_lsn` and so on. Source: Debezium 3.7, "Data change events" of the Postgres,
MySQL and MariaDB connectors.

A retraction (arrival mode) needs the whole row before the change, which Postgres sends for tables with REPLICA IDENTITY
FULL. With DEFAULT an update comes without `before`; a delete's has the key's columns, and may have the others as null, 0,
'' or 1970, which a row may also have been.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ebbtide.formats.columns import TimeUnit
from ebbtide.formats.connect import Fields, plain_row, row_fields, time_units
from ebbtide.formats.format import BadRecordError, DecodedChange, Json, shortened
from ebbtide.model.changelog import TRUNCATE, RowKind
from ebbtide.model.entries import LONG_MIN
from ebbtide.model.sequences import LOG_POSITIONS

OPERATIONS = ("c", "r", "u", "d", "t")
MESSAGE = "message"
"""The kind of a change that is none: a logical decoding message."""
_FILLERS = (None, 0, "", False)
_EPOCH = "1970-01-01T00:00:00"


@dataclass(slots=True)
class _Event:
    """An event as each of the three forms gives it; `after` is None of a delete, `before` where it was not sent."""

    op: Any
    before: Json | None
    after: Json | None
    position: tuple[int | None, ...]
    event_ms: int | None
    units: dict[str, TimeUnit] | None

    def change(self, kind: str, row: Json | None, old_row: Json | None = None) -> DecodedChange:
        return DecodedChange(kind, row, self.op, self.position, self.event_ms, old_row, self.units)


@dataclass(frozen=True)
class DebeziumDecoder:
    """The `Format` of Debezium events.

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

    def changes(self, value: Json, key: str | None) -> list[DecodedChange]:
        """See `Format.changes`."""
        fields: Fields = {}
        if value.keys() == {"schema", "payload"}:
            fields = row_fields(value["schema"])
            payload = value["payload"]
            if not isinstance(payload, dict):
                detail = f"payload: got {shortened(payload)}; allowed: an object"
                raise BadRecordError("not_a_change", detail)
            value = payload
        is_flattened = "__op" in value or "__deleted" in value
        op = value.get("__op" if is_flattened else "op")
        if op == "m":
            return [DecodedChange(MESSAGE, None, "m")]  # it is of no table
        if not is_flattened and "op" not in value:
            allowed = "a Debezium envelope (op, before, after, source) or a flattened row (__op)"
            detail = f"got fields {sorted(value)[:8]}; allowed: {allowed}"
            raise BadRecordError("not_a_change", detail)
        event = self._flattened(value, fields) if is_flattened else self._envelope(value, key, fields)
        return [] if event is None else self._changes_of(event)

    def _envelope(self, value: Json, key: str | None, fields: Fields) -> _Event | None:
        """Read an envelope; None if it is of another table."""
        source = value.get("source")
        if not isinstance(source, dict):
            detail = f"source: got {shortened(source)}; allowed: an object with the change's place and ts_ms"
            raise BadRecordError("missing_source", detail)
        schema = source.get("schema") or source.get("db")
        if not self._takes(schema, source.get("table")):
            return None
        op = value["op"]
        event_ms = _integer(source.get("ts_ms"), "source.ts_ms", "bad_event_time")
        before = plain_row(value.get("before"), "before", fields)
        after = plain_row(value.get("after"), "after", fields)
        if before is None and op == "d":
            before = _key_row(key)
        position = self._position(op, event_ms, source, "source.")
        units = time_units(fields)
        return _Event(op, before, after, position, event_ms, units)

    def _flattened(self, value: Json, fields: Fields) -> _Event | None:
        """Read a flattened row; None if it is of another table."""
        schema = value.get("__schema") or value.get("__db")
        if not self._takes(schema, value.get("__table", self.table)):
            return None
        cells = {name: cell for name, cell in value.items() if not name.startswith("__")}
        row = plain_row(cells, "row", fields)
        is_deleted = value.get("__deleted") == "true"
        op = value.get("__op", "d" if is_deleted else None)
        source_ms = value.get("__source_ts_ms")  # __ts_ms is the connector's clock
        event_ms = _integer(source_ms, "__source_ts_ms", "bad_event_time")
        source = {"ts_ms": source_ms}
        for name in ("lsn", "file", "pos", "row"):
            other = value.get(f"__{name}")
            source[name] = value.get(f"__source_{name}", other)
        position = self._position(op, event_ms, source, "__")
        units = time_units(fields)
        if op == "d":
            return _Event(op, row, None, position, event_ms, units)
        return _Event(op, None, row, position, event_ms, units)

    def _takes(self, schema: Any, table: Any) -> bool:
        """Return whether events of a source table are taken."""
        if not self.table:
            return True
        return self.table in (table, f"{schema}.{table}")

    def _position(self, op: Any, event_ms: int | None, source: Json, prefix: str) -> tuple[int | None, ...]:
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
            value = source.get(name)
            if column == "_file":
                value = _file_number(value, prefix + name)
            number = _integer(value, prefix + name, "bad_sequence")
            if number is not None and number < 0:
                detail = f"{prefix}{name}: got {number}; allowed: 0 to 2^63 - 1"
                raise BadRecordError("bad_sequence", detail)
            if number is None and column == "_lsn" and op == "r":
                # An incremental snapshot's row stands below all changes, by its time.
                number = LONG_MIN + max(event_ms or 0, 0)
            position.append(number)
        return tuple(position)

    def _changes_of(self, event: _Event) -> list[DecodedChange]:
        op = event.op
        if op not in OPERATIONS:
            allowed = ", ".join(OPERATIONS)
            detail = f"op: got {shortened(op)}; allowed: {allowed}"
            raise BadRecordError("unknown_operation", detail)
        if op == "t":
            return [event.change(TRUNCATE, None)]
        if op == "d":
            return [event.change(RowKind.DELETE, self._deleted_row(event))]
        if op == "u":
            return self._update(event)
        return [event.change(RowKind.INSERT, _present(event.after, "after", op))]

    def _deleted_row(self, event: _Event) -> Json:
        before, op = event.before, event.op
        row = self._whole(before, op) if self.retract else _present(before, "before", op)
        if self._own_sequence and self._is_key_only(row):
            # What fills the row up is no sequence.
            return {name: value for name, value in row.items() if name in self.key}
        return row

    def _update(self, event: _Event) -> list[DecodedChange]:
        """Return the new row, after what it takes back: its old content by arrival, by sequence only an old key."""
        new = _present(event.after, "after", event.op)
        old = event.before
        if self.retract:
            old = self._whole(old, event.op)
            return [event.change(RowKind.UPDATE_BEFORE, old), event.change(RowKind.UPDATE_AFTER, new)]
        if not old or not self._changes_key(old, new):
            return [event.change(RowKind.UPDATE_AFTER, new)]
        leaving = self._leaving_row(old, new)
        return [
            event.change(RowKind.UPDATE_BEFORE, leaving),
            event.change(RowKind.UPDATE_AFTER, new, old_row=old),
        ]

    def _changes_key(self, old: Json, new: Json) -> bool:
        """Return whether an update changes the key; it does not where the old one is not wholly known."""
        is_known = all(old.get(name) is not None for name in self.key)
        return is_known and any(old[name] != new.get(name) for name in self.key)

    def _leaving_row(self, old: Json, new: Json) -> Json:
        """Return the row under its old key, with the sequence at which it leaves it: its own, else that of the row that it becomes."""
        if not self._is_key_only(old):
            return old
        sequence = {name: new[name] for name in self._own_sequence if name in new}
        return old | sequence

    def _is_key_only(self, row: Json) -> bool:
        """Return whether a row before a change holds the key alone: Postgres fills the other columns without REPLICA IDENTITY FULL."""
        others = (value for name, value in row.items() if name not in self.key)
        return all(value in _FILLERS or str(value).startswith(_EPOCH) for value in others)

    @property
    def _own_sequence(self) -> list[str]:
        """The user's columns of the sequence that are not of the key."""
        return [name for name in self.sequence if name not in LOG_POSITIONS and name not in self.key]

    def _whole(self, before: Json | None, op: str) -> Json:
        """Refuse a row before the change that is not there, or is surely no more than its key."""
        others = set(self.columns) - set(self.key)
        is_key_only = before is not None and bool(others) and others.isdisjoint(before)
        if before is None or is_key_only:
            allowed = f"the whole row, which op {op!r} needs with order: arrival"
            next_step = "ALTER TABLE ... REPLICA IDENTITY FULL"
            detail = f"before: got {shortened(before)}; allowed: {allowed}. Next: {next_step}"
            raise BadRecordError("missing_before", detail)
        return before


def _present(row: Json | None, side: str, op: str) -> Json:
    if row is None:
        detail = f"{side}: got null; allowed: the row, which op {op!r} needs"
        raise BadRecordError(f"missing_{side}", detail)
    return row


def _key_row(key: str | None) -> Json | None:
    """Read a record's key, with or without its schema, as a row of the key's columns."""
    try:
        row = json.loads(key or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    fields: Fields = {}
    if "payload" in row:
        fields = row_fields(row["schema"]) if "schema" in row else {}
        row = row["payload"]
    return plain_row(row, "key", fields) if isinstance(row, dict) else None


def _file_number(name: Any, field: str) -> int | None:
    """Read the number of a binary log's file: `mariadb-bin.000003` is 3, and 1000000 comes after 999999."""
    if name is None:
        return None
    number = name.rpartition(".")[2] if isinstance(name, str) else ""
    is_number = number.isascii() and number.isdigit() and len(number) <= 18
    if not is_number:
        detail = f"{field}: got {shortened(name)}; allowed: a name that ends in . and a number"
        raise BadRecordError("bad_sequence", detail)
    return int(number)


def _integer(value: Any, name: str, reason: str) -> int | None:
    if value is None:
        return None
    if type(value) is int and -(2**63) <= value < 2**63:
        return value
    detail = f"{name}: got {shortened(value)}; allowed: an integer of 64 bits"
    raise BadRecordError(reason, detail)
