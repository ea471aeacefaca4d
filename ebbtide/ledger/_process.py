"""Names processes, so that a later reader of a name can find out whether that process has ended, or that this is unknown; stops this one.

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

from ebbtide.storage import boot


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


def this_process() -> str:
    """Return a unique name of this process: `host@boot-namespace:pid:start`."""
    pid = os.getpid()
    return f"{_here()}:{pid}:{_started(pid)}"


def host_and_pid(process: str) -> tuple[str, str]:
    """Return the host and the number of a process, for a message."""
    place, pid, _ = process.rsplit(":", 2)
    host, _, _ = place.partition("@")
    return host, pid


def is_here(process: str) -> bool:
    """Return whether a process has the same host, boot and namespace as this one, so that its number can be looked up."""
    place, _, _ = process.rsplit(":", 2)
    return place == _here()


def is_gone(process: str) -> bool:
    """Return whether a process is known to have ended; False if that is unknown here."""
    if not is_here(process):
        return False
    _, pid_text, started = process.rsplit(":", 2)
    pid = int(pid_text)
    try:
        os.kill(pid, 0)  # signal 0 sends nothing, it only looks for the process
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    # Process numbers are used again: the start distinguishes an older process from a later one with its number.
    return _started(pid) != started


@cache
def _here() -> str:
    """Return the host, boot and namespace in which process numbers are valid; only the host on a system without `/proc`."""
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
