"""The size of a folder, in files and bytes."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from ebbtide.storage._paths import file_system


@dataclass(frozen=True)
class Usage:
    """The size of a folder.

    Args:
        files: Number of files, with hidden ones.
        bytes: Their bytes.
    """

    files: int
    bytes: int


def usage(location: str) -> Usage:
    """Return the size of a folder, with all folders below it; what symbolic links lead to is left out."""
    fs, path = file_system(location)
    if isinstance(fs, pafs.LocalFileSystem):
        return _local_usage(path)
    selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
    found = fs.get_file_info(selector)
    sizes = [info.size for info in found if info.type == pafs.FileType.File]
    n_bytes = sum(sizes)
    return Usage(len(sizes), n_bytes)


def _local_usage(path: str) -> Usage:
    n_files = n_bytes = 0
    # `os.walk` enters no link to a folder: links may lead in circles.
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = Path(folder, name).lstat()
                if stat.S_ISREG(status.st_mode):
                    n_bytes += status.st_size
                    n_files += 1
    return Usage(n_files, n_bytes)


def subfolders(location: str) -> list[str]:
    """Return the names of the folders directly in a folder, sorted; none if it is absent."""
    fs, path = file_system(location)
    selector = pafs.FileSelector(path, allow_not_found=True)
    infos = fs.get_file_info(selector)
    folders = [info for info in infos if info.type == pafs.FileType.Directory]
    names = [folder.base_name for folder in folders]
    return sorted(names)
