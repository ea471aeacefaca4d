"""Verifies data files by reading all their pages; finds the newest version whose files are whole."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.delta._data_file import DataFile, FileId
from ebbtide.delta._log import Log
from ebbtide.delta._snapshot import Snapshot
from ebbtide.errors import DamagedFileError, DeltaLogError, UnsupportedFileError
from ebbtide.storage import ParquetFile


class WholeFiles:
    """Verifies data files of a table by reading all their pages, each file once.

    Args:
        table: Its location.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self._is_whole: dict[FileId, bool] = {}

    def damaged(self, snapshot: Snapshot) -> Iterator[DataFile]:
        """Yield the files of a version that are missing or damaged, or whose deletion vector is."""
        for file in snapshot.files.values():
            if not self.has(file):
                yield file

    def has(self, file: DataFile) -> bool:
        """Return whether a file exists unchanged."""
        if file.id not in self._is_whole:
            self._is_whole[file.id] = self._can_be_read(file)
        return self._is_whole[file.id]

    def newest(self, since: int, until: int) -> Snapshot | None:
        """Return the newest version in a range, both ends included, whose files are all whole; None without one.

        Args:
            since: The oldest allowed version.
            until: The newest allowed version.
        """
        version = until
        while version >= since:
            try:
                snapshot = Snapshot.read(self.table, version, any_features=True)
            except DeltaLogError:
                return None
            if snapshot is None or snapshot.version != version:
                return None
            damaged = {file.id for file in self.damaged(snapshot)}
            if not damaged:
                return snapshot
            # Older versions have the same damaged file, back to the commit that added it: they are skipped unread.
            while version >= since and damaged.isdisjoint(_added_in(self.table, version)):
                version -= 1
            version -= 1
        return None

    def _can_be_read(self, file: DataFile) -> bool:
        location = file.location(self.table)
        footer = file.footer
        try:
            ParquetFile(location).read(footer=footer)
            if file.vector is not None:
                file.deleted_rows(self.table)
        except (DamagedFileError, DeltaLogError, UnsupportedFileError):
            return False
        return True


def _added_in(table: str, version: int) -> set[FileId]:
    """Return the data files that a commit added."""
    files = [DataFile(add) for add in Log(table).commit(version).adds()]
    return {file.id for file in files}
