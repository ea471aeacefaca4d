"""The scan: records of a known form become staged rows without an object per record; the exact path reads the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.changelog import ORIGIN, RowKind
from ebbtide.columns import CompiledLoop, Mask, entry_table
from ebbtide.formats._avro import AvroRecords
from ebbtide.formats._columns import REFUSALS
from ebbtide.formats._forms import RowForm, ScanForm, ScannedChanges, is_readable
from ebbtide.formats._judging import ahead_of
from ebbtide.formats._places import are_utf8, moved, orders_of, origins_of
from ebbtide.formats._records import are_placed
from ebbtide.formats._scan import Rows, Scanned, Scanner, marked
from ebbtide.formats._scan_columns import ScanColumns
from ebbtide.formats._scan_loops import ABSENT, BYTES, ESCAPED, NULL, TEXT
from ebbtide.formats._scan_schemas import WITHOUT_SCHEMA, RecordsOfSchema, SchemaReading, decimal_texts
from ebbtide.formats._settings import DELETING, DecodingSettings, StagedKind
from ebbtide.formats._typed import event_times, takes_back_by_content

SCANNED_FROM = 5_000
"""Smallest number of records of up to ten columns for which loops are loaded: each saves 10 us, and wider ones as much more."""
FEWEST = 300
"""Smallest number of records at a time that are scanned: a scan takes some milliseconds, however few they are."""


@dataclass(frozen=True)
class _Records:
    """The records of a batch, out of their envelopes.

    Args:
        values: (n,) their values.
        may_take: (n,) the value may be scanned.
        is_other: (n,) the record is of another topic.
        is_tombstone: (n,) the record has no value.
        origins: Returns `_origin` of some, given their indices.
    """

    values: pa.BinaryArray
    may_take: Mask
    is_other: Mask
    is_tombstone: Mask
    origins: Callable[[Rows], pa.StructArray]

    @classmethod
    def of(cls, batch: pa.RecordBatch, settings: DecodingSettings) -> Self:
        """Return the records of a batch. Those too long, and those with a header that names another key, may not be scanned."""
        values = batch.column("value")
        none = np.zeros(len(batch), bool)
        lengths = pc.binary_length(values)
        is_short = marked(pc.less_equal(lengths, settings.max_record_bytes))
        is_text = AvroRecords.of(batch) is None
        may_take = none if is_text and not are_utf8(values) else is_short
        origins = partial(origins_of, batch)
        if are_placed(batch):
            is_tombstone = marked(values.is_null())
            return cls(values, may_take & ~moved(batch), none, is_tombstone, origins)
        if not settings.in_envelopes or not may_take.any():
            return cls(values, may_take, none, none, origins)
        from ebbtide.formats._scan_envelopes import KafkaEnvelopes

        envelopes = KafkaEnvelopes.scan(values)
        is_other = may_take & envelopes.is_other(settings.topic)
        is_own = may_take & ~is_other
        is_taken = is_own & envelopes.has_value & ~envelopes.names_other_key
        return cls(
            envelopes.texts("value", is_taken),
            is_taken,
            is_other,
            is_own & envelopes.is_tombstone,
            envelopes.origins,
        )


@dataclass(frozen=True)
class _Part:
    """Scanned records of a batch, all of the form and of one schema.

    Args:
        decoder: Decodes them.
        scanned: The records.
        rows: (n,) their indices in the batch.
    """

    decoder: ScanDecoder
    scanned: Scanned
    rows: Rows

    @classmethod
    def of(cls, decoder: ScanDecoder, scanned: Scanned, rows: Rows) -> Self:
        """Return those of some scanned records that have the form."""
        taken = np.flatnonzero(scanned.is_taken)
        if len(taken) < len(rows):
            scanned = scanned.take(taken)
        return cls(decoder, scanned, rows[taken])


class ScanDecoder:
    """Decodes the records of a pipeline that have the form.

    Args:
        settings: Settings of the pipeline.
        row: The form of a row.
        form: The form of a record.
        reading: How to read values by their record's schema.

    Attributes:
        n_seen: Number of records that this process has seen.
    """

    n_seen: ClassVar[int] = 0

    def __init__(
        self,
        settings: DecodingSettings,
        row: RowForm,
        form: ScanForm,
        reading: SchemaReading = WITHOUT_SCHEMA,
    ) -> None:
        self._settings = settings
        self._row = row
        self._ignored = row.ignored
        self._form = form
        self._reading = reading
        self._scanner = Scanner(form.fields, form.exact, form.event_fields)
        self._pays = True
        self._by_head: dict[bytes, ScanDecoder | None] = {}

    @classmethod
    def of(
        cls,
        settings: DecodingSettings,
        ignored: Iterable[str] = (),
    ) -> list[ScanDecoder]:
        """Create the decoders of a pipeline, one for each form of its records; none if they are not scanned.

        Args:
            settings: Settings of the pipeline.
            ignored: Columns of the records that the schema does not have.
        """
        left_out = tuple(sorted(ignored))
        row = RowForm(settings.columns, dict(settings.encodings), left_out)
        if not all(map(is_readable, row.names)):
            return []
        forms = settings.format.scanned(row)
        return [cls(settings, row, form) for form in forms]

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
            Staged rows, and the records that other scans or the exact path must read.
        """
        schema = self._settings.schema
        ScanDecoder.n_seen += len(batch)
        # Loading the compiled loop does not pay for few records, or if most records are left; few at a time are read sooner one by one.
        n = self.n_seen if len(batch) >= FEWEST else 0
        kept_from = SCANNED_FROM * 10 // max(10, len(self._settings.columns))
        is_worth_it = self._pays and CompiledLoop.pays(n, kept_from=kept_from)
        if not is_worth_it:
            return schema.empty_table(), batch
        records = _Records.of(batch, self._settings)
        tables = [schema.empty_table()]
        if records.is_tombstone.any():
            tombstones = self._tombstones(batch, records, step)
            tables.append(tombstones)
        is_left = ~(records.is_other | records.is_tombstone)
        for part in self._scanned(batch, records):
            try:
                columns, is_taken, record = part.decoder.columns_of(part.scanned, wall_ms)
            except REFUSALS:
                # A value does not fit its type: other paths find out which.
                continue
            rows = part.rows[record]
            columns["_order"] = orders_of(batch, rows, step)
            if "_origin" not in columns:
                columns["_origin"] = records.origins(rows)
            staged = entry_table(schema, columns, len(rows))
            is_left[rows[is_taken]] = False
            self._pays = 2 * is_left.sum() <= len(batch)
            tables.append(staged if is_taken.all() else staged.filter(pa.array(is_taken)))
        return pa.concat_tables(tables[-1:] if len(tables) == 2 else tables), batch.filter(pa.array(is_left))

    def _tombstones(self, batch: pa.RecordBatch, records: _Records, step: int) -> pa.Table:
        """Return the staged rows of the records without a value."""
        rows = np.flatnonzero(records.is_tombstone)
        columns: dict[str, object] = {
            "_kind": pa.repeat(StagedKind.TOMBSTONE, len(rows)),
            "_order": orders_of(batch, rows, step),
            "_origin": records.origins(rows),
        }
        return entry_table(self._settings.schema, columns, len(rows))

    def _scanned(self, batch: pa.RecordBatch, records: _Records) -> list[_Part]:
        """Scan the values of a batch; return those of the form, by schema."""
        values = records.values
        may_take = records.may_take
        if not may_take.any():
            return []
        avro = AvroRecords.of(batch)
        if avro is not None:
            return self._of_avro(avro, values, may_take)
        decoder: ScanDecoder | None = self
        of_schema = RecordsOfSchema.of(values)
        if of_schema is not None:
            decoder = self._of_schema(of_schema.head)
            values = of_schema.payloads
            may_take = may_take & of_schema.are_own
        if decoder is None:
            return []
        rows = np.flatnonzero(may_take)
        scanned = self._scanner.scan(values, rows)
        return [_Part.of(decoder, scanned, rows)]

    def _of_avro(self, avro: AvroRecords, values: pa.BinaryArray, may_take: Mask) -> list[_Part]:
        """Scan Avro values, by schema."""
        from ebbtide.formats._avro_scan import AvroScanner, UnusualSchemaError, rows_by_schema

        parts = []
        for schema, all_rows in rows_by_schema(avro, values):
            decoder = self._of_schema(schema.head.encode())
            if decoder is None:
                continue
            try:
                scanner = AvroScanner(self._form, schema)
            except UnusualSchemaError:
                continue
            rows = all_rows[may_take[all_rows]]
            scanned = scanner.scan(values, rows)
            parts.append(_Part.of(decoder, scanned, rows))
        return parts

    def _of_schema(self, head: bytes) -> ScanDecoder | None:
        """Return the decoder of records with a schema; None: other paths must read them.

        Args:
            head: Their bytes before the payload.
        """
        if head not in self._by_head:
            settings = self._settings
            reading = self._form.reading(head, settings.columns)
            decoder = None
            if reading is not None:
                units = {**settings.time_units, **reading.units}
                in_units = replace(settings, time_units=units)
                decoder = ScanDecoder(in_units, self._row, self._form, reading)
            self._by_head[head] = decoder
        return self._by_head[head]

    def columns_of(self, scanned: Scanned, wall_ms: int | None) -> tuple[dict[str, object], Mask, Rows]:
        """Return the columns of the changes, except `_order`, a mask of those taken, and the index of each one's record.

        `_origin` is there only if the records name it.
        """
        settings = self._settings
        changes = self._form.take(scanned)
        n_records = len(scanned.is_taken)
        record = np.arange(n_records) if changes.record is None else changes.record
        is_delete, is_key_only = self._deletes(changes)
        typed = ScanColumns(settings, scanned, changes, is_delete, is_key_only, self._reading)
        is_taken = typed.is_taken
        is_taken &= self._are_readable(scanned)[record]
        kinds = pa.array(sorted(settings.kinds), pa.string())
        is_of_kinds = pc.is_in(changes.kind, kinds)
        is_taken &= marked(is_of_kinds)
        of_source = changes.event_ms
        if of_source is None:
            of_source = pa.nulls(len(is_taken), pa.int64())
        event_ms = event_times(settings, typed.columns, of_source)
        if settings.needs_event_time:
            has_time = event_ms.is_valid()
            is_taken &= marked(has_time)
        too_far_ahead = ahead_of(settings, event_ms, wall_ms)
        is_taken[too_far_ahead] = False
        columns: dict[str, object] = dict(typed.columns)
        if settings.by_place:
            is_retraction = pc.equal(changes.op, RowKind.UPDATE_BEFORE)
            is_taken &= ~marked(is_retraction)
        if settings.reads_sequence:
            columns["_sequence"] = self._sequence(typed.columns, changes, is_taken)
        if changes.record is not None:
            # A record is taken as a whole.
            is_left = np.zeros(n_records, bool)
            is_left[record[~is_taken]] = True
            is_taken &= ~is_left[record]
        columns["_event_ms"] = event_ms
        columns["_kind"] = changes.kind
        columns["_op"] = changes.op
        if changes.snapshot is not None:
            columns["_snapshot"] = changes.snapshot
        if changes.log is not None:
            columns["_source_log"] = changes.log
        columns["_ignored"] = self._ignored_names(changes)
        if changes.place is not None:
            nowhere = pa.repeat("", len(is_taken))
            columns["_origin"] = pa.StructArray.from_arrays([nowhere, *changes.place], fields=list(ORIGIN))
        return columns, is_taken, record

    def _are_readable(self, scanned: Scanned) -> Mask:
        """Mark the records whose encoded decimals can all be read, including those of ignored rows."""
        are_readable = np.ones(len(scanned.is_taken), bool)
        for path, cells in scanned.cells.items():
            *row, name = path
            is_in_row = tuple(row) in self._form.exact
            scale = self._reading.scales.get(name)
            if scale is None or not is_in_row:
                continue
            if cells.has(BYTES).any():
                _, is_bad_bytes = scanned.unscaled(cells, scale)
                are_readable &= ~is_bad_bytes
            is_text = cells.has(TEXT, ESCAPED)
            texts_alone = cells.filled(~is_text, NULL)
            texts = scanned.texts(texts_alone)
            _, is_bad = decimal_texts(texts, scale)
            are_readable &= ~marked(is_bad)
        return are_readable

    def _deletes(self, changes: ScannedChanges) -> tuple[Mask, Mask]:
        """Mark the deletes of sequence mode, and those that need only key and sequence."""
        if not self._settings.sequence:
            none = np.zeros(len(changes.kind), bool)
            return none, none
        deleting = pa.array(DELETING, pa.string())
        is_deleting = pc.is_in(changes.kind, deleting)
        is_delete = marked(is_deleting)
        if not takes_back_by_content(self._settings):
            return is_delete, is_delete
        is_retraction = pc.equal(changes.op, RowKind.UPDATE_BEFORE)
        is_key_only = is_delete & ~marked(is_retraction)
        return is_delete, is_key_only

    def _sequence(
        self,
        columns: dict[str, pa.Array],
        changes: ScannedChanges,
        is_taken: Mask,
    ) -> pa.StructArray:
        """Return `_sequence`; a change with a null component is not taken."""
        type_ = self._settings.sequence_columns.type
        positions = iter(changes.position)
        components = []
        for component in type_:
            name = component.name
            array = columns[name] if name in columns else next(positions)
            is_valid = array.is_valid()
            is_taken &= marked(is_valid)
            typed = array.cast(component.type)
            components.append(typed)
        return pa.StructArray.from_arrays(components, fields=list(type_))

    def _ignored_names(self, changes: ScannedChanges) -> pa.StringArray | None:
        """Return the names of each record's columns that are neither in the schema nor allowed."""
        nothing = pa.scalar(None, pa.string())
        parts: list[pa.Array] = []
        for name in self._ignored:
            if name in self._settings.ignored_columns:
                continue
            cells = changes.cells[name]
            is_sent = pa.array(cells.kind != ABSENT)
            part = pc.if_else(is_sent, name, nothing)
            parts.append(part)
        if not parts:
            return None
        # The join drops rows without values. An empty text in front keeps them, and its comma is cut off.
        first = pa.repeat("", len(parts[0]))
        joined = pc.binary_join_element_wise(first, *parts, ",", null_handling="skip")
        names = pc.utf8_slice_codeunits(joined, 1)
        is_empty = pc.equal(names, "")
        return pc.if_else(is_empty, nothing, names)
