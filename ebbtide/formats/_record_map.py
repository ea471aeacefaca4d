"""Maps of records: the fields that make up a change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal, Self

from ebbtide.columns import Long
from ebbtide.formats._format import BadRecordError, Json, shortened
from ebbtide.formats._forms import LogPosition
from ebbtide.formats._positions import PositionField, PositionType, log_position

Word = str | int | None
"""A value of the operation field; None: the field is null or absent."""
Meaning = Literal["insert", "snapshot", "update", "delete", "truncate", "ignore"]
EpochUnit = Literal["s", "ms", "us", "ns", "tso"]
"""Unit of a number that counts since 1970; `tso`: TiDB's timestamps, milliseconds times 2^18."""
PER_MS: dict[EpochUnit, tuple[int, int]] = {
    "s": (1_000, 1),
    "ms": (1, 1),
    "us": (1, 1_000),
    "ns": (1, 1_000_000),
    "tso": (1, 2**18),
}
"""Unit to the multiplier and divisor of its numbers."""
SNAPSHOT = "r"
"""Debezium's operation of a snapshot row: at one position it ranks below a change."""
_INTEGER = re.compile(r"[+-]?\d+")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_NOT_DELETED = (None, False, 0, "", "0", "false")
_DELETED = (True, 1, "1", "true")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = datetime.resolution * 1000


class FieldPath(tuple[str, ...]):
    """The names of a field and of the fields around it, from the outermost; as text a dotted path.

    Example:
        >>> path = FieldPath.of("metadata.table")
        >>> path.value_in({"metadata": {"table": "t"}}), path.value_in({"metadata": 1}), str(path)
        ('t', None, 'metadata.table')
    """

    __slots__ = ()

    @classmethod
    def of(cls, name: str) -> Self:
        """Split a dotted path."""
        return cls(name.split("."))

    def __str__(self) -> str:
        """Return the dotted path."""
        return ".".join(self)

    def value_in(self, record: Json) -> Any:
        """Return the value of the field in a record; None if there is none."""
        found: Any = record
        for name in self:
            if not isinstance(found, dict):
                return None
            found = found.get(name)
        return found


@dataclass(frozen=True)
class RecordMap:
    """The fields of a tool's records that make up a change.

    Args:
        operation: The operation field; None: each record is the present row.
        words: Its values and their meanings.
        row: The field with the row; None: its columns are at the top level of the record.
        before: The field with the values before an update.
        deleted: The field that marks a deleted row: true, 1, or the time of the deletion.
        table: The fields that name the table, such as database and table.
        event_time: The field with the time of the change: a number, or ISO 8601.
        event_unit: Unit of a number there.
        has_text_values: All values are text, as MySQL prints them.
        mysql_types: The field with the MySQL type of each column.
        writes_base64: Bytes are base64.
        positions: Fields that order changes, with the types of their values.
        last_without: Those of them that a transaction's last change lacks.
    """

    operation: FieldPath | None = None
    words: tuple[tuple[Word, Meaning], ...] = ()
    row: FieldPath | None = None
    before: FieldPath | None = None
    deleted: FieldPath | None = None
    table: tuple[FieldPath, ...] = ()
    event_time: FieldPath | None = None
    event_unit: EpochUnit = "ms"
    has_text_values: bool = False
    mysql_types: FieldPath | None = None
    writes_base64: bool = False
    positions: tuple[tuple[str, PositionType], ...] = ()
    last_without: tuple[str, ...] = ()

    @cached_property
    def marks(self) -> frozenset[str]:
        """Fields that are not columns if the columns are at the top level of the record."""
        paths = [self.operation, self.before, self.deleted, self.event_time, *self.table]
        return frozenset(path[0] for path in paths if path is not None)

    @staticmethod
    def words_of(**words: Iterable[Word]) -> tuple[tuple[Word, Meaning], ...]:
        """Return `words` from the values of the operation field by their `Meaning`."""
        pairs: list[tuple[Word, Any]] = []
        for meaning, own in words.items():
            pairs += [(word, meaning) for word in own]
        return tuple(pairs)

    def table_in(self, record: Json) -> list[Any]:
        """Return the names of the record's table, such as database and table; None for a missing one."""
        return [path.value_in(record) for path in self.table]

    def position(
        self,
        find: Callable[[str], Any],
        fields: Sequence[PositionField],
        snapshot_ms: int | None = None,
    ) -> LogPosition:
        """Return the position of a change; None for the numbers of a field that it lacks.

        Args:
            find: Returns the value at a dotted path.
            fields: The fields that order changes.
            snapshot_ms: Time of a snapshot row, epoch ms. Default: it is a change.

        Raises:
            BadRecordError: A value is not of its field's type.
        """
        if not fields:
            return ()
        paths = [field.path for field in fields]
        values = []
        for path in paths:
            value = find(path)
            is_last = value is None and snapshot_ms is None and path in self.last_without
            values.append(Long.MAX if is_last else value)
        return log_position(fields, values, paths, snapshot_ms)


def is_of_table(names: Sequence[Any], table: str) -> bool:
    """Return whether names, such as database and table, name a table: `shop.orders`, or only `orders`."""
    full_name = ".".join(map(str, names))
    return table in (full_name, str(names[-1]))


def is_resolved(record: Json) -> bool:
    """Return whether a record only says how far a changefeed of CockroachDB has come.

    Example:
        >>> is_resolved({"resolved": "1767225601000000000.0000000000"}), is_resolved({"resolved": "yes", "id": 7})
        (True, False)
    """
    fields = record.get("__crdb__", record)
    is_alone = len(record) == 1 and isinstance(fields, dict) and fields.keys() == {"resolved"}
    return is_alone and isinstance(fields["resolved"], str)


def says_deleted(mark: Any) -> bool | None:
    """Return whether the mark of a row says that it is deleted; None if the value is not such a mark.

    Example:
        >>> says_deleted("true"), says_deleted("2026-01-01T00:00:00Z"), says_deleted(0), says_deleted("no")
        (True, True, False, None)
    """
    if mark in _NOT_DELETED:
        return False
    is_time = isinstance(mark, str) and bool(_DAY.match(mark))
    return True if mark in _DELETED or is_time else None


def event_ms_of(time: Any, unit: EpochUnit, name: str) -> int | None:
    """Read the time of a change.

    Args:
        time: A number in a unit, also as text, or ISO 8601; UTC without a zone.
        unit: The unit.
        name: Name of its field, for messages.

    Raises:
        BadRecordError: It is neither.

    Example:
        >>> event_ms_of(1477053217, "s", "ts"), event_ms_of("2024-10-28T21:37:01.127470Z", "ms", "at")
        (1477053217000, 1730151421127)
    """
    if time is None:
        return None
    if isinstance(time, str) and _INTEGER.fullmatch(time):
        time = int(time)
    if type(time) is int:
        times, over = PER_MS[unit]
        ms = time * times // over
        if -(2**63) <= ms < 2**63:
            return ms
    if isinstance(time, str):
        try:
            moment = datetime.fromisoformat(time)
        except ValueError:
            pass
        else:
            in_zone = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            return (in_zone - _EPOCH) // _MS
    raise BadRecordError.of("bad_event_time", name, got=shortened(time), allowed=f"ISO 8601, or an integer in {unit}")
