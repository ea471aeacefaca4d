"""A few threads that do the work of many runs, one piece at a time, in the order of requests.

Each run has a thread, which mostly waits, and requests one piece after the other: a step, a poll of its source. So each
run gets its turn once all that asked before it have had theirs, and memory that Arrow keeps for a thread is kept for few.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

SLOTS = 2
"""Pieces that are made at the same time. While one waits for a disk or for Arrow, Python works at the other."""
MOST_SLOTS = 8
"""The same, where pieces take long."""
LONG_S = 1.0
"""Seconds after which a piece counts as slow, for example if brokers do not answer: another one is then started."""
Result = TypeVar("Result")


class Slots:
    """The threads.

    Args:
        slots: How many pieces are made at the same time.
        most: How many, where pieces take long.
        long_s: When one does, seconds.
    """

    def __init__(self, slots: int = SLOTS, most: int = MOST_SLOTS, long_s: float = LONG_S) -> None:
        self._slots = slots
        self._most = most
        self._long_s = long_s
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._begun_s: dict[threading.Thread, float] = {}
        """The threads that make a piece, and since when."""
        self._n_threads = 0
        self._changed = threading.Condition()

    def in_turn(self, work: Callable[[], Result]) -> Result:
        """Make a piece of work once all are made, or under way, that were asked for before; see `ebbtide.runtime.InTurn`."""
        context = copy_context()  # a log names the pipeline by it
        piece: Future[Result] = Future()
        with self._changed:
            self._waiting.append((piece, lambda: context.run(work)))
            self._changed.notify()
            self._admit()
        while not piece.done():
            with suppress(TimeoutError):
                piece.exception(self._long_s)
            with self._changed:
                self._admit()
        try:
            return piece.result()
        finally:
            del piece  # an error would hold itself by it, with all tables of its step

    @property
    def n_threads(self) -> int:
        """The number of threads."""
        return self._n_threads

    def _allowed(self) -> int:
        """Return how many threads there may be: one more for each piece that takes long."""
        now_s = time.monotonic()
        n_long = sum(now_s - begun_s >= self._long_s for begun_s in self._begun_s.values())
        return min(self._slots + n_long, self._most)

    def _admit(self) -> None:
        """Begin a thread, if more pieces wait than threads, and there may be another."""
        n_idle = self._n_threads - len(self._begun_s)
        if len(self._waiting) > n_idle and self._n_threads < self._allowed():
            self._n_threads += 1
            threading.Thread(target=self._serve, daemon=True, name="slot").start()

    def _serve(self) -> None:
        """Make pieces, until there are more threads than there may be."""
        this = threading.current_thread()
        while True:
            with self._changed:
                self._begun_s.pop(this, None)
                if self._n_threads > self._allowed():
                    self._n_threads -= 1
                    return
                while not self._waiting:
                    self._changed.wait()
                piece, work = self._waiting.popleft()
                self._begun_s[this] = time.monotonic()
            _make(piece, work)
            del piece, work  # do not keep their data until the next one


def _make(piece: Future[Any], work: Callable[[], Any]) -> None:
    """Make a piece of work."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - raised by `in_turn`
        piece.set_exception(error)
        del piece  # as in `in_turn`
    else:
        piece.set_result(result)
