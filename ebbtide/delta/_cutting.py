"""Cuts the log of a table, so that nothing is left of its earlier versions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

from ebbtide.delta._checkpoints import write_checkpoint
from ebbtide.delta._log import Log
from ebbtide.delta._snapshot import Snapshot
from ebbtide.errors import DeltaLogError
from ebbtide.storage import Location

CHECKSUM = re.compile(r"\..+\.crc")
"""Name of a file that Hadoop's local file system writes for each other file."""


def cut_log(table: str, commit: Callable[..., Snapshot | None], info: Callable[[Snapshot], dict[str, object]]) -> int:
    """Cut the log of a table; see `Writer.cut_log`.

    Args:
        table: Its location.
        commit: That of the writer.
        info: Returns the fields of the `commitInfo` of a commit.

    Returns:
        Number of the files that were deleted.

    Raises:
        DeltaLogError: the checkpoint could not be written.
    """
    snapshot = Snapshot.read(table)
    if snapshot is None:
        return 0
    while _names_files(table, snapshot.version):
        made = commit(snapshot, [], info(snapshot), adds_rows=False)
        snapshot = made or snapshot.advanced()
    folder = Log(table).folder
    version = snapshot.version
    # In a partitioned table the names of removed files contain values, and a checkpoint keeps them for the retention.
    is_partitioned = bool(snapshot.metadata.get("partitionColumns"))
    checkpoint = write_checkpoint(table, version, removed=not is_partitioned)
    if checkpoint is None:
        raise DeltaLogError.of(
            f"No checkpoint of version {version} of '{table}' could be written: earlier commits, which hold erased values, stay.",
            next_step="Run the same command again; it continues where it ended.",
        )
    n_deleted = _delete_before(folder, version, checkpoint)
    _delete_empty_folders(table)
    for name in ("_sidecars", "_staged_commits", "_commits"):
        inner = folder / name
        n_deleted += len(inner.list_files())
        inner.delete()
    return n_deleted


def _names_files(table: str, version: int) -> bool:
    """Return whether a commit names a data file or a change file."""
    kinds: set[str] = set()
    for action in Log(table).commit(version):
        kinds.update(action)
    return not kinds.isdisjoint({"add", "remove", "cdc"})


def _delete_before(folder: str, version: int, checkpoint: tuple[str, str]) -> int:
    """Delete the files of a log, except those of a version, its checkpoint and later versions; return their number.

    Args:
        folder: Folder of the log.
        version: The version.
        checkpoint: Names of the files of its checkpoint.
    """
    of_version = f"{version:020d}"
    kept = {f"{of_version}{Log.COMMIT}", *checkpoint}
    n_deleted = 0
    for name in sorted(Location(folder).file_names()):
        version_digits = name[:20]
        is_later = version_digits.isdigit() and version_digits > of_version
        if is_later or name in kept:
            continue
        (Location(folder) / name).delete()
        n_deleted += 1
    return n_deleted


def _delete_empty_folders(table: str) -> None:
    """Delete the folders of partitions without a data file, whose names have values; a store has no folders."""
    if not Location(table).is_local:
        return
    innermost_first = sorted(Path(table).rglob("*=*"), reverse=True)
    for inner in innermost_first:
        if not inner.is_dir():
            continue
        files = list(inner.iterdir())
        has_checksums_alone = all(CHECKSUM.fullmatch(file.name) for file in files)
        if not has_checksums_alone:
            continue
        for file in files:
            file.unlink()
        with contextlib.suppress(OSError):  # another client has just written there
            inner.rmdir()
