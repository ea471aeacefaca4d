"""Files of local copies: an Arrow file, then the CRC-32 of it, 4 bytes big-endian, which each process verifies once.

Beside a table's copies, `<prefix>generation` names the generation that they are of. An erasure begins another one: a folder that it did not reach, as
on another host, is cleared of older copies by the next process that uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from ebbtide.storage.paths import is_ours, make_private

CHECKSUM_BYTES = 4
GENERATION = "generation"
"""End of the name of the file that names the generation of a table's copies."""
DASHES_BEFORE = 1
"""Dashes in the name of a copy of an earlier release, which names no table."""
BLOCK_BYTES = 2**20
"""Bytes that are read at a time for a checksum."""
_found_whole: set[tuple[str, int]] = set()
"""Copies, by path and inode, whose checksum this process has verified, or written."""


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
    """Write a copy."""
    in_one = rows.combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(in_one)
    checksum = _checksum(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(checksum)


def whole_content(path: Path) -> pa.Buffer | None:
    """Map a copy into memory; None if it is damaged."""
    # A flipped bit would hide a key, whose row would then exist twice in the table.
    with pa.memory_map(str(path)) as mapped:
        data = mapped.read_buffer()
    content = data.slice(0, max(data.size - CHECKSUM_BYTES, 0))
    copy = _copy(path)
    if copy not in _found_whole:
        if data.slice(content.size).to_pybytes() != _checksum(path, content.size):
            return None
        _found_whole.add(copy)
    return content


def in_place(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of a copy as numpy, in the mapped memory: `combine_chunks` copies even one chunk."""
    in_one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    values: NDArray[Any] = in_one.to_numpy()
    return values


def _checksum(path: Path, n_bytes: int) -> bytes:
    """Return the checksum of the first bytes of a file."""
    # Read, not mapped: of a mapped file all pages would count as memory of this process.
    checksum = 0
    left = n_bytes
    with path.open("rb", buffering=0) as file:
        while block := file.read(min(left, BLOCK_BYTES)):
            checksum = zlib.crc32(block, checksum)
            left -= len(block)
    return checksum.to_bytes(CHECKSUM_BYTES, "big")


def note_whole(path: Path) -> None:
    """Note a copy that this process has just written: its checksum was made from what is in the file."""
    _found_whole.add(_copy(path))


def _copy(path: Path) -> tuple[str, int]:
    """Return a key that distinguishes a copy from one that was made again at the same path."""
    return str(path), path.stat().st_ino


def forget(path: Path) -> None:
    """Forget a copy that is about to be deleted."""
    _found_whole.discard(_copy(path))
