"""Erases rows of a table physically: rewrites the data files that hold them, deletes files that no version names, and cuts the log.

| part | done by |
|---|---|
| rows, those that deletion vectors hide among them | `FileWithout`: the commit that replaces the files |
| files that the newest version does not name: data files, change files, vectors | `Doomed.unnamed` finds them, to be deleted |
| statistics, facts and names in commits, checkpoints and checksum files | `cut_log` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.columns import Mask
from ebbtide.delta._data_file import DataFile
from ebbtide.delta._log import Action
from ebbtide.delta._partitions import partition_in
from ebbtide.delta._snapshot import VECTORS, Snapshot
from ebbtide.errors import DamagedFileError, TableMismatchError
from ebbtide.storage import Location

Rewritten = Sequence[tuple[DataFile, list[Action]] | None]
"""The results of `FileWithout`, one for each file of a version."""


@dataclass(frozen=True)
class Held:
    """The rows of erased keys in one place, and the files that hold them.

    Args:
        rows: Rows to erase, those that a deletion vector hides among them.
        files: Data files that hold them.
        bytes: Bytes of these.
    """

    rows: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Held) -> Held:
        """Return both together."""
        return Held(
            rows=self.rows + other.rows,
            files=self.files + other.files,
            bytes=self.bytes + other.bytes,
        )


@dataclass(frozen=True)
class Unnamed:
    """The files of a table's folder that its newest version does not name.

    Args:
        holding: Locations of those that hold doomed rows, and of deletion vectors.
        found: Rows, files and bytes of these.
        unreadable: Locations of those that cannot be read, and may hold any row.
    """

    holding: tuple[str, ...]
    found: Held
    unreadable: tuple[str, ...]


class Doomed(ABC):
    """Selects the rows to erase; picklable, since it is sent to workers.

    By default it is of a table whose rows name no other row.
    """

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """The columns that it reads."""

    @abstractmethod
    def marks(self, rows: pa.Table) -> Mask:
        """Mark the rows to erase.

        Args:
            rows: With `columns`.
        """

    def names(self, rows: pa.Table) -> Mask:
        """Mark the rows that stay but name erased values: `cleaned` returns them without these."""
        return np.zeros(len(rows), bool)

    def cleaned(self, rows: pa.Table) -> pa.Table:
        """Return rows that name nothing that is erased.

        Args:
            rows: With all columns of the table.
        """
        return rows

    def n_held(self, rows: pa.Table) -> int:
        """Count the rows that are erased, or name erased values.

        Args:
            rows: With `columns`.
        """
        is_doomed = self.marks(rows)
        names_doomed = self.names(rows)
        is_held = is_doomed | names_doomed
        return int(is_held.sum())

    def found_in(self, snapshot: Snapshot) -> Held:
        """Count the doomed rows of a version, hidden ones too; changes nothing."""
        total = Held()
        for file in snapshot.files.values():
            rows = file.read(snapshot.table, self.columns, live=False)
            n_rows = self.n_held(rows)
            if n_rows:
                total += Held(n_rows, 1, file.size)
        return total

    def unnamed(self, snapshot: Snapshot) -> Unnamed:
        """Find the files that no version will name once the log is cut, and that hold doomed rows.

        Args:
            snapshot: The table's newest version.
        """
        table = snapshot.table
        partition_columns = snapshot.metadata.get("partitionColumns") or ()
        needed = set(partition_columns) & set(self.columns.names)
        holding = []
        unreadable = []
        total = Held()
        for name in snapshot.unnamed_files():
            location = Location(table) / name
            is_vectors = name.endswith(VECTORS)
            n_rows: int | None = 0
            if not is_vectors:
                n_rows = self._n_held_in(table, name, needed)
            if n_rows is None:
                unreadable.append(location)
            elif n_rows or is_vectors:
                holding.append(location)
                n_bytes = location.size() or 0
                total += Held(n_rows, 1, n_bytes)
        return Unnamed(tuple(holding), total, tuple(unreadable))

    def _n_held_in(
        self,
        table: str,
        name: str,
        needed: set[str],
    ) -> int | None:
        """Count the doomed rows of a file that no version names; None if it cannot be read.

        Args:
            table: Location of the table.
            name: Name of the file, below it.
            needed: Partition columns that it reads.
        """
        values = partition_in(name)
        file = DataFile(
            {
                "path": quote(name, errors="replace"),
                "partitionValues": values,
            }
        )
        try:
            rows = file.read(table, self.columns, live=False)
        except (DamagedFileError, TableMismatchError):
            return None
        has_needed = needed <= values.keys()
        if not has_needed:  # its folders do not say whose rows it has
            return None
        return self.n_held(rows)


@dataclass(frozen=True)
class FileWithout:
    """Rewrites a data file without its doomed rows; runs in workers.

    Args:
        table: Location of the table.
        schema: Its columns, as stored.
        bounded: Columns to keep statistics of.
        doomed: Selects the rows.
    """

    table: str
    schema: pa.Schema
    bounded: tuple[str, ...]
    doomed: Doomed

    def __call__(self, file: DataFile) -> tuple[DataFile, list[Action]] | None:
        """Return the file and the actions that add its other rows; None if it holds no doomed row, and none that names one."""
        # Read with the rows that the vector hides: they are in the file, and their values in its statistics.
        rows = file.read(self.table, self.doomed.columns, live=False)
        is_doomed = self.doomed.marks(rows)
        names_doomed = self.doomed.names(rows)
        is_touched = is_doomed | names_doomed
        if not is_touched.any():
            return None
        positions = np.flatnonzero(is_doomed)
        goes = BitMap64(positions.tolist())
        adds = file.written_without(self.table, goes, self.schema, self.bounded, cleaned=self.doomed.cleaned)
        return file, adds

    @staticmethod
    def actions_of(rewritten: Rewritten) -> list[Action]:
        """Return the actions of the commit that erases rows; none if no file holds one."""
        files = []
        adds: list[Action] = []
        for each in rewritten:
            if each is not None:
                file, own_adds = each
                files.append(file)
                adds += own_adds
        return DataFile.replacing(files, adds)
