"""Reads all stored entries and rewrites them: the common part of folds, compaction and migration.

Invariant: all versions of an entry meet in one task, which finds the newest, since tasks own ranges of the keys' hashes. Rows come
from the key indices, in which a range of hashes is one slice. No row passes through the JVM. Cost: one read of each data file that
is not indexed yet, O(rows * log(rows)) in a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.delta import vectors
from ebbtide.delta.joining import ROWS_PER_FILE, without, write_files
from ebbtide.delta.key_index import KeyIndex
from ebbtide.delta.snapshot import Action, DataFile
from ebbtide.model.codes import Mask
from ebbtide.model.entries import newest_versions
from ebbtide.operators.operator import Operator
from ebbtide.tables.state.layout import with_kind
from ebbtide.tables.state.lookup import Stored
from ebbtide.tasks import BYTES_IN_DRIVER

ROWS_IN_PART = 500_000
"""Rows that one task holds: by rows, since compressed bytes say little of the memory that they take."""
BYTES_A_ROW = 8
"""Least bytes of a row in a data file, for files whose rows the log does not count."""
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
        """Divide the entries into parts of about `ROWS_IN_PART` stored rows."""
        n_rows = sum(map(rows_of, self.state.files))
        n_parts = -(-n_rows // ROWS_IN_PART)  # rounded up
        n_parts = max(n_parts, 1)
        numbers = range(n_parts)
        return [Part(number, n_parts) for number in numbers]

    def newest(self, part: Part) -> pa.Table:
        """Read the newest version of each entry of a part, dropped entries included."""
        operator = self.operator()
        versions = pa.concat_tables([operator.schema.empty_table(), *self._versions(part, operator)])
        return newest_versions(versions, operator.entry_key)

    def _versions(self, part: Part, operator: Operator) -> Iterator[pa.Table]:
        """Yield the rows of a part, by data file."""
        copies = self.state.copies(operator.key)
        for file in self.state.files:
            index = copies.index_of(file)
            own = part.rows_of(index)
            rows = index.rows.slice(own.start, own.stop - own.start)
            # The index has all rows of the file: leave out those that a deletion vector hides.
            if file.vector is not None:
                positions = index.positions[own]
                counts = vectors.counts(self.state.table, file.vector, positions)
                rows = rows.filter(pa.array(counts))
            yield rows.cast(operator.schema)


class Pick(Protocol):
    """Selects entries, each by itself; picklable, since it is sent to workers."""

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
        goes = BitMap64.deserialize(serialized)
        return without(self.state.table, file, goes, self.schema, self.bounded)


def rows_of(file: DataFile) -> int:
    """Return the number of rows of a file that count; by its bytes where the log does not say."""
    if file.live_rows is None:
        return file.size // BYTES_A_ROW
    return file.live_rows
