"""Stored rows: all of some data files, and those of some keys.

Those of keys are found in the local copies of a table's data files, and read for the wanted keys alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns import Hashes, Mask, equals
from ebbtide.delta import DataFile, IndexCache, KeyBounds, KeyIndex, LocalCopies, positions_in
from ebbtide.tables._state.layout import has_only, is_base, may_have
from ebbtide.tables._state.ranges import HashRange


@dataclass(frozen=True)
class Stored:
    """Data files of a table, and a selection of their rows.

    Args:
        table: Location of the table.
        files: Its data files; for a lookup, all of the version.
        columns: Columns to read.
        where: (column, value): only rows with this value; None: all.
        table_id: Id of a table whose files another client may write: see `IndexCache`.
        generation: That of the local copies: a worker on another host deletes older ones. Empty: before the first erasure.
    """

    table: str
    files: tuple[DataFile, ...]
    columns: pa.Schema
    where: tuple[str, str] | None = None
    table_id: str = ""
    generation: str = ""

    def copies(self, key: Sequence[str]) -> IndexCache:
        """Return this process's view of the local copies of the files."""
        if self.generation:
            _drop_older(self.table, self.generation)
        return IndexCache.shared(self.table, key, self.columns, where=self.where, table_id=self.table_id)

    @property
    def n_rows(self) -> int:
        """Rows of the files that count, those that are not selected included; guessed by bytes where the log does not count them."""
        return sum(file.likely_rows for file in self.files)

    @property
    def base(self) -> dict[int, DataFile]:
        """The files of the last fold of the whole state, by number: among them no entry has two versions."""
        return {number: file for number, file in enumerate(self.files) if is_base(file)}

    @property
    def added(self) -> dict[int, DataFile]:
        """The files added since the last fold of the whole state, by number."""
        return {number: file for number, file in enumerate(self.files) if not is_base(file)}

    def columns_of(self, names: Collection[str] | None) -> pa.Schema:
        """Return some of the columns to read, in their order; None: all."""
        if names is None:
            return self.columns
        columns = [column for column in self.columns if column.name in names]
        return pa.schema(columns)

    def may_have_rows(self, file: DataFile) -> bool:
        """Return whether a file may have selected rows, by its statistics; without them it may."""
        return self.where is None or may_have(file, *self.where)

    def read(self, names: Collection[str] | None = None) -> pa.Table:
        """Read the selected rows.

        Args:
            names: Names of the columns. Default: all.
        """
        columns = self.columns_of(names)
        tables = [columns.empty_table()]
        for file in self.files:
            if self.may_have_rows(file):
                rows, counts = self.scan(file, names)
                tables.append(rows.filter(pa.array(counts)))
        return pa.concat_tables(tables)

    def part(self, part: HashRange, key: Sequence[str]) -> pa.Table:
        """Read the selected rows of a range of keys; from local copies of the files, unless they are all.

        Args:
            part: The range.
            key: Names of the key's columns, in the order of the hash.
        """
        if part.of == 1:
            return self.read()
        copies = self.copies(key)
        try:
            tables = [self.rows_in(part, file, copies).cast(self.columns) for file in self.files]
            return pa.concat_tables([self.columns.empty_table(), *tables])
        finally:
            copies.close()

    def rows_in(self, part: HashRange, file: DataFile, copies: IndexCache) -> pa.Table:
        """Read the selected rows of a file that are in a range of keys.

        Args:
            copies: See `copies`.
        """
        if not self.may_have_rows(file) or not part.meets(*copies.range_of(file)):
            return self.columns.empty_table()
        index = copies.index_of(file)
        own = part.rows_of(index)
        rows = index.rows.slice(own.start, own.stop)
        # The index has all rows of the file: leave out those that a deletion vector hides.
        if file.vector is not None:
            counts = file.is_live(self.table, index.positions[own])
            rows = rows.filter(pa.array(counts))
        return rows

    def scan(self, file: DataFile, names: Collection[str] | None = None) -> tuple[pa.Table, Mask]:
        """Read all rows of a file, so that their numbers are their positions; mark the selected ones that no vector hides.

        Args:
            file: The file.
            names: Names of the columns. Default: all.
        """
        columns = self.columns_of(names)
        if self.where is None or has_only(file, *self.where):
            rows = file.read(self.table, columns, live=False)
            counts = np.ones(len(rows), dtype=bool)
        else:
            name, value = self.where
            kind = pa.field(name, pa.string())
            rows = file.read(self.table, pa.schema([kind, *columns]), live=False)
            counts = equals(rows, name, value)
            rows = rows.drop_columns([name])
        if file.vector is not None:
            gone = file.deleted_rows(self.table)
            counts[positions_in(gone)] = False
        return rows, counts

    def find(self, keys: pa.Table, hashes: Hashes, bounds: KeyBounds | None = None) -> list[FoundRows]:
        """Find the rows of some keys.

        Args:
            keys: Different keys, in the order of their hashes.
            hashes: Their hashes.
            bounds: Skips files by their statistics. Default: none is skipped.

        Returns:
            The rows in each file; files without any are left out.
        """
        copies = self.copies(keys.column_names)
        copies.only(self.files)
        found = []
        for file in self.files:
            if not self.may_have_rows(file):
                continue  # of notes alone
            own = copies.range_of(file).rows_of(hashes)
            if own.start == own.stop or (bounds is not None and not bounds.may_hold(file).any()):
                continue
            index = copies.index_of(file)
            rows, _ = index.find(keys, hashes)
            if not len(rows):
                continue
            # The index has all rows of the file: a deletion vector that came later hides some of them.
            positions = index.positions[rows]
            counts = file.is_live(self.table, positions)
            live = rows[counts]
            if len(live):
                found.append(FoundRows(index, live))
        return found


@dataclass(frozen=True)
class FoundRows:
    """Some rows of a data file.

    Args:
        index: Index of the file.
        numbers: Numbers of rows of the index; at least one.
    """

    index: KeyIndex
    numbers: NDArray[np.int64]

    @property
    def n_bytes(self) -> int:
        """Their approximate bytes, by the average of the index."""
        return self.index.rows.bytes_a_row * len(self.numbers)

    def read(self) -> pa.Table:
        """Copy the rows."""
        return self.index.rows.take(self.numbers)


@cache
def _drop_older(table: str, generation: str) -> None:
    """Delete the older copies of a table in this process's folder, once in a process."""
    LocalCopies().drop_older(table, generation)
