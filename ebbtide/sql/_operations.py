"""A statement that is executed on its own thread, and its output: rows that are complete, or changes as they come."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ebbtide.amounts import amount
from ebbtide.errors import EbbtideError, OperationCanceledError, OperationGoneError, SqlError
from ebbtide.sql._results import OperationStatus, Page, Result, Row
from ebbtide.sql._tokens import Place

KEPT_PAGES = 2
"""Pages of changes that are kept, up to the requested one: a client whose answer was lost asks for the same page again."""
CANCELS_EVERY_S = 0.2
"""Interval at which a cancelled operation is interrupted until it ends: Spark may begin a job after the first interrupt."""


class Output(Protocol):
    """Output of a statement."""

    @property
    def result(self) -> Result:
        """The result without the rows."""

    def page(self, token: int, timeout_s: float | None) -> Page | None:
        """Return a page; None if the time is up before there is one."""

    def go_on(self, is_canceled: threading.Event) -> None:
        """Produce the rows once the result is known, on the statement's thread."""


class Rows(Protocol):
    """Rows that are complete."""

    @property
    def count(self) -> int:
        """Number of rows."""

    def slice(self, start: int, stop: int) -> list[Row]:
        """Return the rows with numbers from `start` to below `stop`."""


@dataclass(frozen=True)
class Listed:
    """Rows in memory: few, such as those of SHOW."""

    rows: list[Row]

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def slice(self, start: int, stop: int) -> list[Row]:
        """Return the rows with numbers from `start` to below `stop`."""
        return self.rows[start:stop]


@dataclass(frozen=True)
class Whole:
    """Rows that are complete, as pages.

    Args:
        result: Result of the statement.
        rows: All rows.
        page_rows: Maximum number of rows in a page.
    """

    result: Result
    rows: Rows
    page_rows: int = 1_000

    def page(self, token: int, timeout_s: float | None) -> Page:
        """Return a page; its token is the number of its first row."""
        stop = token + self.page_rows
        rows = self.rows.slice(token, stop)
        has_next = stop < self.rows.count
        following = stop if has_next else None
        return Page(rows, following)

    def go_on(self, is_canceled: threading.Event) -> None:
        """Do nothing: the rows are complete."""


def delete_nothing() -> None:
    """Delete nothing: the rows have no files."""


@dataclass(frozen=True)
class Batch:
    """Changes up to a position.

    Args:
        rows: The changes.
        position: Position after the last change.
        delete: Deletes the files of the rows.
    """

    rows: Rows
    position: str
    delete: Callable[[], None] = delete_nothing


class Changes:
    """Changes as they come, as pages. A page has rows of one batch, and is kept until the next but one is asked for.

    Args:
        result: Result of the statement.
        batches: Yields the batches, waiting in between; ends once the event is set.
        page_rows: Maximum number of rows in a page.
    """

    def __init__(
        self,
        result: Result,
        batches: Callable[[threading.Event], Iterator[Batch]],
        page_rows: int,
    ) -> None:
        self.result = result
        self._batches = batches
        self._page_rows = page_rows
        self._pages: dict[int, tuple[Batch, int]] = {}
        self._n_pages = 0
        self._is_over = False
        self._changed = threading.Condition()

    def page(self, token: int, timeout_s: float | None) -> Page | None:
        """Return a page; its token is the number of the page.

        Raises:
            SqlError: the page was dropped.
        """
        # Asking for a page acknowledges those before the previous one: they are dropped, and files without further pages deleted.
        with self._changed:
            self._drop(token - KEPT_PAGES)
            came = self._changed.wait_for(
                lambda: token < self._n_pages or self._is_over,
                timeout_s,
            )
            if not came:
                return None
            if token >= self._n_pages:
                return Page()
            if token not in self._pages:
                raise SqlError.of(
                    "This page is no longer kept.",
                    got=token,
                    allowed=f"{min(self._pages, default=self._n_pages)} and those after it",
                    next_step="EMIT CHANGES FROM a position resumes from there.",
                )
            batch, start = self._pages[token]
        stop = start + self._page_rows
        rows = batch.rows.slice(start, stop)
        is_last = stop >= batch.rows.count
        return Page(rows, token + 1, batch.position if is_last else None)

    def go_on(self, is_canceled: threading.Event) -> None:
        """Add the pages of each batch as it comes."""
        try:
            for batch in self._batches(is_canceled):
                self._add(batch)
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _add(self, batch: Batch) -> None:
        """Cut a batch into pages; an empty one has a page too, since its position is news."""
        n_rows = max(batch.rows.count, 1)
        with self._changed:
            for start in range(0, n_rows, self._page_rows):
                self._pages[self._n_pages] = batch, start
                self._n_pages += 1
            self._changed.notify_all()

    def _drop(self, last: int) -> None:
        """Drop the pages up to a number, and delete the batches without further pages."""
        dropped: dict[int, Batch] = {}
        for number in list(self._pages):
            if number <= last:
                batch, _ = self._pages.pop(number)
                dropped[id(batch)] = batch
        still_used = {id(batch) for batch, _ in self._pages.values()}
        for batch_id, batch in dropped.items():
            if batch_id not in still_used:
                batch.delete()


class RunningOperation:
    """A statement on its own thread: see `ebbtide.sql._results.Operation`.

    Args:
        on_cancel: Interrupts the jobs of Spark for the operation of an id.
        on_close: Forgets the operation of an id.
        max_age_s: Time after the last request for a page at which the rows are dropped; 0: never.
        clock: Clock in seconds.
    """

    def __init__(
        self,
        on_cancel: Callable[[str], None],
        on_close: Callable[[str], None],
        max_age_s: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.id = secrets.token_hex(8)
        self._on_cancel = on_cancel
        self._on_close = on_close
        self._max_age_s = max_age_s
        self._clock = clock
        self._asked_at = clock()
        self._n_asking = 0
        self._is_dropped = False
        self._output: Output | None = None
        self._error: EbbtideError | None = None
        self._has_result = threading.Event()
        self._is_over = threading.Event()
        self._is_canceled = threading.Event()
        self._ending = threading.Lock()
        self._when_over: list[Callable[[], None]] = []

    def start(self, work: Callable[[], Output]) -> None:
        """Begin.

        Args:
            work: Executes the statement; called on the operation's thread.
        """
        thread = threading.Thread(
            target=self._run,
            args=(work,),
            name=f"sql-{self.id}",
            daemon=True,
        )
        thread.start()

    @property
    def status(self) -> OperationStatus:
        """Status of the operation."""
        if self._is_canceled.is_set():
            return OperationStatus.CANCELED
        if self._error is not None:
            return OperationStatus.FAILED
        return OperationStatus.FINISHED if self._is_over.is_set() else OperationStatus.RUNNING

    def when_over(self, call: Callable[[], None]) -> None:
        """Register a function to be called when the operation ends, on its thread; calls it now if it has ended."""
        with self._ending:
            if not self._is_over.is_set():
                self._when_over.append(call)
                return
        call()

    def result(self, timeout_s: float | None = None) -> Result | None:
        """Wait until the columns are known, or a statement without rows is done."""
        output = self._awaited(timeout_s)
        return None if output is None else output.result

    def page(self, token: int = 0, timeout_s: float | None = None) -> Page | None:
        """Return a page of rows."""
        self.drop_if_old()
        with self._ending:
            self._n_asking += 1
        try:
            output = self._awaited(timeout_s)
            if output is None:
                return None
            page = output.page(token, timeout_s)
            self._raise()
            return page
        finally:
            with self._ending:
                self._n_asking -= 1
                self._asked_at = self._clock()

    def drop_if_old(self) -> bool:
        """Drop the rows if no page was asked for within the maximum age; a query whose changes are not read is cancelled.

        Returns:
            True if the rows are dropped: their files may be deleted.
        """
        with self._ending:
            has_rows = self._output is not None and not self._n_asking
            is_old = 0 < self._max_age_s <= self._clock() - self._asked_at
            if has_rows and is_old:
                self._is_dropped = True
                self._output = None
        if self._is_dropped:
            self.cancel()
        return self._is_dropped

    def cancel(self) -> None:
        """End the operation, not the session; does nothing if it has ended."""
        if self._is_over.is_set():
            return
        self._is_canceled.set()
        self._has_result.set()
        self._on_cancel(self.id)
        thread = threading.Thread(
            target=self._interrupt,
            name=f"sql-cancel-{self.id}",
            daemon=True,
        )
        thread.start()

    def close(self) -> None:
        """Forget the operation and delete its rows; cancels it if it runs."""
        self.cancel()
        self._on_close(self.id)

    def _awaited(self, timeout_s: float | None) -> Output | None:
        came = self._has_result.wait(timeout_s)
        if not came:
            return None
        self._raise()
        return self._output

    def _raise(self) -> None:
        if self._is_dropped:
            raise OperationGoneError.of(
                "The rows of this result were dropped: no page was asked for in time.",
                allowed=f"{amount(self._max_age_s, 'second')} between two pages",
                next_step="Execute the statement again. SET max-age changes the time of later results.",
            )
        if self._is_canceled.is_set():
            raise OperationCanceledError.of("The statement was cancelled.")
        if self._error is not None:
            raise self._error

    def _interrupt(self) -> None:
        while not self._is_over.wait(CANCELS_EVERY_S):
            self._on_cancel(self.id)

    def _run(self, work: Callable[[], Output]) -> None:
        # A waiter is woken twice: when the result is known, and when the operation has ended. The order matters: `_is_over` is set
        # before the registered functions are called, so that each is called once, here or in `when_over`.
        try:
            output = work()
            with self._ending:
                self._output = output
                self._asked_at = self._clock()
            self._has_result.set()
            output.go_on(self._is_canceled)
        except Exception as error:  # noqa: BLE001 - `result` and `page` raise it
            self._error = as_ours(error)
        finally:
            with self._ending:
                self._is_over.set()
            self._has_result.set()
            for call in self._when_over:
                call()


MOST_CHARACTERS = 2_000
"""Maximum length of a message."""
_CUT_FROM = ("\n\nJVM stacktrace:", "\n\tat ", "\n\n== SQL", "\n== SQL")
"""Marks where a message is cut: the JVM's stack trace, and Spark's excerpt of the query."""
_CALLED = re.compile(r"^An error occurred while calling \S+\n: (?:[\w.$]+: )?")
"""Py4J's words before the message of a Java exception, with the exception's class."""
_RAISED = re.compile(r"An exception was thrown from the Python worker:.*\n(?=\S)", re.DOTALL)
"""The text before the last line of a Python function's traceback."""
_PLACED = re.compile(r"[;(]?\s*line (\d+),? pos (\d+)[;)]?(?:\n.*)?$", re.DOTALL)
"""Line and position at the end of Spark's message, and all lines after them."""


def as_ours(error: BaseException, place: Callable[[int, int], Place] | None = None) -> EbbtideError:
    """Return an error of Spark, or of a library, as one of ours.

    Args:
        error: Error of Spark or of a library.
        place: Returns the place in the script for a line (from 1) and a position (from 0) of Spark's.
    """
    if isinstance(error, EbbtideError):
        return error
    within = EbbtideError.within(error)
    if within is not None:
        return within
    text = _CALLED.sub("", str(error))
    for mark in _CUT_FROM:
        text, _, _ = text.partition(mark)
    text = _RAISED.sub("A Python function raised ", text.rstrip())
    placed = _PLACED.search(text)
    message = _PLACED.sub("", text).strip() or type(error).__name__
    message = message[:MOST_CHARACTERS]
    if placed is None or place is None:
        return SqlError(message)
    line, position = int(placed[1]), int(placed[2])
    sentence = message.removesuffix(".")
    return SqlError(f"{sentence}. At {place(line, position)}.")
