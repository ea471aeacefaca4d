"""Starts Spark's Python workers on an executor, one of whose tasks kills its host: `spark.python.daemon.module`.

Who finds the file `before` or `after` in the folder `EBBTIDE_TEST_DEATHS` takes it, and kills its executor with all of its process group, which
is a worker's; or the executor alone, where the file says so. `before`: before the task's work. `after`: all is done and written, and
the driver does not know.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark.daemon
import pyspark.worker_util

FOLDER = Path(os.environ["EBBTIDE_TEST_DEATHS"])
_worker = pyspark.daemon.worker


def die_if_told(place: str) -> None:
    """Take the order, if there is one: of several tasks one gets it."""
    executor = living_executor()
    order = FOLDER / place
    taken = FOLDER / f"{place}.{os.getpid()}"
    if executor is None:
        return
    try:
        order.rename(taken)
    except FileNotFoundError:
        return
    whom = taken.read_text()
    taken.unlink()
    if whom == "host":
        os.killpg(os.getpgid(executor), signal.SIGKILL)
    else:
        os.kill(executor, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def living_executor() -> int | None:
    """Return the process of this task's executor; None: it was killed, and another process stands where it stood."""
    try:
        stat = Path(f"/proc/{os.getppid()}/stat").read_text()
        executor = int(stat.rpartition(")")[2].split()[1])
        command = Path(f"/proc/{executor}/cmdline").read_bytes()
    except OSError:
        return None
    return executor if b"CoarseGrainedExecutorBackend" in command else None


def worker(sock: Any, authenticated: bool) -> int:
    """Do a task, or die."""
    import pyspark.worker as tasks

    if not hasattr(tasks, "is_fatal"):
        tasks.is_fatal = True
        tasks.main = preceded(tasks.main, "before")
        tasks.report_times = preceded(tasks.report_times, "after")  # called when the work is done
    return int(_worker(sock, authenticated))


def preceded(function: Callable[..., Any], place: str) -> Callable[..., Any]:
    """Return a function before which a task may die."""

    def call(*given: Any) -> Any:
        die_if_told(place)
        return function(*given)

    return call


if __name__ == "__main__":
    pyspark.daemon.worker = worker
    pyspark.daemon.manager()
