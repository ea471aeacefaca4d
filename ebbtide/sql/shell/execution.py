"""One statement's way through a session: begun, waited for, its pages read, ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

from ebbtide.errors import EbbtideError
from ebbtide.sql.results import Page, Result, ResultKind
from ebbtide.sql.session import Operation, Session
from ebbtide.sql.shell.waiting import Waiting

CANCEL_S = 1.5
"""How long the shell waits for a statement to end, so that Ctrl-C gives the prompt back within 2 s; what takes longer ends by itself."""


class Execution:
    """A statement that is executed. A context manager: at its end nothing of the statement runs.

    Args:
        session: Where.
        text: Of the statement.
        waiting: Waits for it.
    """

    def __init__(self, session: Session, text: str, waiting: Waiting) -> None:
        self.text = text
        self._session = session
        self._waiting = waiting
        self._began = time.monotonic()
        self._paused: float | None = None
        self._n_rows = 0
        self._is_whole = False
        self._is_ending = False
        self._has_ended = False
        self.position: str | None = None
        self.operation: Operation = session.execute(text)

    @property
    def seconds(self) -> float:
        """It took, or takes so far."""
        return (self._paused or time.monotonic()) - self._began

    def stop_clock(self) -> None:
        """Count no longer: from now on people read."""
        self._paused = time.monotonic()

    @property
    def n_rows(self) -> int:
        """Rows that were read so far."""
        return self._n_rows

    @property
    def is_whole(self) -> bool:
        """Whether no more come."""
        return self._is_whole

    def again(self) -> Execution:
        """Begin the same statement again."""
        return Execution(self._session, self.text, self._waiting)

    def result(self) -> Result:
        """Wait for its columns, or for its end.

        Raises:
            EbbtideError: it failed.
            KeyboardInterrupt: Ctrl-C came.
        """
        result = self._waiting.until(self.operation.result, "Running")
        self._is_whole = result.kind is ResultKind.DONE
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
        what = "" if result.kind is ResultKind.CHANGES else "Reading rows"
        while token is not None:
            page = self._waiting.until(partial(self.operation.page, token), what)
            self.take(page)
            yield page
            token = page.next

    def take(self, page: Page) -> None:
        """Count a page that was read."""
        self._n_rows += len(page.rows)
        self._is_whole = page.next is None
        self.position = page.position or self.position

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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def _end(self) -> None:
        with suppress(EbbtideError):  # a gateway that is gone; what is left of it ends there by itself
            if not self._is_whole:
                self.operation.cancel()
            self.operation.close()
            self._has_ended = True
