"""Raw lines to a sample: which records they are, and how they are coded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ebbtide.amounts import amount
from ebbtide.errors import ConfigError
from ebbtide.formats import BadRecordError, DebeziumEvent, parse_exactly
from ebbtide.proposal._tools import Json, table_of
from ebbtide.redaction import printable

_PLACE = {"topic", "partition", "offset"}
"""Fields of a line with a Kafka record, other than its value."""
_MOST_NAMES = 20
"""Topics or tables that an error lists."""


@dataclass(frozen=True)
class SampledRecord:
    """A record that could be parsed.

    Args:
        line: The line, as in its file.
        value: Its value.
        key: Its key as text; None if it has none.
    """

    line: bytes
    value: Json
    key: str | None


@dataclass
class Sample:
    """Records of one table, and what lines hold: Kafka's records, or bare values."""

    holds: Literal["kafka", "value"]
    records: list[SampledRecord] = field(default_factory=list)
    n_unreadable: int = 0
    n_not_rows: int = 0
    unread_because: str = ""

    @property
    def notes(self) -> list[str]:
        """Return the lines that are not in the sample, for people; none if there are no such lines."""
        if not self.n_unreadable:
            return []
        return [f"source: left out of the sample: {self.unreadable}"]

    @property
    def unreadable(self) -> str:
        """The lines that cannot be read, for people."""
        because = f" ({self.unread_because})" if self.unread_because else ""
        return f"{amount(self.n_unreadable, 'line')} without a JSON object{because}"

    @classmethod
    def take(
        cls,
        lines: Iterable[bytes],
        n: int,
        *,
        topic: str | None,
        table: str | None,
    ) -> Sample:
        """Take the first records of one topic and one table.

        Args:
            lines: Of files, in order; no more are read than needed.
            n: Most records to take.
            topic: Take only records of this topic.
            table: Take only changes of this source table.

        Raises:
            ConfigError: there are no such records, or they belong to several topics or tables.
        """
        sample = cls("value")
        topics: Counter[str] = Counter()
        tables: Counter[str] = Counter()
        # Topics and tables are counted before records are left out, so that an error can name those that there are.
        for line in filter(_has_content, lines):
            if len(sample.records) == n:
                break
            try:
                outer = parse_exactly(line)
                raw: Any = outer.get("value", outer.get("payload"))  # `kcat -J` calls the value payload
                is_kafka = outer.keys() >= _PLACE and not outer.keys().isdisjoint(("value", "payload"))
                if is_kafka:
                    sample.holds = "kafka"
                    topics[str(outer["topic"])] += 1
                    if topic not in (None, outer["topic"]) or raw is None:
                        continue
                value = parse_exactly(raw) if is_kafka else outer
            except (BadRecordError, TypeError) as error:
                sample.count_unreadable(error)
                continue
            event = DebeziumEvent.of(value)
            if event is not None and not event.changes_rows:
                sample.n_not_rows += 1
                continue
            its_table = table_of(value) if event is None else event.table
            if its_table is not None:
                tables[its_table] += 1
                if not _is_asked(its_table, table):
                    continue
            key = outer.get("key") if is_kafka else None
            record = SampledRecord(line, value, key if isinstance(key, str) else None)
            sample.records.append(record)
        _refuse_several("topic", topics, topic)
        _refuse_several("table", tables, table)
        if not sample.records:
            found = _found(sample, topics, tables)
            raise ConfigError.of(
                "No JSON records found.",
                got="; ".join(found),
                allowed="a folder or topic with JSON records, and a --topic or --table that they have",
            )
        return sample

    def count_unreadable(self, error: Exception) -> None:
        """Count a line that cannot be read, and keep why if there is a way out."""
        self.n_unreadable += 1
        if isinstance(error, BadRecordError) and "Next: " in error.masked:
            self.unread_because = error.masked


def _has_content(line: bytes) -> bool:
    """Return whether a line is neither blank nor a tombstone, as consumers print it."""
    return line.strip() not in (b"", b"null")


def _is_asked(table: str, asked: str | None) -> bool:
    """Return whether an event of `schema.table` is taken, where `table` or `schema.table` is asked for."""
    _, _, bare = table.rpartition(".")
    return asked in (None, bare, table)


def _refuse_several(
    what: str,
    found: Counter[str],
    asked: str | None,
) -> None:
    if asked is not None or len(found) <= 1:
        return
    first = printable(min(found))
    raise ConfigError.of(
        f"The records are of several {what}s, which make a table each.",
        got=_counted(found),
        allowed=f"one of them: --{what} {first}",
    )


def _found(
    sample: Sample,
    topics: Counter[str],
    tables: Counter[str],
) -> Iterator[str]:
    yield sample.unreadable
    if sample.n_not_rows:
        yield f"{amount(sample.n_not_rows, 'event')} of Debezium that change no row: heartbeats, transaction metadata, schema changes or messages"
    if topics:
        yield f"topics {_counted(topics)}"
    if tables:
        yield f"tables {_counted(tables)}"


def _counted(found: Counter[str]) -> str:
    parts = []
    for name, n in found.most_common(_MOST_NAMES):
        shown = printable(name)
        parts.append(f"{shown} ({n})")
    n_left = len(found) - len(parts)
    if n_left:
        parts.append(f"and {n_left} more")
    return ", ".join(parts)
