"""The scan: records of a known form become staged rows without an object for a record; the rest is left to the other paths."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.formats.avro import AvroRecords
from ebbtide.formats.columns import REFUSALS
from ebbtide.formats.forms import RowForm, ScanForm, ScannedChanges
from ebbtide.formats.judging import ahead_of
from ebbtide.formats.places import are_utf8, moved, orders_of, origins_of
from ebbtide.formats.records import are_placed
from ebbtide.formats.scan import Mask, Scanned, Scanner, marked
from ebbtide.formats.scan_columns import ScanColumns, is_scannable
from ebbtide.formats.scan_envelopes import KafkaEnvelopes
from ebbtide.formats.settings import DELETING, DecodingSettings
from ebbtide.formats.typed import event_times, takes_back_by_content
from ebbtide.model import compiled
from ebbtide.model.changelog import RowKind
from ebbtide.model.entries import entry_table
from ebbtide.model.sequences import LOG_POSITIONS, sequence_type


class ScanDecoder:
    """Decodes the records of a pipeline that are of the form.

    Args:
        settings: Settings of the pipeline.
        row: The form of a row.
        form: The form of a record.
    """

    def __init__(self, settings: DecodingSettings, row: RowForm, form: ScanForm) -> None:
        self._settings = settings
        self._ignored = row.ignored
        self._form = form
        self._scanner = Scanner(form.fields, form.exact)
        self._n_seen = 0
        self._pays = True

    @classmethod
    def of(cls, settings: DecodingSettings, ignored: Iterable[str] = ()) -> ScanDecoder | None:
        """Make the decoder of a pipeline; None if its records are not scanned.

        Args:
            settings: Settings of the pipeline.
            ignored: Columns of the records that the schema does not have.
        """
        row = RowForm(settings.columns, dict(settings.encodings), tuple(sorted(ignored)))
        if settings.encodings or not all(map(is_scannable, settings.columns)):
            return None
        form = settings.format.scanned(row)
        return None if form is None else cls(settings, row, form)

    def decode(self, batch: pa.RecordBatch, step: int, wall_ms: int | None) -> tuple[pa.Table, pa.RecordBatch]:
        """Decode a batch of `RECORDS` or `PLACED_RECORDS`; arguments and results as of `QuickDecoder`."""
        nothing = self._settings.schema.empty_table()
        self._n_seen += len(batch)
        # Little is not worth loading the compiled loop for, nor is a source whose records are mostly left.
        is_avro = AvroRecords.of(batch) is not None
        if is_avro or not self._pays or not compiled.worth_compiling(self._n_seen):
            return nothing, batch
        values = batch.column("value")
        if not are_utf8(values):
            return nothing, batch
        may_take = self._may_take(batch)
        is_dropped = np.zeros(len(batch), bool)
        envelopes = None
        if self._settings.in_envelopes and not are_placed(batch):
            envelopes = KafkaEnvelopes.scan(values, self._settings.topic)
            values = envelopes.values
            is_dropped = may_take & envelopes.is_other
            may_take &= envelopes.is_taken
        scanned = self._scanner.scan(values)
        rows = np.flatnonzero(scanned.is_taken & may_take)
        if len(rows) < len(batch):
            scanned = scanned.take(rows)
        origins = origins_of(batch, rows) if envelopes is None else envelopes.origins(rows)
        try:
            columns, is_taken = self._columns(scanned, wall_ms)
        except REFUSALS:
            # A value that does not fit its type: the other paths say whose.
            return nothing, batch
        columns |= {"_order": orders_of(batch, rows, step), "_origin": origins}
        staged = entry_table(self._settings.schema, columns, len(rows))
        is_left = ~is_dropped
        is_left[rows[is_taken]] = False
        self._pays = 2 * is_left.sum() <= len(batch)
        if is_taken.all():
            return staged, batch.filter(pa.array(is_left))
        return staged.filter(pa.array(is_taken)), batch.filter(pa.array(is_left))

    def _may_take(self, batch: pa.RecordBatch) -> Mask:
        """Mark the records that are neither too long nor name another key of their row in a header."""
        may = np.ones(len(batch), bool)
        lengths = pc.binary_length(batch.column("value")).fill_null(0).to_numpy(zero_copy_only=False)
        may &= lengths <= self._settings.max_record_bytes
        if self._settings.in_envelopes or are_placed(batch):  # a bare value has no headers
            may[list(moved(batch))] = False
        return may

    def _columns(self, scanned: Scanned, wall_ms: int | None) -> tuple[dict[str, object], Mask]:
        """Return the columns of the scanned records but `_order` and `_origin`, and which of the records are taken."""
        settings = self._settings
        changes = self._form.take(scanned)
        is_delete, is_key_only = self._deletes(changes)
        typed = ScanColumns(settings, scanned, changes, is_delete, is_key_only)
        is_taken = typed.is_taken
        is_taken &= marked(pc.is_in(changes.kind, pa.array(sorted(settings.kinds), pa.string())))
        event_ms = pa.nulls(len(is_taken), pa.int64()) if changes.event_ms is None else changes.event_ms
        event_ms = event_times(settings, typed.columns, event_ms)
        if settings.needs_event_time:
            is_taken &= marked(event_ms.is_valid())
        is_taken[ahead_of(settings, event_ms, wall_ms)] = False
        columns: dict[str, object] = dict(typed.columns)
        if settings.sequence:
            columns["_sequence"] = self._sequence(typed.columns, changes, is_taken)
        columns["_event_ms"] = event_ms
        columns["_kind"] = changes.kind
        columns["_op"] = changes.op
        columns["_ignored"] = self._ignored_names(changes)
        return columns, is_taken

    def _deletes(self, changes: ScannedChanges) -> tuple[Mask, Mask]:
        """Mark the deletes of sequence mode, and those of which the key and the sequence alone are read."""
        n = len(changes.kind)
        if not self._settings.sequence:
            return np.zeros(n, bool), np.zeros(n, bool)
        is_delete = marked(pc.is_in(changes.kind, pa.array(DELETING, pa.string())))
        if not takes_back_by_content(self._settings):
            return is_delete, is_delete
        return is_delete, is_delete & ~marked(pc.equal(changes.op, RowKind.UPDATE_BEFORE))

    def _sequence(self, columns: dict[str, pa.Array], changes: ScannedChanges, is_taken: Mask) -> pa.StructArray:
        """Return `_sequence`; where a component of it is null, the change is not taken."""
        type_ = sequence_type(self._settings.columns, self._settings.sequence)
        positions = iter(changes.position)
        components = []
        for component in type_:
            array = next(positions) if component.name in LOG_POSITIONS else columns[component.name]
            is_taken &= marked(array.is_valid())
            components.append(array.cast(component.type))
        return pa.StructArray.from_arrays(components, fields=list(type_))

    def _ignored_names(self, changes: ScannedChanges) -> pa.StringArray | None:
        """Return the names of each record's columns that the schema does not have, but for the allowed ones."""
        parts = []
        for name in self._ignored:
            if name not in self._settings.ignored_columns:
                is_sent = pa.array(changes.cells[name].kind != 0)
                parts.append(pc.if_else(is_sent, name, pa.scalar(None, pa.string())))
        if not parts:
            return None
        names = pc.binary_join_element_wise(*parts, ",", null_handling="skip")
        return pc.if_else(pc.equal(names, ""), pa.scalar(None, pa.string()), names)
