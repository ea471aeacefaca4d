"""What decoding needs to know of a pipeline, and the columns of what it gives.

A staged row is a changelog row (`ebbtide.model.changelog`) and these columns:

| column | meaning |
|---|---|
| `_reason`, `_detail` | why the record is bad: a short code, a sentence; null for good ones |
| `_raw` | the bad record's bytes; of a line that is too large its head, as long as is allowed |
| `_ignored` | columns that the record has and the pipeline's schema has not, separated by commas |
| `_types` | where they are asked for, the same columns with their types: JSON, name to DDL, null where the type is not certain |

Records that change nothing are staged too, so that the places read have no gaps, and that they are counted. `_kind` is
`tombstone` for one without a value, of a kind that is not taken, or that changes no row by its kind (Debezium's `m`);
`in_doubt` stands beside the `tombstone` of a record whose delete is not seen, and holds its key (`ebbtide.formats.tombstones`);
`skipped` for another one without a change for this pipeline, as of another table; `bad` for a bad record that names its place,
null for one that does not. Records of other topics are not staged: their places are of partitions of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from ebbtide.formats.columns import TimeUnit
from ebbtide.formats.encodings import Encoding
from ebbtide.formats.format import Format
from ebbtide.formats.records import MAX_RECORD_BYTES
from ebbtide.model.changelog import TRUNCATE, RowKind, changelog_schema

UnknownColumns = Literal["ignore", "refuse", "infer"]
"""What is done about columns that the schema has not: they are left out, their records are bad, or their types are inferred."""
TOMBSTONE = "tombstone"
IN_DOUBT = "in_doubt"
SKIPPED = "skipped"
BAD = "bad"
DELETING = (RowKind.DELETE, RowKind.UPDATE_BEFORE)
"""Kinds that, in sequence mode, need no more than the key and the sequence."""
STAGED_COLUMNS = {
    "_reason": pa.string(),
    "_detail": pa.string(),
    "_raw": pa.binary(),
    "_ignored": pa.string(),
    "_types": pa.string(),
}


@dataclass(frozen=True)
class ColumnSettings:
    """What decoding needs to know of a pipeline's columns.

    Args:
        columns: The user's columns; not nullable ones refuse null.
        key: Names of the key's columns.
        sequence: Columns that order changes, the source's or the user's; empty in arrival mode.
        defaults: Column to the JSON value that it has in records from before it was added.
        time_units: What integers mean in timestamp columns; microseconds where not given.
        encodings: How integers are coded, where they are not numbers: see `DebeziumFormat`.
        personal: Columns whose values no `_detail` shows.
        renamed: Column to the name under which records may have it too.
        unknown_columns: What is done about columns that the schema has not.
        ignored_columns: Of these, those that are left out whatever is done about the others.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    _: KW_ONLY
    sequence: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    time_units: Mapping[str, TimeUnit] = field(default_factory=dict)
    encodings: Mapping[str, Encoding] = field(default_factory=dict)
    personal: frozenset[str] = frozenset()
    renamed: Mapping[str, str] = field(default_factory=dict)
    unknown_columns: UnknownColumns = "ignore"
    ignored_columns: frozenset[str] = frozenset()

    @cached_property
    def known_columns(self) -> frozenset[str]:
        """Columns of records that are not reported."""
        return self.ignored_columns.union(self.columns.names, self.renamed.values())

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a staged row."""
        schema = changelog_schema(self.columns, self.key, self.sequence)
        for name, type_ in STAGED_COLUMNS.items():
            field_ = pa.field(name, type_)
            schema = schema.append(field_)
        return schema


@dataclass(frozen=True)
class DecodingSettings(ColumnSettings):
    """Everything that decoding needs; sent to the workers.

    Args:
        format: Format of the records' values.
        in_envelopes: Lines hold Kafka records (topic, partition, offset, key, value) instead of bare values.
        topic: Take only records of this topic; None takes all.
        kinds: Kinds of changes to take; the others are skipped as tombstones are.
        truncates: TRUNCATE may come; else it is bad.
        event_time: Column with the event time; None takes the source's own.
        needs_event_time: Something expires by event time, so that it may not be null.
        max_record_bytes: Longer records are bad.
        max_ahead_ms: Records whose event time is further ahead of now are bad; None takes any.
        doubts_tombstones: Stage a tombstone whose delete is not seen once more as `IN_DOUBT`.
    """

    format: Format
    _: KW_ONLY
    in_envelopes: bool = False
    topic: str | None = None
    kinds: frozenset[str] = frozenset({*RowKind, TRUNCATE})
    truncates: bool = True
    event_time: str | None = None
    needs_event_time: bool = False
    max_record_bytes: int = MAX_RECORD_BYTES
    max_ahead_ms: int | None = None
    doubts_tombstones: bool = False
