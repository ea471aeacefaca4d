"""Finds the rows that a step's changes replace, by their keys, in the key indices of the data files.

Invariant: after the commit each key has at most one row. Rows are looked up in the version that the commit follows, never at positions
from an earlier one, so OPTIMIZE, DELETE or RESTORE by another client cannot leave two. Cost: O(changes * log(rows of a file)) for each
file that may hold one of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from ebbtide.columns import Mask, columns_named, only
from ebbtide.delta import DataFile, IndexCache, KeyBounds, KeyIndex, Snapshot

FileId = tuple[str, str]
"""`DataFile.id`."""
IsBelow = Callable[[pa.Table], Mask]
"""Marks the rows that a TRUNCATE deletes."""


@dataclass(frozen=True)
class Upsert:
    """The changes of a step to a table.

    Args:
        keys: The keys of all changes, once each.
        rows: The new rows of some of these keys; keys without one are deleted.
        is_below: Marks the rows that a TRUNCATE deletes, given the columns of `floor_columns`; None: there is none.
        floor_columns: Columns that `is_below` needs.
    """

    keys: pa.Table
    rows: pa.Table
    is_below: IsBelow | None = None
    floor_columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileLoss:
    """A data file that loses rows.

    Args:
        file: The file.
        rows: Numbers of the rows of its index that it loses.
        dead: Positions of all rows that do not count afterwards, those lost before included.
    """

    file: DataFile
    rows: NDArray[np.int64]
    dead: BitMap64

    @property
    def is_whole(self) -> bool:
        """True if no row is left."""
        return len(self.dead) == self.file.rows


@dataclass(frozen=True)
class Version:
    """A version of a table, as far as its rows are looked for there, and written for the next one; picklable.

    Args:
        table_id: Id of the table.
        files: Its data files.
        partitioned: Its partition columns.
    """

    table_id: str
    files: tuple[DataFile, ...]
    partitioned: tuple[str, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Self:
        """Take it from a snapshot."""
        return cls(snapshot.id, tuple(snapshot.files.values()), snapshot.partitioned)


class ReplacedRows:
    """The rows of one table, by their keys; `follow` goes first.

    Args:
        table: Its location.
        columns: Its columns.
        key: Names of the key's columns.
        with_rows: The local copies hold whole rows, not only keys: the change feed is then written without reading data files.
    """

    def __init__(
        self,
        table: str,
        columns: pa.Schema,
        key: Sequence[str],
        *,
        with_rows: bool,
    ) -> None:
        self._table = table
        self._columns = columns
        self._key = list(key)
        self._copied = columns if with_rows else columns_named(columns, key)
        self._cache: IndexCache

    def follow(self, newest: Version) -> None:
        """Begin or continue with a version of the table, or of a table that replaced it."""
        self._cache = IndexCache.shared(self._table, self._key, self._copied, table_id=newest.table_id)
        self._cache.only(newest.files)

    @property
    def copies(self) -> IndexCache:
        """The local copies of the table that it follows."""
        return self._cache

    def losses(self, files: Iterable[DataFile], upsert: Upsert) -> Iterator[FileLoss]:
        """Yield the files of a version that lose rows to an upsert."""
        keys = upsert.keys.select(self._key)
        keys_in_order, hashes_in_order, _ = KeyIndex.in_hash_order(keys, self._key)
        bounds = KeyBounds(keys_in_order)
        # Hashes are sorted once for all files: each index has its rows in that order too, and is searched by bisection.
        for file in files:
            found = np.zeros(0, np.int64)
            in_range = self._cache.range_of(file).rows_of(hashes_in_order)
            may_be_held = np.zeros(len(hashes_in_order), dtype=bool)
            if in_range.start < in_range.stop:
                may_be_held[in_range] = bounds.may_hold(file)[in_range]
            if may_be_held.any():
                own_keys = only(keys_in_order, pa.array(may_be_held))
                index = self._cache.index_of(file)
                found, _ = index.find(own_keys, hashes_in_order[may_be_held])
            if upsert.is_below is not None:
                below = self._below(file, upsert.is_below, upsert.floor_columns)
                found = np.union1d(found, below)
            if len(found):
                yield from self._losing(file, found)

    def _losing(self, file: DataFile, found: NDArray[np.int64]) -> Iterator[FileLoss]:
        """Yield the loss of a file that loses some index rows; nothing if all are already deleted."""
        index = self._cache.index_of(file)
        positions = index.positions[found]
        known = BitMap64()
        if file.vector is not None:
            known = file.deleted_rows(self._table)
        # The index has all rows of the file, those that a deletion vector hides included. A row is lost once: the change
        # feed would show a second delete.
        is_new = file.is_live(self._table, positions)
        if is_new.any():
            new = BitMap64(positions[is_new].astype(np.uint64))
            dead = known | new
            yield FileLoss(file, found[is_new], dead)

    def _below(
        self,
        file: DataFile,
        is_below: IsBelow,
        names: Sequence[str],
    ) -> NDArray[np.int64]:
        """Return the index rows of a file that a TRUNCATE deletes; reads the columns that decide it, of all keys."""
        columns = columns_named(self._columns, names)
        rows = file.read(self._table, columns, live=False)
        below = is_below(rows)
        index = self._cache.index_of(file)
        return np.flatnonzero(below[index.positions])

    def rows_of(self, loss: FileLoss) -> pa.Table:
        """Read the rows that a file loses."""
        index = self._cache.index_of(loss.file)
        rows = index.rows.take(loss.rows)
        return rows.cast(self._columns)
