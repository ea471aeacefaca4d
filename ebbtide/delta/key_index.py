"""Where the rows of a data file stand by their key: hashes in order, looked up through files that are mapped into memory.

A data file never changes, so neither does its index. It is kept as an Arrow file in a local folder: columns `#hash`,
ascending, `#position`, the row's number in the data file, and columns of the rows, at least the key's; then the CRC-32 of all
this, 4 bytes big-endian, which each process looks at once. A process that misses it, or finds it damaged, makes it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.delta import log
from ebbtide.delta.snapshot import DataFile
from ebbtide.delta.table import read_file
from ebbtide.model.hashing import Hashes, key_hashes
from ebbtide.storage.columnar import footer_checksum
from ebbtide.storage.paths import is_ours, make_private

Positions = NDArray[np.int64]

CACHE_FOLDER = "EBBTIDE_CACHE"
"""Environment: where the local copies are. Default: a folder of this user in the system's one for temporary files."""
CACHE_BYTES = "EBBTIDE_CACHE_BYTES"
"""Environment: about how many bytes they may take. Default: 10 GB."""
DEFAULT_BYTES = 10 * 2**30
UNSEEN = 0.05
"""Share of the most bytes that a process writes between two looks at all copies."""
EVICTED_TO = 0.8
"""Share of the bytes down to which old copies are deleted, so that this is rare."""
HASH = "#hash"
POSITION = "#position"
"""Columns of a copy beside those of the rows."""
FORMAT = "3"
"""Part of each copy's name; copies of another format are not read."""
NO_COPY = ""
"""In place of the name of a copy: there is none."""
CHECKSUM_BYTES = 4
SPARSE = 16
"""How many times more rows than keys a file has from where on keys are looked up one by one."""
_found_whole: set[tuple[str, int]] = set()
"""Copies, by path and inode, whose checksum this process has looked at."""
_caches: WeakSet[IndexCache] = WeakSet()
"""Those of this process."""
_Identity = tuple[str, ...]
"""What the log says of a data file's content."""


@dataclass(frozen=True)
class KeyIndex:
    """Rows of one data file by key.

    Args:
        hashes: (n,) ascending.
        positions: (n,) number of each row in the data file.
        rows: (n,) columns of the rows, the key's among them.
    """

    hashes: Hashes
    positions: Positions
    rows: pa.Table

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str], positions: Positions | None = None) -> KeyIndex:
        """Make an index.

        Args:
            rows: Rows of a data file, in its order.
            key: Names of the key's columns.
            positions: Number of each in the data file. Default: all are there.
        """
        if positions is None:
            positions = np.arange(len(rows))
        hashes = key_hashes(rows, key)
        # Sorted once when it is made, O(n log n); each lookup is then a binary search in mapped memory.
        order = np.argsort(hashes, kind="stable")
        in_order = rows.take(pa.array(order))
        return cls(
            hashes[order],
            positions[order],
            in_order.combine_chunks(),
        )

    def find(self, wanted: pa.Table, hashes: Hashes) -> tuple[Positions, Positions]:
        """Find the rows of some keys.

        Args:
            wanted: Different keys, in the order of their hashes.
            hashes: Their hashes.

        Returns:
            Indices into `rows`, and for each which of `wanted` it is; a key may have several rows.
        """
        rows, which = _matches(self.hashes, hashes)
        if not len(rows):
            return rows, which
        # Two keys may have one hash: the keys decide.
        is_same = np.ones(len(rows), dtype=bool)
        for name in wanted.column_names:
            own = self.rows[name]
            asked = wanted[name].cast(own.type)
            is_same &= _same_values(
                own.take(pa.array(rows)),
                asked.take(pa.array(which)),
            )
        return rows[is_same], which[is_same]


def _same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Mark where two columns have the same value; null is the same as null."""
    is_equal = pc.equal(left, right).fill_null(False)
    both_null = pc.and_(left.is_null(), right.is_null())
    is_same = pc.or_(is_equal, both_null)
    return np.asarray(is_same.to_numpy(), dtype=bool)


def _matches(stored: Hashes, wanted: Hashes) -> tuple[Positions, Positions]:
    """Return the pairs of equal hashes of two ascending arrays, as indices into each.

    A few keys are looked up one by one; for many it is quicker to look up the rows among them.
    """
    is_sparse = len(wanted) * SPARSE < len(stored)
    if is_sparse:
        which, rows = _pairs(wanted, stored)
    else:
        rows, which = _pairs(stored, wanted)
    return rows, which


def _pairs(values: Hashes, ascending: Hashes) -> tuple[Positions, Positions]:
    """Return where each value stands among ascending ones, as pairs of indices; O(values * log(ascending))."""
    first = np.searchsorted(ascending, values, side="left")
    end = np.searchsorted(ascending, values, side="right")
    n_equal = end - first
    # A value makes as many pairs in a row as it has equals: the nth of them is with the nth of its equals.
    value_of_pair = np.repeat(np.arange(len(values)), n_equal)
    first_pair = np.cumsum(n_equal) - n_equal
    pair = np.arange(len(value_of_pair))
    nth = pair - first_pair[value_of_pair]
    equal_of_pair = first[value_of_pair] + nth
    return value_of_pair, equal_of_pair


class IndexCache:
    """The local copies of the indices of a table's data files.

    Args:
        table: The table's location.
        key: Names of the key's columns.
        columns: Columns of the rows to keep, the key's among them.
        where: (column, value): keep the rows that have this value; None: all.
        table_id: What distinguishes the table from one made later in its place.
        folder: Where the copies are. Default: as the environment says.
        max_bytes: About how much they may take. Default: as the environment says.
    """

    def __init__(
        self,
        table: str,
        key: Sequence[str],
        columns: pa.Schema,
        *,
        where: tuple[str, str] | None = None,
        table_id: str = "",
        folder: Path | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.table = table
        self.key = list(key)
        self.columns = columns
        self.where = where
        self.table_id = table_id
        self.folder = default_folder() if folder is None else folder
        self.max_bytes = _max_bytes() if max_bytes is None else max_bytes
        # A copy is not flushed to disk: after a crash of the machine it may have holes, so that none outlives its boot.
        self._what = _digest(
            FORMAT,
            _boot(),
            table,
            table_id,
            *self.key,
            columns.to_string(),
            *(where or ()),
        )
        self._open: dict[_Identity, tuple[str, KeyIndex]] = {}
        self._live: set[_Identity] = set()
        self._unseen_bytes = self.max_bytes  # other processes may have written any number of copies
        _caches.add(self)

    def index_of(self, file: DataFile) -> KeyIndex:
        """Return the index of a data file, from its copy if there is one that is whole.

        Args:
            file: One of the table's data files.
        """
        identity = _identity(file)
        if identity in self._open:
            copy, index = self._open[identity]
            with contextlib.suppress(OSError):
                os.utime(self.folder / copy)  # the copies that are not used go first
            return index
        name = self._name(file)
        # Missing, damaged or of another boot: made again from the data file.
        index = self._read(name) or self._keep(name, self._made(file))
        return self._opened(file, name, index)

    def keep(self, file: DataFile, rows: pa.Table) -> None:
        """Take in the index of a data file that was just written.

        Args:
            file: The data file.
            rows: All that is in it.
        """
        name = self._name(file)
        index = self._keep(name, self._index(rows))
        self._opened(file, name, index)

    def _opened(self, file: DataFile, name: str, index: KeyIndex) -> KeyIndex:
        has_copy = (self.folder / name).exists()  # else it is in memory, as on a full disk
        self._open[_identity(file)] = name if has_copy else NO_COPY, index
        return index

    def only(self, files: Iterable[DataFile]) -> None:
        """Close the indices of files that no longer count, and delete their copies: a run that goes on makes new ones all the time.

        Nothing happens until other files count than the last time: what was taken in since then is to be committed yet.

        Args:
            files: Those of the table that count.
        """
        live = {_identity(file) for file in files}
        if live == self._live:
            return
        self._live = live
        for identity in self._open.keys() - live:
            copy, _ = self._open.pop(identity)
            if copy != NO_COPY:
                self._delete(copy)
        self.close_deleted()

    def close_deleted(self) -> None:
        """Close the indices whose copies are deleted: as long as one is mapped, the disk has its bytes."""
        for identity, (copy, _) in list(self._open.items()):
            if copy != NO_COPY and not (self.folder / copy).exists():
                self._open.pop(identity, None)

    def _delete(self, name: str) -> None:
        path = self.folder / name
        with contextlib.suppress(OSError):
            copy = _copy(path)
            _found_whole.discard(copy)
            path.unlink()

    def _made(self, file: DataFile) -> KeyIndex:
        columns = self.columns
        if self.where is not None:
            name, _ = self.where
            if name not in columns.names:
                column = pa.field(name, pa.string())
                columns = columns.append(column)
        rows = read_file(self.table, file, columns, live=False)
        return self._index(rows)

    def _index(self, rows: pa.Table) -> KeyIndex:
        """Return the index of a data file's rows, as far as they are kept."""
        positions = None
        if self.where is not None:
            name, value = self.where
            has_value = pc.equal(rows[name], pa.scalar(value))
            is_kept = has_value.fill_null(False)
            positions = np.flatnonzero(is_kept.to_numpy())
            rows = rows.filter(is_kept)
        kept = rows.select(self.columns.names)
        typed = kept.cast(self.columns)
        return KeyIndex.of(typed, self.key, positions)

    def _name(self, file: DataFile) -> str:
        """Return the name of a file's copy: another file in its place, of the same name and size, has another footer."""
        footer = log.footer_of(file.add) or footer_checksum(file.location(self.table))
        which = _digest(*_identity(file), footer)
        return f"{self._what}-{which}.arrow"

    def _read(self, name: str) -> KeyIndex | None:
        """Map a copy into memory; None if there is none, or one that cannot be read."""
        path = self.folder / name
        try:
            if not is_ours(self.folder):
                return None  # another user may have put anything there
            content = _whole_content(path)
            if content is None:
                return None
            stored = pa.ipc.open_file(content).read_all()
            os.utime(path)
            hashes = stored[HASH].combine_chunks()
            positions = stored[POSITION].combine_chunks()
            return KeyIndex(
                hashes.to_numpy(),
                positions.to_numpy(),
                stored.select(self.columns.names),
            )
        except (OSError, pa.ArrowException, KeyError):
            return None

    def _keep(self, name: str, index: KeyIndex) -> KeyIndex:
        """Write a copy and return it as mapped; the index itself if it cannot be written, as on a full disk."""
        stored = index.rows
        stored = stored.append_column(HASH, pa.array(index.hashes))
        stored = stored.append_column(POSITION, pa.array(index.positions))
        path = self.folder / name
        suffix = uuid.uuid4().hex
        unfinished = path.with_name(f"{name}.{suffix}.tmp")
        try:
            make_private(str(self.folder))
            if not is_ours(self.folder):
                return index  # another user could read the rows
            _write_arrow(unfinished, stored)
            # A rename within the folder: another process sees the whole copy or none.
            unfinished.replace(path)
            n_bytes = path.stat().st_size
            self._evict_in_time(n_bytes)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            return index
        return self._read(name) or index

    def _evict_in_time(self, n_bytes: int) -> None:
        """Evict once so much was written that it may matter: to look at all copies for each new one would cost more than it."""
        self._unseen_bytes += n_bytes
        may_matter = self._unseen_bytes >= self.max_bytes * UNSEEN
        if may_matter:
            self._unseen_bytes = 0
            self._evict()

    def _evict(self) -> None:
        """Delete the copies that were not used for longest, if all take too much."""
        copies = []
        for path in self.folder.glob("*.arrow"):
            with contextlib.suppress(OSError):
                status = path.stat()
                copy = (status.st_mtime_ns, status.st_size, path)
                copies.append(copy)
        total_bytes = sum(n_bytes for _, n_bytes, _ in copies)
        if total_bytes <= self.max_bytes:
            return
        enough_bytes = self.max_bytes * EVICTED_TO
        for _, n_bytes, path in sorted(copies):
            with contextlib.suppress(OSError):
                path.unlink()
            total_bytes -= n_bytes
            if total_bytes <= enough_bytes:
                break
        for each in list(_caches):
            each.close_deleted()


def _write_arrow(path: Path, rows: pa.Table) -> None:
    in_one = rows.combine_chunks()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(in_one)
    with pa.memory_map(str(path)) as mapped:
        checksum = zlib.crc32(mapped.read_buffer())
    with path.open("ab") as file:
        file.write(checksum.to_bytes(CHECKSUM_BYTES, "big"))


def _whole_content(path: Path) -> pa.Buffer | None:
    """Map a copy into memory; None if it is damaged.

    A flipped bit would hide a key, whose row would then stand in the table twice.
    """
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


def _copy(path: Path) -> tuple[str, int]:
    """Return what distinguishes a copy from one that was made again at the same place."""
    return str(path), path.stat().st_ino


def default_folder() -> Path:
    """Return the folder of local copies."""
    given = os.environ.get(CACHE_FOLDER)
    if given:
        return Path(given)
    folder = Path(tempfile.gettempdir())
    return folder / f"ebbtide-cache-{os.getuid()}"


def _max_bytes() -> int:
    """Return about how much the local copies may take."""
    given = os.environ.get(CACHE_BYTES, DEFAULT_BYTES)
    return int(given)


@cache
def _boot() -> str:
    """Return what distinguishes this boot of the machine from others; empty where the system does not say."""
    with contextlib.suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id")
        return boot_id.read_text(encoding="ascii").strip()
    return ""


def _identity(file: DataFile) -> _Identity:
    footer = log.footer_of(file.add) or ""
    return file.path, str(file.add.get("size")), str(file.add.get("modificationTime")), footer


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    digest = hashlib.blake2b(text.encode(), digest_size=10)
    return digest.hexdigest()
