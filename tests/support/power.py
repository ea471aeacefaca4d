"""A power cut, as POSIX allows it: of what was not synced, a folder has lost names or kept them, and a file is whole, torn, empty or zeros.

A process notes what it syncs, and at one of its syncs leaves below a folder what such a cut may leave, then kills itself.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOTHING = "nothing unsynced is left"
NAMES = "names are left, of empty files"
Entry = tuple[int, bool]
"""Inode, and whether it is a folder's."""
Names = dict[str, Entry]
"""What is in a folder."""
Tree = dict[Path, bytes | None]
"""Files and folders below another by their paths; of a file its bytes, of a folder None."""


class Disk:
    """What is durable of a folder, and what is there; all that is there at first is durable.

    Args:
        top: The folder.
    """

    def __init__(self, top: Path) -> None:
        self.top = top
        self.contents: dict[int, bytes] = {}
        self.names: dict[int, Names] = {}
        self._held: dict[int, int] = {}
        for folder, _, files in os.walk(top):
            for path in (Path(folder), *(Path(folder, file) for file in files)):
                handle = os.open(path, os.O_RDONLY)
                self.synced(handle)
                os.close(handle)

    def synced(self, handle: int) -> None:
        """Note that a file or a folder is durable as it is now."""
        inode = os.fstat(handle).st_ino
        if inode not in self._held:
            self._held[inode] = os.dup(handle)  # so that no later file gets its number
        path = Path(f"/proc/self/fd/{handle}")
        if path.is_dir():
            self.names[inode] = names_in(path.readlink())
        else:
            self.contents[inode] = path.read_bytes()

    def cut(self, how: str) -> None:
        """Leave what a cut may leave; see `cut`."""
        cut(self.top, self.names, self.contents, how)

    def copy(self, how: str, into: Path) -> None:
        """Write what a cut may leave into another folder, and leave all as it is.

        Args:
            how: See `cut`.
            into: The folder; it is not there.
        """
        _write(_left(self.top, self.names, self.contents, how), into)


def cut(top: Path, names: dict[int, Names], contents: dict[int, bytes], how: str) -> None:
    """Leave of a folder what a power cut may leave.

    Args:
        top: The folder.
        names: What is durable of the names in folders, by the folder's inode.
        contents: What is durable of files, by inode.
        how: `NOTHING`, `NAMES`, or what is drawn by.
    """
    tree = _left(top, names, contents, how)
    shutil.rmtree(top)
    _write(tree, top)


def _left(top: Path, names: dict[int, Names], contents: dict[int, bytes], how: str) -> Tree:
    now: dict[int, Names] = {}
    bytes_now: dict[int, bytes] = {}
    for folder, _, files in os.walk(top):
        now[Path(folder).stat().st_ino] = names_in(Path(folder))
        for file in files:
            path = Path(folder, file)
            bytes_now[path.stat().st_ino] = path.read_bytes()
    left = _Left(names, contents, now, bytes_now, how)
    return dict(left.tree(top.stat().st_ino, Path()))


class _Left:
    """Draws what is left."""

    def __init__(
        self,
        names: dict[int, Names],
        contents: dict[int, bytes],
        now: dict[int, Names],
        bytes_now: dict[int, bytes],
        how: str,
    ) -> None:
        self.names, self.contents, self.now, self.bytes_now, self.how = names, contents, now, bytes_now, how
        self.rng = random.Random(how)

    def tree(self, folder: int, path: Path) -> Iterable[tuple[Path, bytes | None]]:
        """Yield what is left in a folder: of a file its bytes, of a folder None."""
        durable = self.names.get(folder, {})
        now = self.now.get(folder, {})
        for name in sorted({*durable, *now}):
            entry = self._one(durable.get(name), now.get(name))
            if entry is None:
                continue
            inode, is_folder = entry
            if is_folder:
                yield path / name, None
                yield from self.tree(inode, path / name)
            else:
                yield path / name, self._content(inode)

    def _one(self, durable: Entry | None, now: Entry | None) -> Entry | None:
        if self.how == NOTHING:
            return durable
        return now if self.how == NAMES else self.rng.choice([durable, now])

    def _content(self, inode: int) -> bytes:
        durable = self.contents.get(inode, b"")
        now = self.bytes_now.get(inode, durable)
        if durable == now or self.how in (NOTHING, NAMES):
            return durable
        torn = now[: self.rng.randrange(len(now) + 1)]
        return self.rng.choice([durable, now, torn, bytes(len(now))])


def _write(tree: Tree, top: Path) -> None:
    top.mkdir()
    for path, content in tree.items():
        if content is None:
            Path(top, path).mkdir()
        else:
            Path(top, path).write_bytes(content)


def names_in(folder: Path) -> Names:
    """Return what is in a folder."""
    with os.scandir(folder) as entries:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}


def arm_cut(top: Path, cache: Path, which: int | None, how: str, counted: Path) -> None:
    """Cut the power of this process before one of its syncs; None: count them only.

    Args:
        top: Of this folder, which is there, what is not durable may be lost.
        cache: A folder that no boot takes over.
        which: Number of the sync, from 0.
        how: See `Disk.cut`.
        counted: File for how many there were.
    """
    disk = Disk(top)
    sync = os.fsync
    n_syncs = 0

    def noted(handle: int) -> None:
        nonlocal n_syncs
        if n_syncs == which:
            disk.cut(how)
            shutil.rmtree(cache, ignore_errors=True)
            os.kill(os.getpid(), signal.SIGKILL)
        n_syncs += 1
        counted.write_bytes(str(n_syncs).encode())
        sync(handle)
        disk.synced(handle)

    os.fsync = noted


@contextmanager
def copies_at_syncs(top: Path, into: Path) -> Iterator[list[Path]]:
    """Write before each sync of this process what a power cut may leave then; yield the copies so far.

    What another process writes, as Spark's JVM does, is durable only once this one has synced it.

    Args:
        top: Folder of which what is there at first is durable.
        into: Takes the copies.
    """
    disk = Disk(top)
    sync = os.fsync
    copies: list[Path] = []
    one_at_a_time = threading.Lock()
    into.mkdir()

    def noted(handle: int) -> None:
        with one_at_a_time:
            number = len(copies)
            how = (NOTHING, NAMES, f"drawn by {number}")[number % 3]
            copies.append(into / str(number))
            disk.copy(how, copies[-1])
            sync(handle)
            disk.synced(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", noted)
        yield copies
