"""Limits the space of local copies, and deletes old ones if there is too little.

Copies of new files are always made. Those of older ones are made only while there is room to spare, and in use they are not made again once they had
to go: else a process whose tables need more than the space would make all of them again in each step, each in place of one that it needs next.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

import pyarrow as pa

from ebbtide.amounts import amount
from ebbtide.delta import _copy_files as copy_files
from ebbtide.delta._copy_files import Copy
from ebbtide.environment import CACHE, CACHE_BYTES
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.delta._erasing import Doomed

_log = logging.getLogger(__name__)

UNSEEN = 0.05
"""Share of the allowed bytes that a process writes between two scans of all copies."""
EVICTED_TO = 0.8
"""Share of the allowed bytes to which old copies are deleted, and up to which copies of older files are made."""
KEYS = ".keys.arrow"
"""End of the names of copies without rows: small, and the last to go."""


@dataclass(frozen=True)
class LocalCopies:
    """The local copies of data files in a folder of this host, for looking up keys.

    Args:
        folder: The folder. Default: from the environment.
    """

    folder: Path = field(default_factory=lambda: Path(CACHE.value) if CACHE.value else copy_files.own_folder())

    @classmethod
    def reached(cls) -> list[LocalCopies]:
        """Return those that this process reaches: in its own folder, and in the user's default one."""
        folders = {cls().folder, copy_files.own_folder()}
        return [cls(folder) for folder in sorted(folders)]

    @property
    def max_bytes(self) -> int:
        """Bytes that they may take, approximately."""
        return int(CACHE_BYTES.value)

    def prefix_of(self, table: str) -> str:
        """Return the prefix of the names of a table's copies, for any columns."""
        return copy_files.prefix_of(table)

    def possibly_of(self, tables: Sequence[str]) -> list[Path]:
        """Return those of some tables, or of an earlier release, which may be of any table.

        Args:
            tables: Locations of the tables.
        """
        return copy_files.possible_copies(self.folder, tables)

    def n_held(self, path: Path, ways: Iterable[Doomed]) -> int | None:
        """Count the rows of a copy that are erased; None if it cannot be read, or does not say whose rows it has.

        Args:
            ways: What selects rows, each in one table that the copy may be of.
        """
        if path.suffix != ".arrow":
            return None  # unfinished: its writer makes it again, or is dead
        try:
            copy = Copy(path)
            rows = copy.all_rows()
        except (OSError, pa.ArrowException):
            return None
        if not copy.has_rows:
            return None  # hashes alone do not say whose they are
        n_rows = 0
        for way in ways:
            stored = [column for column in way.columns if column.name in rows.column_names]
            # A copy leaves out columns that are null throughout; one of another table has other columns.
            if stored and all(rows[column.name].type == column.type for column in stored):
                n_rows = max(n_rows, way.n_held(copy_files.filled(rows, way.columns)))
        return n_rows

    def begin(self, table: str, generation: str) -> None:
        """Note the generation of a table's copies from now on: those of an earlier one are deleted."""
        copy_files.mark(self.folder, table, generation)

    def drop_older(self, table: str, generation: str) -> None:
        """Delete the copies of a table that are of an earlier generation, once in a folder, and close those that are open.

        Args:
            table: Location of the table.
            generation: The present one.
        """
        copy_files.drop_older(self.folder, table, generation)
        self.close_deleted()

    def close_deleted(self) -> None:
        """Close the copies of this process that are deleted: a mapped file keeps its bytes on disk."""
        close_deleted_copies()


class User(Protocol):
    """Who has copies open."""

    def copies_in_use(self) -> set[Path]:
        """Return the copies that are open."""

    def close_deleted(self) -> None:
        """Close those that are deleted: a mapped file keeps its bytes on disk."""


_seen_bytes: dict[Path, int] = {}
"""Bytes of the copies that this process found in each folder when it last scanned it, without those that it has deleted since."""
_unseen_bytes: dict[Path, int] = {}
"""Bytes that this process has written into each folder since it scanned all copies there."""
USERS: WeakSet[User] = WeakSet()
"""The users in this process."""


def close_deleted_copies() -> None:
    """Close the copies of this process that are deleted."""
    for each in list(USERS):
        each.close_deleted()


class Space:
    """The space of a folder of copies.

    Args:
        folder: The folder.
        max_bytes: Bytes that all copies in it may take, approximately.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes

    def admits(self, n_bytes: int) -> bool:
        """Return whether there is room to spare for so many more bytes, as far as is known since the last scan."""
        # Asked for each file of a step: a scan of all copies for each answer would take longer than the look-up.
        known_bytes = _seen_bytes.get(self.folder)
        if known_bytes is None:
            known_bytes = self._scanned()
        used_bytes = known_bytes + _unseen_bytes.get(self.folder, 0)
        room_until = self.max_bytes * EVICTED_TO
        return used_bytes + n_bytes <= room_until

    def takes_new(self, n_bytes: int) -> bool:
        """Return whether to copy a new file: yes, unless it is large compared with the space."""
        is_small = n_bytes <= self.max_bytes * UNSEEN
        return is_small or self.admits(n_bytes)

    def paths(self, stem: str) -> tuple[Path, Path]:
        """Return the paths of a file's copy with rows, and of the one without."""
        with_rows = self.folder / f"{stem}.arrow"
        keys = self.folder / f"{stem}{KEYS}"
        return with_rows, keys

    def write(self, path: Path, stored: pa.Table) -> Copy | None:
        """Write a copy and return it; None if it cannot be written, as on a full disk."""
        unique = uuid.uuid4().hex
        unfinished = path.with_name(f"{path.name}.{unique}.tmp")
        try:
            if not self._is_ours():
                return None  # another user could read the rows
            copy_files.write(unfinished, stored)
            # A rename within the folder is atomic: another process sees the whole copy or none.
            unfinished.replace(path)
            copy = Copy(path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            return None
        self._written(copy.n_bytes)
        return copy

    def _is_ours(self) -> bool:
        """Make the folder if it is not there; return whether this user alone can write to it."""
        folder = Location(self.folder)
        try:
            return folder.is_ours()
        except FileNotFoundError:
            folder.make_private()
            return folder.is_ours()

    def delete(self, stem: str) -> None:
        """Delete the copies of a data file."""
        for path in self.paths(stem):
            with contextlib.suppress(OSError):
                n_bytes = path.stat().st_size
                path.unlink()
                if self.folder in _seen_bytes:
                    _seen_bytes[self.folder] -= n_bytes

    def _written(self, n_bytes: int) -> None:
        # With a process's first copy, then after every `UNSEEN` share of the bytes: a scan of all copies costs more than one copy.
        unseen_bytes = _unseen_bytes.get(self.folder, 0) + n_bytes
        _unseen_bytes[self.folder] = unseen_bytes
        known_bytes = _seen_bytes.get(self.folder)
        if known_bytes is not None:
            is_due = unseen_bytes >= self.max_bytes * UNSEEN
            is_over = known_bytes + unseen_bytes > self.max_bytes
            if not (is_due or is_over):
                return
        deleted = self._evicted()
        deleted_in_use = [deleted & each.copies_in_use() for each in list(USERS)]
        if any(deleted_in_use):
            _warn_of_cap(str(self.folder), self.max_bytes)
        close_deleted_copies()

    def _evicted(self) -> set[Path]:
        """Delete the copies that were not used for longest, if all take too much."""
        total_bytes = self._scanned()
        deleted: set[Path] = set()
        if total_bytes <= self.max_bytes:
            return deleted
        least_recent_first = sorted(self._copies())
        for _, _, n_bytes, path in least_recent_first:
            with contextlib.suppress(OSError):
                path.unlink()
            deleted.add(path)
            total_bytes -= n_bytes
            if total_bytes <= self.max_bytes * EVICTED_TO:
                break
        _seen_bytes[self.folder] = total_bytes
        return deleted

    def _scanned(self) -> int:
        """Return the bytes of all copies."""
        sizes = [n_bytes for _, _, n_bytes, _ in self._copies()]
        total_bytes = sum(sizes)
        _seen_bytes[self.folder] = total_bytes
        _unseen_bytes[self.folder] = 0
        return total_bytes

    def _copies(self) -> Iterator[tuple[bool, int, int, Path]]:
        """Yield each copy: whether it has no rows, its last use, its bytes and its path."""
        for path in self.folder.glob("*.arrow"):
            with contextlib.suppress(OSError):
                status = path.stat()
                has_keys_alone = path.name.endswith(KEYS)
                yield has_keys_alone, status.st_atime_ns, status.st_size, path


@cache
def _warn_of_cap(folder: str, max_bytes: int) -> None:
    _log.warning(
        "The local copies in '%s' need more than the %s that %s allows: rows of files without a copy are read from the table, by row "
        "group. Give %s more bytes, or name a folder on a larger disk by %s.",
        folder,
        amount(max_bytes, "byte"),
        CACHE_BYTES.name,
        CACHE_BYTES.name,
        CACHE.name,
    )
