"""The common form of Debezium envelopes for the quick path: without a schema, with a change that keeps the key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from ebbtide.columns import Long
from ebbtide.formats._debezium_envelope import log_named, whole_snapshot
from ebbtide.formats._debezium_rules import FLATTENED_MARKS, DebeziumRules
from ebbtide.formats._format import BadRecordError
from ebbtide.formats._forms import Field, LogPosition, RowForm, TakenChange, TakenChanges, struct
from ebbtide.formats._positions import lacking

_SOURCE: dict[str, Any] = {
    "schema": str,
    "db": str,
    "table": str,
    "ts_ms": int,
    "snapshot": Any,
}
"""Fields of `source` that are read in addition to the position's, with their types."""


class TypedEnvelopes:
    """The `TypedForm` of envelopes without a schema.

    Args:
        rules: Settings of the format.
        row: The form of a row.
    """

    rows = ("before", "after")

    def __init__(self, rules: DebeziumRules, row: RowForm) -> None:
        row_struct = row.struct()
        self._fields = rules.log_fields
        self._names_logs = rules.names_logs
        parts: dict[str, dict[str, Any]] = {"source": dict(_SOURCE)}
        for field in self._fields:
            part, name = _place(field.path)
            parts.setdefault(part, {}).setdefault(name, Any)
        if self._names_logs:
            parts["source"] |= {"name": Any, "server_id": Any}
        of_parts = {part: struct(part.title(), _nullable(types)) for part, types in parts.items()}
        envelope = {
            "op": str,
            **of_parts,
            "before": row_struct,
            "after": row_struct,
        }
        marks: list[Field] = []
        for name in FLATTENED_MARKS:
            attribute = name.strip("_") + "_mark"
            # No value parses as this type, so flattened rows are left to the exact path.
            marks.append((name, attribute, UnsetType, UNSET))
        self.value = struct("Envelope", [*_nullable(envelope), *marks])
        self._rules = rules
        self._positions = [(field, *_place(field.path)) for field in self._fields]
        key = [name for name in rules.key if name in row.attributes]
        non_key = [name for name in row.names if name not in key]
        self._key = row.attributes_of(key)
        self._non_key = row.attributes_of(non_key)
        self._deletes_by_content = bool(rules.own_sequence)

    def take(self, values: Sequence[Any]) -> TakenChanges:
        """See `TypedForm`."""
        return TakenChanges.of_each(self._take, values)

    def _take(self, value: Any) -> Sequence[TakenChange]:
        source = value.source
        if source is None:
            return ()
        schema = source.schema or source.db
        if not self._rules.takes(schema, source.table):
            return ()
        event_ms = source.ts_ms
        position = self._position(value, event_ms)
        is_time = event_ms is None or Long.MIN <= event_ms <= Long.MAX
        if position is None or not is_time:
            return ()
        return self._changes(value, position, event_ms)

    def _changes(
        self,
        value: Any,
        position: LogPosition,
        event_ms: int | None,
    ) -> Sequence[TakenChange]:
        op = value.op
        before = value.before
        after = value.after
        source = value.source
        log = log_named(source.name, source.file, source.server_id) if self._names_logs else None
        if op == "u" and self._can_update(before, after):
            update = TakenChange(after, "+U", op, position, event_ms, None, None, log)
            if not self._rules.retract:
                return (update,)
            retraction = TakenChange(before, "-U", op, position, event_ms, None, None, log)
            return retraction, update
        if op in ("c", "r") and after is not None:
            mark = whole_snapshot(op, source.snapshot)
            insert = TakenChange(after, "+I", op, position, event_ms, None, mark, log)
            return (insert,)
        if op == "d" and self._can_delete(before):
            delete = TakenChange(before, "-D", op, position, event_ms, None, None, log)
            return (delete,)
        return ()

    def _can_update(self, before: Any, after: Any) -> bool:
        """Return whether an update has the common form: a whole old row, or an unchanged key."""
        if after is None:
            return False
        if self._rules.retract:
            return before is not None and self._is_whole(before)
        if before is None:
            return True
        for name in self._key:
            old = getattr(before, name)
            new = getattr(after, name)
            if old != new:
                return False
        return True

    def _can_delete(self, before: Any) -> bool:
        """Return whether a delete has the common form: only its key is needed, or its old row is whole."""
        if before is None or self._deletes_by_content:
            return False
        return not self._rules.retract or self._is_whole(before)

    def _is_whole(self, row: Any) -> bool:
        """Return whether a row before the change has more than its key."""
        for name in self._non_key:
            value = getattr(row, name)
            if value is not UNSET:
                return True
        return not self._non_key

    def _position(self, value: Any, event_ms: int | None) -> LogPosition | None:
        """Return the position of a change in the database's log; None leaves it to the exact path."""
        position: list[int | None] = []
        for field, part, name in self._positions:
            of_part = value.source if part == "source" else getattr(value, part)
            number = getattr(of_part, name, None)
            if field.type == "number" and type(number) is int and 0 <= number <= Long.MAX:
                position.append(number)
            elif number is None:
                position += lacking(field, self._rules.snapshot_ms(value.op, event_ms))
            else:
                try:
                    position += field.read(number)
                except BadRecordError:
                    return None
        return None if None in position else tuple(position)


def _place(path: str) -> tuple[str, str]:
    """Return the part of the envelope that has a field, and its name there."""
    part, _, name = path.partition(".")
    return part, name


def _nullable(types: dict[str, Any]) -> list[Field]:
    """Return the fields of a struct from their types; each may be absent or null."""
    fields: list[Field] = []
    for name, type_ in types.items():
        fields.append((name, name, type_ | None, None))
    return fields
