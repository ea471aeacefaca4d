"""Settings of decoding, and the columns of staged rows.

A staged row is a changelog row (`ebbtide.changelog._rows`) and these columns:

| column | meaning |
|---|---|
| `_reason`, `_detail` | reason of a bad record: a short code, a sentence; null for good ones |
| `_raw` | the bad record's bytes; for a line that is too large, its bytes up to the limit |
| `_ignored` | columns of the record that the pipeline's schema does not have, separated by commas |
| `_snapshot` | Debezium's `source.snapshot`, for rows from a snapshot of the whole table |
| `_source_log` | the log that the change was read from, see `log_named` in `_debezium_envelope`; null: unknown |
| `_types` | with `infer`, the types of these columns: JSON, name to DDL, null if uncertain |

Records that change nothing are staged too, so they are counted and the offsets have no gaps. Their `_kind` is a `StagedKind`.

Records of other topics are not staged: their offsets belong to other partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import pyarrow as pa

from ebbtide.changelog import TRUNCATE, RowKind, SequenceColumns, changelog_schema
from ebbtide.formats._columns import Coding, TimeUnit
from ebbtide.formats._encodings import Encoding
from ebbtide.formats._format import Format
from ebbtide.formats._unavailable import DEFAULT, Unavailable

UnknownColumns = Literal["ignore", "refuse", "infer"]
"""Treatment of unknown columns: they are ignored, their records are bad, or their types are inferred."""
EPOCH_BITS = 56
"""Bits of a sequence's first number below the epoch of its log, see `ebbtide.formats._epochs`: 64 PiB of Postgres' log."""
BETWEEN_NAMES = "\t"
"""Separator of the parts of a log's name, see `_source_log`."""
DELETING = (RowKind.DELETE, RowKind.UPDATE_BEFORE)
"""Kinds that need only key and sequence in sequence mode."""


class StagedKind(StrEnum):
    """`_kind` of a staged row that changes nothing.

    Attributes:
        TOMBSTONE: No value, or a kind that is not read.
        NOT_ROW: An event that changes no row of any table, such as a heartbeat of Debezium.
        IN_DOUBT: A second row for a tombstone whose delete may be lost, with its key (`ebbtide.formats._tombstones`); with
            `order: upsert` it is a delete (`-D`) in place of the tombstone, if its key can be read.
        SKIPPED: No change for this pipeline, for example a record of another table.
        BAD: A bad record that names its offset; null for a bad record that does not.
    """

    TOMBSTONE = "tombstone"
    NOT_ROW = "not_row"
    IN_DOUBT = "in_doubt"
    SKIPPED = "skipped"
    BAD = "bad"


@dataclass(frozen=True)
class ColumnSettings:
    """Settings of decoding about a pipeline's columns.

    Args:
        columns: The user's columns; non-nullable ones refuse null.
        key: Names of the key's columns.
        sequence: Columns that order changes, from the source's log or the user; empty in arrival mode.
        defaults: Column to its JSON value in records written before it was added.
        time_units: Units of integers in timestamp columns. Default: microseconds.
        encodings: Column to the encoding of its numbers or bytes: see `ChangeFormat`.
        unavailable: Recognizes values that were not sent.
        personal: Columns whose values must not appear in `_detail`.
        renamed: Column to its former name, which records may still use.
        unknown_columns: Treatment of columns that the schema does not have.
        ignored_columns: Unknown columns that are always ignored.

    Attributes:
        ADDED_COLUMNS: Columns of a staged row that a changelog row does not have, with their types.
    """

    ADDED_COLUMNS: ClassVar[Mapping[str, pa.DataType]] = {
        "_reason": pa.string(),
        "_detail": pa.string(),
        "_raw": pa.binary(),
        "_ignored": pa.string(),
        "_types": pa.string(),
        "_snapshot": pa.string(),
        "_source_log": pa.string(),
    }

    columns: pa.Schema
    key: tuple[str, ...]
    _: KW_ONLY
    sequence: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    time_units: Mapping[str, TimeUnit] = field(default_factory=dict)
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    unavailable: Unavailable = DEFAULT
    personal: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    unknown_columns: UnknownColumns = "ignore"
    ignored_columns: frozenset[str] = frozenset()

    @property
    def by_place(self) -> bool:
        """Return whether a record's place orders its changes, not its content."""
        return self.sequence == SequenceColumns.PLACE

    @property
    def sequence_columns(self) -> SequenceColumns:
        """The sequence with the types of its columns."""
        return SequenceColumns(self.sequence, self.columns)

    @property
    def reads_sequence(self) -> bool:
        """Return whether the content of records orders their changes."""
        return bool(self.sequence) and not self.by_place

    def coding(self, column: str) -> Coding:
        """Return the coding of a column's values in a record without a schema."""
        unit = self.time_units.get(column, "us")
        encoding = self.encodings.get(column)
        return Coding.of(encoding, unit)

    @cached_property
    def known_columns(self) -> frozenset[str]:
        """Columns of records that are not reported as unknown."""
        return self.ignored_columns.union(self.columns.names, self.renamed.values())

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a staged row."""
        schema = changelog_schema(self.columns, self.key, self.sequence)
        for name, type_ in self.ADDED_COLUMNS.items():
            field_ = pa.field(name, type_)
            schema = schema.append(field_)
        return schema


@dataclass(frozen=True)
class DecodingSettings(ColumnSettings):
    """All settings of decoding; sent to the workers.

    Args:
        format: Format of the records' values.
        in_envelopes: Lines hold Kafka records (topic, partition, offset, key, value) instead of bare values.
        topic: Read only records of this topic; None: of all.
        kinds: Kinds of changes to read; any other kind is staged as a tombstone.
        truncates: TRUNCATE is allowed; otherwise it is a bad record.
        event_time: Column with the event time; None: the source's event time.
        needs_event_time: Something expires by event time, so it must not be null.
        max_record_bytes: Longer records are bad. Default: 16 times Kafka's.
        max_ahead_ms: Records whose event time is further ahead of now are bad; None: no limit.
        doubts_tombstones: Stage a second row, `IN_DOUBT`, for a tombstone whose delete may be lost.
        tombstones_delete: With `by_place`, such a tombstone is the delete; false if the topic also has records of other tables.
        log_begins: Event times at which the source's log restarted, epoch ms, ascending, see `ebbtide.formats._epochs`.
        needs_whole_rows: A record that leaves a value out is bad: arrival mode does not keep the last known value.
    """

    format: Format
    _: KW_ONLY
    in_envelopes: bool = False
    topic: str | None = None
    kinds: frozenset[str] = frozenset({*RowKind, TRUNCATE})
    truncates: bool = True
    event_time: str | None = None
    needs_event_time: bool = False
    max_record_bytes: int = 16 * 2**20
    max_ahead_ms: int | None = None
    doubts_tombstones: bool = False
    tombstones_delete: bool = False
    needs_whole_rows: bool = False
    log_begins: tuple[int, ...] = ()

    def after(self, log_begins: Sequence[int]) -> Self:
        """Return the settings for a source whose log has restarted: its changes need event times.

        Args:
            log_begins: Event times of the restarts, epoch ms, ascending.
        """
        if not log_begins:
            return self
        return replace(self, log_begins=tuple(log_begins), needs_event_time=True)
