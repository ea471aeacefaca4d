"""The quick path: JSON is parsed directly into typed structs and then converted column by column.

It reads only records of the format's common form (`Format.typed`) that break no rule. The exact path (`_reading`, `_typed`,
`_judging`) reads all other records, and only it decides that a record is bad. Both paths stage a record in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ebbtide.changelog import ORIGIN
from ebbtide.columns import entry_table
from ebbtide.formats._avro import AvroRecords
from ebbtide.formats._avro_rows import AvroRows
from ebbtide.formats._columns import InexactNumberError
from ebbtide.formats._format import BadRecordError
from ebbtide.formats._forms import OriginOffset, RowForm, TakenChanges, TypedForm, is_readable
from ebbtide.formats._judging import ahead_of, null_indices
from ebbtide.formats._places import are_utf8, moved, orders_of, origins_of
from ebbtide.formats._quick_columns import QuickColumns, columns_of
from ebbtide.formats._records import are_placed
from ebbtide.formats._settings import DecodingSettings
from ebbtide.formats._typed import event_times

MOST_IGNORED = 100
"""Maximum of unknown columns in a row's form: the exact path reads records with more."""
_NOT_READ = (msgspec.MsgspecError, ValueError, RecursionError)
_NOT_READ_AVRO = (BadRecordError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError)


class _Envelope(msgspec.Struct, gc=False):
    """The needed fields of a Kafka record's envelope."""

    topic: str
    partition: int
    offset: int
    value: str | None

    @property
    def has_place(self) -> bool:
        """Return whether partition and offset are possible in Kafka."""
        has_partition = 0 <= self.partition < 2**31
        return has_partition and 0 <= self.offset < 2**63


def _damaged(values: pa.BinaryArray) -> frozenset[int]:
    """Return the indices of values that are not UTF-8: the parser does not check skipped texts."""
    # One check of the whole batch, in Arrow; values are checked one by one only if it fails.
    if are_utf8(values):
        return frozenset()
    rows = enumerate(values.to_pylist())
    return frozenset(row for row, value in rows if not _is_utf8(value))


def _is_utf8(value: bytes | None) -> bool:
    if value is None:
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True)
class _Read:
    """The part of a batch that was read.

    Args:
        changes: The changes taken.
        rows: Index in the batch of each change's record.
        left: Indices of the records that the exact path must read.
        envelopes: Envelope of each change's record, if records have envelopes.
    """

    changes: TakenChanges
    rows: Sequence[int]
    left: set[int]
    envelopes: Sequence[_Envelope]


@dataclass(frozen=True)
class _Structs:
    """Records that were parsed.

    Args:
        values: The value of each, as a struct.
        rows: Index of each in the batch.
        envelopes: Envelope of each, if records have envelopes.
    """

    values: list[Any] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    envelopes: list[_Envelope] = field(default_factory=list)


class QuickDecoder:
    """Decodes the plain records of a pipeline.

    Args:
        settings: Settings of the pipeline.
        row: The form of a row.
        form: The common form of a record.
    """

    def __init__(
        self,
        settings: DecodingSettings,
        row: RowForm,
        form: TypedForm,
    ) -> None:
        self._settings = settings
        self._row = row
        self._form = form
        self._read_envelope = msgspec.json.Decoder(_Envelope).decode
        self._read_value = msgspec.json.Decoder(form.value).decode
        self._avro_rows = AvroRows(form, settings)

    @classmethod
    def of(
        cls,
        settings: DecodingSettings,
        ignored: Iterable[str] = (),
    ) -> QuickDecoder | None:
        """Create the decoder of a pipeline; None if its format has no common form.

        Args:
            settings: Settings of the pipeline.
            ignored: Columns of the records that the schema does not have.
        """
        row = RowForm(
            settings.columns,
            dict(settings.encodings),
            tuple(sorted(ignored)),
        )
        are_readable = map(is_readable, row.names)
        if not all(are_readable):
            return None
        form = settings.format.typed(row)
        if form is None:
            return None
        return cls(settings, row, form)

    @property
    def ignored(self) -> tuple[str, ...]:
        """Known record columns that the schema does not have."""
        return self._row.ignored

    def learning(self, staged: pa.Table) -> QuickDecoder:
        """Return a decoder that also reads records with the unknown columns of some staged rows.

        Structs refuse unknown fields. Without learning, a new column in the source would send every record to the exact path.

        Args:
            staged: Rows that the exact path staged.
        """
        known = self._row.ignored
        ignored = set(known)
        distinct = staged["_ignored"].unique()
        for text in distinct.drop_null().to_pylist():
            names = text.split(",")
            readable = filter(is_readable, names)
            ignored.update(readable)
        is_nothing_new = len(ignored) == len(known)
        is_too_much = len(ignored) > MOST_IGNORED
        if is_nothing_new or is_too_much:
            return self
        decoder = QuickDecoder.of(self._settings, ignored)
        return decoder or self

    def decode(
        self,
        batch: pa.RecordBatch,
        step: int,
        wall_ms: int | None,
    ) -> tuple[pa.Table, pa.RecordBatch]:
        """Decode a batch of `RECORDS` or `PLACED_RECORDS`.

        Args:
            batch: The records.
            step: Number of the step.
            wall_ms: Wall time of the step, epoch ms; None: unknown.

        Returns:
            Staged rows, and the records that the exact path must read.
        """
        read = self._read(batch)
        try:
            staged = self._staged(read, batch, step, wall_ms)
        except InexactNumberError:
            nothing = self._settings.schema.empty_table()
            return nothing, batch
        # A record is taken as a whole: if one of its changes is left, all its rows are dropped here.
        left = sorted(read.left)
        if not left:
            return staged, batch.slice(0, 0)
        is_left = np.isin(read.rows, left)
        is_taken = pa.array(~is_left)
        left_indices = pa.array(left, pa.int64())
        return staged.filter(is_taken), batch.take(left_indices)

    def _read(self, batch: pa.RecordBatch) -> _Read:
        holds_envelopes = self._holds_envelopes(batch)
        topic = self._settings.topic
        limit = self._settings.max_record_bytes
        values = batch.column("value")
        avro = AvroRecords.of(batch)
        unread = _damaged(values) if avro is None else frozenset()
        if holds_envelopes or are_placed(batch):  # a bare value has no headers
            unread |= moved(batch)
        errors = _NOT_READ if avro is None else (*_NOT_READ, *_NOT_READ_AVRO)
        records = _Structs()
        left: set[int] = set()
        for row, raw in enumerate(values.to_pylist()):
            if raw is None or len(raw) > limit or row in unread:
                left.add(row)
                continue
            try:
                if holds_envelopes:
                    envelope = self._read_envelope(raw)
                    if topic and envelope.topic != topic:
                        continue
                    value = self._of_envelope(envelope)
                    records.envelopes.append(envelope)
                elif avro is not None:
                    value = self._avro_rows.read(avro, raw)
                else:
                    value = self._read_value(raw)
            except errors:
                left.add(row)
                continue
            records.values.append(value)
            records.rows.append(row)
        return self._taken(records, left)

    def _taken(self, records: _Structs, left: set[int]) -> _Read:
        changes = self._form.take(records.values)
        row_of = records.rows
        left_rows = [row_of[record] for record in changes.left]
        left.update(left_rows)
        rows = [row_of[record] for record in changes.record]
        envelopes = []
        if records.envelopes:
            envelopes = [records.envelopes[record] for record in changes.record]
        return _Read(changes, rows, left, envelopes)

    def _holds_envelopes(self, batch: pa.RecordBatch) -> bool:
        """Return whether the values of a batch are whole Kafka records in envelopes."""
        return self._settings.in_envelopes and not are_placed(batch)

    def _of_envelope(self, envelope: _Envelope) -> Any:
        if envelope.value is None or not envelope.has_place:
            raise ValueError("no value, or no place: left to the exact path")
        return self._read_value(envelope.value)

    def _staged(
        self,
        read: _Read,
        batch: pa.RecordBatch,
        step: int,
        wall_ms: int | None,
    ) -> pa.Table:
        """Return the rows of the changes, including those of records that were left meanwhile."""
        settings = self._settings
        has_schemas = AvroRecords.of(batch) is not None
        changes = QuickColumns(settings, self._row, read.changes, has_schemas=has_schemas)
        columns: dict[str, Any] = changes.columns()
        event_ms_of_source = pa.array(changes.event_ms, pa.int64())
        event_ms = event_times(settings, columns, event_ms_of_source)
        if settings.reads_sequence:
            columns["_sequence"] = changes.sequence(columns)
        if settings.needs_event_time:
            without_time = null_indices(event_ms)
            changes.leave(without_time)
        too_far_ahead = ahead_of(settings, event_ms, wall_ms)
        changes.leave(too_far_ahead)
        columns["_event_ms"] = event_ms
        columns["_kind"] = changes.kinds
        columns["_op"] = changes.ops
        if changes.snapshots:
            columns["_snapshot"] = changes.snapshots
        if changes.logs:
            columns["_source_log"] = changes.logs
        columns["_ignored"] = changes.ignored()
        columns["_order"] = orders_of(batch, read.rows, step)
        columns["_origin"] = self._origins(batch, read, changes.offsets)
        left_rows = [read.rows[change] for change in changes.left]
        read.left.update(left_rows)
        return entry_table(
            settings.schema,
            columns,
            n=len(read.rows),
        )

    def _origins(
        self,
        batch: pa.RecordBatch,
        read: _Read,
        named: Sequence[OriginOffset | None],
    ) -> pa.StructArray:
        if self._holds_envelopes(batch):
            origin_of = attrgetter("topic", "partition", "offset")
            columns = columns_of(map(origin_of, read.envelopes), len(ORIGIN))
        else:
            origins = origins_of(batch, read.rows)
            if not any(named):
                return origins
            columns = _with_named(origins.flatten(), named)
        arrays = []
        for values, component in zip(columns, ORIGIN, strict=True):
            array = pa.array(values, component.type)
            arrays.append(array)
        return pa.StructArray.from_arrays(arrays, fields=list(ORIGIN))


def _with_named(
    columns: list[Any],
    named: Sequence[OriginOffset | None],
) -> list[Any]:
    """Return the origins of records; a record's own partition and offset replace its file and line."""
    sources, partitions, positions = (column.to_pylist() for column in columns)
    for change, offset in enumerate(named):
        if offset is not None:
            partition, position = offset
            sources[change] = ""
            partitions[change] = partition
            positions[change] = position
    return [sources, partitions, positions]
