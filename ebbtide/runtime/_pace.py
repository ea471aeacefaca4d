"""The pace of a run: its steps wait for each other, so that it reads no more than so many records a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_S = 1.0
"""Least time between two looks whether another process asks while a step is waited with."""


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
