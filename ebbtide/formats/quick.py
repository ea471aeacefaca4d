"""Decodes what most records look like quickly: JSON straight into typed structs, a column at a time from there.

What a format does not say to look so (`Format.typed`), and what breaks a rule, is left, record by record, to the exact path
(`reading`, `typed`, `judging`), which alone says what is bad. What is taken is staged exactly as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import UNSET

from ebbtide.formats.columns import InexactNumberError, convert
from ebbtide.formats.encodings import decode_integer
from ebbtide.formats.format import OriginOffset, unavailable_form
from ebbtide.formats.forms import RowForm, TakenChange, TypedForm, is_readable
from ebbtide.formats.judging import ahead_of, null_indices
from ebbtide.formats.settings import DELETING, DecodingSettings
from ebbtide.formats.typed import event_times, needed_of_delete, takes_back_by_content
from ebbtide.model.changelog import ORDER, ORIGIN, RowKind
from ebbtide.model.entries import entry_table
from ebbtide.model.sequences import LOG_POSITIONS, sequence_type

MOST_IGNORED = 100
"""Columns that the schema has not, up to which records that have them are read here."""
_NOT_READ = (msgspec.MsgspecError, UnicodeError, RecursionError)


class _KafkaRecord(msgspec.Struct, gc=False):
    """The envelope of a Kafka record, as far as it is needed."""

    topic: str
    partition: int
    offset: int
    value: str | None

    @property
    def has_place(self) -> bool:
        """Whether it stands where a record of Kafka can."""
        return 0 <= self.partition < 2**31 and 0 <= self.offset < 2**63


@dataclass
class _Read:
    """What of a batch was read.

    Args:
        changes: The changes taken.
        rows: Index in the batch of each change's record.
        left: Indices of the records that are left.
        envelopes: Of each change's record, of Kafka records.
    """

    changes: list[TakenChange] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    left: set[int] = field(default_factory=set)
    envelopes: list[_KafkaRecord] = field(default_factory=list)


class QuickDecoder:
    """Decodes the plain records of a pipeline.

    Args:
        settings: The pipeline's.
        row: How a row is read.
        form: How most records look.
    """

    def __init__(self, settings: DecodingSettings, row: RowForm, form: TypedForm) -> None:
        self._settings = settings
        self._row = row
        self._form = form
        self._read_envelope = msgspec.json.Decoder(_KafkaRecord).decode
        self._read_value = msgspec.json.Decoder(form.value).decode

    @classmethod
    def of(cls, settings: DecodingSettings, ignored: Iterable[str] = ()) -> QuickDecoder | None:
        """Make the decoder of a pipeline; None if its format does not say how most records look.

        Args:
            settings: The pipeline's.
            ignored: Columns that records have and the schema has not.
        """
        row = RowForm(settings.columns, dict(settings.encodings), tuple(sorted(ignored)))
        if not all(map(is_readable, row.names)):
            return None
        form = settings.format.typed(row)
        return None if form is None else cls(settings, row, form)

    def learning(self, staged: pa.Table) -> QuickDecoder:
        """Return a decoder that also reads the records that have the unknown columns of some staged rows.

        Args:
            staged: Rows that the exact path staged.
        """
        texts = staged["_ignored"].unique().drop_null().to_pylist()
        met = {name for text in texts for name in text.split(",") if is_readable(name)}
        ignored = met.union(self._row.ignored)
        if len(ignored) == len(self._row.ignored) or len(ignored) > MOST_IGNORED:
            return self
        return QuickDecoder.of(self._settings, ignored) or self

    def decode(self, batch: pa.RecordBatch, step: int, wall_ms: int | None) -> tuple[pa.Table, pa.RecordBatch]:
        """Decode a batch of `RECORDS`.

        Args:
            batch: The records.
            step: Number of the step.
            wall_ms: Wall time of the step, epoch ms; None: it is not known.

        Returns:
            Staged rows, and the records that are left.
        """
        read = self._read(batch)
        try:
            staged = self._staged(read, batch, step, wall_ms)
        except InexactNumberError:
            return self._settings.schema.empty_table(), batch
        is_taken = ~np.isin(read.rows, list(read.left))
        left = pa.array(sorted(read.left), pa.int64())
        return staged.filter(pa.array(is_taken)), batch.take(left)

    def _read(self, batch: pa.RecordBatch) -> _Read:
        read = _Read()
        is_kafka = self._settings.kafka_records
        topic = self._settings.topic
        limit = self._settings.max_record_bytes
        for row, raw in enumerate(batch.column("value").to_pylist()):
            try:
                if len(raw) > limit:
                    changes: Sequence[TakenChange] = ()
                elif is_kafka:
                    record = self._read_envelope(raw)
                    if topic and record.topic != topic:
                        continue
                    changes = self._of_kafka(record)
                    read.envelopes += [record] * len(changes)
                else:
                    changes = self._form.take(self._read_value(raw))
            except _NOT_READ:
                changes = ()
            if changes:
                read.changes += changes
                read.rows += [row] * len(changes)
            else:
                read.left.add(row)
        return read

    def _of_kafka(self, record: _KafkaRecord) -> Sequence[TakenChange]:
        if record.value is None or not record.has_place:
            return ()
        value = self._read_value(record.value)
        return self._form.take(value)

    def _staged(self, read: _Read, batch: pa.RecordBatch, step: int, wall_ms: int | None) -> pa.Table:
        """Return the changes' rows; those of records that turn out to be left among them."""
        settings = self._settings
        changes = _Changes(settings, self._row, read.changes)
        columns: dict[str, Any] = changes.columns()
        event_ms = event_times(settings, columns, pa.array(changes.event_ms, pa.int64()))
        if settings.sequence:
            columns["_sequence"] = changes.sequence(columns)
        if settings.needs_event_time:
            changes.leave(null_indices(event_ms))
        changes.leave(ahead_of(settings, event_ms, wall_ms))
        columns["_event_ms"] = event_ms
        columns["_kind"] = changes.kinds
        columns["_op"] = changes.ops
        columns["_ignored"] = changes.ignored()
        columns["_order"] = _orders(batch, read.rows, step)
        columns["_origin"] = self._origins(batch, read, changes.offsets)
        read.left.update(read.rows[change] for change in changes.left)
        return entry_table(settings.schema, columns, n=len(read.rows))

    def _origins(self, batch: pa.RecordBatch, read: _Read, named: Sequence[OriginOffset | None]) -> pa.StructArray:
        if self._settings.kafka_records:
            place_of = attrgetter("topic", "partition", "offset")
            places: list[Any] = _columns_of(map(place_of, read.envelopes), len(ORIGIN))
        else:
            rows = pa.array(read.rows, pa.int64())
            places = [batch.column("file").take(rows), [0] * len(rows), batch.column("line").take(rows)]
        if any(named):
            # A record that names its own place stands there.
            sources, partitions, positions = (list(pa.array(place).to_pylist()) for place in places)
            for change, offset in enumerate(named):
                if offset is not None:
                    sources[change] = ""
                    partitions[change], positions[change] = offset
            places = [sources, partitions, positions]
        arrays = [pa.array(place, component.type) for place, component in zip(places, ORIGIN, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(ORIGIN))


class _Changes:
    """Types and judges changes, a column at a time; keeps which of them are left.

    Args:
        settings: The pipeline's.
        row: How their rows were read.
        changes: The changes.
    """

    def __init__(self, settings: DecodingSettings, row: RowForm, changes: Sequence[TakenChange]) -> None:
        self._settings = settings
        self._n_changes = len(changes)
        by_field = _columns_of(changes, len(TakenChange._fields))
        rows, self.kinds, self.ops, self._positions, self.event_ms, self.offsets = by_field
        self.left: set[int] = set()
        self.leave(change for change, kind in enumerate(self.kinds) if kind not in settings.kinds)
        attributes = row.attributes_of(row.names)
        read = attrgetter(*attributes)
        values = map(read, rows) if len(attributes) > 1 else ((read(each),) for each in rows)
        by_column = _columns_of(values, len(attributes))
        self._values: dict[str, tuple[Any, ...]] = dict(zip(row.names, by_column, strict=True))
        self._ignored = row.ignored
        self._unsent: dict[int, list[str]] = {}
        self._deletes: list[int] = []
        if settings.sequence:
            self._deletes = [change for change, kind in enumerate(self.kinds) if kind in DELETING]

    def leave(self, changes: Iterable[int]) -> None:
        """Note that changes are left."""
        self.left.update(changes)

    def columns(self) -> dict[str, pa.Array]:
        """Return the user's columns, and `_unavailable`."""
        needed = needed_of_delete(self._settings)
        key_only = self._key_only()
        columns = {}
        for column in self._settings.columns:
            values = list(self._values[column.name])
            for change in key_only:
                is_needed = column.name in needed and values[change] is not UNSET
                values[change] = values[change] if is_needed else None
            columns[column.name] = self._column(column, values)
        unsent = [self._unsent.get(change) for change in range(self._n_changes)]
        columns["_unavailable"] = pa.array(unsent, self._settings.schema.field("_unavailable").type)
        return columns

    def _key_only(self) -> list[int]:
        """Return the deletes of which no more is looked at than the key and the sequence."""
        if not takes_back_by_content(self._settings):
            return self._deletes
        return [change for change in self._deletes if self.ops[change] != RowKind.UPDATE_BEFORE]

    def _column(self, column: pa.Field, values: list[Any]) -> pa.Array:
        settings = self._settings
        name = column.name
        if UNSET in values:
            has_default = name in settings.defaults
            if not has_default:
                self.leave(_indices(values, UNSET))
            default = settings.defaults.get(name)
            values = [default if value is UNSET else value for value in values]
        self._take_out_unsent(column, values)
        encoding = settings.encodings.get(name)
        if encoding is not None:
            values = [decode_integer(value, encoding) for value in values]
        unit = settings.time_units.get(name, "us")
        array, misfits = convert(values, column.type, unit)
        self.leave(misfits)
        if name in settings.key:
            self.leave(null_indices(array))
        elif not column.nullable:
            self._leave_nulls(name, array)
        return array

    def _take_out_unsent(self, column: pa.Field, values: list[Any]) -> None:
        stand_in = unavailable_form(column.type)
        if stand_in is None or stand_in not in values:
            return
        for change in _indices(values, stand_in):
            values[change] = None
            self._unsent.setdefault(change, []).append(column.name)

    def _leave_nulls(self, name: str, array: pa.Array) -> None:
        """Leave the changes whose value may not be null; a delete needs none, and a value may be unsent."""
        nulls = null_indices(array, but=set(self._deletes))
        self.leave(change for change in nulls if name not in self._unsent.get(change, ()))

    def sequence(self, columns: dict[str, pa.Array]) -> pa.StructArray:
        """Return `_sequence`: the source's positions and the user's columns."""
        settings = self._settings
        type_ = sequence_type(settings.columns, settings.sequence)
        n_positions = sum(component.name in LOG_POSITIONS for component in type_)
        nowhere = (None,) * n_positions
        positions = [position or nowhere for position in self._positions]
        by_component = iter(_columns_of(positions, n_positions))
        components = []
        for component in type_:
            if component.name in LOG_POSITIONS:
                array = pa.array(next(by_component), component.type)
            else:
                array = columns[component.name]
            self.leave(null_indices(array))
            components.append(array)
        return pa.StructArray.from_arrays(components, fields=list(type_))

    def ignored(self) -> list[str | None] | None:
        """Return the names of each change's columns that the schema has not; None if no record has any."""
        if not self._ignored:
            return None
        texts: list[str | None] = []
        for values in zip(*(self._values[name] for name in self._ignored), strict=True):
            names = [name for name, value in zip(self._ignored, values, strict=True) if value is not UNSET]
            texts.append(",".join(names) or None)
        return texts


def _columns_of(rows: Iterable[tuple[Any, ...]], n: int) -> list[tuple[Any, ...]]:
    """Return the n columns of some rows."""
    return list(zip(*rows, strict=True)) or [()] * n


def _orders(batch: pa.RecordBatch, rows: Sequence[int], step: int) -> pa.StructArray:
    indices = pa.array(rows, pa.int64())
    steps = np.full(len(rows), step)
    parts = batch.column("part").take(indices)
    lines = batch.column("line").take(indices)
    return pa.StructArray.from_arrays([pa.array(steps), parts, lines], fields=list(ORDER))


def _indices(values: list[Any], wanted: Any) -> list[int]:
    """Return where a value stands."""
    return [index for index, value in enumerate(values) if value == wanted]
