"""Debezium change events, in the three forms that Kafka Connect writes.

| form | looks like |
|---|---|
| envelope | `{"before", "after", "source": {"lsn", "ts_ms", ...}, "op"}` |
| with schema | `{"schema": ..., "payload": <envelope or flattened>}`; decimals, times and bits by the schema |
| flattened | the columns, and `__op`, `__lsn`, `__source_ts_ms`, `__deleted` (ExtractNewRecordState) |

Operations: c, u, r (snapshot) add a row; d removes one; t empties the table. Events that change no row are counted
(`ebbtide.formats._debezium_events`). Fields of the envelope give the position of a change in the database's log, see
`ebbtide.formats._debezium_envelope` and `ebbtide.formats._positions`.

A retraction (arrival mode) needs the whole row before the change, which Postgres sends for tables with REPLICA IDENTITY
FULL. With DEFAULT an update has no `before`. A delete's `before` has the key's columns, and null, 0, '' or 1970 in the other
columns, which cannot be distinguished from real values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ebbtide.changelog import TRUNCATE, RowKind
from ebbtide.formats._connect import (
    Fields,
    has_schema,
    key_row,
    plain_row,
    read_key,
    row_fields,
    schema_of,
    time_units,
)
from ebbtide.formats._debezium_envelope import (
    NAMED_BY,
    ORDERS,
    SNAPSHOT,
    log_named,
    position_field,
    value_in,
    value_in_row,
    whole_snapshot,
)
from ebbtide.formats._debezium_events import is_beside_rows, is_message
from ebbtide.formats._debezium_rules import DebeziumRules, integer, is_flattened
from ebbtide.formats._debezium_scan import ScannedEnvelopes, ScannedFlattened
from ebbtide.formats._format import (
    NOT_A_ROW,
    BadRecordError,
    DecodedChange,
    Format,
    Json,
    TimeUnits,
    shortened,
)
from ebbtide.formats._forms import LogPosition, RowForm, ScanForm
from ebbtide.formats._positions import PositionField, PositionType

OPERATIONS = ("c", "r", "u", "d", "t")
_FILLERS = (None, 0, "", False)
_EPOCH = "1970-01-01T00:00:00"


@dataclass(slots=True)
class _Event:
    """An event of any form; `after` is None for a delete, `before` if it was not sent."""

    op: Any
    before: Json | None
    after: Json | None
    position: LogPosition
    event_ms: int | None
    units: TimeUnits | None
    fields: Fields
    snapshot: str | None
    log: str | None

    def change(
        self,
        kind: str,
        row: Json | None,
        other_row: Json | None = None,
    ) -> DecodedChange:
        # Positional arguments, here and for events: keywords are slower, and this runs for every change.
        return DecodedChange(
            kind,
            row,
            self.op,
            self.position,
            self.event_ms,
            other_row,
            self.units,
            None,
            schema_of(self.fields),
            self.snapshot,
            self.log,
        )


class DebeziumDecoder(DebeziumRules, Format):
    """The `Format` of Debezium events.

    Attributes:
        ORDERS: Connector (`source.connector` in lower case) to the fields that order its changes, most significant first.
    """

    ORDERS: ClassVar[Mapping[str, tuple[str, ...]]] = ORDERS

    @staticmethod
    def position_field(name: str, type_: PositionType | None = None) -> PositionField | None:
        """Return the field that a spec names; None if envelopes do not have it, or its type is neither known nor stated.

        Args:
            name: Path (`source.scn`), short name (`_lsn`), or name in a flattened row (`__source_scn`).
            type_: The type that the spec states.
        """
        return position_field(name, type_)

    def changes(
        self,
        value: Json,
        key: str | None,
        other_key: str | None = None,
    ) -> list[DecodedChange]:
        """See `Format.changes`."""
        event_fields, fields = _event_of(value)
        if is_message(event_fields):
            return [DecodedChange(NOT_A_ROW, None)]
        if is_flattened(event_fields):
            event = self._flattened(event_fields, fields)
        elif "op" in event_fields:
            event = self._envelope(event_fields, key, fields)
        elif is_beside_rows(event_fields):
            return [DecodedChange(NOT_A_ROW, None)]
        else:
            got = sorted(event_fields)[:8]
            allowed = "a Debezium envelope (op, before, after, source) or a flattened row (__op)"
            detail = f"got fields {got}; allowed: {allowed}"
            raise BadRecordError("not_a_change", detail, masked=detail)
        if event is None:
            return []
        return self._changes_of(event, other_key)

    def scanned(self, row: RowForm) -> Sequence[ScanForm]:
        """See `Format.scanned`: envelopes and flattened rows."""
        return ScannedEnvelopes(self, row), ScannedFlattened(self, row)

    def _envelope(
        self,
        value: Json,
        key: str | None,
        fields: Fields,
    ) -> _Event | None:
        """Read an envelope; None if it belongs to another table."""
        source = value.get("source")
        if not isinstance(source, dict):
            raise BadRecordError.of(
                "missing_source",
                "source",
                got=shortened(source),
                allowed="an object with the change's position and ts_ms",
            )
        schema = source.get("schema") or source.get("db")
        table = source.get("table")
        if not self.takes(schema, table):
            return None
        op = value["op"]
        event_ms = integer(source.get("ts_ms"), "source.ts_ms", "bad_event_time")
        before = plain_row(value.get("before"), "before", fields, self.unavailable)
        after = plain_row(value.get("after"), "after", fields, self.unavailable)
        if before is None and op == "d":
            before, key_fields = read_key(key)
            fields = fields or key_fields
        position = self.position(op, event_ms, value)
        return _Event(
            op,
            before,
            after,
            position,
            event_ms,
            time_units(fields),
            fields,
            whole_snapshot(op, source.get("snapshot")) if op == "r" else None,
            log_named(*(value_in(value, path) for path in NAMED_BY)) if self.names_logs else None,
        )

    def _flattened(self, value: Json, fields: Fields) -> _Event | None:
        """Read a flattened row; None if it belongs to another table."""
        schema = value.get("__schema") or value.get("__db")
        table = value.get("__table", self.table)
        if not self.takes(schema, table):
            return None
        cells: Json = {}
        for name, cell in value.items():
            if not self.is_of_event(name):
                cells[name] = cell
        row = plain_row(cells, "row", fields, self.unavailable)
        default_op = {"true": "d", "false": "c"}.get(str(value.get("__deleted")))
        if default_op == "c" and self.retract:
            default_op = None  # it may be an update, which retracts an unknown row
        op = value.get("__op", default_op)
        source_ms = value.get("__source_ts_ms")  # __ts_ms is the connector's clock
        event_ms = integer(source_ms, "__source_ts_ms", "bad_event_time")
        position = self.position(op, event_ms, value, is_row=True)
        is_delete = op == "d"
        before = row if is_delete else None
        after = None if is_delete else row
        return _Event(
            op,
            before,
            after,
            position,
            event_ms,
            time_units(fields),
            fields,
            whole_snapshot(op, value_in_row(value, SNAPSHOT)),
            log_named(*(value_in_row(value, path) for path in NAMED_BY)) if self.names_logs else None,
        )

    def _changes_of(self, event: _Event, other_key: str | None) -> list[DecodedChange]:
        op = event.op
        if op == "u":
            return self._update(event)
        if op == "d":
            row = self._deleted_row(event)
            other = self._other_key_of(row, other_key)
            delete = event.change(RowKind.DELETE, row, other_row=other)
            return [delete]
        if op == "t":
            truncate = event.change(TRUNCATE, None)
            return [truncate]
        if op not in OPERATIONS:
            raise BadRecordError.of(
                "unknown_operation",
                "op",
                got=shortened(op),
                allowed=", ".join(OPERATIONS),
            )
        row = _present(event.after, "after", op)
        other = self._other_key_of(row, other_key)
        insert = event.change(RowKind.INSERT, row, other_row=other)
        return [insert]

    def _other_key_of(self, row: Json, other_key: str | None) -> Json | None:
        """Return the other key of a row whose key an update changed: the old one for a create, the new one for a delete.

        The connector sends such an update as a delete, whose header names the new key, and a create, whose header names the old key.
        Values that the create leaves out are stored under the old key. Without a log sequence the two records cannot be
        connected, so such values stay unknown.
        """
        if other_key is None or not self.sequence:
            return None
        other = key_row(other_key)
        if other and self._changes_key(other, row):
            return other
        return None

    def _deleted_row(self, event: _Event) -> Json:
        if self.retract:
            return self._whole(event.before, event.op)
        row = _present(event.before, "before", event.op)
        if self.own_sequence and self._is_key_only(row):
            # Postgres filled the other columns: filler in a sequence column is not the row's sequence.
            return {name: row[name] for name in row if name in self.key}
        return row

    def _update(self, event: _Event) -> list[DecodedChange]:
        """Return the new row after a retraction: of the old row in arrival mode, of an old key in sequence mode."""
        new = _present(event.after, "after", event.op)
        old = event.before
        if self.retract:
            old = self._whole(old, event.op)
            new = self._with_unchanged(new, old)
            return [
                event.change(RowKind.UPDATE_BEFORE, old),
                event.change(RowKind.UPDATE_AFTER, new),
            ]
        if not old or not self._changes_key(old, new):
            update = event.change(RowKind.UPDATE_AFTER, new)
            return [update]
        leaving = self._leaving_row(old, new)
        return [
            event.change(RowKind.UPDATE_BEFORE, leaving),
            event.change(RowKind.UPDATE_AFTER, new, other_row=old),
        ]

    def _with_unchanged(self, new: Json, old: Json) -> Json:
        """Return a new row, filling unsent (unchanged) values from the whole row before."""
        whole = {}
        for name, value in new.items():
            is_unsent = self.unavailable.is_mark(value)
            whole[name] = old.get(name, value) if is_unsent else value
        return whole

    def _changes_key(self, old: Json, new: Json) -> bool:
        """Return whether an update changes the key; False if the old key is not fully known."""
        old_key = self._key_of(old)
        new_key = self._key_of(new)
        is_known = None not in old_key
        return is_known and old_key != new_key

    def _key_of(self, row: Json) -> list[Any]:
        return [row.get(name) for name in self.key]

    def _leaving_row(self, old: Json, new: Json) -> Json:
        """Return the row under its old key, with the sequence of the key change.

        This is the old row's sequence, or the new row's if the old row has only its key.
        """
        if not self._is_key_only(old):
            return old
        sequence = {name: new[name] for name in self.own_sequence if name in new}
        return old | sequence

    def _is_key_only(self, row: Json) -> bool:
        """Return whether a row before a change has only the key.

        Without REPLICA IDENTITY FULL Postgres fills the other columns.
        """
        for name, value in row.items():
            if name in self.key:
                continue
            is_filler = value in _FILLERS or str(value).startswith(_EPOCH)
            if not is_filler:
                return False
        return True

    def _whole(self, before: Json | None, op: str) -> Json:
        """Return the row before a change; refuse one that was not sent or certainly has only its key."""
        non_key = set(self.columns).difference(self.key)
        if before is not None:
            is_key_only = bool(non_key) and non_key.isdisjoint(before)
            if not is_key_only:
                return before
        allowed = f"the whole row, which op {op!r} needs with order: arrival"
        next_step = f"order: {{sequence: ...}} or upsert, which need only keys; or {BadRecordError.NEEDS_WHOLE_ROWS}"
        raise BadRecordError.of(
            "missing_before",
            "before",
            got=shortened(before),
            allowed=f"{allowed}. Next: {next_step}",
        )


def _event_of(value: Json) -> tuple[Json, Fields]:
    """Return an event or flattened row, and its fields by the record's schema, empty without one."""
    if not has_schema(value):
        return value, {}
    fields = row_fields(value["schema"])
    payload = value["payload"]
    if not isinstance(payload, dict):
        raise BadRecordError.of(
            "not_a_change",
            "payload",
            got=shortened(payload),
            allowed="an object",
        )
    return payload, fields


def _present(row: Json | None, side: str, op: str) -> Json:
    if row is None:
        raise BadRecordError.of(
            f"missing_{side}",
            side,
            got="null",
            allowed=f"the row, which op {op!r} needs",
        )
    return row
