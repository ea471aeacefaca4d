"""Processes: names that show a later reader whether a process has ended, or that this is unknown; and the stop of this one.

A process number is valid on one machine, in one boot and in one namespace of process numbers: containers share a host's name, and each
has a process 1. A process whose end is not certain counts as alive.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Self

from ebbtide.lines import lines_of

CLOCKS_DIFFER_S = 5.0
"""Most that a start by the clock of the boot may differ from one by the wall clock."""


class Process(str):
    """The unique name of a process, a text: `host@boot-namespace:pid:start`.

    Example:
        >>> process = Process("worker@8c1f2f46-4026531836:4711:123456")
        >>> process.host, process.pid
        ('worker', '4711')
        >>> Process.this().is_gone
        False
    """

    __slots__ = ()

    @classmethod
    def this(cls) -> Self:
        """Return the name of this process."""
        pid = os.getpid()
        return cls(f"{_here()}:{pid}:{_started(pid)}")

    @property
    def host(self) -> str:
        """Its host, for a message."""
        host, _, _ = self._place.partition("@")
        return host

    @property
    def pid(self) -> str:
        """Its number there, for a message."""
        _, pid, _ = self.rsplit(":", 2)
        return pid

    @property
    def is_here(self) -> bool:
        """True if it has the same host, boot and namespace as this one, so that its number can be looked up."""
        return self._place == _here()

    @property
    def is_gone(self) -> bool:
        """True if it is known to have ended; False if that is unknown here."""
        if not self.is_here:
            return False
        _, pid_text, started = self.rsplit(":", 2)
        pid = int(pid_text)
        if not _is_there(pid):
            return True
        # Process numbers are used again: the start distinguishes an older process from a later one with its number.
        return _started(pid) != started

    @staticmethod
    def has_ended(pid: int, at_s: float) -> bool:
        """Return whether the process that had a number here at a time is known to have ended.

        Args:
            pid: Its number.
            at_s: A time at which it ran, seconds since 1970.

        Example:
            >>> Process.has_ended(os.getpid(), 4e9)
            False
        """
        if not _is_there(pid):
            return True
        # Another process may have the number since: it has begun later.
        started = _started(pid)
        booted_s = _booted_s()
        if not started or not booted_s:
            return False
        begun_s = booted_s + int(started) / os.sysconf("SC_CLK_TCK")
        return begun_s > at_s + CLOCKS_DIFFER_S

    @property
    def _place(self) -> str:
        place, _, _ = self.rsplit(":", 2)
        return place


class Stop(threading.Event):
    """Set to end what this process does after the step under way: by a signal, or by the work itself."""

    def __init__(self) -> None:
        super().__init__()
        self._is_signalled = False

    def on_signal(self, announce: Callable[[], None] = lambda: None) -> None:
        """Note a signal; announce the stop, and set it.

        Args:
            announce: Called before it is set.
        """
        self._is_signalled = True

        def end() -> None:
            announce()
            self.set()

        # On another thread: this one may be within `wait` or `announce`, and hold the lock that `end` waits for.
        threading.Thread(target=end, name="stop").start()

    def is_signalled(self) -> bool:
        """Return whether a signal has come, from that moment on."""
        return self._is_signalled


@cache
def boot() -> str:
    """Return the id of this boot of the machine; empty on a system without `/proc`."""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id")
        return boot_id.read_text(encoding="ascii").strip()
    return ""


@cache
def _here() -> str:
    """Return the host, boot and namespace where process numbers are valid; only the host on a system without `/proc`."""
    booted, _, _ = boot().partition("-")
    namespace = ""
    with suppress(OSError):
        link = Path("/proc/self/ns/pid").readlink()  # pid:[4026531836]
        digits = filter(str.isdigit, str(link))
        namespace = "".join(digits)
    return f"{socket.gethostname()}@{booted}-{namespace}"


@cache
def _booted_s() -> int:
    """Return when this machine was booted, seconds since 1970; 0 if it is unknown."""
    with suppress(OSError):
        for line in lines_of(Path("/proc/stat").read_text(encoding="ascii")):
            if line.startswith("btime "):
                return int(line.split()[1])
    return 0


def _is_there(pid: int) -> bool:
    """Return whether a process has a number and has not ended; one that has ended keeps it until its parent looks at it."""
    try:
        os.kill(pid, 0)  # signal 0 sends nothing, it only looks for the process
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return _stat(pid)[:1] not in (["Z"], ["X"])


def _started(pid: int) -> str:
    """Return the start of a process, in clock ticks since boot; empty if it is unknown."""
    return "".join(_stat(pid)[19:20])


def _stat(pid: int) -> list[str]:
    """Return what Linux knows of a process, from its state on; empty if it is unknown. Source: proc_pid_stat(5)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return []
    # The second field, the program's name in parentheses, may itself have blanks and parentheses.
    _, _, after_name = stat.rpartition(")")
    return after_name.split()
