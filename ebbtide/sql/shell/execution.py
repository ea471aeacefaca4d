"""A statement's way through a session: the session is opened, the statement begun, waited for, its pages read, ended.

Ctrl-C ends a wait: it is noted, and what waits looks whether it came. Nothing is interrupted at an arbitrary place.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self, TextIO, TypeVar

from ebbtide.errors import EbbtideError
from ebbtide.redaction import shown
from ebbtide.sql.results import Operation, Page, Result, ResultKind, Session

POLL_S = 0.25
"""How often a wait looks for Ctrl-C; each time may be a request to a gateway."""
CANCEL_S = 1.5
"""How long the shell waits for a statement to end, so that Ctrl-C gives the prompt back within 2 s; what takes longer ends by itself."""
ERASE_LINE = "\r\x1b[2K"
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
SECONDS_UNSHOWN = 1
"""Shorter waits are not worth a line."""
T = TypeVar("T")


class Console:
    """Two streams, and the line of a terminal that says that something takes time.

    Args:
        out: Of rows.
        err: Of errors.
    """

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = out
        self._err = err
        self._has_waiting_line = False

    @property
    def is_terminal(self) -> bool:
        """True if rows are written to a terminal."""
        return self._out.isatty()

    def put(self, line: str) -> None:
        """Write a line of rows: it has no character of data that a terminal obeys."""
        self.end_waiting()
        self._out.write(f"{line}\n")

    def say(self, text: str, *, beside_data: bool = False) -> None:
        """Write lines for people.

        Args:
            text: They; empty: nothing is written.
            beside_data: Programs read the rows: this is not to stand among them.
        """
        if not text:
            return
        self.end_waiting()
        stream = self._err if beside_data else self._out
        stream.write(f"{shown(text)}\n")
        stream.flush()

    def error(self, text: str) -> None:
        """Write what went wrong."""
        self.flush()
        self.say(text, beside_data=True)

    def flush(self) -> None:
        """Let be seen what was written."""
        self._out.flush()

    def clear(self) -> None:
        """Clear the screen, if there is one."""
        if self.is_terminal:
            self._out.write(CLEAR_SCREEN)
            self.flush()

    def wait(self, what: str, seconds: float) -> None:
        """Say, on a terminal, what has been waited for so long."""
        if not self._err.isatty() or seconds < SECONDS_UNSHOWN:
            return
        line = f"{what}, {seconds:.0f} s. Ctrl-C cancels."
        width = shutil.get_terminal_size().columns
        self._err.write(ERASE_LINE + line[: width - 1])
        self._err.flush()
        self._has_waiting_line = True

    def end_waiting(self) -> None:
        """Take that line away."""
        if self._has_waiting_line:
            self._err.write(ERASE_LINE)
            self._err.flush()
            self._has_waiting_line = False


class Interrupts:
    """Ctrl-C while it is not at the prompt. A context manager, for the main thread."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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


class BackgroundSession:
    """A session that is opened while the user types, on a thread of its own: only a statement that needs it waits.

    Args:
        open_session: Opens it.
    """

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session
        self._opening: Future[Session] | None = None
        self._lock = threading.Lock()

    def begin(self) -> Future[Session]:
        """Begin to open it, unless that was begun."""
        with self._lock:
            if self._opening is None:
                self._opening = Future()
                threading.Thread(target=self._open, args=(self._opening,), daemon=True, name="session").start()
            return self._opening

    def get(self, timeout_s: float) -> Session | None:
        """Return the session; None if it is not open in time.

        Raises:
            EbbtideError: it could not be opened; the next call tries again.
        """
        opening = self.begin()
        if not wait([opening], timeout_s).done:
            return None
        if opening.exception() is not None:
            self.forget()
        return opening.result()

    def forget(self) -> None:
        """Forget it: the next call of `get` opens another."""
        with self._lock:
            self._opening = None

    def close(self) -> None:
        """Close it, if it is open; one that is still being opened ends with the process."""
        opening = self._opening
        if opening is not None and opening.done() and opening.exception() is None:
            opening.result().close()

    def _open(self, opening: Future[Session]) -> None:
        try:
            session = self._open_session()
        except BaseException as error:  # noqa: BLE001 - it is raised where the session is asked for
            opening.set_exception(error)
        else:
            opening.set_result(session)


class Execution:
    """A statement that is executed. A context manager: at its end nothing of the statement runs.

    Args:
        session: Where.
        text: Of the statement.
        waiting: Waits for it.
    """

    def __init__(self, session: Session, text: str, waiting: Waiting) -> None:
        self._waiting = waiting
        self._began = time.monotonic()
        self._paused: float | None = None
        self._is_ending = False
        self._has_ended = False
        self.n_rows = 0
        """Rows that were read so far."""
        self.is_whole = False
        """True once all rows were read."""
        self.position: str | None = None
        """Where changes can be taken up again, if they were read."""
        self.operation: Operation = session.execute(text)

    @property
    def seconds(self) -> float:
        """It took, or takes so far."""
        return (self._paused or time.monotonic()) - self._began

    def stop_clock(self) -> None:
        """Count no longer: from now on people read."""
        self._paused = time.monotonic()

    def result(self) -> Result:
        """Wait for its columns, or for its end.

        Raises:
            EbbtideError: it failed.
            KeyboardInterrupt: Ctrl-C came.
        """
        result = self._waiting.until(self.operation.result, "Running")
        self.is_whole = result.kind is ResultKind.DONE
        return result

    def pages(self, result: Result) -> Iterator[Page]:
        """Wait for its pages.

        Args:
            result: What `result` returned.

        Raises:
            EbbtideError: it failed.
            KeyboardInterrupt: Ctrl-C came.
        """
        token: int | None = 0
        while token is not None:
            is_seen = result.kind is ResultKind.CHANGES or self._paused is not None
            what = "" if is_seen else "Reading rows"
            page = self._waiting.until(partial(self.operation.page, token), what)
            self.n_rows += len(page.rows)
            self.is_whole = page.next is None
            self.position = page.position or self.position
            yield page
            token = page.next

    def end(self) -> bool:
        """Cancel it if it runs, and forget it; return whether that was done in time."""
        if not self._is_ending:
            self._is_ending = True
            ending = threading.Thread(target=self._end, daemon=True, name="cancel")
            ending.start()
            ending.join(CANCEL_S)
        return self._has_ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def _end(self) -> None:
        with suppress(EbbtideError):  # a gateway that is gone; what is left of it ends there by itself
            if not self.is_whole:
                self.operation.cancel()
            self.operation.close()
            self._has_ended = True
