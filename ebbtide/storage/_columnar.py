"""Parquet and Arrow files at any location: written with checksums, and verified when they are read."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from numpy.typing import NDArray

from ebbtide.errors import DamagedFileError, TableMismatchError, UnsupportedFileError
from ebbtide.storage._disk import failures_named
from ebbtide.storage._encodings import encoding_options
from ebbtide.storage._location import Location
from ebbtide.storage._plain_types import with_plain_types

FOOTER_END = 8
"""Bytes after a Parquet file's footer: its length and the format's name."""

NULLS = "ebbtide.nulls"
"""The note in the footer that lists all-null columns: readers that know it do not decode them."""
ATTACHED = "ebbtide.attached"
"""The note about attached data: its bytes, which end where the footer begins, their CRC-32, and their kind."""
DICTIONARY_BYTES = 128 * 2**10
"""Maximum bytes of a column's dictionary; above it values are written plainly.

Arrow's own MiB makes it look up nearly all values of a
column whose values differ, and then write most of them plainly all the same."""

IN_MEMORY_BYTES = 16 * 2**20
"""Rows of at most so many bytes become a file in memory, which is written at once: Arrow makes a call for each header and each page."""

LACKED = "not supported"
"""Arrow's words for a compression or an encryption that it lacks: the same type of error as of damage."""


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file.

    Args:
        location: Location of the file.
    """

    location: str

    def read(
        self,
        columns: list[str] | None = None,
        *,
        footer: str | None = None,
        positions: NDArray[np.int64] | None = None,
        without_nulls: bool = False,
    ) -> pa.Table:
        """Read the file, and verify its pages.

        Args:
            columns: Names of the columns to read, in any case; columns that the file lacks are left out. Default: all.
            footer: Its `footer_checksum`; None if it was not noted.
            positions: Numbers of the rows to read; only pages of their row groups are read. Default: all.
            without_nulls: Also leave out columns that the file notes as all null.

        Returns:
            The rows in plain types (`ebbtide.storage._plain_types`), for any layout of the file.

        Raises:
            DamagedFileError: it is damaged or missing.
            UnsupportedFileError: Arrow cannot read its content.
            TableMismatchError: two of its columns have one of the names.
        """
        fs, path = Location(self.location).file_system()
        with _damage_refused(self.location), fs.open_input_file(path) as file:
            is_other = footer is not None and _footer_checksum(file) != footer
            if is_other:
                raise _damaged(self.location, "damaged", "another footer")
            # From a store, read a few long ranges and not one for each column and row group.
            stored = open_parquet(
                file,
                page_checksum_verification=True,
                pre_buffer=not Location(self.location).is_local,
            )
            if columns is None:
                return _in_plain_types(self.location, stored.read())
            names = _stored_names(self.location, columns, stored.schema_arrow.names)
            if without_nulls:
                for name in _noted(stored, NULLS) or ():
                    names.pop(name, None)
            stored_names = list(names)
            rows = _rows_at(self.location, stored, stored_names, positions)
            if not names:
                return rows
            in_order = rows.select(stored_names)
            return in_order.rename_columns(names)

    def write(
        self,
        rows: pa.Table,
        *,
        row_group_size: int,
        attached: Attached | None = None,
    ) -> Written:
        """Write the file, whose times are microseconds, as Spark reads them; folders are made as needed.

        Args:
            rows: Its rows.
            row_group_size: Rows of a row group.
            attached: What else is in it. Default: nothing.
        """
        if rows.nbytes > IN_MEMORY_BYTES:
            with _written(self.location) as stream:
                _write_rows(stream, rows, row_group_size, attached)
            fs, path = Location(self.location).file_system()
            with _damage_refused(self.location), fs.open_input_file(path) as file:
                return Written(file.size(), _footer_checksum(file))
        in_memory = pa.BufferOutputStream()
        _write_rows(in_memory, rows, row_group_size, attached)
        content = in_memory.getvalue()
        with _written(self.location) as stream:
            stream.write(content)
        return Written(content.size, _footer_checksum(pa.BufferReader(content)))

    def in_batches(self, schema: pa.Schema) -> ParquetBatches:
        """Return what writes the file batch by batch.

        Args:
            schema: Its columns.
        """
        return ParquetBatches(self.location, schema)

    def footer_checksum(self) -> str:
        """Return the CRC-32 of the footer, which defines the columns and, unlike the pages, has no checksum.

        Raises:
            DamagedFileError: the file is gone.
        """
        fs, path = Location(self.location).file_system()
        with _damage_refused(self.location), fs.open_input_file(path) as file:
            return _footer_checksum(file)


class Written(NamedTuple):
    """A file that was written.

    Args:
        size: Its bytes.
        footer: Its `ParquetFile.footer_checksum`.
    """

    size: int
    footer: str


def _write_rows(stream: pa.NativeFile, rows: pa.Table, row_group_size: int, attached: Attached | None) -> None:
    """Write rows as a Parquet file; see `ParquetFile.write`."""
    with pq.ParquetWriter(
        stream,
        rows.schema,
        **encoding_options(rows),
        dictionary_pagesize_limit=DICTIONARY_BYTES,
        store_schema=False,
        coerce_timestamps="us",
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows, row_group_size)
        notes = {}
        nulls = _null_columns(rows)
        if nulls:
            notes[NULLS] = json.dumps(nulls)
        if attached is not None:
            stream.write(attached.content)  # all pages are written: the footer follows when the writer is closed
            notes[ATTACHED] = attached.noted()
        if notes:
            writer.add_key_value_metadata(notes)


def _rows_at(
    location: str,
    stored: pq.ParquetFile,
    names: list[str],
    positions: NDArray[np.int64] | None,
) -> pa.Table:
    """Read some rows, in the given order; all without positions."""
    if positions is None:
        return _in_plain_types(location, stored.read(columns=names))
    metadata = stored.metadata
    groups = range(metadata.num_row_groups)
    rows_of_group = [metadata.row_group(number).num_rows for number in groups]
    ends = np.cumsum(rows_of_group)
    group_of = np.searchsorted(ends, positions, side="right")
    touched, place_of = np.unique(group_of, return_inverse=True)
    rows = _in_plain_types(location, stored.read_row_groups(touched.tolist(), columns=names))
    # The groups that were read follow each other: each row moves by the rows of the groups before it that were not.
    n_rows = np.array(rows_of_group, np.int64)[touched]
    first_in_file = ends[touched] - n_rows
    first_read = np.cumsum(n_rows) - n_rows
    moved = (first_read - first_in_file)[place_of]
    numbers = positions + moved
    steps = np.diff(numbers)
    n_wanted = len(numbers)
    follow_each_other = n_wanted > 0 and bool((steps == 1).all())
    if follow_each_other:  # as of a file in the order of its index: nothing has to be copied
        first = int(numbers[0])
        return rows.slice(first, n_wanted)
    return rows.take(pa.array(numbers))


def _in_plain_types(location: str, rows: pa.Table) -> pa.Table:
    """Return rows in plain types.

    Raises:
        UnsupportedFileError: Arrow cannot convert them.
    """
    try:
        return with_plain_types(rows)
    except pa.ArrowException as error:
        raise _unsupported(location, error) from error


def _noted(stored: pq.ParquetFile, name: str) -> Any:
    """Return a note in a file's footer; None without it."""
    notes = stored.metadata.metadata or {}
    text = notes.get(name.encode())
    return None if text is None else json.loads(text)


def open_parquet(file: pa.NativeFile | Path, **options: bool) -> pq.ParquetFile:
    """Open a Parquet file; its times are microseconds.

    Args:
        file: The file, or a local path.
        options: Options of Arrow.
    """
    # Spark writes times as INT96, which Arrow by default reads as nanoseconds: these end in the year 2262.
    # Not `read_table`: it loads pandas, a CPU second.
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", **options)


def _stored_names(location: str, columns: list[str], stored: list[str]) -> dict[str, str]:
    """Return the requested columns: the name in the file to the requested one. Names in Delta are case-insensitive."""
    requested = {name.lower(): name for name in columns}
    names = {}
    for name in stored:
        folded = name.lower()
        if folded in requested:
            names[name] = requested[folded]
    n_different = len(set(names.values()))
    if n_different < len(names):
        raise TableMismatchError.of(
            f"Columns of the file '{location}' have names that differ by case alone.",
            got=", ".join(names),
            allowed="unique column names, ignoring case",
            next_step="Rewrite the file with one of them.",
        )
    return names


def _footer_checksum(file: pa.NativeFile) -> str:
    begin_at, n_bytes = _footer_place(file)
    footer = file.read_at(n_bytes + FOOTER_END, begin_at)
    return f"{zlib.crc32(footer):08x}"


def _footer_place(file: pa.NativeFile) -> tuple[int, int]:
    """Return where the footer of a Parquet file begins, and its bytes."""
    # The last 8 bytes of the file are the length of the footer, 4 bytes little-endian, and `PAR1`.
    size = file.size()
    end_at = max(size - FOOTER_END, 0)
    length = file.read_at(4, end_at)
    n_bytes = int.from_bytes(length, "little")
    return max(end_at - n_bytes, 0), n_bytes


@contextmanager
def _written(location: str) -> Iterator[pa.NativeFile]:
    """Open a file to be written, and name it in failures; folders are made as needed."""
    fs, path = Location(location).file_system()
    with failures_named(location):
        try:
            opened = fs.open_output_stream(path, compression=None)
        except FileNotFoundError:
            folder, _, _ = path.rpartition("/")
            fs.create_dir(folder)
            opened = fs.open_output_stream(path, compression=None)
        with opened as stream:
            yield stream


@contextmanager
def _damage_refused(location: str) -> Iterator[None]:
    """Raise an error that names a damaged or missing file; errors of the system and of the store are raised unchanged."""
    try:
        with failures_named(location):
            yield
    except FileNotFoundError as error:
        raise _damaged(location, "gone", error) from error
    except OSError as error:
        # Arrow raises OSError for damage too, without a number of the system.
        is_of_parser = error.errno is None
        if not is_of_parser:
            raise
        if LACKED in str(error):
            raise _unsupported(location, error) from error
        raise _damaged(location, "damaged", error) from error
    except pa.ArrowNotImplementedError as error:
        raise _unsupported(location, error) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(location, "damaged", error) from error


def _damaged(location: str, state: str, error: object) -> DamagedFileError:
    first_line, _, _ = str(error).partition("\n")
    return DamagedFileError.of(
        f"The file '{location}' is {state}.",
        got=first_line,
        next_step="Nothing of it was used. Restore it from a copy; without one run 'ebbtide repair', which repairs a sink (of a function's pipeline 'ebbtide refresh' does), and reports the newest step whose state files are complete.",
    )


def _unsupported(location: str, error: object) -> UnsupportedFileError:
    first_line, _, _ = str(error).partition("\n")
    return UnsupportedFileError.of(
        f"This version of Ebbtide cannot read the file '{location}'. This is a fault of Ebbtide; the file is not damaged, as far as is known.",
        got=first_line,
        next_step="Nothing of it was used. Please report it. Until it is mended, write the file again with a writer that other readers follow, such as Spark; of a sink, 'ebbtide repair' replaces it.",
    )


class Attached(NamedTuple):
    """Bytes that lie in a Parquet file between its last page and its footer, where no reader looks that the footer does not send there.

    Args:
        note: What they are, as JSON.
        content: The bytes.
    """

    note: dict[str, Any]
    content: bytes

    @classmethod
    def read(cls, location: str, *, footer: str) -> Self | None:
        """Read what was attached to a file.

        Args:
            location: Location of the file.
            footer: Its `ParquetFile.footer_checksum`.

        Returns:
            None if there is nothing, or its content is damaged: it is then made from the rows.
        """
        fs, path = Location(location).file_system()
        with _damage_refused(location), fs.open_input_file(path) as file:
            if _footer_checksum(file) != footer:
                return None
            noted = _noted(open_parquet(file), ATTACHED)
            if noted is None:
                return None
            n_bytes = int(noted["bytes"])
            end_at, _ = _footer_place(file)
            content = file.read_at(n_bytes, end_at - n_bytes)
        crc = zlib.crc32(content)
        if crc != noted["crc"]:
            return None
        return cls(noted["note"], content)

    def noted(self) -> str:
        """Return the note of the footer, see `ATTACHED`."""
        content = self.content
        noted = {
            "bytes": len(content),
            "crc": zlib.crc32(content),
            "note": self.note,
        }
        return json.dumps(noted)


def _null_columns(rows: pa.Table) -> list[str]:
    """Return the all-null columns; none for a table without rows."""
    n_rows = len(rows)
    if n_rows == 0:
        return []
    return [name for name in rows.column_names if rows[name].null_count == n_rows]


class ParquetBatches:
    """A Parquet file that is written batch by batch, and made with the first batch; a context manager.

    Args:
        location: Location of the file; folders are made as needed.
        schema: Its columns.
    """

    def __init__(self, location: str, schema: pa.Schema) -> None:
        self.location = location
        self.schema = schema
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            with failures_named(self.location):
                self._writer.close()

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch."""
        with failures_named(self.location):
            if self._writer is None:
                self._writer = self._opened()
            self._writer.write_batch(batch)

    def _opened(self) -> pq.ParquetWriter:
        fs, path = Location(self.location).file_system()
        folder, _, _ = path.rpartition("/")
        fs.create_dir(folder)
        return pq.ParquetWriter(
            path,
            self.schema,
            filesystem=fs,
            compression="lz4",
            write_page_checksum=True,
        )


@dataclass(frozen=True)
class ArrowFile:
    """An Arrow file.

    Args:
        location: Location of the file.
    """

    location: str

    _held: ClassVar[dict[str, pa.Buffer]] = {}
    """The files that are in memory alone, by location."""

    @contextmanager
    def writing(self, schema: pa.Schema, *, in_memory: bool = False) -> Iterator[pa.ipc.RecordBatchFileWriter]:
        """Write the file, batch by batch; folders are made as needed.

        Args:
            schema: Its columns.
            in_memory: Only this process reads it, until it calls `forget`.
        """
        if not in_memory:
            with _written(self.location) as stream, pa.ipc.new_file(stream, schema) as writer:
                yield writer
            return
        held = pa.BufferOutputStream()
        with pa.ipc.new_file(held, schema) as writer:
            yield writer
        self._held[self.location] = held.getvalue()

    @classmethod
    def forget(cls, folder: str) -> None:
        """Forget the files below a folder that are in memory."""
        for location in [each for each in cls._held if each.startswith(f"{folder}/")]:
            del cls._held[location]

    @contextmanager
    def reading(self) -> Iterator[pa.ipc.RecordBatchFileReader]:
        """Open the file; a local one is mapped into memory."""
        if self.location in self._held:
            yield pa.ipc.open_file(self._held[self.location])
            return
        fs, path = Location(self.location).file_system()
        is_mapped = isinstance(fs, pafs.LocalFileSystem)
        with _damage_refused(self.location):
            # Mapped: tasks that read a few batches of a file read only their pages.
            source = pa.memory_map(path) if is_mapped else fs.open_input_file(path)
            with source as file:
                yield pa.ipc.open_file(file)
