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

import pyarrow as pa

from ebbtide.storage.paths import is_ours, make_private

CHECKSUM_BYTES = 4
GENERATION = "generation"
"""End of the name of the file that names the generation of a table's copies."""
DASHES_BEFORE = 1
"""Dashes in the name of a copy of an earlier release, which names no table."""
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
    with pa.memory_map(str(path)) as mapped:
        checksum = zlib.crc32(mapped.read_buffer())
    with path.open("ab") as file:
        file.write(checksum.to_bytes(CHECKSUM_BYTES, "big"))


def whole_content(path: Path) -> pa.Buffer | None:
    """Map a copy into memory; None if it is damaged."""
    # A flipped bit would hide a key, whose row would then exist twice in the table.
    with pa.memory_map(str(path)) as mapped:
        data = mapped.read_buffer()
    content = data.slice(0, max(data.size - CHECKSUM_BYTES, 0))
    copy = _copy(path)
    if copy not in _found_whole:
        checksum = zlib.crc32(content).to_bytes(CHECKSUM_BYTES, "big")
        if data.slice(content.size).to_pybytes() != checksum:
            return None
        _found_whole.add(copy)
    return content


def note_whole(path: Path) -> None:
    """Note a copy that this process has just written: its checksum was made from what is in the file."""
    _found_whole.add(_copy(path))


def _copy(path: Path) -> tuple[str, int]:
    """Return a key that distinguishes a copy from one that was made again at the same path."""
    return str(path), path.stat().st_ino


def forget(path: Path) -> None:
    """Forget a copy that is about to be deleted."""
    _found_whole.discard(_copy(path))
