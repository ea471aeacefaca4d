"""Decodes raw records to typed changelog rows, a batch at a time; bad records become rows with a reason.

Most records have a common form and are scanned (`_scan_decoder`). The rest takes the exact path, in four
stages: records are read into changes (`_reading`), values are typed column by column (`_typed`), rules are checked
(`_judging`), and the result becomes one table of staged rows (columns: `ebbtide.formats._settings`). Both stage equal
rows for a record that they can decode. A record is bad as a whole: if one of its changes is bad, none is used.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from ebbtide.changelog import ORIGIN
from ebbtide.columns import entry_table
from ebbtide.formats._columns import InexactNumberError
from ebbtide.formats._epochs import in_epochs
from ebbtide.formats._format import BadRecordError, DecodedChange
from ebbtide.formats._forms import is_readable
from ebbtide.formats._inference import types_text
from ebbtide.formats._judging import Judge
from ebbtide.formats._parsing import Parse, is_text, parse, parse_exactly
from ebbtide.formats._places import orders_of, placed
from ebbtide.formats._reading import Contents, Record, RecordReader
from ebbtide.formats._records import stored_form
from ebbtide.formats._scan import load_loops
from ebbtide.formats._scan_decoder import ScanDecoder
from ebbtide.formats._settings import DecodingSettings, StagedKind
from ebbtide.formats._summary import summarize
from ebbtide.formats._tombstones import in_doubt, without_deleting
from ebbtide.formats._typed import ColumnTyper
from ebbtide.model import BatchSummary

MOST_IGNORED = 100
"""Maximum of unknown columns that are scanned: the exact path reads records with more."""
StagedColumns = dict[str, object]
"""Columns of staged rows by name: arrays, or lists of values to be typed by the schema."""


class Decoding(DecodingSettings):
    """Decodes the records of a pipeline; sent to the workers."""

    def decode(
        self,
        records: Iterable[pa.RecordBatch],
        *,
        step: int,
        wall_ms: int | None,
    ) -> Iterator[pa.RecordBatch]:
        """Decode batches of `RECORDS` or `PLACED_RECORDS`, good rows and bad ones together.

        Args:
            records: Raw records.
            step: Number of the step, for `_order`.
            wall_ms: Wall time of the step, epoch ms, for `max_ahead_ms`; None: unknown; event times are then not checked.
        """
        for staged in self._decoded(records, step, wall_ms):
            yield from in_epochs(staged, self.log_begins).to_batches()

    @staticmethod
    def load_loops() -> None:
        """Load the compiled loops into this process, for the processes forked from it."""
        load_loops()

    def summarize(self, rows: pa.Table, *, tracks_offsets: bool) -> BatchSummary:
        """Sum up staged rows.

        Args:
            rows: Staged rows, with the columns of `schema`.
            tracks_offsets: Sum up the records' offsets, to recognize redelivered records.
        """
        return summarize(rows, self, tracks_offsets=tracks_offsets)

    def placed(self, staged: pa.Table, orders: pa.ChunkedArray | None = None) -> pa.Table:
        """Return staged rows. If changes are ordered by the places of their records (`by_place`), the places become their sequences.

        Args:
            staged: Staged rows.
            orders: (n,) the place of each row's record, like `_order`. Default: `_order`.
        """
        if not self.by_place:
            return staged
        return placed(staged, staged["_order"] if orders is None else orders)

    def _decoded(
        self,
        records: Iterable[pa.RecordBatch],
        step: int,
        wall_ms: int | None,
    ) -> Iterator[pa.Table]:
        """Yield the staged rows of each path; arguments as of `decode`."""
        ignored = frozenset(filter(is_readable, self.ignored_columns))
        scans = ScanDecoder.of(self, ignored)
        for batch in records:
            with _without_cycle_collection():
                # The exact path decodes what the scans leave, and only it decides that a record is bad.
                left = batch
                tables = []
                for scan in scans:
                    staged, left = scan.decode(left, step, wall_ms)
                    if len(staged):
                        tables.append(self.placed(staged))
                if left.num_rows:
                    staged = self._decode_exactly(left, step, wall_ms)
                    tables.append(staged)
                    learnt = _with_unknown(ignored, staged)
                    if scans and self.unknown_columns == "ignore" and learnt != ignored:
                        ignored = learnt
                        scans = ScanDecoder.of(self, ignored)
                doubts = in_doubt(self, batch, tables, step)
                for staged in tables:
                    yield without_deleting(staged, doubts)
                yield self.placed(doubts)

    def _decode_exactly(
        self,
        batch: pa.RecordBatch,
        step: int,
        wall_ms: int | None,
    ) -> pa.Table:
        """Decode any records; bad ones get a reason and a detail."""
        stager = _Stager(self, batch, step)
        try:
            staged = stager.stage(parse, wall_ms)
        except InexactNumberError:
            # A decimal was written as a JSON float: the slower parser keeps its digits.
            staged = stager.stage(parse_exactly, wall_ms)
        return self.placed(staged)


def _with_unknown(ignored: frozenset[str], staged: pa.Table) -> frozenset[str]:
    """Return ignored columns with the unknown ones of some staged rows, unless these are too many.

    A row may have no other columns than the scan knows. Without learning, a new column in the source would send every record to the exact path.
    """
    texts = staged["_ignored"].unique().drop_null().to_pylist()
    names = {name for text in texts for name in text.split(",")}
    learnt = ignored.union(filter(is_readable, names))
    return learnt if len(learnt) <= MOST_IGNORED else ignored


@contextmanager
def _without_cycle_collection() -> Iterator[None]:
    """Switch off garbage collection of cycles, which would take a third of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Stager:
    """Makes the staged rows of one batch."""

    def __init__(
        self,
        settings: DecodingSettings,
        batch: pa.RecordBatch,
        step: int,
    ) -> None:
        self._settings = settings
        self._batch = batch
        self._step = step

    def stage(self, parse: Parse, wall_ms: int | None) -> pa.Table:
        """Return good rows, bad rows, and rows of records that change nothing, in this order."""
        reader = RecordReader(self._settings, parse)
        contents = reader.read(self._batch)
        columns = self._columns(contents, wall_ms)
        parts = [
            self._good_rows(contents, columns),
            self._bad_rows(contents),
            self._empty_rows(StagedKind.TOMBSTONE, contents.tombstones),
            self._empty_rows(StagedKind.SKIPPED, contents.skipped),
            self._empty_rows(StagedKind.NOT_ROW, contents.not_rows),
        ]
        return pa.concat_tables(parts)

    def _columns(self, contents: Contents, wall_ms: int | None) -> StagedColumns:
        """Type and judge the changes; return all columns except `_order` and `_origin`."""
        settings = self._settings
        typer = ColumnTyper(settings, contents)
        columns = typer.user_columns()
        event_ms = typer.event_ms(columns)
        if settings.reads_sequence:
            columns["_sequence"] = typer.sequence(columns)
        judge = Judge(settings, contents)
        judge.judge(columns, event_ms, wall_ms)
        if settings.sequence:
            # After judging, since bad records change no key.
            columns["_moved_from"] = typer.key_changes(columns.get("_sequence"))
        changes = contents.changes
        known = settings.known_columns
        staged: StagedColumns = dict(columns)
        staged["_event_ms"] = event_ms
        staged["_kind"] = [change.kind for change in changes]
        staged["_op"] = [change.op for change in changes]
        staged["_snapshot"] = [change.snapshot for change in changes]
        staged["_source_log"] = [change.log for change in changes]
        staged["_ignored"] = [_ignored(change, known) for change in changes]
        if settings.unknown_columns == "infer":
            staged["_types"] = [types_text(change, known, settings.unavailable) for change in changes]
        return staged

    def _good_rows(self, contents: Contents, columns: StagedColumns) -> pa.Table:
        records = contents.records
        rows = self._table(columns, records)
        is_good = [record.bad is None for record in records]
        mask = pa.array(is_good, pa.bool_())
        return rows.filter(mask)

    def _bad_rows(self, contents: Contents) -> pa.Table:
        """Return one row for each bad record, even if it has several changes."""
        by_row: dict[int, Record] = {}
        errors: dict[int, BadRecordError] = {}
        for record in (*contents.refused, *contents.records):
            row = record.row
            if record.bad is not None:
                by_row[row] = record
                errors[row] = record.bad
        records = list(by_row.values())
        rows = list(by_row)
        indices = pa.array(rows, pa.int64())
        bad_records = self._batch.take(indices)
        columns: StagedColumns = {
            # A record that does not name its offset has no kind.
            "_kind": [StagedKind.BAD if record.has_own_offset else None for record in records],
            "_reason": [error.reason for error in errors.values()],
            "_detail": [self._detail(error) for error in errors.values()],
            "_raw": stored_form(bad_records),
        }
        return self._table(columns, records)

    def _detail(self, error: BadRecordError) -> str:
        """Return the detail of a bad record, without values of personal columns."""
        settings = self._settings
        may_show = set(settings.columns.names) - settings.personal
        # A detail about one field shows only that field's value; any other detail may show the whole record.
        if not settings.personal or error.field in may_show:
            return error.detail
        return error.masked

    def _empty_rows(self, kind: str, records: list[Record]) -> pa.Table:
        kinds = [kind] * len(records)
        return self._table({"_kind": kinds}, records)

    def _table(self, columns: StagedColumns, records: list[Record]) -> pa.Table:
        """Build a table of staged rows with the order and origin of their records; missing columns are null."""
        staged = dict(columns)
        staged["_order"] = self._order(records)
        staged["_origin"] = _origin(records)
        return entry_table(
            self._settings.schema,
            staged,
            n=len(records),
        )

    def _order(self, records: list[Record]) -> pa.StructArray:
        rows = [record.row for record in records]
        return orders_of(self._batch, rows, self._step)


def _origin(records: list[Record]) -> pa.StructArray:
    components = []
    for i, component in enumerate(ORIGIN):
        values = [record.origin[i] for record in records]
        array = pa.array(values, component.type)
        components.append(array)
    return pa.StructArray.from_arrays(components, fields=list(ORIGIN))


def _ignored(change: DecodedChange, known: frozenset[str]) -> str | None:
    """Return the names of a change's columns that the schema does not have, separated by commas; None if there are none."""
    row = change.row
    if row is None or known.issuperset(row):
        return None
    unknown = sorted(row.keys() - known)
    names = map(_storable, unknown)
    return ",".join(names)


def _storable(name: str) -> str:
    """Return a name that UTF-8 can encode: lone surrogates are escaped."""
    if is_text(name):
        return name
    return ascii(name)
