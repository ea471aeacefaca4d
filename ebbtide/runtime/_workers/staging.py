"""Staged rows: a batch after decoding, in Arrow files that are divided by the hash of the rows' keys.

A task decodes its records into one file of changes. Each record batch in it has rows of one slice; a slice is the first bits of a
key's hash. A worker that decides a share of the slices reads only these batches, in order of arrival. If one process
decides all, all rows are one slice and are not sorted. Bad rows are in a separate file. Importing this loads no Spark.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.changelog import ORDER, ORIGIN, RowKind
from ebbtide.columns import Hashes, key_hashes, only
from ebbtide.errors import QuarantineThresholdError
from ebbtide.formats import Decoding, StagedKind
from ebbtide.model import BatchCounts, BatchSummary
from ebbtide.storage import ArrowFile, Location, ParquetFile

FLUSH_BYTES = 64 * 2**20
"""Bytes of rows that are divided into slices at a time: bounds memory."""
HELD_BYTES = 2**20
"""Changes of a task of at most so many bytes stay in memory, where the process that stages them also decides."""
MOST_UNEVEN = 1.5
"""Maximum rows of a share, by the mean of all, before shares are divided by rows."""
BAD_ROWS = pa.schema(
    [
        ("_reason", pa.string()),
        ("_detail", pa.string()),
        ("_origin", ORIGIN),
        ("_order", ORDER),
        ("_raw", pa.binary()),
    ]
)
"""Columns of bad rows."""
Refused = Callable[[pa.Table], pa.Table]
"""Returns staged rows without those of erased keys, bad ones too; picklable."""


def without_refused(rows: pa.Table, refused: Refused | None) -> pa.Table:
    """Leave out the staged rows of erased keys.

    Args:
        rows: Staged rows.
        refused: Leaves them out; None: no key was erased.
    """
    return rows if refused is None else refused(rows)


Seen = Callable[[pa.Table, pa.Table], None]
"""Called with each table of staged rows: as decoded, and as written."""


def _ignore(decoded: pa.Table, kept: pa.Table) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class StagedFile:
    """The output of one staging task.

    Args:
        changes: Location of its changes; None: it has none.
        slices: The slice of each record batch in it.
        rows: Number of rows of each.
        bad: Location of its bad rows; None: it has none.
    """

    changes: str | None = None
    slices: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    bad: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "changes": self.changes,
            "slices": list(self.slices),
            "rows": list(self.rows),
            "bad": self.bad,
        }

    def to_json(self, parts: Sequence[BatchSummary]) -> str:
        """Write the file and the summaries of its rows as JSON, to be sent to the driver."""
        summary = BatchSummary.total(parts)
        result = {
            "file": self.as_dict(),
            "summary": summary.to_json(),
        }
        return json.dumps(result)

    @classmethod
    def of(cls, values: dict[str, Any]) -> StagedFile:
        """Read what `as_dict` wrote."""
        return cls(
            changes=values["changes"],
            slices=tuple(values["slices"]),
            rows=tuple(values["rows"]),
            bad=values["bad"],
        )

    def read(self, slices: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the changes of some slices. Default: of all."""
        wanted = set(self.slices if slices is None else slices)
        if self.changes is None or wanted.isdisjoint(self.slices):
            return
        with ArrowFile(self.changes).reading() as file:
            for number, slice_ in enumerate(self.slices):
                if slice_ in wanted:
                    yield file.get_batch(number)


def slices_of(hashes: Hashes, n_slices: int) -> NDArray[np.uint8]:
    """Return the slices of some hashes; as bytes, which are sorted in O(n).

    Args:
        hashes: The hashes.
        n_slices: Number of slices: a power of two, from 2 to 256.
    """
    n_bits = n_slices.bit_length() - 1
    first_bits = hashes >> np.uint64(64 - n_bits)
    return first_bits.astype(np.uint8)


New = Callable[[pa.Table], pa.Table]
"""Returns the bad rows, with `RECORD_KEY` at least, whose records no earlier step has met; picklable."""
RECORD_KEY = ["_origin", "_raw"]
"""Columns that identify a redelivered bad record."""


@dataclass(frozen=True)
class BadLimit:
    """The most bad records of a step, judged while they are decoded: a file may have millions, and each costs more than a good one.

    Args:
        pipeline: Name of the pipeline.
        most: The most bad records.
        staged: Where the reasons of those that were decoded are.
        new: Asked of records that name their own offsets, which may have been delivered before; None: no record is delivered twice.
    """

    pipeline: str
    most: int
    staged: str
    new: New | None

    def refuse(self, n_bad: int, n_rows: int) -> None:
        """Refuse a step whose decoding is not at its end, if there are too many.

        Raises:
            QuarantineThresholdError: there are.
        """
        if n_bad > self.most:
            raise too_many_bad(self.pipeline, f"{n_bad} of the first {n_rows}", self.most, self.staged)


class _NewBad:
    """Counts the bad records of a task that are certainly new.

    Records with offsets are collected up to the limit before the known ones are requested, which reads the quarantine.

    Args:
        limit: The most bad records.
    """

    def __init__(self, limit: BadLimit) -> None:
        self._limit = limit
        self._n_without_place = 0
        self._placed: list[pa.Table] = []
        self._n_new = 0

    @property
    def count(self) -> int:
        """Number of those that are known to be new so far."""
        return self._n_without_place + self._n_new

    def add(self, bad: pa.Table) -> None:
        """Count some more bad rows."""
        limit = self._limit
        if limit.new is None:
            self._n_without_place += len(bad)
            return
        # Only a record that could be read as one with its place has a kind.
        is_placed = bad["_kind"].is_valid()
        placed = bad.filter(is_placed).select(RECORD_KEY)
        self._n_without_place += len(bad) - len(placed)
        self._placed.append(placed)
        n_unasked = sum(map(len, self._placed)) - self._n_new
        if n_unasked > limit.most:
            new = limit.new(pa.concat_tables(self._placed))
            self._placed = [new]
            self._n_new = len(new)


def too_many_bad(pipeline: str, got: str, most: int, staged: str) -> QuarantineThresholdError:
    """Return the error of a step with too many bad records.

    Args:
        pipeline: Name of the pipeline.
        got: How many of how many records.
        most: The most that its spec allows.
        staged: Where the reasons are.
    """
    return QuarantineThresholdError.of(
        f"Pipeline '{pipeline}' met too many bad records in one step; nothing of it was committed.",
        got=got,
        allowed=f"up to {most} (quarantine.max_rows_per_step)",
        next_step=f"See their reasons in '{staged}' (_reason, _detail, _raw), then repair the source or the spec, or raise the limit.",
    )


@dataclass(frozen=True)
class Stager:
    """Writes the output of a staging task. All records pass here: those of erased keys are left out.

    Args:
        folder: Folder of the files.
        columns: Columns of a change.
        key: Names of the key's columns.
        refused: Marks the rows of erased keys, which are written nowhere; None: no key was erased.
        n_slices: Number of slices: a power of two.
        limit: The most bad records; None: any number is written.
        in_memory: This process reads the files itself: few changes are not written to disk.
    """

    folder: str
    columns: pa.Schema
    key: Sequence[str]
    refused: Refused | None = None
    n_slices: int = 1
    limit: BadLimit | None = None
    in_memory: bool = False

    def stage(self, decoded: Iterable[pa.Table], seen: Seen = _ignore) -> StagedFile:
        """Write the rows of a task.

        Args:
            decoded: Staged rows, see `ebbtide.formats._settings`.
            seen: Called for each table, before it is written.

        Raises:
            QuarantineThresholdError: there are too many bad rows before the last table.
        """
        stem = Location(self.folder) / uuid.uuid4().hex
        location = f"{stem}.arrow"
        bad_location = f"{stem}.bad.parquet"
        n_bad = n_rows = 0
        new_bad = None if self.limit is None else _NewBad(self.limit)
        waiting: list[pa.Table] = []
        waiting_bytes = 0
        changes: pa.ipc.RecordBatchFileWriter | None = None
        with (
            ExitStack() as opened,
            ParquetFile(bad_location).in_batches(BAD_ROWS) as bad,
        ):

            def changes_file(*, in_memory: bool) -> pa.ipc.RecordBatchFileWriter:
                return opened.enter_context(ArrowFile(location).writing(self.columns, in_memory=in_memory))

            slices: list[int] = []
            rows: list[int] = []
            for as_decoded in decoded:
                if self.limit is not None and new_bad is not None:
                    self.limit.refuse(new_bad.count, n_rows)
                n_rows += len(as_decoded)
                table = without_refused(as_decoded, self.refused)
                seen(as_decoded, table)
                bad_rows = table.filter(pc.is_valid(table["_reason"]))
                n_bad += len(bad_rows)
                if new_bad is not None:
                    new_bad.add(bad_rows)
                for batch in bad_rows.select(BAD_ROWS.names).to_batches():
                    bad.write(batch)
                own_changes = self._changes(table)
                waiting.append(own_changes)
                waiting_bytes += own_changes.nbytes
                if waiting_bytes >= FLUSH_BYTES:
                    changes = changes or changes_file(in_memory=False)
                    self._deal(waiting, changes, slices, rows)
                    waiting = []
                    waiting_bytes = 0
            changes = changes or changes_file(in_memory=self.in_memory and waiting_bytes <= HELD_BYTES)
            self._deal(waiting, changes, slices, rows)
        return StagedFile(
            changes=location if slices else None,
            slices=tuple(slices),
            rows=tuple(rows),
            bad=bad_location if n_bad else None,
        )

    def _changes(self, table: pa.Table) -> pa.Table:
        decided_kinds = pa.array([*RowKind, StagedKind.IN_DOUBT])
        is_decided_on = pc.is_in(table["_kind"], decided_kinds)
        changes = table.select(self.columns.names)
        return only(changes, is_decided_on)

    def _deal(
        self,
        tables: list[pa.Table],
        writer: Any,
        slices: list[int],
        rows: list[int],
    ) -> None:
        """Write rows by slice; add the slice and the number of rows of each batch to the lists."""
        if not tables:
            return
        # A stable sort: the rows of a slice keep the order of reading, which decides among changes of a key.
        table = pa.concat_tables(tables).cast(self.columns)
        if self.n_slices == 1:
            for batch in table.to_batches():
                writer.write_batch(batch)
                slices.append(0)
                rows.append(len(batch))
            return
        hashes = key_hashes(table, self.key)
        slice_of = slices_of(hashes, self.n_slices)
        order = np.argsort(slice_of, kind="stable")
        in_order = table.take(pa.array(order)).combine_chunks()
        numbers = np.arange(self.n_slices)
        ends = np.searchsorted(slice_of[order], numbers, side="right")
        start = 0
        for number, end in enumerate(ends.tolist()):
            n_rows = end - start
            if n_rows:
                own = in_order.slice(start, n_rows)
                [batch] = own.combine_chunks().to_batches()
                writer.write_batch(batch)
                slices.append(number)
                rows.append(n_rows)
            start = end


@dataclass(frozen=True)
class Staging:
    """Decodes a task's records into a file.

    Args:
        decoding: Turns records into staged rows.
        stager: Writes these.
        step: Number of the step.
        wall_ms: Wall time of the step, epoch ms.
        tracks_offsets: The summary has the records' offsets too.
    """

    decoding: Decoding
    stager: Stager
    step: int
    wall_ms: int
    tracks_offsets: bool

    def __call__(self, records: Iterable[pa.RecordBatch]) -> str | None:
        """Return the file and the summary as JSON, to be sent to the driver; None without a record.

        Args:
            records: Batches of `ebbtide.formats._records.RECORDS`.
        """
        parts: list[BatchSummary] = []
        sizes: list[int] = []

        def seen(decoded: pa.Table, kept: pa.Table) -> None:
            parts.append(self._summary(decoded, kept))

        measured = _measured(records, sizes)
        file = self.stager.stage(self._decoded(measured), seen)
        if not parts:
            return None
        counts = BatchCounts(bytes=sum(sizes))
        parts.append(BatchSummary(counts))
        return file.to_json(parts)

    def _decoded(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield staged rows."""
        decoded = self.decoding.decode(records, step=self.step, wall_ms=self.wall_ms)
        for batch in decoded:
            yield pa.Table.from_batches([batch])

    def _summary(self, decoded: pa.Table, kept: pa.Table) -> BatchSummary:
        """Sum up the rows that were written, with the refused records counted."""
        summary = self.decoding.summarize(decoded, tracks_offsets=self.tracks_offsets)
        if len(kept) == len(decoded):
            return summary
        of_kept = self.decoding.summarize(kept, tracks_offsets=self.tracks_offsets)
        # The refused records were read: their offsets count, so that a redelivery is known.
        n_records = summary.counts.records
        n_erased = n_records - of_kept.counts.records
        counted = of_kept.with_counts(records=n_records, erased=n_erased)
        return replace(counted, offsets=summary.offsets)


def _measured(records: Iterable[pa.RecordBatch], sizes: list[int]) -> Iterator[pa.RecordBatch]:
    """Yield records; add the bytes of their values to `sizes`."""
    for batch in records:
        n_bytes = batch.column("value").nbytes
        sizes.append(n_bytes)
        yield batch


def from_json(text: str) -> tuple[StagedFile, BatchSummary]:
    """Read what `StagedFile.to_json` wrote."""
    result = json.loads(text)
    file = StagedFile.of(result["file"])
    summary = BatchSummary.from_json(result["summary"])
    return file, summary


@dataclass(frozen=True)
class Share:
    """The part of a step's changes that one worker decides.

    Args:
        staged: The staged files.
        slices: Its slices; None: all.
        linked: Keys that are decided together, once each.
        has_linked: It has only the linked keys, of all its slices; else all keys but these.
    """

    staged: tuple[StagedFile, ...]
    slices: tuple[int, ...] | None
    linked: pa.Table | None = None
    has_linked: bool = False

    def middle(self, n_slices: int) -> int:
        """Return a hash in the middle of those of its keys.

        Args:
            n_slices: The number of all slices.
        """
        slices = self.slices or (0, n_slices - 1)
        return (slices[0] + slices[-1] + 1) * 2**64 // (2 * n_slices)

    def changes(self, schema: pa.Schema, key: Sequence[str]) -> pa.Table:
        """Read the changes.

        Args:
            schema: Their columns.
            key: Names of the key's columns.
        """
        batches: list[pa.RecordBatch] = []
        for file in self.staged:
            batches += file.read(self.slices)
        changes = pa.Table.from_batches(batches, schema)
        if self.linked is None:
            return changes
        # By hash, not by key: a key with the hash of a linked one is then decided with the linked ones, which gives the same result.
        hashes = key_hashes(changes, key)
        linked_hashes = key_hashes(self.linked, key)
        is_linked = np.isin(hashes, linked_hashes)
        is_own = is_linked == self.has_linked
        return changes.filter(pa.array(is_own))


def balanced(staged: Sequence[StagedFile], n_shares: int, n_slices: int) -> list[tuple[int, ...]]:
    """Divide slices into shares; empty shares are left out.

    The slices of a share follow each other, so its keys' hashes are in one range, as are those of the files that it writes. They are equal
    ranges, the same in each step, unless one would have many more rows than the mean: then each has about as many.

    Args:
        staged: The staged files.
        n_shares: The most shares.
        n_slices: Number of all slices.
    """
    rows_of_slice = _rows_of_slices(staged)
    equal = {slice_: slice_ * n_shares // n_slices for slice_ in sorted(rows_of_slice)}
    rows_of_share = Counter[int]()
    for slice_, share in equal.items():
        rows_of_share[share] += rows_of_slice[slice_]
    is_even = max(rows_of_share.values(), default=0) <= MOST_UNEVEN * rows_of_slice.total() / n_shares
    share_of = equal if is_even else _by_rows(rows_of_slice, n_shares)
    shares: dict[int, list[int]] = {}
    for slice_, share in share_of.items():
        shares.setdefault(share, []).append(slice_)
    return [tuple(share) for share in shares.values()]


def _by_rows(rows_of_slice: Counter[int], n_shares: int) -> dict[int, int]:
    """Return the share of each slice: no share exceeds the mean by more than a slice."""
    n_all = rows_of_slice.total()
    share_of = {}
    n_before = 0
    for slice_ in sorted(rows_of_slice):
        middle = n_before + rows_of_slice[slice_] / 2  # a slice goes where its middle row would
        share_of[slice_] = int(middle * n_shares / n_all)
        n_before += rows_of_slice[slice_]
    return share_of


def _rows_of_slices(staged: Iterable[StagedFile]) -> Counter[int]:
    """Count the rows of each slice that has some."""
    rows_of_slice: Counter[int] = Counter()
    for file in staged:
        batches = zip(file.slices, file.rows, strict=True)
        for slice_, n_rows in batches:
            rows_of_slice[slice_] += n_rows
    return rows_of_slice
