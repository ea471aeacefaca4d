"""Where the rows of a data file stand by their key: hashes in order, looked up through files that are mapped into memory.

A data file never changes, so neither does its index. It is kept as an Arrow file in a local folder: columns `#hash`,
ascending, `#position`, the row's number in the data file, and columns of the rows, at least the key's. Whoever misses it
makes it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ebbtide.delta.snapshot import DataFile
from ebbtide.delta.table import read_file
from ebbtide.model.hashing import Hashes, key_hashes

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
FORMAT = "1"
"""Part of each copy's name; copies of another format are not read."""
SPARSE = 16
"""How many times more rows than keys a file has from where on keys are looked up one by one."""


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
            stored = self.rows[name].take(pa.array(rows))
            asked = wanted[name].cast(stored.type).take(pa.array(which))
            equal = pc.equal(stored, asked).fill_null(False)
            both_null = pc.and_(stored.is_null(), asked.is_null())
            is_same &= pc.or_(equal, both_null).to_numpy()
        return rows[is_same], which[is_same]


def _matches(stored: Hashes, wanted: Hashes) -> tuple[Positions, Positions]:
    """Return the pairs of equal hashes of two ascending arrays, as indices into each.

    A few keys are looked up one by one; for many it is quicker to look up the rows among them.
    """
    if len(wanted) * SPARSE < len(stored):
        which, rows = _pairs(wanted, stored)
    else:
        rows, which = _pairs(stored, wanted)
    return rows, which


def _pairs(values: Hashes, ascending: Hashes) -> tuple[Positions, Positions]:
    """Return where each value stands among ascending ones, as pairs of indices; O(values * log(ascending))."""
    first = np.searchsorted(ascending, values, side="left")
    last = np.searchsorted(ascending, values, side="right")
    counts = last - first
    numbers = np.repeat(np.arange(len(values)), counts)
    begins = np.cumsum(counts) - counts
    nth = np.arange(len(numbers)) - begins[numbers]
    return numbers, first[numbers] + nth


class IndexCache:
    """The local copies of the indices of a table's data files.

    Args:
        table: The table's location.
        key: Names of the key's columns.
        columns: Columns of the rows to keep, the key's among them.
        where: (column, value): keep the rows that have this value; None: all.
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
        folder: Path | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.table = table
        self.key = list(key)
        self.columns = columns
        self.where = where
        self.folder = default_folder() if folder is None else folder
        self.max_bytes = int(os.environ.get(CACHE_BYTES, DEFAULT_BYTES)) if max_bytes is None else max_bytes
        # A copy is not flushed to disk: after a crash of the machine it may have holes, so that none outlives its boot.
        self._what = _digest(FORMAT, _boot(), table, *self.key, columns.to_string(), *(where or ()))
        self._open: dict[str, KeyIndex] = {}
        self._unseen_bytes = self.max_bytes  # others may have written any number of copies

    def index_of(self, file: DataFile) -> KeyIndex:
        """Return the index of a data file, from its copy if there is one that is whole.

        Args:
            file: One of the table's data files.
        """
        name = self._name(file)
        index = self._open.get(name) or self._read(name)
        if index is None:
            index = self._keep(name, self._made(file))
        self._open[name] = index
        return index

    def keep(self, file: DataFile, rows: pa.Table) -> None:
        """Take in the index of a data file that was just written.

        Args:
            file: The data file.
            rows: All that is in it.
        """
        name = self._name(file)
        self._open[name] = self._keep(name, self._index(rows))

    def only(self, files: Iterable[DataFile]) -> None:
        """Close the indices of files that no longer count."""
        live = {self._name(file) for file in files}
        self._open = {name: index for name, index in self._open.items() if name in live}

    def _made(self, file: DataFile) -> KeyIndex:
        columns = self.columns
        if self.where is not None and self.where[0] not in columns.names:
            columns = columns.append(pa.field(self.where[0], pa.string()))
        return self._index(read_file(self.table, file, columns, live=False))

    def _index(self, rows: pa.Table) -> KeyIndex:
        positions = None
        if self.where is not None:
            column, value = self.where
            is_kept = pc.equal(rows[column], pa.scalar(value)).fill_null(False)
            positions = np.flatnonzero(is_kept.to_numpy())
            rows = rows.filter(is_kept)
        return KeyIndex.of(rows.select(self.columns.names).cast(self.columns), self.key, positions)

    def _name(self, file: DataFile) -> str:
        size = file.add.get("size")
        return f"{self._what}-{_digest(file.path, str(size))}.arrow"

    def _read(self, name: str) -> KeyIndex | None:
        """Map a copy into memory; None if there is none, or one that cannot be read."""
        path = self.folder / name
        try:
            if self.folder.stat().st_uid != os.getuid():
                return None  # whoever owns it may have put anything there
            with pa.memory_map(str(path)) as mapped:
                stored = pa.ipc.open_file(mapped).read_all()
            os.utime(path)  # the copies that are not used go first
            hashes = stored[HASH].combine_chunks().to_numpy()
            positions = stored[POSITION].combine_chunks().to_numpy()
            return KeyIndex(hashes, positions, stored.select(self.columns.names))
        except (OSError, pa.ArrowException, KeyError):
            return None

    def _keep(self, name: str, index: KeyIndex) -> KeyIndex:
        """Write a copy and return it as mapped; the index itself if it cannot be written, as on a full disk."""
        stored = index.rows.append_column(HASH, pa.array(index.hashes)).append_column(
            POSITION, pa.array(index.positions)
        )
        path = self.folder / name
        unfinished = path.with_name(f"{name}.{uuid.uuid4().hex}.tmp")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, stored.schema) as writer:
                writer.write_table(stored.combine_chunks())
            unfinished.replace(path)
            self._evict_in_time(path.stat().st_size)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            return index
        return self._read(name) or index

    def _evict_in_time(self, n_bytes: int) -> None:
        """Evict once so much was written that it may matter: to look at all copies for each new one would cost more than it."""
        self._unseen_bytes += n_bytes
        if self._unseen_bytes >= self.max_bytes * UNSEEN:
            self._unseen_bytes = 0
            self._evict()

    def _evict(self) -> None:
        """Delete the copies that were not used for longest, if all take too much."""
        copies = []
        for path in self.folder.glob("*.arrow"):
            with contextlib.suppress(OSError):
                status = path.stat()
                copies.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in copies)
        if total <= self.max_bytes:
            return
        for _, size, path in sorted(copies):
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size
            if total <= self.max_bytes * EVICTED_TO:
                return


def default_folder() -> Path:
    """Return the folder of local copies."""
    given = os.environ.get(CACHE_FOLDER)
    return Path(given) if given else Path(tempfile.gettempdir()) / f"ebbtide-cache-{os.getuid()}"


@cache
def _boot() -> str:
    """Return what distinguishes this boot of the machine from others; empty where the system does not say."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=10).hexdigest()
