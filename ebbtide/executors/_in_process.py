"""Runs work in this process, without a JVM: one item after the other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from ebbtide.executors._executor import Executor, Item, Result

_redirected: list[TextIO] = []
"""Standard output as it was, once for each thread under way that has redirected it."""
_redirecting = threading.Lock()


class InProcess(Executor):
    """Runs work in this process, one item after the other.

    Args:
        batch_time: Returns when a batch is planned, epoch ms, by its number: its step's clock. Default: the run's clock does; with
            a given one a run can be repeated to the millisecond, for tests.
    """

    is_serial = True

    def __init__(self, batch_time: Callable[[int], int] | None = None) -> None:
        self.batch_time = batch_time

    @property
    def parallelism(self) -> int:
        """1: items are bounded in size, and done in turn."""
        return 1

    def map(self, work: Callable[[Item], Result], items: Sequence[Item], *, is_little: bool = False) -> list[Result]:
        """See `Executor`; the work's output goes to standard error, since standard output belongs to the command."""
        with _stdout_to_stderr():
            return [work(item) for item in items]


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
