"""Key indices of data files: the position of each row by the hash of its key.

A data file never changes, so neither does its index. The writer of a large file attaches its index, so no process on any host
sorts the hashes again.
Files of other writers have none, and one that is damaged is of no use: it is then computed from the file's keys. A process maps indices from local copies;
see `ebbtide.delta._copy_files`. Rows come from a copy, or from the data file: `ebbtide.delta._file_rows`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Hashes, columns_named, key_hashes
from ebbtide.delta import _attached_index as attached_index
from ebbtide.delta import _copy_files as copy_files
from ebbtide.delta import _copy_space as copy_space
from ebbtide.delta._copy_files import HASH, POSITION, Copy
from ebbtide.delta._copy_space import LocalCopies, Space
from ebbtide.delta._data_file import DataFile
from ebbtide.delta._file_rows import FileRows, FileSource, Positions, with_values
from ebbtide.delta._key_lookup import KeyIndex
from ebbtide.delta._key_range import KeyRange, tag_of
from ebbtide.processes import boot
from ebbtide.storage import Attached, Location, ParquetFile

FORMAT = "6"
"""Part of each copy's name; copies of another format are not read."""
ATTACHED_FROM = 131_072
"""Minimum rows of a file for attaching its index: that of a smaller file is computed in 10 ms, and would be a quarter of its bytes."""
LOOKS_EVERY_S = 60.0
"""Seconds between two looks at the copies that are open, which ask the disk for each."""
_FileKey = tuple[str, ...]
"""Path, size, time and footer of a data file, which identify its content."""


class Indexed(NamedTuple):
    """Rows of a data file that is being written, in the order of its index.

    Args:
        hashes: (n,) ascending.
        positions: (n,) number of each row in the data file.
        rows: (n,) the rows; columns that are null throughout are left out.
        attached: The index, to be written into the file; None: it is too small.
    """

    hashes: Hashes
    positions: Positions
    rows: pa.Table
    attached: Attached | None


class IndexCache:
    """The cached indices of a table's data files; several threads may use it.

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
        copies = LocalCopies() if folder is None else LocalCopies(folder)
        max_bytes = copies.max_bytes if max_bytes is None else max_bytes
        self.space = Space(copies.folder, max_bytes)
        # A copy is not synced: after a crash of the machine it may have holes. So its name has the boot, and none outlives it.
        identity = (
            FORMAT,
            boot(),
            table,
            table_id,
            *self.key,
            columns.to_string(),
            *(where or ()),
        )
        self._content_key = _digest(*identity)
        self._attached_identity = attached_index.identity_of(columns, key, where)
        self._range_identity = _digest(json.dumps(self._attached_identity))[:8]
        self._open: dict[_FileKey, _Opened] = {}
        # The stems of copies, which are deleted when their file no longer counts.
        self._closed: dict[_FileKey, str] = {}
        self._live: set[_FileKey] = set()
        self._looks_s = 0.0
        # Held for moments: to make an index takes long, and may close those of other caches.
        self._lock = threading.Lock()
        self._making: defaultdict[_FileKey, threading.Lock] = defaultdict(threading.Lock)
        copy_space.USERS.add(self)

    @classmethod
    def shared(
        cls,
        table: str,
        key: Sequence[str],
        columns: pa.Schema,
        *,
        where: tuple[str, str] | None = None,
        table_id: str = "",
    ) -> IndexCache:
        """Return the cache that all steps and runs of this process share, so that each copy is mapped once; arguments as `IndexCache`."""
        identity = table, tuple(key), columns, where
        with _sharing:
            found = _shared.get(identity)
            # Another id means another table: copies of the old one have other rows under the same paths.
            if found is None or found.table_id != table_id:
                found = cls(table, key, columns, where=where, table_id=table_id)
                _shared[identity] = found
            return found

    def index_of(self, file: DataFile) -> KeyIndex:
        """Return the index of a data file: from a copy, else the one attached to the file, else from the file's keys.

        Args:
            file: One of the table's data files.
        """
        file_key = _file_key(file)
        opened = self._open.get(file_key)
        if opened is not None:
            return opened.index
        with self._lock:
            making = self._making[file_key]
        with making:  # by one thread: another one that needs it waits
            made = self._open.get(file_key)
            return self._note(file_key, self._made(file)) if made is None else made.index

    def _made(self, file: DataFile) -> _Opened:
        stem = self._stem(file)
        opened = self._from_copy(file, stem)
        if opened is None:  # missing, damaged or of another boot: made again
            opened = self._from_file(file, stem)
        return opened

    def opened(self, file: DataFile) -> KeyIndex | None:
        """Return the index of a data file if this process has a copy of its rows open, as of a file that it has just written."""
        opened = self._open.get(_file_key(file))
        if opened is None:
            return None
        index = opened.index
        return index if index.rows.is_copied else None

    def indexed(self, rows: pa.Table) -> Indexed:
        """Index the rows of a data file that is about to be written.

        Args:
            rows: All its rows, in its order.
        """
        kept, kept_positions = _kept(rows, self.where)
        selected = kept.select(self.columns.names)
        names = with_values(selected, self.key)
        columns = columns_named(self.columns, names)
        typed = selected.select(names).cast(columns)
        in_order, hashes, order = KeyIndex.in_hash_order(typed, self.key)
        positions = order if kept_positions is None else kept_positions[order]
        attachment = None
        if len(rows) >= ATTACHED_FROM:
            attachment = attached_index.attachment(self._attached_identity, hashes, positions)
        return Indexed(hashes, positions, in_order, attachment)

    def range_tag(self, indexed: Indexed) -> dict[str, str]:
        """Return the tag by which `range_of` knows the keys of a file that is being written; none without rows."""
        return tag_of(indexed.hashes, self._range_identity)

    def range_of(self, file: DataFile) -> KeyRange:
        """Return the range of the hashes of a file's keys, by its tag: no file is opened. Without a tag all hashes are in it."""
        return file.key_range(self._range_identity)

    def keep(self, file: DataFile, indexed: Indexed) -> None:
        """Copy the rows of a data file that was just written.

        Args:
            file: The data file.
            indexed: All its rows, as `indexed` returned them.
        """
        stem = self._stem(file)
        source = self._source(file, stem, indexed.hashes, indexed.positions)
        rows = indexed.rows
        is_copied = self.space.takes_new(rows.nbytes)
        copy = source.keep(rows) if is_copied else source.keep_keys()
        opened = self._opened(source, copy)
        self._note(_file_key(file), opened)

    def only(self, files: Iterable[DataFile]) -> None:
        """Close the indices of files that no longer count, and delete their copies.

        Args:
            files: The files of the table's version.
        """
        # Only when the version changes: files that were indexed since the last call are written, and not committed yet.
        live = {_file_key(file) for file in files}
        with self._lock:
            if live == self._live:
                return
            self._live = live
            dead = [self._open.pop(file_key).stem for file_key in self._open.keys() - live]
            dead += [self._closed.pop(file_key) for file_key in self._closed.keys() - live]
            self._making.clear()
        for stem in dead:
            self.space.delete(stem)
        if time.monotonic() >= self._looks_s:
            self._looks_s = time.monotonic() + LOOKS_EVERY_S
            self._look()

    def _look(self) -> None:
        """Close the indices whose copies another process has deleted, and note that the rest is in use."""
        self.close_deleted()
        for path in self.copies_in_use():
            with contextlib.suppress(OSError):
                copy_files.note_use(path)

    def close(self) -> None:
        """Close all indices that have a copy; the next use opens them again."""
        with self._lock:
            for file_key, opened in list(self._open.items()):
                if opened.path is not None:
                    self._closed[file_key] = opened.stem
                    del self._open[file_key]

    def close_deleted(self) -> None:
        """Close the indices whose copies are deleted: a mapped file keeps its bytes on disk."""
        with self._lock:
            for file_key, opened in list(self._open.items()):
                path = opened.path
                is_deleted = path is not None and not path.exists()
                if is_deleted:
                    del self._open[file_key]

    def copies_in_use(self) -> set[Path]:
        """Return the copies whose indices are open."""
        with self._lock:
            paths = {opened.path for opened in self._open.values()}
        return {path for path in paths if path is not None}

    def _note(self, file_key: _FileKey, opened: _Opened) -> KeyIndex:
        with self._lock:
            self._open[file_key] = opened
            self._closed.pop(file_key, None)
        return opened.index

    def _stem(self, file: DataFile) -> str:
        """Return the beginning of the names of a file's copies."""
        # With the footer: a file that was replaced by one of the same path and size gets another copy.
        footer = file.footer
        if footer is None:
            footer = ParquetFile(file.location(self.table)).footer_checksum()
        file_digest = _digest(*_file_key(file), footer)
        prefix = copy_files.prefix_of(self.table)
        return f"{prefix}{self._content_key}-{file_digest}"

    def _from_copy(self, file: DataFile, stem: str) -> _Opened | None:
        """Map a copy into memory; None if none can be read."""
        for path in self.space.paths(stem):
            with contextlib.suppress(OSError, pa.ArrowException, KeyError):
                if not Location(self.space.folder).is_ours():
                    return None  # another user may have written anything there
                copy = Copy(path)
                hashes = copy.numbers(HASH)
                positions = copy.numbers(POSITION)
                source = self._source(file, stem, hashes, positions)
                copy_files.note_use(path)
                return self._opened(source, copy)
        return None

    def _from_file(self, file: DataFile, stem: str) -> _Opened:
        index = self._attached(file) or self._computed(file)
        source = self._source(file, stem, *index)
        copy = source.keep_keys()
        return self._opened(source, copy)

    def _source(
        self,
        file: DataFile,
        stem: str,
        hashes: Hashes,
        positions: Positions,
    ) -> FileSource:
        # Nothing that leads back to this cache: a cycle would keep copies mapped until it is collected.
        return FileSource(
            self.space,
            self.table,
            self.columns,
            tuple(self.key),
            file,
            stem,
            hashes,
            positions,
        )

    def _opened(self, source: FileSource, copy: Copy | None) -> _Opened:
        """Return an index over a copy, if there is one."""
        path, keys = self.space.paths(source.stem)
        with_rows = None
        keys_in_use = None
        if copy is not None:  # mapped, not in memory
            source.hashes = copy.numbers(HASH)
            source.positions = copy.numbers(POSITION)
            if copy.has_rows:
                with_rows = copy
            else:
                keys_in_use = keys
        rows = FileRows(self.columns, source, with_rows)
        index = KeyIndex(source.hashes, source.positions, rows)
        return _Opened(source.stem, index, path, keys_in_use)

    def _computed(self, file: DataFile) -> tuple[Hashes, Positions]:
        """Return hashes and positions from the keys in a file."""
        fields = [self.columns.field(name) for name in self.key]
        if self.where is not None:
            name, _ = self.where
            if name not in self.key:
                kind = pa.field(name, pa.string())
                fields.append(kind)
        stored = file.read(self.table, pa.schema(fields), live=False)
        rows, kept_positions = _kept(stored, self.where)
        hashes = key_hashes(rows, self.key)
        order = np.argsort(hashes, kind="stable")
        positions = order if kept_positions is None else kept_positions[order]
        return hashes[order], positions

    def _attached(self, file: DataFile) -> tuple[Hashes, Positions] | None:
        """Return the hashes and positions attached to a file; None if missing, or not those needed."""
        footer = file.footer
        n_stored = file.rows or 0
        if footer is None or n_stored < ATTACHED_FROM:
            return None
        location = file.location(self.table)
        found = Attached.read(location, footer=footer)
        if found is None:
            return None
        note, content = found
        return attached_index.index_in(note, content, self._attached_identity)


_CacheKey = tuple[str, tuple[str, ...], pa.Schema, tuple[str, str] | None]
"""Table, key, columns and `where` of a cache."""
_sharing = threading.Lock()
_shared: dict[_CacheKey, IndexCache] = {}
"""The caches of this process: the last one of each table, by the columns of its copies."""


@dataclass(frozen=True)
class _Opened:
    """An index that is open.

    Args:
        stem: Beginning of the names of its copies.
        index: The index.
        copy: Path of a copy with rows.
        keys: Path of the copy without rows that is mapped; None: there is none.
    """

    stem: str
    index: KeyIndex
    copy: Path
    keys: Path | None

    @property
    def path(self) -> Path | None:
        """Path of the copy in use; None: the index is in memory, as on a full disk."""
        return self.copy if self.index.rows.is_copied else self.keys


def _kept(
    rows: pa.Table,
    where: tuple[str, str] | None,
) -> tuple[pa.Table, Positions | None]:
    """Return the rows with a value in a column, and their positions; None: all."""
    if where is None:
        return rows, None
    name, value = where
    has_value = pc.equal(rows[name], pa.scalar(value))
    is_kept = has_value.fill_null(False)
    if pc.all(is_kept).as_py():  # then nothing has to be copied
        return rows, None
    kept = rows.filter(is_kept)
    positions = np.flatnonzero(is_kept.to_numpy())
    return kept, positions


def _file_key(file: DataFile) -> _FileKey:
    size = str(file.add.get("size"))
    time = str(file.add.get("modificationTime"))
    footer = file.footer or ""
    return file.path, size, time, footer


def _digest(*parts: str) -> str:
    text = "\0".join(parts)
    digest = hashlib.blake2b(text.encode(), digest_size=10)
    return digest.hexdigest()
