"""Files of local copies: Arrow files, each written once. Columns that are null throughout are left out; one without columns of rows has hashes and positions alone.

A copy serves the boot in which it was written, on the host that wrote it. It gets a fixed modification time before it
gets its name: later writes change that time, and the copy is no longer used. So no content has to be verified, which
would read a table's copies whole in each process.

Next to a table's copies, `<prefix>generation` names their generation. An erasure begins another one: a folder that it
did not reach, as on another host, is cleared of older copies by the next process that uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
from numpy.typing import NDArray

from ebbtide.storage import Location

HASH = "#hash"
POSITION = "#position"
"""Columns of a copy in addition to those of the rows."""
WRITTEN_NS = 10**18
"""Time of modification of a copy that was not written to since it was made, ns: a whole second, which every file system keeps."""
GENERATION = "generation"
"""End of the name of the file that names the generation of a table's copies."""
BUFFER_BYTES = 2**20
"""Bytes that are written at a time: Arrow makes a call for each column, and one for what fills it up."""
DASHES_BEFORE = 1
"""Dashes in the name of a copy of an earlier release, which names no table."""
Numbers = NDArray[np.int64]
_LOCAL = pafs.LocalFileSystem()


class ChangedCopyError(OSError):
    """A copy was written to since it was made: the data file has the rows."""


def own_folder() -> Path:
    """Return the default folder of this user's local copies."""
    return Path(tempfile.gettempdir()) / f"ebbtide-cache-{os.getuid()}"


def prefix_of(table: str) -> str:
    """Return the prefix of the names of a table's copies, for any columns.

    Args:
        table: Location of the table.
    """
    digest = hashlib.blake2b(table.encode(), digest_size=10)
    return f"{digest.hexdigest()}-"


def possible_copies(folder: Path, tables: Sequence[str]) -> list[Path]:
    """Return the files of a folder that are copies of some tables, or of an earlier release, which may be of any table.

    Args:
        folder: Folder of copies; it may hold many of other tables.
        tables: Locations of the tables.
    """
    prefixes = tuple(map(prefix_of, tables))
    possible = []
    with os.scandir(folder) as files:
        for file in files:
            is_of_tables = file.name.startswith(prefixes)
            is_copy = not file.name.endswith(GENERATION)
            is_of_before = is_copy and file.name.count("-") == DASHES_BEFORE
            if is_of_tables or is_of_before:
                possible.append(folder / file.name)
    return sorted(possible)


def drop_older(folder: Path, table: str, generation: str) -> None:
    """Delete the copies of a table that are of an earlier generation, once in a folder.

    Args:
        folder: Folder of copies.
        table: Location of the table.
        generation: The present one.
    """
    marker = _marker(folder, table)
    with contextlib.suppress(OSError):
        if marker.read_text(encoding="ascii") == generation:
            return
    if folder.is_dir() and Location(folder).is_ours():
        for path in possible_copies(folder, [table]):
            with contextlib.suppress(FileNotFoundError):  # another process drops them too
                path.unlink()
    mark(folder, table, generation)


def mark(folder: Path, table: str, generation: str) -> None:
    """Note the generation of a table's copies: those of an earlier one are deleted."""
    with contextlib.suppress(OSError):  # a full disk, which cannot hold a copy either
        Location(folder).make_private()
        if Location(folder).is_ours():
            marker = _marker(folder, table)
            marker.write_text(generation, encoding="ascii")


def _marker(folder: Path, table: str) -> Path:
    prefix = prefix_of(table)
    return folder / f"{prefix}{GENERATION}"


def write(path: Path, rows: pa.Table) -> None:
    """Write a copy.

    Args:
        rows: With `HASH` and `POSITION`.
    """
    in_one = rows.combine_chunks()
    with (
        _LOCAL.open_output_stream(str(path), buffer_size=BUFFER_BYTES) as file,
        pa.ipc.new_file(file, rows.schema) as writer,
    ):
        writer.write_table(in_one)
    now_ns = time.time_ns()
    os.utime(path, ns=(now_ns, WRITTEN_NS))


def note_use(path: Path) -> None:
    """Note that a copy is used now: evictions begin with those that were not used for longest."""
    changed_ns = path.stat().st_mtime_ns
    now_ns = time.time_ns()
    os.utime(path, ns=(now_ns, changed_ns))


class Copy:
    """A copy, mapped into memory.

    Args:
        path: Its path.

    Attributes:
        path: Its path.
        n_bytes: Its bytes.
        rows: The rows, and `HASH` and `POSITION`.

    Raises:
        ChangedCopyError: it was written to since it was made.
        OSError, pa.ArrowException: it does not exist, or cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        changed_ns = path.stat().st_mtime_ns
        if changed_ns != WRITTEN_NS:
            raise ChangedCopyError(str(path))
        with pa.memory_map(str(path)) as mapped:
            content = mapped.read_buffer()
        self.n_bytes: int = content.size
        reader = pa.ipc.open_file(content)
        self.rows: pa.Table = reader.read_all()

    @property
    def has_rows(self) -> bool:
        """False if there are hashes and positions alone."""
        return bool(self.rows.num_columns > 2)

    def numbers(self, name: str) -> NDArray[Any]:
        """Return the whole column of hashes or positions, in the mapped memory."""
        column = self.rows[name]
        # `combine_chunks` copies even one chunk.
        has_one = column.num_chunks == 1
        in_one = column.chunk(0) if has_one else column.combine_chunks()
        values: NDArray[Any] = in_one.to_numpy()
        return values

    def take(self, numbers: Numbers, names: Sequence[str]) -> pa.Table:
        """Copy some rows; columns that it lacks are left out."""
        rows = self._some(names)
        return rows.take(pa.array(numbers))

    def slice(self, start: int, stop: int, names: Sequence[str]) -> pa.Table:
        """Return rows that follow each other, in the mapped memory; else as `take`."""
        rows = self._some(names)
        return rows.slice(start, stop - start)

    def all_rows(self) -> pa.Table:
        """Return all rows, without hashes and positions; columns that are null throughout are left out."""
        names = [name for name in self.rows.column_names if name not in (HASH, POSITION)]
        return self.rows.select(names)

    def _some(self, names: Sequence[str]) -> pa.Table:
        stored = set(self.rows.column_names)
        present = [name for name in names if name in stored]
        return self.rows.select(present)


def filled(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return rows with all columns; those that they lack are null."""
    stored = set(rows.column_names)
    n_rows = len(rows)
    arrays = []
    for column in columns:
        if column.name in stored:
            arrays.append(rows[column.name])
        else:
            arrays.append(pa.nulls(n_rows, column.type))
    return pa.Table.from_arrays(arrays, schema=columns)
