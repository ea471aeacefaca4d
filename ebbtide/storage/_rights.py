"""Rights and links of local folders: they are their owner's alone, or of the group of a root that several users share."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ebbtide.errors import ConfigError
from ebbtide.storage._disk import failures_named
from ebbtide.storage._paths import is_local

PRIVATE = 0o700
"""Mode of folders that only their owner can read."""
_OF_A_GROUP = stat.S_ISGID | stat.S_IWGRP
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def make_private(folder: str) -> None:
    """Make a local folder that only its owner can read, for any umask; an existing one is not changed."""
    path = Path(folder)
    # One by one: `mkdir(parents=True)` gives the folders in between the umask's mode, and only the last one its own.
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        with failures_named(each):
            each.mkdir(mode=PRIVATE, exist_ok=True)


def make_home(folder: str) -> None:
    """Make the folder of a pipeline: private, or its group's too in a root that is writable by its group and has the set-group-ID bit."""
    path = Path(folder)
    mode = path.parent.stat().st_mode if path.parent.is_dir() else 0
    if path.exists() or mode & _OF_A_GROUP != _OF_A_GROUP:
        make_private(folder)
        return
    with failures_named(path):
        path.mkdir(mode=PRIVATE)
        path.chmod(stat.S_IMODE(mode) & ~stat.S_IRWXO)  # a mode of `mkdir` is cut by the umask


def is_ours(folder: Path) -> bool:
    """Return whether a folder belongs to this user, and only this user can write to it."""
    status = folder.stat()
    is_owner = status.st_uid == os.getuid()
    is_shared = status.st_mode & _WRITABLE_BY_OTHERS
    return is_owner and not is_shared


def refuse_links(root: str, name: str) -> None:
    """Refuse a folder of a root that is a symbolic link, or has one directly in it: files would be written elsewhere.

    Args:
        root: Location of the root.
        name: Name of the folder.

    Raises:
        ConfigError: there is a link.
    """
    home = Path(root, name)
    if not is_local(root) or not home.is_dir():
        return
    with failures_named(home):
        inside = list(home.iterdir())
    linked = [entry for entry in (home, *inside) if entry.is_symlink()]
    if linked:
        raise ConfigError.of(
            f"'{linked[0]}' is a symbolic link, which may lead out of the root '{root}'.",
            got=os.path.realpath(linked[0]),
            allowed="folders of their own",
            next_step="Move the target of the link there, or mount it there.",
        )
