"""Local disks: names of their failures, and syncs.

A file survives a power cut if it was synced, and its folder after it. After a power cut any other file may be empty, incomplete or
missing: the name of a file and its bytes reach the disk separately.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ebbtide.environment import FSYNC
from ebbtide.errors import DiskError, DiskFullError

MOST_IN_PARALLEL = 16
"""The most files and folders that are synced at the same time."""
FULL = (errno.ENOSPC, errno.EDQUOT)
FAILED = (errno.EIO, errno.EROFS, errno.EFBIG)
REFUSED = (errno.EACCES, errno.EPERM)


@contextmanager
def failures_named(path: str | Path) -> Iterator[None]:
    """Raise an error that names the file on disk failures; other errors of the system are raised unchanged.

    Args:
        path: The file that is written or read.

    Raises:
        DiskFullError: the disk is full.
        DiskError: it fails otherwise, is read-only, does not allow a file of that size, or this user has no right to it.
    """
    try:
        yield
    except DiskError:
        raise  # an inner call has named the file
    except OSError as error:
        if error.errno in FULL:
            raise _named(DiskFullError, f"The disk of '{path}' is full.", error, "Make room, then run again") from error
        if error.errno in FAILED:
            raise _named(DiskError, f"The disk failed at '{path}'.", error, "Repair it, then run again") from error
        if error.errno in REFUSED:
            refusal = f"User {os.getuid()} has no right to '{path}'."
            raise _named(DiskError, refusal, error, "Give it (docs/explanation/security.md), then run again") from error
        raise


def _named(kind: type[DiskError], message: str, error: OSError, next_step: str) -> DiskError:
    named = kind.of(message, got=error, next_step=f"{next_step}: the run finishes the step that was begun.")
    named.errno = error.errno
    return named


def sync(path: str | Path, *, always: bool = False) -> None:
    """Write a file's bytes, or a folder's names, to disk (fsync).

    Args:
        path: The file or the folder.
        always: Also if syncing is off.

    Raises:
        ConfigError: `EBBTIDE_FSYNC` is neither on nor off.
    """
    if not always and FSYNC.value == "off":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        with failures_named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def sync_together(paths: Iterable[str | Path]) -> None:
    """Sync files and folders in one pass: all at the same time, so that the disk writes them together.

    Args:
        paths: Their paths. Nothing else may rely on one of them before all are synced.
    """
    # Once each: a data file may be named by several commits.
    different = list(dict.fromkeys(map(str, paths)))
    if FSYNC.value == "off" or len(different) <= 1:
        for path in different:
            sync(path)
        return
    with ThreadPoolExecutor(min(len(different), MOST_IN_PARALLEL)) as pool:
        list(pool.map(sync, different))


def with_folders(top: Path, files: Iterable[str]) -> list[str]:
    """Return files, and the folders above them; none without a file.

    Args:
        top: The last of these folders, whose name has long been on disk.
        files: Their paths.
    """
    found = list(files)
    for file in list(found):
        found += [str(folder) for folder in Path(file).parents if folder.is_relative_to(top)]
    return found


def sync_above(path: str | Path) -> None:
    """Sync the folders that lead to a file or a folder, as far as this user can read them."""
    for folder in Path(path).parents:
        try:
            sync(folder)
        except PermissionError:
            return  # an older folder: this user cannot have made anything in a folder that it cannot read
