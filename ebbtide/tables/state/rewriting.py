"""Reads all stored entries and rewrites them: the common part of folds, compaction, cleanup and migration.

Invariant: all versions of an entry meet in one task, which finds the newest, since tasks own ranges of the keys' hashes. Rows come
from the key indices, in which a range of hashes is one slice. No row passes through the JVM. Cost: one read of each data file that
is not indexed yet, O(rows * log(rows)) in a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.delta import vectors
from ebbtide.delta.joining import ROWS_PER_FILE, write_files
from ebbtide.delta.key_index import KeyIndex
from ebbtide.delta.snapshot import Action, DataFile
from ebbtide.delta.table import read_file
from ebbtide.model.codes import Mask, row_codes
from ebbtide.model.entries import flags, ints, newest, newest_versions
from ebbtide.operators.operator import Operator
from ebbtide.tables.state.layout import with_kind
from ebbtide.tables.state.lookup import Stored
from ebbtide.tasks import BYTES_IN_DRIVER

FileRows = tuple[int, NDArray[np.int64], pa.Table]
"""The number of a data file, the numbers of some of its rows, and these."""
PART_BYTES = 64 * 2**20
"""Bytes of data files that one task reads."""
BASE = {"ebbtide": "base"}
"""The tag of files from a fold of the whole state: among them no entry has two versions."""


class Part(NamedTuple):
    """Some of the entries: those whose keys' hashes are in one of several equal ranges.

    Args:
        number: Number of the range, from 0.
        of: Number of ranges.
    """

    number: int
    of: int

    def rows_of(self, index: KeyIndex) -> slice:
        """Return the rows of an index that are in the range."""
        first = self._first_of(self.number, index)
        end = self._first_of(self.number + 1, index)
        return slice(first, end)

    def _first_of(self, number: int, index: KeyIndex) -> int:
        """Return the first row of an index that is in a range, or in a later one."""
        if number == self.of:  # the end of the last range, 2**64, does not fit into 64 bits
            return len(index.hashes)
        least = number * 2**64 // self.of
        row = np.searchsorted(index.hashes, np.uint64(least))
        return int(row)


@dataclass(frozen=True)
class StoredEntries:
    """The entries of a state table.

    Args:
        state: Its data files.
        operator: Returns the operator of the entries.
    """

    state: Stored
    operator: Callable[[], Operator]

    @property
    def n_bytes(self) -> int:
        """Bytes of the data files."""
        return sum(file.size for file in self.state.files)

    @property
    def is_small(self) -> bool:
        """True if the driver should read them without a Spark job."""
        return self.n_bytes <= BYTES_IN_DRIVER

    def parts(self) -> list[Part]:
        """Divide the entries into parts of about `PART_BYTES`."""
        n_parts = -(-self.n_bytes // PART_BYTES)  # rounded up
        n_parts = max(n_parts, 1)
        numbers = range(n_parts)
        return [Part(number, n_parts) for number in numbers]

    def newest(self, part: Part) -> pa.Table:
        """Read the newest version of each entry of a part, dropped entries included."""
        operator = self.operator()
        found = self._versions(part, operator)
        versions = _all_rows(found, operator)
        return newest_versions(versions, operator.entry_key)

    def positions(self, part: Part, is_doomed: Pick) -> list[tuple[int, BitMap64]]:
        """Find all versions of the entries of a part whose newest version is selected.

        Args:
            part: The part.
            is_doomed: Selects them.

        Returns:
            The number of each data file that has some, and the numbers of its rows.
        """
        operator = self.operator()
        found = self._versions(part, operator)
        versions = _all_rows(found, operator)
        goes = _goes(versions, is_doomed, operator)
        # `goes` runs over the rows of all files in the order of `found`: cut it into the files again.
        lost = []
        start = 0
        for number, positions, rows in found:
            end = start + len(rows)
            own_goes = goes[start:end]
            own = positions[own_goes]
            start = end
            if len(own):
                bitmap = BitMap64(own.tolist())
                lost.append((number, bitmap))
        return lost

    def _versions(self, part: Part, operator: Operator) -> list[FileRows]:
        """Return the rows of a part, by data file."""
        copies = self.state.copies(operator.key)
        found = []
        for number, file in enumerate(self.state.files):
            index = copies.index_of(file)
            own = part.rows_of(index)
            n_own = own.stop - own.start
            positions = index.positions[own]
            rows = index.rows.slice(own.start, n_own)
            # The index has all rows of the file: leave out those that a deletion vector hides.
            if file.vector is not None:
                counts = vectors.counts(self.state.table, file.vector, positions)
                positions = positions[counts]
                rows = rows.filter(pa.array(counts))
            entries = rows.cast(operator.schema)
            found.append((number, positions, entries))
        return found


def _all_rows(found: Iterable[FileRows], operator: Operator) -> pa.Table:
    tables = [operator.schema.empty_table()]
    for _, _, rows in found:
        tables.append(rows)
    return pa.concat_tables(tables)


def _goes(versions: pa.Table, is_doomed: Pick, operator: Operator) -> Mask:
    """Mark all versions of the entries whose newest version is selected."""
    # Older versions go too: without the newest one, the next older would count again.
    codes = row_codes(versions, operator.entry_key)
    steps = ints(versions, "_step")
    latest = newest(codes, steps)
    entries = versions.take(pa.array(latest))
    is_picked = is_doomed(entries, operator)
    doomed = latest[np.flatnonzero(is_picked)]
    doomed_codes = codes[doomed]
    return np.isin(codes, doomed_codes)


class Pick(Protocol):
    """Selects some of the newest versions of entries; picklable, since it is sent to workers."""

    def __call__(self, entries: pa.Table, operator: Operator) -> Mask:
        """Mark the selected ones."""


@dataclass(frozen=True)
class Rewrite:
    """Writes the newest versions of entries as new data files; runs in workers.

    Args:
        entries: The stored entries.
        written: Names the local copies of the new files: with other columns, if these change.
        schema: Columns of the state table, as they will be.
        bounded: Columns to keep statistics of.
        keep: Returns the entries that stay, changed or not.
        is_whole: All data files of the state are read.
        data_change: Entries are deleted or changed; else only versions of them that do not count.
    """

    entries: StoredEntries
    written: Stored
    schema: pa.Schema
    bounded: tuple[str, ...]
    keep: Callable[[pa.Table, Operator], pa.Table]
    is_whole: bool
    data_change: bool

    def __call__(self, part: Part) -> list[Action]:
        """Rewrite a part; return the actions that add its files."""
        operator = self.entries.operator()
        entries = self.entries.newest(part)
        kept = self.keep(entries, operator)
        index = KeyIndex.of(kept, operator.key)
        # In the order of hashes, as lookups read them: the files' own index is then their order.
        rows = with_kind(index.rows, self.schema)
        copies = self.written.copies(operator.key)
        return write_files(
            self.written.table,
            rows,
            self.bounded,
            rows_per_file=ROWS_PER_FILE,
            data_change=self.data_change,
            on_written=copies.keep,
            tags=BASE if self.is_whole else None,
        )


@dataclass(frozen=True)
class Deletion:
    """Finds the rows to delete: all versions of the selected entries; runs in workers.

    Args:
        entries: The stored entries.
        is_doomed: Selects them.
    """

    entries: StoredEntries
    is_doomed: Pick

    def __call__(self, part: Part) -> list[tuple[int, bytes]]:
        """Return the number of each data file that loses rows of a part, and these rows as a bitmap."""
        lost = self.entries.positions(part, self.is_doomed)
        return [(number, rows.serialize()) for number, rows in lost]


@dataclass(frozen=True)
class WithoutRows:
    """Rewrites data files without some of their rows; runs in workers.

    Args:
        state: The state table's data files.
        schema: Its columns.
        bounded: Columns to keep statistics of.
    """

    state: Stored
    schema: pa.Schema
    bounded: tuple[str, ...]

    def __call__(self, loss: tuple[DataFile, bytes]) -> list[Action]:
        """Return the actions that add the remaining rows of a file; none if it has none.

        Args:
            loss: The file, and the numbers of the rows to delete, as a bitmap.
        """
        file, serialized = loss
        # The file is read with the rows that its vector hides: positions count from the beginning of the file.
        table = self.state.table
        goes = BitMap64.deserialize(serialized)
        if file.vector is not None:
            goes |= vectors.read(table, file.vector)
        rows = read_file(table, file, self.schema, live=False)
        left = vectors.without(rows, goes)
        return write_files(
            table,
            left,
            self.bounded,
            data_change=True,
            tags=file.tags,
        )


@dataclass(frozen=True)
class Census:
    """Counts entries; runs in workers."""

    entries: StoredEntries

    def __call__(self, part: Part) -> tuple[int, int | None]:
        """Return the number of entries of a part that are not dropped, and the least stamp among them."""
        newest = self.entries.newest(part)
        is_removed = flags(newest, "_removed")
        live = newest.filter(pa.array(~is_removed))
        is_stamped = live["_stamp_ms"].is_valid()
        stamped = live.filter(is_stamped)
        stamps_ms = ints(stamped, "_stamp_ms")
        oldest_ms = min(stamps_ms.tolist(), default=None)
        return len(live), oldest_ms


def merged(parts: Sequence[Sequence[tuple[int, bytes]]]) -> dict[int, BitMap64]:
    """Return the rows that each data file loses, by its number."""
    losses: dict[int, BitMap64] = {}
    for part in parts:
        for number, serialized in part:
            rows = BitMap64.deserialize(serialized)
            of_other_parts = losses.get(number, BitMap64())
            losses[number] = of_other_parts | rows
    return losses
