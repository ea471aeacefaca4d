"""Key indices of data files: the position of each row by the hash of its key, in files that are mapped into memory.

A data file never changes, so neither does its index. It is cached as an Arrow file in a local folder: columns `#hash`, ascending,
`#position`, the row's number in the data file, and columns of the rows, at least the key's; see `ebbtide.delta.copy_files`. A process that finds none, or a damaged one, makes it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.amounts import amount
from ebbtide.delta import copy_files, log
from ebbtide.delta.snapshot import DataFile
from ebbtide.delta.table import read_file
from ebbtide.model.hashing import Hashes, key_hashes
from ebbtide.storage.columnar import footer_checksum
from ebbtide.storage.paths import is_ours, make_private

_log = logging.getLogger(__name__)
Positions = NDArray[np.int64]

CACHE_FOLDER = "EBBTIDE_CACHE"
"""Environment variable: folder of the local copies. Default: a folder of this user in the system's temporary folder."""
CACHE_BYTES = "EBBTIDE_CACHE_BYTES"
"""Environment variable: the bytes that they may take, approximately. Default: 10 GB."""
DEFAULT_BYTES = 10 * 2**30
UNSEEN = 0.05
"""Share of the allowed bytes that a process writes between two scans of all copies."""
EVICTED_TO = 0.8
"""Share of the allowed bytes down to which old copies are deleted, so that evictions are rare."""
HASH = "#hash"
POSITION = "#position"
"""Columns of a copy beside those of the rows."""
FORMAT = "4"
"""Part of each copy's name; copies of another format are not read."""
NO_COPY = ""
"""Name of an index without a copy."""
SPARSE = 16
"""Ratio of a file's rows to the wanted keys from which on the keys are looked up one by one."""
_caches: WeakSet[IndexCache] = WeakSet()
"""The caches of this process."""
_unseen_bytes: dict[Path, int] = {}
"""Bytes that this process has written into each folder since it scanned all copies there."""
_FileKey = tuple[str, ...]
"""Path, size, time and footer of a data file, which identify its content."""


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
            positions: Number of each in the data file. Default: `rows` are all rows of the file.
        """
        if positions is None:
            positions = np.arange(len(rows))
        # Sorted once when it is made; each lookup is then a binary search in mapped memory.
        in_order, hashes, order = in_hash_order(rows, key)
        return cls(hashes, positions[order], in_order)

    def find(self, wanted: pa.Table, hashes: Hashes) -> tuple[Positions, Positions]:
        """Find the rows of some keys.

        Args:
            wanted: Different keys, in the order of their hashes.
            hashes: Their hashes.

        Returns:
            Indices into `rows`, and for each the index of its key in `wanted`; a key may have several rows.
        """
        rows, key_numbers = _matches(self.hashes, hashes)
        if not len(rows):
            return rows, key_numbers
        # Two keys may have one hash: their values decide.
        is_same = np.ones(len(rows), dtype=bool)
        for name in wanted.column_names:
            own = self.rows[name]
            asked = wanted[name].cast(own.type)
            is_same &= _same_values(own.take(pa.array(rows)), asked.take(pa.array(key_numbers)))
        return rows[is_same], key_numbers[is_same]


def in_hash_order(rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, Hashes, Positions]:
    """Sort rows by the hashes of their keys, O(n log n).

    Returns:
        The rows, in one chunk; their hashes; the former position of each.
    """
    hashes = key_hashes(rows, key)
    is_in_order = bool((hashes[:-1] <= hashes[1:]).all())
    if is_in_order:  # as a fold leaves them: nothing has to be copied
        return rows.combine_chunks(), hashes, np.arange(len(rows))
    order = np.argsort(hashes, kind="stable")
    in_order = rows.take(pa.array(order))
    return in_order.combine_chunks(), hashes[order], order


def _same_values(left: pa.ChunkedArray, right: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Mark where two columns have the same value; null equals null."""
    is_equal = pc.equal(left, right).fill_null(False)
    both_null = pc.and_(left.is_null(), right.is_null())
    is_same = pc.or_(is_equal, both_null)
    return np.asarray(is_same.to_numpy(), dtype=bool)


def _matches(stored: Hashes, wanted: Hashes) -> tuple[Positions, Positions]:
    """Return the pairs of equal hashes of two ascending arrays, as indices into each.

    Few keys are looked up one by one; with many it is faster to look the rows up among the keys.
    """
    is_sparse = len(wanted) * SPARSE < len(stored)
    if is_sparse:
        key_numbers, rows = _pairs(wanted, stored)
    else:
        rows, key_numbers = _pairs(stored, wanted)
    return rows, key_numbers


def _pairs(values: Hashes, ascending: Hashes) -> tuple[Positions, Positions]:
    """Return the indices of each value among ascending ones, as pairs of indices; O(values * log(ascending))."""
    first = np.searchsorted(ascending, values, side="left")
    # Most values have no equal: where the equals end is looked up for the rest alone.
    within = np.flatnonzero(first < len(ascending))
    found = within[ascending[first[within]] == values[within]]
    first = first[found]
    end = np.searchsorted(ascending, values[found], side="right")
    n_equal = end - first
    # A value makes one pair with each of its equals, in a row: the nth pair is with the nth equal.
    place_of_pair = np.repeat(np.arange(len(found)), n_equal)
    first_pair = np.cumsum(n_equal) - n_equal
    pair = np.arange(len(place_of_pair))
    nth = pair - first_pair[place_of_pair]
    equal_of_pair = first[place_of_pair] + nth
    return found[place_of_pair], equal_of_pair


class IndexCache:
    """The cached indices of a table's data files.

    Args:
        table: Location of the table.
        key: Names of the key's columns.
        columns: Columns of the rows to keep, the key's among them.
        where: (column, value): keep the rows with this value; None: all.
        table_id: Id of the table, so that a table made later at its location has other copies.
        folder: Folder of the copies. Default: from the environment.
        max_bytes: Bytes that they may take, approximately. Default: from the environment.
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
        self.max_bytes = allowed_bytes() if max_bytes is None else max_bytes
        # A copy is not synced: after a crash of the machine it may have holes. So its name has the boot, and none outlives it.
        identity = (FORMAT, _boot(), table, table_id, *self.key, columns.to_string())
        self._content_key = _digest(*identity, *(where or ()))
        self._open: dict[_FileKey, tuple[str, KeyIndex]] = {}
        self._closed: dict[_FileKey, str] = {}  # to the copy, which is deleted when its file no longer counts
        self._live: set[_FileKey] = set()
        _caches.add(self)

    def index_of(self, file: DataFile) -> KeyIndex:
        """Return the index of a data file, from its copy if that is whole.

        Args:
            file: One of the table's data files.
        """
        file_key = _file_key(file)
        if file_key in self._open:
            copy, index = self._open[file_key]
            with contextlib.suppress(OSError):
                os.utime(self.folder / copy)  # evictions begin with the copies that were not used for longest
            return index
        name = self._name(file)
        # Missing, damaged or of another boot: made again from the data file.
        index = self._read(name) or self._keep(name, self._made(file))
        return self._note(file, name, index)

    def opened(self, file: DataFile) -> KeyIndex | None:
        """Return the index of a data file if this process has it open, as that of a file that it has just written."""
        _, index = self._open.get(_file_key(file), (NO_COPY, None))
        return index

    def keep(self, file: DataFile, rows: pa.Table) -> None:
        """Index a data file that was just written.

        Args:
            file: The data file.
            rows: All its rows.
        """
        name = self._name(file)
        index = self._keep(name, self._index(rows))
        self._note(file, name, index)

    def _note(self, file: DataFile, name: str, index: KeyIndex) -> KeyIndex:
        path = self.folder / name
        copy = name if path.exists() else NO_COPY  # without one it is in memory, as on a full disk
        file_key = _file_key(file)
        self._open[file_key] = (copy, index)
        self._closed.pop(file_key, None)
        return index

    def only(self, files: Iterable[DataFile]) -> None:
        """Close the indices of files that no longer count, and delete their copies.

        Args:
            files: The files of the table's version.
        """
        # Only when the version changes: files that were indexed since the last call are written, and not committed yet.
        live = {_file_key(file) for file in files}
        if live == self._live:
            return
        self._live = live
        for file_key in self._open.keys() - live:
            copy, _ = self._open.pop(file_key)
            if copy != NO_COPY:
                self._delete(copy)
        for file_key in self._closed.keys() - live:
            self._delete(self._closed.pop(file_key))
        self.close_deleted()

    def close(self) -> None:
        """Close all indices that have a copy; the next use opens them again."""
        with_copy = {file_key: copy for file_key, (copy, _) in self._open.items() if copy != NO_COPY}
        self._closed |= with_copy
        for file_key in with_copy:
            del self._open[file_key]

    def close_deleted(self) -> None:
        """Close the indices whose copies are deleted: a mapped file keeps its bytes on disk."""
        opened = list(self._open.items())
        for file_key, (copy, _) in opened:
            if copy == NO_COPY:
                continue
            path = self.folder / copy
            if not path.exists():
                self._open.pop(file_key, None)

    def copies_in_use(self) -> set[Path]:
        """Return the copies whose indices are open."""
        return {self.folder / copy for copy, _ in self._open.values() if copy != NO_COPY}

    def _delete(self, name: str) -> None:
        path = self.folder / name
        with contextlib.suppress(OSError):
            copy_files.forget(path)
            path.unlink()

    def _made(self, file: DataFile) -> KeyIndex:
        columns = self.columns
        if self.where is not None and self.where[0] not in columns.names:
            column = pa.field(self.where[0], pa.string())
            columns = columns.append(column)
        rows = read_file(self.table, file, columns, live=False)
        return self._index(rows)

    def _index(self, rows: pa.Table) -> KeyIndex:
        """Return the index of a data file's rows, of those that `where` keeps."""
        positions = None
        if self.where is not None:
            name, value = self.where
            has_value = pc.equal(rows[name], pa.scalar(value))
            is_kept = has_value.fill_null(False)
            if not pc.all(is_kept).as_py():  # else nothing has to be copied
                positions = np.flatnonzero(is_kept.to_numpy())
                rows = rows.filter(is_kept)
        kept = rows.select(self.columns.names)
        typed = kept.cast(self.columns)
        return KeyIndex.of(typed, self.key, positions)

    def _name(self, file: DataFile) -> str:
        """Return the name of a file's copy."""
        # With the footer: a file that was replaced by one of the same path and size gets another copy.
        footer = log.footer_of(file.add)
        if footer is None:
            location = file.location(self.table)
            footer = footer_checksum(location)
        file_digest = _digest(*_file_key(file), footer)
        return f"{copy_files.prefix_of(self.table)}{self._content_key}-{file_digest}.arrow"

    def _read(self, name: str) -> KeyIndex | None:
        """Map a copy into memory; None if it does not exist or cannot be read."""
        path = self.folder / name
        try:
            if not is_ours(self.folder):
                return None  # another user may have written anything there
            content = copy_files.whole_content(path)
            if content is None:
                return None
            stored = pa.ipc.open_file(content).read_all()
            os.utime(path)
            return KeyIndex(
                copy_files.in_place(stored[HASH]),
                copy_files.in_place(stored[POSITION]),
                stored.select(self.columns.names),
            )
        except (OSError, pa.ArrowException, KeyError):
            return None

    def _keep(self, name: str, index: KeyIndex) -> KeyIndex:
        """Write a copy and return it mapped; return the index itself if it cannot be written, as on a full disk."""
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
            copy_files.write(unfinished, stored)
            # A rename within the folder is atomic: another process sees the whole copy or none.
            unfinished.replace(path)
            copy_files.note_whole(path)
            n_bytes = path.stat().st_size
            self._evict_in_time(n_bytes)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            return index
        return self._read(name) or index

    def _evict_in_time(self, n_bytes: int) -> None:
        """Evict with a process's first copy, then after every `UNSEEN` share of the bytes: a scan of all copies costs more than one copy."""
        unseen_bytes = _unseen_bytes.get(self.folder, self.max_bytes) + n_bytes
        if unseen_bytes >= self.max_bytes * UNSEEN:
            unseen_bytes = 0
            self._evict()
        _unseen_bytes[self.folder] = unseen_bytes

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
        deleted: set[Path] = set()
        for _, n_bytes, path in sorted(copies):
            with contextlib.suppress(OSError):
                path.unlink()
            deleted.add(path)
            total_bytes -= n_bytes
            if total_bytes <= enough_bytes:
                break
        if any(deleted & each.copies_in_use() for each in list(_caches)):
            _warn_of_cap(str(self.folder), self.max_bytes)
        for each in list(_caches):
            each.close_deleted()


@cache
def _warn_of_cap(folder: str, max_bytes: int) -> None:
    """Warn, once in a process, that its own copies do not fit: each run then pays for the whole table, not for what has changed."""
    _log.warning(
        "The local copies in '%s' need more than the %s that %s allows: copies in use were deleted, and are made again from the whole "
        "data files. Give %s more bytes, or name a folder on a larger disk by %s.",
        folder,
        amount(max_bytes, "byte"),
        CACHE_BYTES,
        CACHE_BYTES,
        CACHE_FOLDER,
    )


def close_deleted_copies() -> None:
    """Close the indices of this process whose copies are deleted."""
    for each in list(_caches):
        each.close_deleted()


def default_folder() -> Path:
    """Return the folder of local copies."""
    given = os.environ.get(CACHE_FOLDER)
    return Path(given) if given else copy_files.own_folder()


def allowed_bytes() -> int:
    """Return the bytes that the local copies may take."""
    return int(os.environ.get(CACHE_BYTES, DEFAULT_BYTES))


@cache
def _boot() -> str:
    """Return the id of this boot of the machine; empty if the system has none."""
    with contextlib.suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id")
        return boot_id.read_text(encoding="ascii").strip()
    return ""


def _file_key(file: DataFile) -> _FileKey:
    footer = log.footer_of(file.add) or ""
    return file.path, str(file.add.get("size")), str(file.add.get("modificationTime")), footer


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    digest = hashlib.blake2b(text.encode(), digest_size=10)
    return digest.hexdigest()
