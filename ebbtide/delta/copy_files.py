"""Files of local copies: an Arrow file, then a CRC-32 of each block of it, and how many bytes and blocks there are.

A block is verified when a process first reads from it: a step of a few rows reads little of a large copy, and verifies as little. Columns that are null
throughout are left out. A file without columns of rows has hashes and positions alone.

Beside a table's copies, `<prefix>generation` names the generation that they are of. An erasure begins another one: a folder that it did not reach, as
on another host, is cleared of older copies by the next process that uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.storage.rights import is_ours, make_private

HASH = "#hash"
POSITION = "#position"
"""Columns of a copy beside those of the rows."""
BLOCK_BYTES = 16 * 2**10
"""Bytes of a block. Smaller ones cost more calls where all are read; of larger ones a few rows, spread over a file, touch all."""
END = struct.Struct("<QI")
"""The end of a copy: bytes of the Arrow file, and the CRC-32 of the checksums."""
GENERATION = "generation"
"""End of the name of the file that names the generation of a table's copies."""
DASHES_BEFORE = 1
"""Dashes in the name of a copy of an earlier release, which names no table."""
Numbers = NDArray[np.int64]
Marks = NDArray[np.bool_]
_verified: dict[str, tuple[tuple[int, ...], Marks]] = {}
"""The blocks that this process has verified or written, by the path of the copy; with what distinguishes it from another one at that path."""


class DamagedCopyError(Exception):
    """A block of a copy does not fit its checksum: the data file has the rows."""


def own_folder() -> Path:
    """Return the default folder of this user's local copies."""
    return Path(tempfile.gettempdir()) / f"ebbtide-cache-{os.getuid()}"


def prefix_of(table: str) -> str:
    """Return the beginning of the names of a table's copies, whatever their columns.

    Args:
        table: Location of the table.
    """
    digest = hashlib.blake2b(table.encode(), digest_size=10)
    return f"{digest.hexdigest()}-"


def may_be_of(path: Path, table: str) -> bool:
    """Return whether a file is a table's copy, or one of an earlier release, which may be of any table."""
    return path.name.startswith(prefix_of(table)) or path.name.count("-") == DASHES_BEFORE


def drop_older(folder: Path, table: str, generation: str) -> None:
    """Delete the copies of a table that are of an earlier generation, once in a folder.

    Args:
        folder: Folder of copies.
        table: Location of the table.
        generation: The present one.
    """
    marker = folder / f"{prefix_of(table)}{GENERATION}"
    with contextlib.suppress(OSError):
        if marker.read_text(encoding="ascii") == generation:
            return
    if folder.is_dir() and is_ours(folder):
        for path in sorted(folder.iterdir()):
            if may_be_of(path, table):
                with contextlib.suppress(FileNotFoundError):  # another process drops them too
                    path.unlink()
    mark(folder, table, generation)


def mark(folder: Path, table: str, generation: str) -> None:
    """Note the generation of a table's copies: those of an earlier one are deleted."""
    with contextlib.suppress(OSError):  # a full disk, where no copy can be made either
        make_private(str(folder))
        if is_ours(folder):
            (folder / f"{prefix_of(table)}{GENERATION}").write_text(generation, encoding="ascii")


def write(path: Path, rows: pa.Table) -> None:
    """Write a copy.

    Args:
        path: Its path.
        rows: With `HASH` and `POSITION`.
    """
    in_one = rows.combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(in_one)
    n_bytes = path.stat().st_size
    checksums: list[int] = []
    # Read, not mapped: of a mapped file all pages would count as memory of this process.
    with path.open("r+b", buffering=0) as file:
        while block := file.read(BLOCK_BYTES):
            checksums.append(zlib.crc32(block))
        stored = np.array(checksums, "<u4").tobytes()
        end = END.pack(n_bytes, zlib.crc32(stored))
        file.write(stored + end)


def forget(path: Path) -> None:
    """Forget a copy that is about to be deleted."""
    _verified.pop(str(path), None)


class Copy:
    """A copy, mapped into memory.

    Args:
        path: Its path.
        is_own: This process has just written it: its checksums were made from what is in the file.

    Attributes:
        path: Its path.
        blocks: Its blocks.
        rows: The rows, nothing of which is verified yet.

    Raises:
        DamagedCopyError: it is torn.
        OSError, pa.ArrowException: it is gone, or cannot be read.
    """

    def __init__(self, path: Path, *, is_own: bool = False) -> None:
        self.path = path
        self.blocks = _Blocks(path)
        if is_own:
            self.blocks.verified[:] = True
        start, end = _span(self.blocks.content)
        self.blocks.verify([(start, start + 1), (end - 1, end)])
        self.rows: pa.Table = pa.ipc.open_file(self.blocks.content).read_all()
        # All that is no value: the schema before the columns, and their places behind them.
        values = list(chain.from_iterable(map(_spans, self.rows.columns)))
        values_begin = min((begin for begin, _ in values), default=start)
        values_end = max((stop for _, stop in values), default=start)
        self.blocks.verify([(start, values_begin), (values_end, end)])

    @property
    def n_bytes(self) -> int:
        """Bytes of the copy."""
        return int(self.blocks.content.size)

    @property
    def has_rows(self) -> bool:
        """False if there are hashes and positions alone."""
        return bool(self.rows.num_columns > 2)

    def numbers(self, name: str) -> NDArray[Any]:
        """Return the whole column of hashes or positions, in the mapped memory.

        Raises:
            DamagedCopyError: a block is damaged.
        """
        column = self.rows[name]
        self.blocks.verify(_spans(column))
        # `combine_chunks` copies even one chunk.
        in_one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        values: NDArray[Any] = in_one.to_numpy()
        return values

    def take(self, numbers: Numbers, names: Sequence[str]) -> pa.Table:
        """Copy some rows; columns that it lacks are left out.

        Raises:
            DamagedCopyError: a block that they need is damaged.
        """
        some = self._verified(numbers, names)
        return some.take(pa.array(numbers))

    def slice(self, start: int, stop: int, names: Sequence[str]) -> pa.Table:
        """Return rows that follow each other, in the mapped memory; else as `take`."""
        some = self._verified(np.arange(start, stop), names)
        return some.slice(start, stop - start)

    def _verified(self, numbers: Numbers, names: Sequence[str]) -> pa.Table:
        stored = set(self.rows.column_names)
        some = self.rows.select([name for name in names if name in stored])
        if len(numbers) and not self.blocks.are_all_verified:
            for column in some.columns:
                for array in column.chunks:  # one
                    self.blocks.verify_rows(array, numbers)
        return some


class _Blocks:
    """The content of a copy, in blocks that are verified when they are first used.

    Args:
        path: Path of the copy.
    """

    def __init__(self, path: Path) -> None:
        with pa.memory_map(str(path)) as mapped:
            data = mapped.read_buffer()
        end_at = data.size - END.size
        if end_at < 0:
            raise DamagedCopyError(str(path))
        n_bytes, checksum = END.unpack(data.slice(end_at).to_pybytes())
        n_blocks = -(-n_bytes // BLOCK_BYTES)  # rounded up
        if n_bytes + 4 * n_blocks != end_at:
            raise DamagedCopyError(str(path))
        checksums = data.slice(n_bytes, 4 * n_blocks).to_pybytes()
        if zlib.crc32(checksums) != checksum:
            raise DamagedCopyError(str(path))
        self.content: pa.Buffer = data.slice(0, n_bytes)
        self.address = int(self.content.address)
        self._checksums = np.frombuffer(checksums, "<u4")
        self._path = path
        identity = (path.stat().st_ino, n_bytes, checksum)
        known, verified = _verified.get(str(path), ((), np.zeros(0, dtype=bool)))
        self.verified = verified if known == identity else np.zeros(n_blocks, dtype=bool)
        _verified[str(path)] = identity, self.verified

    @property
    def are_all_verified(self) -> bool:
        """True if nothing is left to verify."""
        return bool(self.verified.all())

    def verify(self, spans: Iterable[tuple[int, int]]) -> None:
        """Verify the blocks of some spans of memory.

        Raises:
            DamagedCopyError: one is damaged.
        """
        needed = np.zeros(len(self.verified), dtype=bool)
        for start, end in spans:
            first = (start - self.address) // BLOCK_BYTES
            behind_last = -(-(end - self.address) // BLOCK_BYTES)  # rounded up
            needed[first:behind_last] = True
        self._verify(needed)

    def verify_rows(self, array: pa.Array, numbers: Numbers) -> None:
        """Verify the blocks that have some rows of a column; errors as `verify`."""
        type_ = array.type
        validity, *values = array.buffers()
        at = numbers + array.offset
        if validity is not None:
            self._verify_places(validity.address + at // 8)
        if pa.types.is_struct(type_):
            for index in range(type_.num_fields):
                self.verify_rows(array.field(index), numbers)
        elif pa.types.is_string(type_) or pa.types.is_binary(type_):
            offsets, content = values
            self._verify_places(offsets.address + at * 4)
            self._verify_places(offsets.address + at * 4 + 4)
            ends = np.frombuffer(offsets, np.int32)
            if content is not None:
                starts = content.address + ends[at].astype(np.int64)
                self._verify_places(starts, content.address + ends[at + 1].astype(np.int64))
        elif pa.types.is_primitive(type_) and type_.bit_width >= 8:
            width = type_.bit_width // 8
            self._verify_places(values[0].address + at * width)
        elif pa.types.is_boolean(type_):
            self._verify_places(values[0].address + at // 8)
        else:  # lists, maps, decimals: the whole column
            self.verify(_spans(pa.chunked_array([array])))

    def _verify_places(self, starts: Numbers, ends: Numbers | None = None) -> None:
        """Verify the blocks at some addresses, or from each to an end, which is not included."""
        needed = np.zeros(len(self.verified), dtype=bool)
        first = (starts - self.address) // BLOCK_BYTES
        if ends is None:
            needed[first] = True
        else:
            has_bytes = ends > starts
            first = first[has_bytes]
            last = (ends[has_bytes] - 1 - self.address) // BLOCK_BYTES
            while len(first):  # once, but for values that are longer than a block
                needed[first] = True
                goes_on = first < last
                first, last = first[goes_on] + 1, last[goes_on]
        self._verify(needed)

    def _verify(self, needed: Marks) -> None:
        view = memoryview(self.content)
        for number in np.flatnonzero(needed & ~self.verified).tolist():
            start = number * BLOCK_BYTES
            block = view[start : start + BLOCK_BYTES]
            if zlib.crc32(block) != self._checksums[number]:
                raise DamagedCopyError(str(self._path))
            self.verified[number] = True


def _spans(column: pa.ChunkedArray) -> Iterator[tuple[int, int]]:
    """Yield where the values of a column lie in memory."""
    for array in column.chunks:
        for buffer in array.buffers():
            if buffer is not None and buffer.size:
                yield _span(buffer)


def _span(buffer: pa.Buffer) -> tuple[int, int]:
    return buffer.address, buffer.address + buffer.size
