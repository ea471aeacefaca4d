"""A power cut, as POSIX allows it: what a disk may hold of a folder whose files and names were not all synced.

- Of a folder: its names after any of its calls since its last sync, in order; or each new name or lost name by itself, there or not.
- Of a file: what was synced of it. Of the rest nothing, all, a beginning, zeros, or single blocks, with zeros between them.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

NOTHING = "nothing unsynced is left"
NAMES = "names are left, of empty files"
BLOCK = 512
"""Bytes that a disk writes at once."""
Entry = tuple[int, bool]
"""Inode, and whether it is a folder's."""
Names = dict[str, Entry]
"""What is in a folder."""
History = Sequence[Names]
"""What was in a folder at its last sync, and after each call since."""
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

    def copy(self, how: str, into: Path) -> None:
        """Write what a cut may leave into another folder, and leave all as it is.

        Args:
            how: See `left`.
            into: The folder; it is not there.
        """
        histories: dict[int, History] = {inode: [names] for inode, names in self.names.items()}
        for folder, _, _ in os.walk(self.top):
            inode = Path(folder).stat().st_ino
            histories[inode] = [self.names.get(inode, {}), names_in(Path(folder))]
        write(left(self.top, histories, self.contents, contents_below(self.top), how), into)


def left(
    top: Path, histories: Mapping[int, History], durable: Mapping[int, bytes], now: Mapping[int, bytes], how: str
) -> Tree:
    """Return what a power cut may leave of a folder.

    Args:
        top: The folder.
        histories: Of folders, by inode.
        durable: What was synced of files, by inode.
        now: What files hold.
        how: `NOTHING`, `NAMES`, or what is drawn by.
    """
    return dict(_Left(histories, durable, now, how).tree(top.stat().st_ino, Path()))


class _Left:
    """Draws what is left."""

    def __init__(
        self, histories: Mapping[int, History], durable: Mapping[int, bytes], now: Mapping[int, bytes], how: str
    ) -> None:
        self.histories, self.durable, self.now, self.how = histories, durable, now, how
        self.rng = random.Random(how)
        self.is_ordered = self.rng.random() < 0.5

    def tree(self, folder: int, path: Path) -> Iterable[tuple[Path, bytes | None]]:
        """Yield what is left in a folder: of a file its bytes, of a folder None."""
        for name, (inode, is_folder) in sorted(self._names(self.histories.get(folder, [{}])).items()):
            if is_folder:
                yield path / name, None
                yield from self.tree(inode, path / name)
            else:
                yield path / name, self._content(inode)

    def _names(self, history: History) -> Names:
        first, last = history[0], history[-1]
        if self.how == NOTHING:
            return first
        if self.how == NAMES:
            return last
        if self.is_ordered:
            return self.rng.choice(history)
        drawn = {name: self.rng.choice([first.get(name), last.get(name)]) for name in sorted({*first, *last})}
        return {name: entry for name, entry in drawn.items() if entry is not None}

    def _content(self, inode: int) -> bytes:
        durable = self.durable.get(inode, b"")
        now = self.now.get(inode, durable)
        if durable == now or self.how in (NOTHING, NAMES):
            return durable
        is_appended = now.startswith(durable)
        begin = len(durable) if is_appended else 0
        rest = now[begin:]
        blocks = [rest[at : at + BLOCK] for at in range(0, len(rest), BLOCK)]
        some = b"".join(self.rng.choice([block, bytes(len(block))]) for block in blocks)
        torn = rest[: self.rng.randrange(len(rest) + 1)]
        drawn = self.rng.choice([None, rest, torn, bytes(len(rest)), some])
        return durable if drawn is None else now[:begin] + drawn


def write(tree: Tree, top: Path) -> None:
    """Write files and folders into a new folder."""
    top.mkdir()
    for path, content in tree.items():
        if content is None:
            Path(top, path).mkdir()
        else:
            Path(top, path).write_bytes(content)


def replace(top: Path, tree: Tree) -> None:
    """Have a folder hold nothing but files and folders."""
    shutil.rmtree(top)
    write(tree, top)


def names_in(folder: Path) -> Names:
    """Return what is in a folder."""
    with os.scandir(folder) as entries:
        return {entry.name: (entry.inode(), entry.is_dir()) for entry in entries}


def contents_below(top: Path) -> dict[int, bytes]:
    """Return what files below a folder hold, by inode."""
    paths = [Path(folder, file) for folder, _, files in os.walk(top) for file in files]
    return {path.stat().st_ino: path.read_bytes() for path in paths}


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
