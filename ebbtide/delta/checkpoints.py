"""Checkpoints of a table's log: with one, readers need no older commit. And the end of commits that no reader needs."""

from __future__ import annotations

import logging

from ebbtide.delta import log
from ebbtide.storage.disk import sync_below
from ebbtide.storage.paths import delete, is_local, join, list_files, storage_options

INTERVAL = 100
"""Commits between two checkpoints."""
RECENT = 10
"""Checkpoints that stay, the newest ones."""
RARE = 100
"""Of older ones, every so manyth stays. Each names all files that were removed within the retention: of small steps they are most of what a
table takes on disk. A version between two is read from the one below it and the commits since."""
LAST = "_last_checkpoint"
"""The file that says which checkpoint is the newest."""
_log = logging.getLogger(__name__)


def checkpoint_if_due(table: str, version: int) -> None:
    """Write a checkpoint of every hundredth version, and thin out the older ones. One that cannot be written is only missed: the next one holds all.

    Args:
        table: The table's location.
        version: The version that was just committed.
    """
    if version == 0 or version % INTERVAL:
        return
    if _checkpoint(table, version):
        _thin_out(table, version - RECENT * INTERVAL)


def trim_log(table: str, commits_kept: int | None = None) -> None:
    """Delete commits that a checkpoint has made needless.

    Args:
        table: The table's location.
        commits_kept: How many commits stay, the newest. Default: those within the table's `delta.logRetentionDuration`, 30 days.
    """
    versions = log.versions(table)
    if commits_kept is not None:
        old = versions[:-commits_kept]
        if len(old) >= INTERVAL and _checkpoint(table, versions[-1]):
            for version in old:
                delete(log.commit_file(table, version))
            _forget_checkpoints(table, versions[-1])
        return
    if _checkpoint(table, versions[-1]):
        _clean_up(table)


def _thin_out(table: str, version: int) -> None:
    """Delete the checkpoint of a version that is not recent any more, unless it is one of those that stay."""
    # Looked at once, when it stops being recent: no listing of the log is needed for it.
    stays = version % (RARE * INTERVAL) == 0
    if stays or version < 0:
        return
    try:
        delete(join(table, log.LOG, _name(version)))
    except OSError as error:
        _log.warning("The old checkpoint of version %d of '%s' stays: %s", version, table, error)


def _forget_checkpoints(table: str, newest: int) -> None:
    """Delete the checkpoints before the newest one."""
    folder = join(table, log.LOG)
    for name in list_files(folder):
        version, _, rest = name.partition(".")
        is_checkpoint = rest.startswith("checkpoint.") and version.isdigit()
        if is_checkpoint and int(version) < newest:
            delete(join(folder, name))


def _checkpoint(table: str, version: int) -> bool:
    """Write a checkpoint; return whether there is one now."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable(table, version=version, storage_options=storage_options(table)).create_checkpoint()
        if is_local(table):
            # Commits are deleted on the strength of it.
            sync_below(join(table, log.LOG), [join(table, log.LOG, name) for name in (_name(version), LAST)])
    except (DeltaError, OSError) as error:
        _log.warning("No checkpoint of version %d of '%s' was written: %s", version, table, error)
        return False
    return True


def _name(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def _clean_up(table: str) -> None:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        DeltaTable(table, storage_options=storage_options(table)).cleanup_metadata()
    except (DeltaError, OSError) as error:
        _log.warning("Old commits of '%s' were not deleted: %s", table, error)
