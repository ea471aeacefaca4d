"""Faults at single system calls, in a process without a JVM: an error of the system, a full disk, a write cut short, a kill, a power cut.

`calls.c` counts the calls and keeps a journal of them; a process loads it by LD_PRELOAD and is armed by `arm`. The journal also says what
was synced, so that after a kill the disk can be left as a power cut may leave it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from crashes.power import Names, contents_below, left, names_in, replace

SOURCE = Path(__file__).with_name("calls.c")
NO_COMPILER = (
    "gcc is not installed: it compiles tests/support/crashes/calls.c. On Debian and Ubuntu: apt install gcc libc6-dev"
)
NONE, EIO, FULL, SHORT, TORN, BEFORE, AFTER = "none", "EIO", "ENOSPC", "short", "torn", "before", "after"
"""Faults that the library knows: an error once, a full disk from there on, half a write, the same and a kill, a kill before or after."""
CUT = "power cut"
"""A kill after the call; of what was not synced then, something is lost."""
FAULTS = (EIO, FULL, SHORT, TORN, BEFORE, AFTER, CUT)
WRITES = (SHORT, TORN)
"""Faults of writes alone."""
DEADLY = (TORN, BEFORE, AFTER, CUT)
"""Faults that the process does not survive."""


class NoCompilerError(Exception):
    """Raised where there is no gcc."""


def has_compiler() -> bool:
    """Return whether there is gcc."""
    return shutil.which("gcc") is not None


def library(folder: Path) -> Path:
    """Compile the library into a folder.

    Raises:
        NoCompilerError: there is no gcc.
    """
    if not has_compiler():
        raise NoCompilerError(NO_COMPILER)
    built = folder / "calls.so"
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(built), str(SOURCE), "-ldl", "-lpthread"], check=True)
    return built


def preloading(built: Path) -> tuple[str, ...]:
    """Return the command before a command that has it load the library."""
    return ("env", f"LD_PRELOAD={built}")


def arm(top: Path, journal: Path, at: int, fault: str) -> None:
    """Have this process count its calls below a folder, and meet a fault at one of them.

    Args:
        top: The folder.
        journal: File that the calls are noted in.
        at: Number of the call, from 0; -1: none.
        fault: One of `FAULTS`, or `NONE`.
    """
    graves = graves_of(top)
    graves.mkdir(exist_ok=True)
    known = AFTER if fault == CUT else fault
    given = (os.fsencode(top), os.fsencode(graves), os.fsencode(journal), ctypes.c_long(at), known.encode())
    if ctypes.CDLL(None).calls_arm(*given) != 0:
        raise ValueError(fault)


def graves_of(top: Path) -> Path:
    """Return where the files are that were below a folder, and have lost their last name."""
    return top.with_name(f"{top.name}.graves")


@dataclass(frozen=True)
class Call:
    """A call that was made.

    Args:
        number: From 0; those that failed have one too, and are not in the journal.
        name: `create`, `open`, `write`, `truncate`, `fsync`, `sync`, `rename`, `link`, `unlink`, `mkdir` or `rmdir`.
        inode: Of the file or the folder.
        begin: Where it began to write.
        size: The file's bytes after it.
        path: The file's or the folder's.
        second: The new path of a `rename` or a `link`.
    """

    number: int
    name: str
    inode: int
    begin: int
    size: int
    path: Path
    second: Path


def read_calls(journal: Path) -> list[Call]:
    """Read a journal."""
    calls = []
    for line in journal.read_text(encoding="utf-8").splitlines():
        number, name, inode, begin, size, path, second = line.split("\t")
        calls.append(Call(int(number), name, int(inode), int(begin), int(size), Path(path), Path(second)))
    return calls


@dataclass
class Disk:
    """What is below a folder and what of it is durable, as a journal says; all that is there at first is durable.

    Args:
        top: The folder, as it is before the first call.
    """

    top: Path
    histories: dict[int, list[Names]] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    durable_sizes: dict[int, int] = field(default_factory=lambda: defaultdict(int))

    def __post_init__(self) -> None:
        """Look at what is there, and forget what was."""
        shutil.rmtree(graves_of(self.top), ignore_errors=True)
        self._top = self.top.stat().st_ino
        for folder, _, files in os.walk(self.top):
            path = Path(folder)
            self.histories[path.stat().st_ino] = [names_in(path)]
            for file in files:
                status = (path / file).stat()
                self.sizes[status.st_ino] = status.st_size
        self.durable_sizes.update(self.sizes)

    def play(self, calls: Iterable[Call]) -> None:
        """Note what calls did."""
        for call in calls:
            self._play(call)

    def _play(self, call: Call) -> None:
        inode = call.inode
        if call.name == "fsync":
            if inode in self.histories:
                del self.histories[inode][:-1]
            else:
                self.durable_sizes[inode] = self.sizes[inode]
        elif call.name == "sync":
            for history in self.histories.values():
                del history[:-1]
            self.durable_sizes.update(self.sizes)
        elif call.name in ("write", "truncate"):
            if call.name == "write" and call.begin < self.durable_sizes[inode]:
                raise ValueError(
                    f"{call.path} is written over where it was synced: what a power cut leaves of it is not known"
                )
            self.sizes[inode] = call.size
            self.durable_sizes[inode] = min(self.durable_sizes[inode], call.size)
        elif call.name in ("create", "mkdir"):
            self._change(call.path)[call.path.name] = (inode, call.name == "mkdir")
            self.histories.pop(inode, None)  # the number may have been that of a folder that is gone
            if call.name == "mkdir":
                self.histories[inode] = [{}]
            else:
                self.sizes[inode] = 0
                self.durable_sizes[inode] = 0
        elif call.name in ("unlink", "rmdir"):
            del self._change(call.path)[call.path.name]
        elif call.name == "rename":
            changed = self._change(call.path)
            entry = changed.pop(call.path.name)
            is_moved = call.second.parent != call.path.parent
            (self._change(call.second) if is_moved else changed)[call.second.name] = entry
        elif call.name == "link":
            entry = self._names(call.path)[call.path.name]
            self._change(call.second)[call.second.name] = entry

    def _change(self, path: Path) -> Names:
        """Return the names in the folder that a path is in, as they are after a call that changes them."""
        history = self.histories[self._folder(path)]
        history.append(dict(history[-1]))
        return history[-1]

    def _names(self, path: Path) -> Names:
        return self.histories[self._folder(path)][-1]

    def _folder(self, path: Path) -> int:
        """Return the inode of the folder that a path is in."""
        inode = self._top
        for part in path.parent.relative_to(self.top).parts:
            inode, _ = self.histories[inode][-1][part]
        return inode

    def files(self) -> dict[Path, int | None]:
        """Return all files with their sizes, and folders with None, by their paths below the folder."""
        return dict(self._below(self._top, Path()))

    def _below(self, folder: int, path: Path) -> Iterator[tuple[Path, int | None]]:
        for name, (inode, is_folder) in self.histories[folder][-1].items():
            yield path / name, None if is_folder else self.sizes[inode]
            if is_folder:
                yield from self._below(inode, path / name)

    def cut(self, how: str) -> None:
        """Leave of the folder what a power cut may leave; `how`: see `power.left`."""
        now = contents_below(graves_of(self.top)) | contents_below(self.top)
        durable = {inode: content[: self.durable_sizes[inode]] for inode, content in now.items()}
        replace(self.top, left(self.top, self.histories, durable, now, how))


def files_below(top: Path) -> dict[Path, int | None]:
    """Return what is below a folder as `Disk.files` does."""
    found: dict[Path, int | None] = {}
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        found |= {(here / name).relative_to(top): None for name in folders}
        found |= {(here / name).relative_to(top): (here / name).stat().st_size for name in files}
    return found
