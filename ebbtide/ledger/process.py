"""Names processes, so that a later reader of a name knows whether that process has ended, or that it cannot know.

A process number means something on one machine, in one boot and in one namespace of process numbers: containers share a host's
name, and each has a process 1. Whatever is not certain counts as alive.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path


def this_process() -> str:
    """Name this process so that no other has the name: `host@boot-namespace:pid:start`."""
    pid = os.getpid()
    return f"{_here()}:{pid}:{_started(pid)}"


def host_and_pid(process: str) -> tuple[str, str]:
    """Return the host and the number of a process, for a message."""
    place, pid, _ = process.rsplit(":", 2)
    host, _, _ = place.partition("@")
    return host, pid


def is_here(process: str) -> bool:
    """Return whether a process belongs to where this one runs: its number can be looked up."""
    place, _, _ = process.rsplit(":", 2)
    return place == _here()


def is_gone(process: str) -> bool:
    """Return whether a process is known to have ended; False if that cannot be known from here."""
    if not is_here(process):
        return False
    _, pid_text, started = process.rsplit(":", 2)
    pid = int(pid_text)
    try:
        os.kill(pid, 0)  # signals nothing, only looks for the process
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _started(pid) != started


@cache
def _here() -> str:
    """Return what distinguishes the place where process numbers mean the same as here; the host alone where the system does not say more."""
    boot = ""
    namespace = ""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        boot, _, _ = boot_id.partition("-")
    with suppress(OSError):
        link = Path("/proc/self/ns/pid").readlink()  # pid:[4026531836]
        namespace = "".join(filter(str.isdigit, str(link)))
    return f"{socket.gethostname()}@{boot}-{namespace}"


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty where the system does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        # The second field, the program's name in parentheses, may itself hold blanks and parentheses; the start is the twentieth after it.
        after_name = stat.rsplit(")", 1)[1]
        return after_name.split()[19]
    except (OSError, IndexError):
        return ""
