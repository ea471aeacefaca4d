"""Runs work in this process, without a JVM, in threads.

Arrow, numpy and compiled loops run at the same time in several threads; Python itself in one at a time.
"""

from __future__ import annotations

import copy
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Self, TextIO

from ebbtide.environment import THREADS
from ebbtide.executors._executor import EngineKind, Executor, Item, Result

_redirected: list[TextIO] = []
"""Standard output as it was, once for each thread under way that has redirected it."""
_redirecting = threading.Lock()


CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
MOST_THREADS = 8
"""The most threads without a setting: each holds rows, and what Python does itself takes turns."""


class InProcess(Executor):
    """Runs work in threads of this process; little work, and that with a user's code, one item after the other.

    Args:
        batch_time: Returns when a batch is planned, epoch ms, by its number: its step's clock. Default: the run's clock does; with
            a given one a run can be repeated to the millisecond, for tests.
        threads: Number of threads. Default: `EBBTIDE_THREADS`, else one for each core that this process may use, up to eight.
    """

    MOST_ROWS = None

    def __init__(self, batch_time: Callable[[int], int] | None = None, *, threads: int | None = None) -> None:
        self.batch_time = batch_time
        self._threads = threads or int(THREADS.value or min(_cores(), MOST_THREADS))

    @property
    def parallelism(self) -> int:
        """Number of its threads."""
        return self._threads

    @property
    def slices(self) -> int:
        """See `Executor`: two for each thread, so that the last one does not wait long; with one thread all is decided as a whole."""
        return 1 if self._threads == 1 else _power_of_two(2 * self._threads)

    def for_pipeline(self, engine: EngineKind, *, runs_user_code: bool) -> Self:
        """See `Executor`: a user's code may not expect several threads."""
        if not runs_user_code:
            return self
        serial = copy.copy(self)
        serial._threads = 1  # noqa: SLF001 - of this class
        return serial

    def map(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        *,
        is_little: bool | None = None,
        at: Callable[[Item], int] | None = None,
    ) -> list[Result]:
        """See `Executor`; the work's output goes to standard error, since standard output belongs to the command."""
        n_threads = min(self._threads, len(items))
        with _stdout_to_stderr():
            if is_little or n_threads < 2:
                return [work(item) for item in items]
            with ThreadPoolExecutor(n_threads, thread_name_prefix="work") as pool:
                # Each in the context of the caller: the step's requests, its description, and the place that logs name.
                futures = [pool.submit(copy_context().run, work, item) for item in items]
                try:
                    return [future.result() for future in futures]
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise


def _power_of_two(least: int) -> int:
    """Return the first power of two that is not below a number.

    Example:
        >>> _power_of_two(6)
        8
    """
    return 1 << (least - 1).bit_length()


def _cores(cpu_max: Path = CPU_MAX) -> int:
    """Return the number of cores that this process may use: a container may have a part of its machine's, rounded up.

    Args:
        cpu_max: The limit of the process's control group: microseconds, or `max`, in each period.
    """
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    try:
        limit, period = cpu_max.read_text().split()
        allowed = math.ceil(int(limit) / int(period))
    except (OSError, ValueError):  # no such file outside of Linux; `max`: no limit
        return cores
    return min(cores, allowed)


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect prints of the whole process: from the first thread that requests it to the last."""
    with _redirecting:
        _redirected.append(_redirected[0] if _redirected else sys.stdout)
        sys.stdout = sys.stderr
    try:
        yield
    finally:
        with _redirecting:
            before = _redirected.pop()
            if not _redirected:
                sys.stdout = before
