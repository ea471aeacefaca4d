"""The rows of one data file, by their numbers in its key index: from a local copy if there is one, else from the file.

A file without a copy is read by row group: a step reads the touched groups. A copy is made, if allowed, once as many
rows were read as the file has. So reading costs at most twice as much as the better of both ways, for any steps.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.columns import Hashes, columns_named
from ebbtide.delta._copy_files import HASH, POSITION, Copy, filled
from ebbtide.delta._copy_space import Space
from ebbtide.delta._data_file import ROW_GROUP, DataFile

Positions = NDArray[np.int64]
COPY_RATIO = 5
"""Bytes of a copy by those of its data file, approximately."""


@dataclass
class FileSource:
    """A data file, and the places of its copies.

    Args:
        space: The space for copies.
        table: Location of the table.
        columns: Columns of the rows to keep.
        key: Names of the key's columns.
        file: The data file.
        stem: Beginning of the names of its copies.
        hashes: The index: hashes, ascending.
        positions: The index: position in the data file of each.
    """

    space: Space
    table: str
    columns: pa.Schema
    key: tuple[str, ...]
    file: DataFile
    stem: str
    hashes: Hashes
    positions: Positions

    def read(self, positions: Positions, names: Sequence[str]) -> pa.Table:
        """Read some rows of the data file, at these positions, in this order."""
        return self.file.read(self.table, columns_named(self.columns, names), live=False, positions=positions)

    def admits(self) -> bool:
        """Return whether a copy may be made: there is room for it."""
        copy_bytes = COPY_RATIO * self.file.size
        return self.space.admits(copy_bytes)

    def keep(self, rows: pa.Table) -> Copy | None:
        """Make a copy of all rows, in the order of the index; None if it cannot be written."""
        path, keys = self.space.paths(self.stem)
        names = with_values(rows, self.key)
        stored = self._with_index(rows.select(names))
        copy = self.space.write(path, stored)
        if copy is not None:
            with contextlib.suppress(OSError):
                keys.unlink()  # the copy has all of it
        return copy

    def keep_keys(self) -> Copy | None:
        """Make a copy of the index alone; None if it cannot be written."""
        _, keys = self.space.paths(self.stem)
        index = self._with_index(pa.table({}))
        return self.space.write(keys, index)

    def _with_index(self, rows: pa.Table) -> pa.Table:
        hashes = pa.array(self.hashes)
        positions = pa.array(self.positions.astype(np.uint32))
        columns = {name: rows[name] for name in rows.column_names}
        columns[HASH] = hashes
        columns[POSITION] = positions
        return pa.table(columns)


class FileRows:
    """Rows of one data file.

    Args:
        columns: Columns of the rows.
        source: The data file, and its index.
        copy: Its copy; None: there is none.
    """

    def __init__(self, columns: pa.Schema, source: FileSource, copy: Copy | None = None) -> None:
        self.columns = columns
        self._positions = source.positions
        self._source = source
        self._copy = copy
        self._n_read = 0
        self._copying = threading.Lock()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._positions)

    @property
    def bytes_a_row(self) -> int:
        """Approximate bytes of a row."""
        copy_bytes = COPY_RATIO * self._source.file.size
        n_rows = max(len(self), 1)
        return copy_bytes // n_rows

    @property
    def is_copied(self) -> bool:
        """True if there is a copy."""
        return self._copy is not None

    def take(self, numbers: Positions, names: Sequence[str] | None = None) -> pa.Table:
        """Read some rows.

        Args:
            numbers: Their numbers in the index.
            names: The columns to read. Default: all.
        """
        columns = self._some(names)
        if self._copy is None:
            return self._read(numbers, columns)
        copied = self._copy.take(numbers, columns.names)
        return filled(copied, columns)

    def slice(
        self,
        start: int,
        stop: int,
        names: Sequence[str] | None = None,
    ) -> pa.Table:
        """Read rows that follow each other; arguments as `take`."""
        columns = self._some(names)
        if self._copy is None:
            numbers = np.arange(start, stop)
            return self._read(numbers, columns)
        copied = self._copy.slice(start, stop, columns.names)
        return filled(copied, columns)

    def prepare(self) -> None:
        """Make a copy now, if allowed: all rows will be read."""
        with self._copying:  # by one thread: another one that needs it waits
            if self._copy is None and self._source.admits():
                self._copy_all()

    def _some(self, names: Sequence[str] | None) -> pa.Schema:
        if names is None:
            return self.columns
        return columns_named(self.columns, names)

    def _read(self, numbers: Positions, columns: pa.Schema) -> pa.Table:
        positions = self._positions[numbers]
        is_of_all = len(columns) == len(self.columns)
        if not is_of_all:  # as the keys of rows with the wanted hashes: a small part of their bytes
            return self._source.read(positions, columns.names)
        groups = np.unique(positions // ROW_GROUP)
        self._n_read += len(groups) * ROW_GROUP
        has_paid = self._n_read >= len(self)
        if has_paid:
            with self._copying:
                if self._copy is None and self._source.admits():
                    rows = self._copy_all()
                    return rows.take(pa.array(numbers))
        return self._source.read(positions, columns.names)

    def _copy_all(self) -> pa.Table:
        rows = self._source.read(self._positions, self.columns.names)
        self._copy = self._source.keep(rows)
        return rows


def with_values(rows: pa.Table, key: Sequence[str]) -> list[str]:
    """Return the columns that have values, and those of the key."""
    n_rows = len(rows)
    kept = []
    for name in rows.column_names:
        has_value = rows[name].null_count < n_rows
        if has_value or name in key:
            kept.append(name)
    return kept
