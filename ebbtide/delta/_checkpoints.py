"""Writes checkpoints of a table's log, so that readers need no older commit, and deletes those commits."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ebbtide.delta._features import protects_checkpoints
from ebbtide.delta._log import Log, newest_checkpoint
from ebbtide.delta._snapshot import Snapshot
from ebbtide.storage import Location

INTERVAL = 100
"""Commits between two checkpoints."""
RECENT = 10
"""Newest checkpoints that are kept."""
RARE = 100
"""Of older checkpoints, one in this many is kept. Each names all files that were removed within the retention: with small steps they take
most of a table's disk space. A version between two is read from the checkpoint before it and the commits since."""
LAST = "_last_checkpoint"
"""The file that names the newest checkpoint."""
SIDECARS = "_sidecars"
"""Folder in the log of the files that a checkpoint of version 2 names."""
_log = logging.getLogger(__name__)


def checkpoint_if_due(table: str, version: int, *, thins_out: bool = True) -> None:
    """Write a checkpoint of every hundredth version, and delete most of the older ones.

    A failure to write is logged only: the next checkpoint has everything.

    Args:
        table: Location of the table.
        version: The version that was just committed.
        thins_out: Older checkpoints may be deleted.
    """
    if version == 0 or version % INTERVAL:
        return
    if _checkpoint(table, version) and thins_out:
        _thin_out(table, version - RECENT * INTERVAL)


def trim_log(table: str, commits_kept: int | None = None) -> None:
    """Delete commits that a checkpoint covers; none if checkpoints are protected.

    Args:
        table: Location of the table.
        commits_kept: Number of newest commits to keep. Default: those within the table's `delta.logRetentionDuration`, 30 days.
    """
    versions = Log(table).versions()
    if commits_kept is None:
        if not _is_protected(table) and _checkpoint(table, versions[-1]):
            _clean_up(table)
        return
    old = versions[:-commits_kept]
    if len(old) < INTERVAL or _is_protected(table):
        return
    newest = versions[-1]
    if _checkpoint(table, newest):
        for version in old:
            commit = Log(table).commit_file(version)
            Location(commit).delete()
        _forget_checkpoints(table, newest)


def _is_protected(table: str) -> bool:
    snapshot = Snapshot.read(table)
    return snapshot is not None and protects_checkpoints(snapshot.protocol)


def _thin_out(table: str, version: int) -> None:
    """Delete the checkpoint of a version that is no longer recent, unless it must be kept."""
    # Called once for each version, when it stops being recent: this needs no listing of the log.
    stays = version % (RARE * INTERVAL) == 0
    if stays or version < 0:
        return
    location = Log(table).folder / _name(version)
    try:
        location.delete()
    except OSError as error:
        _log.warning("The old checkpoint of version %d of '%s' stays: %s", version, table, error)


def _forget_checkpoints(table: str, newest: int) -> None:
    """Delete the checkpoints before the newest one."""
    folder = Log(table).folder
    for name in folder.list_files():
        version, _, rest = name.partition(".")
        is_checkpoint = rest.startswith("checkpoint.") and version.isdigit()
        is_older = is_checkpoint and int(version) < newest
        if is_older:
            (folder / name).delete()


def _checkpoint(table: str, version: int) -> bool:
    """Write a checkpoint; return whether it was written."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        if Location(table).is_local:
            _put_checkpoint(table, version)
        else:
            options = Location(table).storage_options()
            opened = DeltaTable(table, version=version, storage_options=options)
            opened.create_checkpoint()
    except (DeltaError, OSError) as error:
        _log.warning("No checkpoint of version %d of '%s' was written: %s", version, table, error)
        return False
    return True


def _put_checkpoint(table: str, version: int) -> None:
    """Write a checkpoint that is on disk before it has its name, and note it as the last one.

    Args:
        table: Location of the table, a local one.
        version: The version.
    """
    from deltalake.exceptions import DeltaError

    names = Log(table).folder.file_names()
    of_version = f"{version:020d}"
    until_version = {name for name in names if name[:20] <= of_version}
    own = {name for name in names if name.startswith(f"{of_version}.checkpoint.")}
    usable = until_version - own
    while True:
        newest, parts = newest_checkpoint(sorted(usable))
        commits = [name for name in usable if name[20:] == Log.COMMIT]
        since = [name for name in commits if int(name[:20]) > newest]
        try:
            _build_checkpoint(table, version, [*parts, *since])
        except DeltaError:
            # The previous checkpoint may be torn: Spark also names it before it is on disk. An older one and more
            # commits have the same content. If these do not exist, the version already has a checkpoint.
            if not parts and not own:
                raise
            usable = usable - set(parts) if parts else usable | own
            own = own if parts else set()
        else:
            return


def _build_checkpoint(table: str, version: int, names: Iterable[str]) -> None:
    """Build a checkpoint from some files of the log.

    Raises:
        DeltaError: they are not enough, or one is damaged.
    """
    from deltalake import DeltaTable

    # delta-rs names a file before it is on disk. A power cut in between would leave a torn checkpoint, at which other clients fail.
    # So it writes next to links to its input, and the file is then moved into place.
    folder = Path(table, Log.FOLDER)
    with Location(table).scratch_folder("checkpoint") as scratch:
        beside = Path(scratch, Log.FOLDER)
        (beside / SIDECARS).mkdir(parents=True)
        stored_sidecars = Location(folder / SIDECARS).file_names()
        sidecars = [f"{SIDECARS}/{name}" for name in stored_sidecars]
        for name in (*names, *sidecars):
            (beside / name).hardlink_to(folder / name)
        own = beside / _name(version)
        is_there = own.exists()
        DeltaTable(scratch, version=version).create_checkpoint()
        if is_there:
            return
        for file in (own, beside / LAST):
            Location(file).sync()
            file.replace(folder / file.name)
            Location(folder).sync()  # each time: `_last_checkpoint` must not outlive what it names


def write_checkpoint(
    table: str,
    version: int,
    *,
    removed: bool = True,
) -> tuple[str, str] | None:
    """Write a checkpoint of a version; return the names of its file and of the one that points to it, None if it failed.

    Args:
        table: Location of the table.
        version: The version.
        removed: It also names the files that were removed within the retention.
    """
    if not _checkpoint(table, version):
        return None
    name = _name(version)
    if not removed:
        folder = Log(table).folder
        _forget_removed(folder, name)
    return name, LAST


def _forget_removed(folder: str, name: str) -> None:
    """Write a checkpoint again without the names of removed files."""
    location = Location(folder) / name
    stored = location.read_bytes()
    whole = pq.read_table(pa.BufferReader(stored))
    is_present = pc.is_null(whole["remove"])
    left = whole.filter(is_present)
    file = pa.BufferOutputStream()
    pq.write_table(left, file)
    location.replace_bytes(file.getvalue().to_pybytes())
    # Readers need only the version; the other fields describe the former file.
    last = Location(folder) / LAST
    noted = json.loads(last.read_bytes() or b"{}")
    pointer = {"version": noted["version"], "size": len(left)}
    last.replace_bytes(json.dumps(pointer).encode())


def _name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _clean_up(table: str) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        opened = DeltaTable(table, storage_options=Location(table).storage_options())
        opened.cleanup_metadata()
    except (DeltaError, OSError) as error:
        _log.warning("Old commits of '%s' were not deleted: %s", table, error)
