"""The work on one part of a step's changes to a table: new rows are written to new files, the rows that they replace are found.

It runs in workers: a part has all changes of its keys, so that parts know nothing of each other. What comes back are actions of the
log, and positions of rows; the one who commits joins them. No row leaves the worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from ebbtide.columns import row_codes
from ebbtide.delta import Action, DataFile, KeyIndex, LostRows, write_files
from ebbtide.tables._joining import ROWS_PER_FILE
from ebbtide.tables._replaced_rows import FileId, ReplacedRows, Upsert, Version

_IMAGE_KINDS = ("update_preimage", "delete", "update_postimage", "insert")
_BEFORE, _DELETED, _AFTER, _INSERTED = range(4)


class Piece(Protocol):
    """A part of a step's changes; picklable where workers apply it."""

    def middle(self) -> int:
        """Return a hash in the middle of those of its keys."""

    def __call__(self) -> Upsert:
        """Return the part, the same each time."""


@dataclass(frozen=True)
class WholeUpsert:
    """All changes of a step, which are here.

    Args:
        upsert: The changes.
    """

    upsert: Upsert

    def middle(self) -> int:
        """See `Piece`."""
        return 2**63

    def __call__(self) -> Upsert:
        """See `Piece`."""
        return self.upsert


@dataclass(frozen=True)
class TableFiles:
    """Writes rows of a table, and reads those that it loses.

    Args:
        table: Its location.
        columns: All its columns.
        key: Names of the key's columns.
        bounded: Columns to keep statistics of.
        keeps_rows: The local copies hold whole rows, not only keys: the change feed is then written without reading data files.
    """

    table: str
    columns: pa.Schema
    key: tuple[str, ...]
    bounded: tuple[str, ...]
    keeps_rows: bool

    def replaced(self, version: Version) -> ReplacedRows:
        """Return what finds rows of a version."""
        found = ReplacedRows(self.table, self.columns, self.key, with_rows=self.keeps_rows)
        found.follow(version)
        return found

    def write(
        self,
        rows: pa.Table,
        version: Version,
        replaced: ReplacedRows,
        *,
        data_change: bool = True,
        is_copied: bool = True,
    ) -> list[Action]:
        """Write rows, and index them; return the actions that add the files.

        Args:
            rows: The rows.
            version: The version that the commit follows.
            replaced: Its local copies get the files.
            data_change: The rows are new to the table.
            is_copied: See `write_files`.
        """
        # In the order of keys: the statistics of the files then overlap little, and lookups open few files.
        in_order = rows
        if len(rows):
            by_key = [(name, "ascending") for name in self.key]
            in_order = rows.sort_by(by_key)
        return write_files(
            self.table,
            in_order,
            self.bounded,
            rows_per_file=ROWS_PER_FILE,
            data_change=data_change,
            copies=replaced.copies,
            is_copied=is_copied,
            partitioned=version.partitioned,
        )

    def write_images(self, old: pa.Table, rows: pa.Table, version: Version) -> list[Action]:
        """Write files of a commit's change feed: each row before and after its change.

        Args:
            old: The rows that the table loses.
            rows: Those that it gets.
            version: The version that the commit follows.
        """
        n_old = len(old)
        # Dense codes of the keys match old rows with new ones by integers, for all types of keys. O(changes).
        old_keys = old.select(self.key)
        new_keys = rows.select(self.key)
        keys = pa.concat_tables([old_keys, new_keys])
        codes = row_codes(keys, self.key)
        of_old = codes[:n_old]
        of_new = codes[n_old:]
        is_replaced = np.isin(of_old, of_new)
        replaces = np.isin(of_new, of_old)
        old_kinds = np.where(is_replaced, _BEFORE, _DELETED)
        new_kinds = np.where(replaces, _AFTER, _INSERTED)
        kinds = np.concatenate([old_kinds, new_kinds])
        new = rows.cast(old.schema)
        images = pa.concat_tables([old, new])
        kind_column = pa.array(_IMAGE_KINDS).take(pa.array(kinds))
        # By key, each old row before its new one: what an update leaves as it is then takes hardly a byte.
        by_key = [(name, "ascending") for name in self.key]
        feed = images.append_column("_change_type", kind_column).sort_by(by_key)
        return DataFile.write_changes(self.table, feed, version.partitioned)


@dataclass(frozen=True)
class Applied:
    """The result of a part.

    Args:
        adds: The actions that add the files of its new rows.
        dead: Id of a file that loses rows to the positions of all its rows that do not count afterwards, those lost before included.
        feed: The actions of its files of the change feed; None: none was asked for.
    """

    adds: Sequence[Action]
    dead: Mapping[FileId, BitMap64]
    feed: Sequence[Action] | None


@dataclass(frozen=True)
class ApplyPiece:
    """Applies a part of a step's changes to a version of a table; runs in workers.

    Args:
        files: The table.
        version: The version that the commit follows.
        writes_rows: Write the new rows; they are not written yet.
        feeds: Write the part's change feed, if it replaces rows.
        always_feeds: Write it in any case: readers take the whole feed of a commit from its own files, if there is one.
    """

    files: TableFiles
    version: Version
    writes_rows: bool
    feeds: bool
    always_feeds: bool = False

    def __call__(self, piece: Piece) -> Applied:
        """Apply a part."""
        part = piece()
        files = self.files
        replaced = files.replaced(self.version)
        adds = files.write(part.rows, self.version, replaced) if self.writes_rows else []
        losses = list(replaced.losses(self.version.files, part))
        feed = None
        if self.always_feeds or (self.feeds and losses):
            lost = [replaced.rows_of(loss) for loss in losses]
            old = pa.concat_tables([files.columns.empty_table(), *lost])
            feed = files.write_images(old, part.rows, self.version)
        dead = {loss.file.id: loss.dead for loss in losses}
        return Applied(tuple(adds), dead, feed)


@dataclass(frozen=True)
class WriteLeft:
    """Writes the remaining rows of some files to a new file; runs in workers.

    Args:
        files: The table.
        version: The version that the commit follows.
    """

    files: TableFiles
    version: Version

    def __call__(self, partly: Sequence[LostRows]) -> list[Action]:
        """Write what some files keep; return the actions that add the new ones."""
        files = self.files
        left = [files.columns.empty_table()]
        left += [lost.file.read_without(files.table, files.columns, lost.dead) for lost in partly]
        return files.write(pa.concat_tables(left), self.version, files.replaced(self.version))


@dataclass(frozen=True)
class JoinFiles:
    """Writes the rows of some files to a new one; no row changes. Runs in workers.

    Args:
        files: The table.
        version: The version that has the files.
    """

    files: TableFiles
    version: Version

    def __call__(self, joined: Sequence[DataFile]) -> list[Action]:
        """Join some files; return the actions that add the new ones."""
        files = self.files
        rows = [file.read(files.table, files.columns) for file in joined]
        whole = pa.concat_tables([files.columns.empty_table(), *rows])
        return files.write(whole, self.version, files.replaced(self.version), data_change=False)


@dataclass(frozen=True)
class CutFile:
    """Writes the rows of a file to new ones with a range of the keys each; no row changes. Runs in workers.

    Args:
        files: The table.
        version: The version that has the file.
        n_ranges: Number of the ranges, which are equal: a power of two.
    """

    files: TableFiles
    version: Version
    n_ranges: int

    def __call__(self, file: DataFile) -> list[Action]:
        """Cut a file; return the actions that add the new ones."""
        files = self.files
        rows = file.read(files.table, files.columns)
        in_order, hashes, _ = KeyIndex.in_hash_order(rows, files.key)
        begins = np.arange(1, self.n_ranges, dtype=np.uint64) * np.uint64(2**64 // self.n_ranges)
        cuts = [0, *np.searchsorted(hashes, begins).tolist(), len(hashes)]
        replaced = files.replaced(self.version)
        adds = []
        for first, end in pairwise(cuts):
            part = in_order.slice(first, end - first)
            # The next step looks these keys up on another host.
            adds += files.write(part, self.version, replaced, data_change=False, is_copied=False)
        return adds
