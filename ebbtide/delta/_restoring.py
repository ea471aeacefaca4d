"""Restores a table to an earlier version if the files of that version still exist; finds such a version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from ebbtide.delta._data_file import DataFile, FileId
from ebbtide.delta._log import Action, Log
from ebbtide.delta._snapshot import Snapshot
from ebbtide.delta._table import replacing
from ebbtide.errors import DamagedFileError, DeltaLogError, HistoryGoneError, UnsupportedFileError
from ebbtide.storage import Location, footer_checksum, read_parquet

LOOKS_AT_ONCE = 16
"""Files that are looked at in parallel."""


def restoring(now: Snapshot, version: int, *, data_change: bool = True) -> list[Action]:
    """Return the actions that restore a table to an earlier version.

    Args:
        now: Its newest version.
        version: The earlier one.
        data_change: Rows change. Else only their columns do.

    Raises:
        HistoryGoneError: its data files, or the commits that name them, are gone or damaged.
    """
    before = Snapshot.read(now.table, version)
    if before is None or before.version != version:
        raise _gone(now.table, version, "its commit is deleted")
    faults = _faults(before)
    if faults:
        raise _gone(now.table, version, faults)
    # The protocol stays: a feature that was added since is kept.
    wanted = replace(before, protocol=now.protocol)
    return becoming(now, wanted, data_change=data_change)


def _faults(snapshot: Snapshot) -> str:
    """Return what is wrong with the data files of a version; empty if nothing is."""
    with ThreadPoolExecutor(LOOKS_AT_ONCE) as pool:
        # Size, footer and vector of each file, not its pages: cheap enough for each restore. `WholeFiles` reads all pages.
        fault_of = partial(_fault, snapshot.table)
        n_files_by_fault = Counter(pool.map(fault_of, snapshot.files.values()))
    counts = []
    for fault, n_files in sorted(n_files_by_fault.items()):
        if fault:
            counts.append(f"{n_files} of its data files {fault}")
    return ", ".join(counts)


def becoming(now: Snapshot, wanted: Snapshot, *, data_change: bool = True) -> list[Action]:
    """Return the actions of one commit from a version to a wanted one, which may exist only in memory.

    Args:
        now: The newest version.
        wanted: The wanted version: protocol, definition and files.
        data_change: Rows change.
    """
    # The difference by file ids: a file of both versions is not named.
    actions: list[Action] = []
    if wanted.protocol != now.protocol:
        actions.append({"protocol": wanted.protocol})
    if wanted.metadata != now.metadata:
        actions.append({"metaData": wanted.metadata})
    for id_, file in wanted.files.items():
        if id_ not in now.files:
            add = {**file.add, "dataChange": data_change}
            actions.append({"add": add})
    goes = []
    for id_, file in now.files.items():
        if id_ not in wanted.files:
            goes.append(file)
    return replacing(goes, actions, data_change=data_change)


class WholeFiles:
    """Verifies data files of a table by reading all their pages, each file once.

    Args:
        table: Its location.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self._is_whole: dict[FileId, bool] = {}

    def damaged(self, snapshot: Snapshot) -> Iterator[DataFile]:
        """Yield the files of a version that are gone or damaged, or whose deletion vector is so."""
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
            read_parquet(location, footer=footer)
            if file.vector is not None:
                file.deleted_rows(self.table)
        except (DamagedFileError, DeltaLogError, UnsupportedFileError):
            return False
        return True


def _added_in(table: str, version: int) -> set[FileId]:
    """Return the data files that a commit added."""
    files = [DataFile(add) for add in Log(table).commit(version).adds()]
    return {file.id for file in files}


def _fault(table: str, file: DataFile) -> str:
    """Return the fault of a data file, by its size, its footer and its deletion vector; empty if it is whole."""
    location = file.location(table)
    size = Location(location).size()
    if size is None:
        return "deleted, as by VACUUM"
    has_size = size == file.size
    is_whole = has_size and _has_footer(location, file) and _has_vector(table, file)
    return "" if is_whole else "damaged, as by a power cut"


def _has_footer(location: str, file: DataFile) -> bool:
    noted = file.footer
    return noted is None or noted == footer_checksum(location)


def _has_vector(table: str, file: DataFile) -> bool:
    if file.vector is None:
        return True
    try:
        file.deleted_rows(table)
    except DeltaLogError:
        return False
    return True


def _gone(table: str, version: int, reason: str) -> HistoryGoneError:
    return HistoryGoneError.of(
        f"The table '{table}' cannot be brought back to version {version}.",
        got=reason,
        allowed="a version whose files are all there, and whole",
        next_step="Restore them from a copy, name another step, or run 'ebbtide refresh' to rebuild all tables from the source.",
    )
