"""Wakes a program that waits for files in a local folder, by Linux' inotify.

Source: inotify(7). It shows what this machine does; changes by other machines in a shared folder come without news.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import threading
import time
from functools import cache
from typing import Self

IN_CLOSE_WRITE, IN_MOVED_TO, IN_CREATE = 0x8, 0x80, 0x100
IN_ISDIR, IN_Q_OVERFLOW = 0x40000000, 0x4000
_EVENT = struct.Struct("iIII")
"""Watch, kind, cookie, and length of the name that follows."""
LOOK_S = 0.25
"""Seconds between two looks at whether the waiting is over for another reason."""


class FolderNews:
    """News of files that were completed in a folder, or in one below it.

    Args:
        handle: An inotify instance.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._folders: dict[int, str] = {}

    def __del__(self) -> None:
        """End it."""
        os.close(self._handle)

    @classmethod
    def of(cls, folder: str) -> Self | None:
        """Return the news of a local folder; None where this system gives none, or not of so many folders."""
        if not sys.platform.startswith("linux"):
            return None
        handle = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if handle < 0:
            return None
        news = cls(handle)
        return news if news._watch(folder) else None

    def wait(self, longest_s: float, stop: threading.Event) -> bool:
        """Wait for news; return whether there are some.

        Args:
            longest_s: Longest time to wait.
            stop: Ends the waiting.
        """
        end_s = time.monotonic() + longest_s
        poll = select.poll()  # select knows no handle above 1,023
        poll.register(self._handle, select.POLLIN)
        while not stop.is_set():
            left_s = end_s - time.monotonic()
            ready = poll.poll(1000 * max(0.0, min(left_s, LOOK_S)))
            if ready and self._read():
                return True
            if left_s <= 0:
                break
        return False

    def _read(self) -> bool:
        """Read what has happened; return whether it may be of use."""
        has_news = False
        events = os.read(self._handle, 65_536)
        at = 0
        while at < len(events):
            watch, kind, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size
            name = os.fsdecode(events[at : at + length].rstrip(b"\0"))
            at += length
            if name.startswith((".", "_")):
                continue  # is never read
            if kind & IN_ISDIR and watch in self._folders:
                self._watch(f"{self._folders[watch]}/{name}")
            # A file that was only created is not complete; a new folder may have some already.
            has_news |= bool(kind & (IN_CLOSE_WRITE | IN_MOVED_TO | IN_ISDIR | IN_Q_OVERFLOW))
        return has_news

    def _watch(self, folder: str) -> bool:
        """Watch a folder and those below it; return whether all are watched."""
        wanted = IN_CLOSE_WRITE | IN_MOVED_TO | IN_CREATE
        watch = _libc().inotify_add_watch(self._handle, os.fsencode(folder), wanted)
        if watch < 0:
            return False
        self._folders[watch] = folder
        try:
            with os.scandir(folder) as entries:
                below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return False
        return all(list(map(self._watch, below)))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
