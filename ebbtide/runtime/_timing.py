"""When a run works: the clock that it reads, its turns among other runs of its process, and the pace that it keeps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

Result = TypeVar("Result")
Clock = Callable[[], int]
"""Returns the time, epoch ms."""
LOOK_S = 1.0
"""Least time between two looks whether another process asks while a step is waited with."""


def system_clock() -> int:
    """Return the wall clock, epoch ms."""
    return time.time_ns() // 1_000_000


class InTurn(Protocol):
    """Makes a piece of a run's work when it is the run's turn."""

    def __call__(self, work: Callable[[], Result]) -> Result:
        """Return the work's result, or raise its error."""


def at_once(work: Callable[[], Result]) -> Result:
    """Make a piece of work of a run that shares its process with no other."""
    return work()


class Pace:
    """Holds steps back.

    Args:
        per_second: Records a second; None: nothing is held back.
        stop: Ends the waiting.
        now_s: A monotonic clock.
    """

    def __init__(
        self,
        per_second: int | None,
        stop: threading.Event,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second = per_second
        self._stop = stop
        self._now_s = now_s
        self._began_s = self._next_s = now_s()

    def wait(self, look: Callable[[], None]) -> None:
        """Wait until the next step may begin.

        Args:
            look: Called periodically; its errors end the waiting.
        """
        while not self._stop.is_set():
            left_s = self._next_s - self._now_s()
            if left_s <= 0:
                break
            self._stop.wait(min(left_s, LOOK_S))
            look()
        self._began_s = self._now_s()

    def passed(self, records: int) -> None:
        """Note how many records the step has read that was waited with last: the next one begins once their time is over."""
        if self._per_second is not None:
            self._next_s = self._began_s + records / self._per_second


def no_pace() -> Pace:
    """Return a pace that holds nothing back."""
    return Pace(None, threading.Event())
