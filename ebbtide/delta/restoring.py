"""Brings a table back to an earlier version, as a commit of its own: as far as the files of that version are still there."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ebbtide.delta import vectors
from ebbtide.delta.log import footer_of
from ebbtide.delta.snapshot import Action, DataFile, Snapshot
from ebbtide.delta.table import replacing
from ebbtide.disk import AT_ONCE
from ebbtide.errors import DeltaLogError, HistoryGoneError
from ebbtide.paths import footer_checksum, size_of


def restoring(now: Snapshot, version: int, *, data_change: bool = True) -> list[Action]:
    """Return the actions that bring a table back to an earlier version, whole.

    Args:
        now: Its newest version.
        version: The earlier one.
        data_change: Rows change by that. Else only the columns that they have.

    Raises:
        HistoryGoneError: its data files, or the commits that name them, are gone or damaged.
    """
    before = Snapshot.read(now.table, version)
    if before is None or before.version != version:
        raise _gone(now.table, version, "its commit is deleted")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        faults = Counter(pool.map(partial(_fault, now.table), before.files.values()))
    del faults[""]
    if faults:
        counts = [f"{n_files} of its data files {fault}" for fault, n_files in sorted(faults.items())]
        raise _gone(now.table, version, ", ".join(counts))
    actions: list[Action] = [{"metaData": before.metadata}]
    for id_, file in before.files.items():
        if id_ not in now.files:
            add = {**file.add, "dataChange": data_change}
            actions.append({"add": add})
    goes = [file for id_, file in now.files.items() if id_ not in before.files]
    return replacing(goes, actions, data_change=data_change)


def _fault(table: str, file: DataFile) -> str:
    """Return what is wrong with a data file, as far as its size, its footer and its deletion vector show; empty if it is whole."""
    location = file.location(table)
    size = size_of(location)
    if size is None:
        return "deleted, as by VACUUM"
    footer = footer_of(file.add)
    is_whole = size == file.size and footer in (None, footer_checksum(location)) and _has_vector(table, file)
    return "" if is_whole else "damaged, as by a power cut"


def _has_vector(table: str, file: DataFile) -> bool:
    try:
        return file.vector is None or vectors.read(table, file.vector) is not None
    except DeltaLogError:
        return False


def _gone(table: str, version: int, what: str) -> HistoryGoneError:
    return HistoryGoneError.of(
        f"The table '{table}' cannot be brought back to version {version}.",
        got=what,
        allowed="a version whose files are all there, and whole",
        next_step="Restore them from a copy, name another step, or run 'ebbtide refresh' to rebuild all tables from the source.",
    )
