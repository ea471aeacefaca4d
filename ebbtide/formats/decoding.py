"""From raw records to typed changelog rows, a batch at a time; bad records become rows with a reason.

A batch goes through four stages, each a module: its records are read into changes (`reading`), the changes' values are typed
column by column (`typed`), what must hold of them is judged (`judging`), and all is put into one table of staged rows, whose
columns `ebbtide.formats.settings` describes. A record is bad as a whole: if one of its changes is, none is taken.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from ebbtide.formats.columns import InexactNumberError
from ebbtide.formats.format import DecodedChange
from ebbtide.formats.judging import Judge
from ebbtide.formats.parsing import Parse, is_text, parse, parse_exactly
from ebbtide.formats.reading import Contents, Record, RecordReader
from ebbtide.formats.settings import BAD, SKIPPED, TOMBSTONE, DecodingSettings
from ebbtide.formats.typed import Columns, ColumnTyper
from ebbtide.model.changelog import ORDER, ORIGIN


class Decoding(DecodingSettings):
    """Decodes the records of a pipeline; sent to the workers."""

    def decode(self, records: Iterable[pa.RecordBatch], *, step: int, wall_ms: int | None) -> Iterator[pa.RecordBatch]:
        """Decode batches of `RECORDS`, good rows and bad ones together.

        Args:
            records: Raw records.
            step: Number of the step, for `_order`.
            wall_ms: Wall time of the step, epoch ms, which `max_ahead_ms` counts from; None: it is not known, none is ahead.
        """
        for batch in records:
            stager = _Stager(self, batch, step)
            with _without_cycle_collection():
                try:
                    staged = stager.stage(parse, wall_ms)
                except InexactNumberError:
                    # A decimal was written as a JSON float: the slower parser keeps its digits.
                    staged = stager.stage(parse_exactly, wall_ms)
            yield from staged.to_batches()


@contextmanager
def _without_cycle_collection() -> Iterator[None]:
    """Keep the collector of cycles from looking at millions of small objects that are in none: a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Stager:
    """Makes the staged rows of one batch."""

    def __init__(self, settings: DecodingSettings, batch: pa.RecordBatch, step: int) -> None:
        self._settings = settings
        self._batch = batch
        self._step = step

    def stage(self, parse: Parse, wall_ms: int | None) -> pa.Table:
        """Return good rows, bad ones and those that change nothing, in this order."""
        contents = RecordReader(self._settings, parse).read(self._batch)
        columns = self._columns(contents, wall_ms)
        # All columns are judged before a record is known to be good.
        is_good = pa.array([record.bad is None for record in contents.records], pa.bool_())
        good = self._table(columns, contents.records).filter(is_good)
        bad = self._bad_rows(contents)
        tombstones = self._empty_rows(TOMBSTONE, contents.tombstones)
        skipped = self._empty_rows(SKIPPED, contents.skipped)
        return pa.concat_tables([good, bad, tombstones, skipped])

    def _columns(self, contents: Contents, wall_ms: int | None) -> Columns:
        """Type and judge the changes; return their columns but `_order` and `_origin`."""
        settings, changes = self._settings, contents.changes
        typer = ColumnTyper(settings, contents)
        columns = typer.user_columns()
        event_ms = typer.event_ms(columns)
        if settings.sequence:
            columns["_sequence"] = typer.sequence(columns)
        Judge(settings, contents).judge(columns, event_ms, wall_ms)
        if settings.sequence:
            columns["_moved_from"] = typer.key_changes(columns["_sequence"])
        known = set(settings.columns.names)
        columns["_kind"] = pa.array([str(change.kind) for change in changes], pa.string())
        columns["_op"] = pa.array([change.op for change in changes], pa.string())
        columns["_event_ms"] = event_ms
        columns["_ignored"] = pa.array([_ignored(change, known) for change in changes], pa.string())
        return columns

    def _bad_rows(self, contents: Contents) -> pa.Table:
        raw = self._batch.column("value")
        by_row: dict[int, tuple[Record, str, str]] = {}
        for record in (*contents.refused, *contents.records):
            if record.bad is not None:
                by_row[record.row] = record, record.bad.reason, record.bad.detail
        records = [record for record, _, _ in by_row.values()]
        kinds = [BAD if record.names_place else None for record in records]
        columns = {
            "_kind": pa.array(kinds, pa.string()),
            "_reason": pa.array([reason for _, reason, _ in by_row.values()], pa.string()),
            "_detail": pa.array([detail for _, _, detail in by_row.values()], pa.string()),
            "_raw": raw.take(pa.array(list(by_row), pa.int64())),
        }
        return self._table(columns, records)

    def _empty_rows(self, kind: str, records: list[Record]) -> pa.Table:
        kinds = pa.array([kind] * len(records), pa.string())
        return self._table({"_kind": kinds}, records)

    def _table(self, columns: Mapping[str, pa.Array], records: list[Record]) -> pa.Table:
        """Put columns into a table of staged rows, with the order and the origin of their records; others are null."""
        filled = {**columns, "_order": self._order(records), "_origin": _origin(records)}
        schema = self._settings.schema
        n = len(records)
        arrays = [filled[f.name] if f.name in filled else pa.nulls(n, f.type) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _order(self, records: list[Record]) -> pa.StructArray:
        rows = pa.array([record.row for record in records], pa.int64())
        steps = pa.array(np.full(len(records), self._step))
        parts = self._batch.column("part").take(rows)
        lines = self._batch.column("line").take(rows)
        return pa.StructArray.from_arrays([steps, parts, lines], fields=list(ORDER))


def _origin(records: list[Record]) -> pa.StructArray:
    parts = []
    for i, part in enumerate(ORIGIN):
        values = [record.origin[i] for record in records]
        parts.append(pa.array(values, part.type))
    return pa.StructArray.from_arrays(parts, fields=list(ORIGIN))


def _ignored(change: DecodedChange, known: set[str]) -> str | None:
    """Return the names of a change's columns that the schema has not, separated by commas; None if there are none."""
    if change.row is None or known.issuperset(change.row):
        return None
    unknown = sorted(change.row.keys() - known)
    return ",".join(name if is_text(name) else ascii(name) for name in unknown)
