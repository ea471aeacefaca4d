"""Executes a statement in a session: opens the session, begins the statement, waits for it, reads its pages, ends it.

The handler of Ctrl-C only sets a flag, which every wait polls. So no code is interrupted at an arbitrary place.
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
from ebbtide.sql._results import Operation, Page, Result, ResultKind, Session

POLL_S = 0.25
"""Interval at which a wait polls for Ctrl-C; each poll may be a request to a gateway."""
CANCEL_S = 1.5
"""Maximum wait for the end of a cancelled statement: the prompt is back within 2 s; a slower end continues in the background."""
ERASE_LINE = "\r\x1b[2K"
CLEAR_SCREEN = "\x1b[H\x1b[2J\x1b[3J"
SECONDS_UNSHOWN = 1
"""Shorter waits are not shown."""
T = TypeVar("T")


class Console:
    """Two output streams, and the status line of a terminal during a wait.

    Args:
        out: Stream for rows.
        err: Stream for errors.
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
        """Write a line of rows with escaped control characters."""
        self.end_waiting()
        self._out.write(f"{line}\n")

    def say(self, text: str, *, beside_data: bool = False) -> None:
        """Write lines for people.

        Args:
            text: Text of the lines; empty: nothing is written.
            beside_data: Write to the stream for errors, since programs read the rows.
        """
        if not text:
            return
        self.end_waiting()
        stream = self._err if beside_data else self._out
        stream.write(f"{shown(text)}\n")
        stream.flush()

    def error(self, text: str) -> None:
        """Write an error."""
        self.flush()
        self.say(text, beside_data=True)

    def flush(self) -> None:
        """Flush the stream for rows."""
        self._out.flush()

    def clear(self) -> None:
        """Clear the screen of a terminal."""
        if self.is_terminal:
            self._out.write(CLEAR_SCREEN)
            self.flush()

    def wait(self, what: str, seconds: float) -> None:
        """Show on a terminal how long a wait has taken."""
        if not self._err.isatty() or seconds < SECONDS_UNSHOWN:
            return
        line = f"{what}, {seconds:.0f} s. Ctrl-C cancels."
        width = shutil.get_terminal_size().columns
        self._err.write(ERASE_LINE + line[: width - 1])
        self._err.flush()
        self._has_waiting_line = True

    def end_waiting(self) -> None:
        """Erase the line of a wait."""
        if self._has_waiting_line:
            self._err.write(ERASE_LINE)
            self._err.flush()
            self._has_waiting_line = False


class Interrupts:
    """Notes Ctrl-C outside the prompt. A context manager, for the main thread."""

    def __init__(self) -> None:
        # No `threading.Event`: a signal that comes within its `wait` would have `set` wait for the lock of its own thread.
        self._has_come = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def forget(self) -> None:
        """Forget an earlier Ctrl-C."""
        self._has_come = False

    def take(self) -> None:
        """Raise KeyboardInterrupt if Ctrl-C came."""
        if self._has_come:
            self._has_come = False
            raise KeyboardInterrupt

    def sleep(self, seconds: float) -> None:
        """Wait; raise KeyboardInterrupt soon after Ctrl-C comes."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
            self.take()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._has_come = True


class Waiting:
    """Waits until something has happened or Ctrl-C comes, and shows the wait.

    Args:
        interrupts: Source of Ctrl-C.
        console: Console that shows the wait.
    """

    def __init__(self, interrupts: Interrupts, console: Console) -> None:
        self.interrupts = interrupts
        self._console = console

    def until(self, ask: Callable[[float], T | None], what: str = "") -> T:
        """Repeat a question until there is an answer.

        Args:
            ask: Takes the seconds to wait; returns None while there is no answer.
            what: Name of the wait, to be shown; empty: it is not shown.

        Raises:
            KeyboardInterrupt: Ctrl-C came.
        """
        # Each question waits for `POLL_S` at most, then Ctrl-C is looked for: so it takes effect within that time, also where the answer
        # comes over HTTP.
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
    """A session that a thread opens while the user types: only the first statement waits for it.

    Args:
        open_session: Opens the session.
    """

    def __init__(self, open_session: Callable[[], Session]) -> None:
        self._open_session = open_session
        self._opening: Future[Session] | None = None
        self._lock = threading.Lock()

    def begin(self) -> Future[Session]:
        """Begin to open the session; does nothing if that was begun."""
        with self._lock:
            if self._opening is not None:
                return self._opening
            opening: Future[Session] = Future()
            thread = threading.Thread(
                target=self._open,
                args=(opening,),
                daemon=True,
                name="session",
            )
            thread.start()
            self._opening = opening
            return opening

    def get(self, timeout_s: float) -> Session | None:
        """Return the session; None if it is not open in time.

        Raises:
            EbbtideError: the session could not be opened; the next call tries again.
        """
        opening = self.begin()
        if not wait([opening], timeout_s).done:
            return None
        if opening.exception() is not None:
            self.forget()
        return opening.result()

    def forget(self) -> None:
        """Forget the session: the next call of `get` opens another."""
        with self._lock:
            self._opening = None

    def close(self) -> None:
        """Close the session if it is open; one that is still being opened ends with the process."""
        opening = self._opening
        if opening is None or not opening.done():
            return
        if opening.exception() is None:
            opening.result().close()

    def _open(self, opening: Future[Session]) -> None:
        try:
            session = self._open_session()
        except BaseException as error:  # noqa: BLE001 - `get` raises it
            opening.set_exception(error)
        else:
            opening.set_result(session)


class Execution:
    """A statement that is executed. A context manager that ends it.

    Args:
        session: Session that executes it.
        text: Text of the statement.
        waiting: Waits for its result.

    Raises:
        EbbtideError: a gateway refuses the statement or is gone.
    """

    def __init__(self, session: Session, text: str, waiting: Waiting) -> None:
        self._waiting = waiting
        self._began = time.monotonic()
        self._paused: float | None = None
        self._is_ending = False
        self._has_ended = False
        self.n_rows = 0
        """Number of rows read so far."""
        self.is_whole = False
        """True once all rows were read."""
        self.position: str | None = None
        """Position after the changes that were read; None for other rows."""
        self.operation: Operation = session.execute(text)

    @property
    def seconds(self) -> float:
        """Time that the statement took, or takes so far."""
        return (self._paused or time.monotonic()) - self._began

    def stop_clock(self) -> None:
        """Stop counting the time: from now on a person reads."""
        self._paused = time.monotonic()

    def result(self) -> Result:
        """Wait for the columns, or for the end of a statement without rows.

        Raises:
            EbbtideError: the statement failed.
            KeyboardInterrupt: Ctrl-C came.
        """
        result = self._waiting.until(self.operation.result, "Running")
        self.is_whole = result.kind is ResultKind.DONE
        return result

    def pages(self, result: Result) -> Iterator[Page]:
        """Yield the pages as they come.

        Args:
            result: Result of `result`.

        Raises:
            EbbtideError: the statement failed.
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
        """Cancel the statement if it runs, and forget it; return whether that was done in time."""
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
        with suppress(EbbtideError):  # of a gateway that is gone: the statement ends there with the session
            if not self.is_whole:
                self.operation.cancel()
            self.operation.close()
            self._has_ended = True
