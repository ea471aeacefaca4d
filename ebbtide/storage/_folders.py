"""Local folders as they were left: files of writers that died, and folders that are moved aside."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from pathlib import Path

from ebbtide.errors import ConfigError
from ebbtide.storage._disk import failures_named
from ebbtide.storage._paths import UNFINISHED, delete, exists, is_local

DAY_S = 86_400
_OF_DELTA_RS = re.compile(r".+#\d+")
"""`NAME#1`; a folder of this name is a partition's."""


def delete_unfinished(folder: str, *, older_than_s: float = DAY_S) -> None:
    """Delete the files and folders in a local folder whose writer died before it renamed them.

    Args:
        folder: Its location; nothing happens in a store, which has no such files.
        older_than_s: Seconds since they were last written; a younger one may still be written.
    """
    if not is_local(folder):
        return
    written_before_s = time.time() - older_than_s
    for path in Path(folder).glob("*"):
        if not _is_unfinished(path):
            continue
        with suppress(FileNotFoundError):  # its writer has just renamed it
            status = path.stat()
            if status.st_mtime <= written_before_s:
                delete(str(path))


def _is_unfinished(path: Path) -> bool:
    """Return whether a file or folder has the name of one that was not renamed yet: ours, or delta-rs' of a log's checkpoint."""
    name = path.name
    if name.startswith(".") and name.endswith(UNFINISHED):
        return True
    of_delta_rs = _OF_DELTA_RS.fullmatch(name)
    return of_delta_rs is not None and path.is_file()


def aside_of(folder: str) -> str:
    """Return a free name to which a local folder can be moved, so that a new one can be made in its place.

    Raises:
        ConfigError: it is in a store, which cannot rename a folder at once.
    """
    if not is_local(folder):
        raise ConfigError.of(
            f"The folder '{folder}' has to be moved away first.",
            got="a folder of a store",
            allowed="a local folder, which is renamed",
            next_step="Move it with the store's own tools, then run this again.",
        )
    number = 1
    free = f"{folder}.aside-1"
    while exists(free):
        number += 1
        free = f"{folder}.aside-{number}"
    return free


def move_aside(folder: str) -> str:
    """Rename a local folder; return its new name. See `aside_of`."""
    aside = aside_of(folder)
    with failures_named(folder):
        Path(folder).rename(aside)
    return aside
