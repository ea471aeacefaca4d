"""A statement that is being executed on a thread of its own, and what it gives: rows that are there, or changes as they come."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ebbtide.errors import EbbtideError, OperationCanceledError, SqlError
from ebbtide.sql.results import OperationStatus, Page, Result, Row
from ebbtide.sql.tokens import Place

KEPT_PAGES = 2
"""Of changes: when a page is asked for, the one before it, whose answer may have been lost, can be asked for again."""
CANCELS_EVERY_S = 0.2
"""How often a cancelled operation is interrupted until it is over: a job of Spark's may begin after the first time."""


class Output(Protocol):
    """What a statement gives."""

    @property
    def result(self) -> Result:
        """What is known before the rows."""

    def page(self, token: int, timeout_s: float | None) -> Page | None:
        """Return a page; None if the time is up before there is one."""

    def go_on(self, is_canceled: threading.Event) -> None:
        """Do what is left once the result is known, on the statement's thread."""


class Rows(Protocol):
    """Rows that are there."""

    @property
    def count(self) -> int:
        """How many."""

    def slice(self, start: int, stop: int) -> list[Row]:
        """Return the rows from one number on up to another."""


@dataclass(frozen=True)
class Listed:
    """Rows in memory: few, such as SHOW lists."""

    rows: list[Row]

    @property
    def count(self) -> int:
        """How many."""
        return len(self.rows)

    def slice(self, start: int, stop: int) -> list[Row]:
        """Return the rows from one number on up to another."""
        return self.rows[start:stop]


@dataclass(frozen=True)
class Whole:
    """Rows that are all there.

    Args:
        result: What is known of them.
        rows: All rows.
        page_rows: Rows of a page.
    """

    result: Result
    rows: Rows
    page_rows: int = 1_000

    def page(self, token: int, timeout_s: float | None) -> Page:
        """Return a page; its token is the number of its first row."""
        stop = token + self.page_rows
        return Page(self.rows.slice(token, stop), stop if stop < self.rows.count else None)

    def go_on(self, is_canceled: threading.Event) -> None:
        """All is done."""


def keep() -> None:
    """Delete nothing: rows that nothing holds but themselves."""


@dataclass(frozen=True)
class Batch:
    """Changes up to a position.

    Args:
        rows: The changes.
        position: Position behind the last of them.
        delete: Deletes what holds the rows.
    """

    rows: Rows
    position: str
    delete: Callable[[], None] = keep


class Changes:
    """Changes as they come; each page is of one batch, and is kept until the page after the next was asked for.

    Args:
        result: What is known of them.
        batches: Makes them, waiting in between; ends once it is cancelled.
        page_rows: Rows of a page.
    """

    def __init__(self, result: Result, batches: Callable[[threading.Event], Iterator[Batch]], page_rows: int) -> None:
        self.result = result
        self._batches = batches
        self._page_rows = page_rows
        self._pages: dict[int, tuple[Batch, int]] = {}
        self._n_pages = 0
        self._is_over = False
        self._changed = threading.Condition()

    def page(self, token: int, timeout_s: float | None) -> Page | None:
        """Return a page; its token counts the pages.

        Raises:
            SqlError: it is there no more.
        """
        with self._changed:
            self._forget(token - KEPT_PAGES)
            came = self._changed.wait_for(lambda: token < self._n_pages or self._is_over, timeout_s)
            if not came:
                return None
            if token >= self._n_pages:
                return Page()
            if token not in self._pages:
                raise SqlError.of(
                    "This page is not to be had any more.",
                    got=token,
                    allowed=f"{min(self._pages, default=self._n_pages)} and those after it",
                    next_step="EMIT CHANGES FROM a position takes the changes up from there.",
                )
            batch, start = self._pages[token]
        rows = batch.rows.slice(start, start + self._page_rows)
        is_last = start + self._page_rows >= batch.rows.count
        return Page(rows, token + 1, batch.position if is_last else None)

    def go_on(self, is_canceled: threading.Event) -> None:
        """Make the batches."""
        try:
            for batch in self._batches(is_canceled):
                starts = range(0, max(batch.rows.count, 1), self._page_rows)
                with self._changed:
                    for number, start in enumerate(starts, start=self._n_pages):
                        self._pages[number] = batch, start
                    self._n_pages += len(starts)
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _forget(self, last: int) -> None:
        """Forget the pages up to one, and delete the batches that have no other."""
        gone = [self._pages.pop(number)[0] for number in list(self._pages) if number <= last]
        kept = {id(batch) for batch, _ in self._pages.values()}
        for name, batch in {id(batch): batch for batch in gone}.items():
            if name not in kept:
                batch.delete()


class RunningOperation:
    """See `ebbtide.sql.results.Operation`.

    Args:
        on_cancel: Interrupts what the operation has Spark do; given the operation's id.
        on_close: Forgets it.
    """

    def __init__(self, on_cancel: Callable[[str], None], on_close: Callable[[str], None]) -> None:
        self.id = secrets.token_hex(8)
        self._on_cancel = on_cancel
        self._on_close = on_close
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
            work: Does what the statement says, on a thread of its own.
        """
        threading.Thread(target=self._run, args=(work,), name=f"sql-{self.id}", daemon=True).start()

    @property
    def status(self) -> OperationStatus:
        """Where it stands."""
        if self._is_canceled.is_set():
            return OperationStatus.CANCELED
        if self._error is not None:
            return OperationStatus.FAILED
        return OperationStatus.FINISHED if self._is_over.is_set() else OperationStatus.RUNNING

    def when_over(self, call: Callable[[], None]) -> None:
        """Call something once it is over, on its thread; now, if it is over."""
        with self._ending:
            if not self._is_over.is_set():
                self._when_over.append(call)
                return
        call()

    def result(self, timeout_s: float | None = None) -> Result | None:
        """Wait until its columns are known, or until it did what it was to do."""
        output = self._awaited(timeout_s)
        return None if output is None else output.result

    def page(self, token: int = 0, timeout_s: float | None = None) -> Page | None:
        """Return a page of rows."""
        output = self._awaited(timeout_s)
        if output is None:
            return None
        page = output.page(token, timeout_s)
        self._raise()
        return page

    def cancel(self) -> None:
        """End it; the session lives on."""
        if self._is_over.is_set():
            return
        self._is_canceled.set()
        self._has_result.set()
        self._on_cancel(self.id)
        threading.Thread(target=self._interrupt, name=f"sql-cancel-{self.id}", daemon=True).start()

    def close(self) -> None:
        """Forget it and delete what it stored; cancels it if it runs."""
        self.cancel()
        self._on_close(self.id)

    def _awaited(self, timeout_s: float | None) -> Output | None:
        came = self._has_result.wait(timeout_s)
        if not came:
            return None
        self._raise()
        return self._output

    def _raise(self) -> None:
        if self._is_canceled.is_set():
            raise OperationCanceledError.of("The statement was cancelled.")
        if self._error is not None:
            raise self._error

    def _interrupt(self) -> None:
        while not self._is_over.wait(CANCELS_EVERY_S):
            self._on_cancel(self.id)

    def _run(self, work: Callable[[], Output]) -> None:
        try:
            self._output = work()
            self._has_result.set()
            self._output.go_on(self._is_canceled)
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = as_ours(error)
        finally:
            with self._ending:
                self._is_over.set()
            self._has_result.set()
            for call in self._when_over:
                call()


MOST_CHARACTERS = 2_000
"""Of a message."""
_TRACES = ("\n\nJVM stacktrace:", "\n\tat ", "\n\n== SQL", "\n== SQL")
"""How what follows a message begins."""
_CALLED = re.compile(r"^An error occurred while calling \S+\n: (?:[\w.$]+: )?")
_RAISED = re.compile(r"An exception was thrown from the Python worker:.*\n(?=\S)", re.DOTALL)
"""What stands before the last line of a Python function's traceback."""
_PLACED = re.compile(r"[;(]?\s*line (\d+),? pos (\d+)[;)]?(?:\n.*)?$", re.DOTALL)


def as_ours(error: BaseException, place: Callable[[int, int], Place] | None = None) -> EbbtideError:
    """Return an error of Spark's, or of a library, as one of ours.

    Args:
        error: Error of Spark or of a library.
        place: Returns where something was written that Spark has found at a line (from 1) and a position (from 0).
    """
    if isinstance(error, EbbtideError):
        return error
    within = EbbtideError.within(error)
    if within is not None:
        return within
    text = _CALLED.sub("", str(error))
    for trace in _TRACES:
        text, _, _ = text.partition(trace)
    text = _RAISED.sub("A Python function raised ", text.rstrip())
    placed = _PLACED.search(text)
    message = _PLACED.sub("", text).strip() or type(error).__name__
    if placed is None or place is None:
        return SqlError(message[:MOST_CHARACTERS])
    written_at = place(int(placed[1]), int(placed[2]))
    sentence = message[:MOST_CHARACTERS].removesuffix(".")
    return SqlError(f"{sentence}. At {written_at}.")
