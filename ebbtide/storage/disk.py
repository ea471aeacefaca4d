"""Local disks: which failures of them are named, and what outlasts a power cut: files that were synced, in folders that were synced since.

Of all else a cut may leave an empty file, a torn one, or none: a file's name and its bytes reach the disk each in their own time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ebbtide.errors import DiskError, DiskFullError

FEW = 4
"""Files that are synced one by one; more are at once, so that the disk writes them together."""
AT_ONCE = 16
"""Files that are synced at once at most."""
FULL = (errno.ENOSPC, errno.EDQUOT)
FAILED = (errno.EIO, errno.EROFS, errno.EFBIG)


@contextmanager
def failures_named(path: str | Path) -> Iterator[None]:
    """Name the file at which a disk fails; another error of the system goes on as it is.

    Args:
        path: What is written or read.

    Raises:
        DiskFullError: the disk is full.
        DiskError: it fails otherwise, is read-only, or takes no file as large.
    """
    try:
        yield
    except DiskError:
        raise  # it has the name of the file within
    except OSError as error:
        if error.errno in FULL:
            raise _named(DiskFullError, f"The disk of '{path}' is full.", error, "Make room, then run again") from error
        if error.errno in FAILED:
            raise _named(DiskError, f"The disk failed at '{path}'.", error, "Mend it, then run again") from error
        raise


def _named(kind: type[DiskError], what: str, error: OSError, next_step: str) -> DiskError:
    named = kind.of(what, got=error, next_step=f"{next_step}: what was begun is finished.")
    named.errno = error.errno
    return named


def sync(path: str | Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with failures_named(path):
            os.fsync(handle)
    finally:
        os.close(handle)


def sync_below(top: str, files: Iterable[str]) -> None:
    """Wait until files are on disk, with the folders that they are in; nothing happens without a file.

    Args:
        top: A folder above all of them, in one that is there since long.
        files: Their paths.
    """
    different = list(dict.fromkeys(files))
    if len(different) <= FEW:
        for file in different:
            sync(file)
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(sync, different))
    above = Path(top).parent
    folders = {folder for file in different for folder in Path(file).parents if folder.is_relative_to(above)}
    for folder in sorted(folders, reverse=True):
        sync(folder)


def sync_above(path: str | Path) -> None:
    """Wait until the folders that lead to a file or a folder are on disk, as far as this user may look into them."""
    for folder in Path(path).parents:
        try:
            sync(folder)
        except PermissionError:
            return  # was there before: who may not look into a folder has made nothing in it
