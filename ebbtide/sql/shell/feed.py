"""Rows that are read behind a view, as far as it wants them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from ebbtide.sql.results import Page, Result, ResultColumn, ResultKind, Row
from ebbtide.sql.shell.execution import Execution
from ebbtide.sql.shell.waiting import POLL_S

MOST_ROWS = 100_000
"""Rows that a view holds: the first ones of a table, the last ones of changes."""
END_S = 2.0


class Rows:
    """Rows by number. The first ones go when there are too many; the numbers of the others stay.

    Args:
        columns: Of each.
        most: Held at most.
    """

    def __init__(self, columns: Sequence[ResultColumn], most: int = MOST_ROWS) -> None:
        self.columns = columns
        self._most = most
        self._first = 0
        self._kept: list[Row] = []
        self._lock = threading.Lock()

    @property
    def first(self) -> int:
        """Number of the first that is held."""
        return self._first

    @property
    def end(self) -> int:
        """Number after the last."""
        with self._lock:
            return self._first + len(self._kept)

    def append(self, rows: Iterable[Row]) -> None:
        """Take some in."""
        with self._lock:
            self._kept.extend(rows)
            n_gone = len(self._kept) - self._most
            if n_gone > 0:
                del self._kept[:n_gone]
                self._first += n_gone

    def window(self, start: int, n: int) -> list[Row]:
        """Return some that follow each other; fewer, where they are not held."""
        with self._lock:
            wanted = start - self._first
            begin = max(0, wanted)
            end = max(begin, wanted + n)
            return self._kept[begin:end]


class Feed:
    """Reads a statement's rows on a thread of its own.

    Args:
        execution: The statement.
        result: Its columns.
        pages: Those that were read already.
        on_change: Called, on that thread, after something has changed.
    """

    def __init__(
        self,
        execution: Execution,
        result: Result,
        pages: list[Page],
        on_change: Callable[[], None],
    ) -> None:
        self.execution = execution
        self.is_endless = result.kind is ResultKind.CHANGES
        """Whether rows may come for ever."""
        self.rows = Rows(result.columns)
        self.notice = ""
        self.error: Exception | None = None
        self._on_change = on_change
        self._next: int | None = 0
        self._wanted = 0
        self._awake = threading.Event()
        self._is_stopped = False
        self._is_outdated = False
        self._thread = threading.Thread(target=self._read, daemon=True, name="feed")
        for page in pages:
            self._take(page)

    @property
    def may_grow(self) -> bool:
        """Whether there is more to read."""
        has_more = self._next is not None and self.error is None
        return has_more and not self._is_full

    @property
    def _is_full(self) -> bool:
        """Whether as many rows of a table are held as may be."""
        return not self.is_endless and self.rows.end >= MOST_ROWS

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def want(self, n_rows: int) -> None:
        """Let it read until there are so many rows."""
        self._wanted = max(self._wanted, n_rows)
        self._awake.set()

    def refresh(self, n_rows: int) -> None:
        """Let it execute the statement again, and read so many rows; those until then go."""
        self._wanted = n_rows
        self._is_outdated = True
        self._awake.set()

    def stop(self) -> None:
        """End reading; the statement is to be ended by who began it."""
        self._is_stopped = True
        self._awake.set()
        self._thread.join(END_S)

    def _read(self) -> None:
        while not self._is_stopped:
            try:
                self._read_more()
            except Exception as error:  # noqa: BLE001 - it is shown, and raised where the view ends
                self.error = error
                self._on_change()

    def _read_more(self) -> None:
        """Read a page if it is wanted; else wait until one is."""
        if self._is_outdated:
            self._begin_again()
        is_wanted = self.is_endless or self.rows.end < self._wanted
        if self._next is None or not (is_wanted and self.may_grow):
            self._awake.wait()
            self._awake.clear()
            return
        page = self.execution.operation.page(self._next, POLL_S)
        if page is not None:
            self.execution.take(page)
            self._take(page)
            self._on_change()

    def _begin_again(self) -> None:
        self._is_outdated = False
        self.execution.end()
        self.execution = self.execution.again()
        self.error = None
        self.notice = ""
        self.rows = Rows(self.rows.columns)
        self._next = None
        self._on_change()
        result = None
        while result is None and not self._is_stopped:
            result = self.execution.operation.result(POLL_S)
        if result is not None:
            self.rows = Rows(result.columns)
            self._next = 0

    def _take(self, page: Page) -> None:
        self.rows.append(page.rows)
        self.notice = page.notice or self.notice
        self._next = page.next
        is_cut_off = self._is_full and page.next is not None
        if is_cut_off:
            self.notice = f"The first {MOST_ROWS:,} rows: SET result-format = csv writes all."
