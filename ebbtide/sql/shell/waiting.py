"""Waits that Ctrl-C ends: it is taken note of, and what waits looks whether it came. Nothing is torn out of its course."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

from ebbtide.sql.shell.console import Console

POLL_S = 0.25
"""How often a wait looks for Ctrl-C; each time may be a request to a gateway."""
T = TypeVar("T")


class Interrupts:
    """Ctrl-C while it is not at the prompt. A context manager, for the main thread."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def forget(self) -> None:
        """Forget one that came before."""
        self._came.clear()

    def take(self) -> None:
        """Raise KeyboardInterrupt if one came."""
        if self._came.is_set():
            self._came.clear()
            raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait, or raise KeyboardInterrupt as soon as it comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._came.wait(min(POLL_S, seconds))
            self.take()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._came.set()


class Waiting:
    """Waits for what takes time, and says so.

    Args:
        interrupts: End it.
        console: Says so.
    """

    def __init__(self, interrupts: Interrupts, console: Console) -> None:
        self.interrupts = interrupts
        self._console = console

    def until(self, ask: Callable[[float], T | None], what: str = "") -> T:
        """Ask until there is an answer.

        Args:
            ask: Takes how many seconds it may wait; None: not yet.
            what: Is waited for; empty: that is not said, as it may be long.

        Raises:
            KeyboardInterrupt: Ctrl-C came.
        """
        began = time.monotonic()
        try:
            while True:
                self.interrupts.take()
                answer = ask(POLL_S)
                if answer is not None:
                    return answer
                if what:
                    self._console.wait(what, time.monotonic() - began)
        finally:
            self._console.end_waiting()
