"""Reads all stored entries and rewrites them: the common part of folds, compaction and migration.

Invariant: all versions of an entry meet in one task, which finds the newest, since tasks own ranges of the keys' hashes. Rows come
from the key indices, in which a range of hashes is one slice. No row passes through the JVM. Cost: one read of each data file that
is not indexed yet, O(rows * log(rows)) in a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from ebbtide.columns import Mask, flags, is_set
from ebbtide.delta import Action, DataFile, IndexCache, KeyIndex
from ebbtide.entries import Step, newest_versions
from ebbtide.executors import Executor
from ebbtide.operators import Operator
from ebbtide.tables._joining import ROWS_PER_FILE, joinable, range_of, small_files
from ebbtide.tables._state import ranges
from ebbtide.tables._state.layout import BASE, of_sink
from ebbtide.tables._state.lookup import Stored
from ebbtide.tables._state.ranges import HashRange, quotient
from ebbtide.tables._state.writing import StateWriter

ROWS_IN_PIECE = 65_536
"""Stored rows of a part whose newest versions are found at a time: a part is held once, as it will be written."""


WHOLE_BYTES = 64 * 2**20
"""Minimum added bytes for folding the whole state."""


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
        return self.n_bytes <= Executor.LITTLE_BYTES

    def parts(self) -> list[HashRange]:
        """Divide the entries into parts of at most about `ranges.ROWS_IN_PART` stored rows, and into no wider ones than the files have."""
        by_rows = HashRange.covering(self.state.n_rows)
        narrowest = max((n_ranges for _, n_ranges in map(range_of, self.state.files)), default=1)
        return by_rows if len(by_rows) >= narrowest else HashRange(0, 1).pieces(narrowest)

    def newest(self, part: HashRange) -> Iterator[pa.Table]:
        """Yield the newest version of each entry of a part, dropped entries included, in pieces that follow each other by hash.

        Memory: a piece, of `ROWS_IN_PIECE` stored rows where no key has more than that, and the part's rows in the local copies, which
        are mapped. They are closed behind the part: what a process has mapped counts as its memory, else of all files in the end.
        """
        operator = self.operator()
        copies = self.state.copies(operator.key)
        n_rows = self.state.n_rows // part.of
        n_pieces = quotient(n_rows, ROWS_IN_PIECE)
        try:
            for file in self.state.files:  # a copy that is missing is made now, of the whole file: before rows are held
                if self.state.may_have_rows(file) and part.meets(*copies.range_of(file)):
                    copies.index_of(file).rows.prepare()
            # What is given back has to be got again, page by page: a small fold keeps it.
            if 2 * n_rows > ranges.ROWS_IN_PART:
                pa.default_memory_pool().release_unused()
            for piece in part.pieces(n_pieces):
                none = operator.schema.empty_table()
                tables = [none, *self._versions(piece, operator, copies)]
                versions = pa.concat_tables(tables)
                yield newest_versions(versions, operator.entry_key)
        finally:
            copies.close()

    def live(self, part: HashRange) -> Iterator[pa.Table]:
        """Yield the newest version of each entry of a part that is not dropped, in pieces."""
        for newest in self.newest(part):
            yield newest.filter(pa.array(_is_live(newest)))

    def shown(self, part: HashRange, columns: pa.Schema, key_of: Mapping[str, str]) -> Iterator[pa.Table]:
        """Yield the rows of a part that the sink must show, in pieces.

        Args:
            part: The range of keys.
            columns: Columns of the sink, and of entries.
            key_of: Column of the sink's key to that of the state's.
        """
        for newest in self.newest(part):
            is_shown = flags(newest, "_shown") if "_shown" in newest.column_names else ~flags(newest, "_tombstone")
            rows = newest.filter(pa.array(is_shown & ~flags(newest, "_removed")))
            yield of_sink(rows, columns, key_of)

    def _versions(self, part: HashRange, operator: Operator, copies: IndexCache) -> Iterator[pa.Table]:
        """Yield the rows of a part, by data file."""
        for file in self.state.files:
            rows = self.state.rows_in(part, file, copies)
            yield rows.cast(operator.schema)


def _is_live(newest: pa.Table) -> Mask:
    """Mark the entries that are not dropped."""
    is_live = ~flags(newest, "_removed")
    if "_state" in newest.column_names:
        is_live &= is_set(newest, "_state")  # a row without a state is for the sink
    return is_live


Keep = Callable[[pa.Table, Operator], pa.Table]
"""Given the newest version of each entry, dropped ones too, returns those that stay."""


@dataclass(frozen=True)
class KeepEntries:
    """Keeps the newest versions of entries.

    Args:
        is_whole: There is no older version elsewhere, so dropped entries are removed.
        at: Entries that have expired by then are also removed, as a compaction does; None: none are.
    """

    is_whole: bool
    at: Step | None = None

    def __call__(self, entries: pa.Table, operator: Operator) -> pa.Table:
        """See `Keep`."""
        if not self.is_whole:
            return entries
        stays = _is_live(entries)
        if self.at is not None:
            stays &= ~operator.expiry.compactable(entries, self.at)
        return entries.filter(pa.array(stays))


@dataclass(frozen=True)
class RewriteEntries:
    """Writes the newest versions of entries as new data files; runs in workers.

    Args:
        entries: The stored entries.
        writer: Writes the files: with other columns, if these change.
        keep: Returns the entries that stay, changed or not.
        is_whole: All data files of the state are read.
        data_change: Entries are deleted or changed; else only versions of them that do not count.
    """

    entries: StoredEntries
    writer: StateWriter
    keep: Keep
    is_whole: bool
    data_change: bool

    def __call__(self, part: HashRange) -> list[Action]:
        """Rewrite a part; return the actions that add its files."""
        operator = self.entries.operator()
        pieces = [self.writer.schema.empty_table()]
        for entries in self.entries.newest(part):
            kept = self.keep(entries, operator)
            # In the order of hashes, as lookups read them: the files' own index is then their order.
            in_order, _, _ = KeyIndex.in_hash_order(kept, operator.key)
            pieces.append(self.writer.entry_rows(in_order))
        rows = pa.concat_tables(pieces)
        del pieces  # their memory is free once they are joined
        return self.writer.write(
            rows,
            operator.key,
            rows_per_file=ROWS_PER_FILE,
            data_change=self.data_change,
            tags=BASE if self.is_whole else None,
        )


def files_to_fold(state: Stored) -> list[DataFile]:
    """Return the files of a state to fold now: all of them, or small ones; none if there is nothing to gain."""
    base_bytes = sum(file.size for file in state.base.values())
    added_bytes = sum(file.size for file in state.added.values())
    # As much as the base: so a whole fold writes at most twice the bytes added since the last one.
    if added_bytes >= max(base_bytes, WHOLE_BYTES):
        return list(state.files)
    return [file for files in joinable(state.files) for file in small_files(files, ranges.ROWS_IN_PART)]
