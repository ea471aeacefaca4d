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
        try:
            os.kill(pid, 0)  # signal 0 sends nothing, it only looks for the process
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        # Process numbers are used again: the start distinguishes an older process from a later one with its number.
        return _started(pid) != started

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


def _started(pid: int) -> str:
    """Return the start of a process, in clock ticks since boot; empty if it is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        # The second field, the program's name in parentheses, may itself have blanks and parentheses. The start is the twentieth
        # field after it.
        after_name = stat.rsplit(")", 1)[1]
        return after_name.split()[19]
    except (OSError, IndexError):
        return ""
