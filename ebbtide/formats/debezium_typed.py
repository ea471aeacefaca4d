"""Debezium envelopes as most of them look: without a schema, and with a change that leaves the key as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from ebbtide.formats.debezium_rules import LONG_MAX, DebeziumRules, file_number
from ebbtide.formats.format import BadRecordError
from ebbtide.formats.forms import Field, LogPosition, RowForm, TakenChange, struct
from ebbtide.model.entries import LONG_MIN
from ebbtide.model.sequences import LOG_POSITIONS

_SOURCE: dict[str, Any] = {
    "schema": str,
    "db": str,
    "table": str,
    "ts_ms": int,
    "lsn": int,
    "file": str,
    "pos": int,
    "row": int,
}
"""What is needed of `source`, where it is as expected."""


class TypedEnvelopes:
    """The `TypedForm` of envelopes without a schema.

    Args:
        rules: How events are read.
        row: How a row is read.
    """

    rows = ("before", "after")

    def __init__(self, rules: DebeziumRules, row: RowForm) -> None:
        row_struct = row.struct()
        source = struct("Source", _nullable(_SOURCE))
        envelope = {
            "op": str,
            "source": source,
            "before": row_struct,
            "after": row_struct,
        }
        self.value = struct("Envelope", _nullable(envelope))
        self._rules = rules
        log_positions = [name for name in rules.sequence if name in LOG_POSITIONS]
        self._positions = [name.removeprefix("_") for name in log_positions]
        key = [name for name in rules.key if name in row.attributes]
        others = [name for name in row.names if name not in key]
        self._key = row.attributes_of(key)
        self._others = row.attributes_of(others)
        self._deletes_by_content = bool(rules.own_sequence)

    def take(self, value: Any) -> Sequence[TakenChange]:
        """See `TypedForm`."""
        source = value.source
        if source is None:
            return ()
        schema = source.schema or source.db
        if not self._rules.takes(schema, source.table):
            return ()
        event_ms = source.ts_ms
        position = self._position(source)
        is_time = event_ms is None or LONG_MIN <= event_ms <= LONG_MAX
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
        if op == "u" and self._can_update(before, after):
            update = TakenChange(after, "+U", op, position, event_ms)
            if not self._rules.retract:
                return (update,)
            retraction = TakenChange(before, "-U", op, position, event_ms)
            return retraction, update
        if op in ("c", "r") and after is not None:
            insert = TakenChange(after, "+I", op, position, event_ms)
            return (insert,)
        if op == "d" and self._can_delete(before):
            delete = TakenChange(before, "-D", op, position, event_ms)
            return (delete,)
        return ()

    def _can_update(self, before: Any, after: Any) -> bool:
        """Return whether an update is plain: what it takes back is whole, or its key stays."""
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
        """Return whether a delete says all that is needed."""
        if before is None or self._deletes_by_content:
            return False
        return not self._rules.retract or self._is_whole(before)

    def _is_whole(self, row: Any) -> bool:
        """Return whether a row before the change has more than its key."""
        for name in self._others:
            value = getattr(row, name)
            if value is not UNSET:
                return True
        return not self._others

    def _position(self, source: Any) -> LogPosition | None:
        """Return where a change stands in the database's log; None if that is to be looked at."""
        position: list[int] = []
        for name in self._positions:
            place = getattr(source, name)
            if name == "file":
                try:
                    place = file_number(place, name)
                except BadRecordError:
                    return None
            if place is None or not 0 <= place <= LONG_MAX:
                return None
            position.append(place)
        return tuple(position)


def _nullable(types: dict[str, Any]) -> list[Field]:
    """Return the fields of a struct, by their types; each may be absent or null."""
    return [(name, name, type_ | None, None) for name, type_ in types.items()]
