"""What a view of rows shows: which of them, which columns, one row alone; as lines of styled text. Knows no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from ebbtide.redaction import printable
from ebbtide.sql.results import ResultColumn, Row
from ebbtide.sql.shell.cells import padded
from ebbtide.sql.shell.feed import Feed
from ebbtide.sql.shell.formats import cell, widths_of
from ebbtide.sql.shell.lines import CURSOR, PLAIN, STATUS, Columns, Line, op_style, row_lines

_AROUND = 2
"""Lines that are no rows: names above, status below."""


class Mode(Enum):
    """What is seen."""

    ROWS = "rows"
    ROW = "row"
    SEARCH = "search"


class Grid:
    """A window onto rows, with a cursor.

    Args:
        feed: Of the rows.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.mode = Mode.ROWS
        self.height = 24
        self.width = 80
        self.cursor = 0
        self.term = ""
        self._top = 0
        self._left = 0
        self._row: tuple[Sequence[ResultColumn], Row] = ((), ())
        self._row_top = 0
        self._follows = feed.is_endless
        self._looks_from: int | None = None
        self._message = ""
        self._widths: list[int] = []

    @property
    def page(self) -> int:
        """Rows that fit."""
        return max(1, self.height - _AROUND)

    def move(self, n_rows: int) -> None:
        """Move the cursor, or, in one row, its lines."""
        if self.mode is Mode.ROW:
            self._row_top = max(0, self._row_top + n_rows)
            return
        self._go(self.cursor + n_rows)

    def home(self) -> None:
        """Go to the first row that is held."""
        self._row_top = 0
        self._go(self.feed.rows.first)

    def end(self) -> None:
        """Go to the last row; all are read for that. In changes: follow those to come."""
        if self.mode is Mode.ROW:
            return
        self._follows = True
        n_rows = self.feed.rows.end + 1 if self.feed.is_endless else _ALL
        self.feed.want(n_rows)

    def move_columns(self, n_columns: int) -> None:
        """Show other columns."""
        last = max(0, len(self.feed.rows.columns) - 1)
        left = max(0, self._left + n_columns)
        self._left = min(left, last)

    def open_row(self) -> None:
        """Show the row at the cursor alone, or all again."""
        if self.mode is Mode.ROW:
            self.mode = Mode.ROWS
            return
        rows = self.feed.rows
        for row in rows.window(self.cursor, 1):
            self._row = (rows.columns, row)
            self._row_top = 0
            self.mode = Mode.ROW

    def refresh(self) -> None:
        """Execute the statement again."""
        self.mode = Mode.ROWS
        self.cursor = 0
        self._top = 0
        self._follows = self.feed.is_endless
        self._looks_from = None
        self._widths = []
        self.feed.refresh(2 * self.page)

    def begin_search(self) -> None:
        """Ask for what to search."""
        self.mode = Mode.SEARCH
        self.term = ""

    def search(self) -> None:
        """Search what was asked for, from the cursor on."""
        self.mode = Mode.ROWS
        self._look(self.cursor)

    def search_next(self) -> None:
        """Go to the next match."""
        if self.mode is Mode.ROWS:
            self._look(self.cursor + 1)

    def lines(self) -> list[Line]:
        """Lay out what is seen, as high as the terminal."""
        self._look_on()
        self._scroll()
        body = self._row_lines() if self.mode is Mode.ROW else self._rows_lines()
        n_above = self.height - 1
        shown = body[:n_above]
        n_empty = n_above - len(shown)
        empty: Line = [(PLAIN, "")]
        status = padded(self._status(), self.width)
        return [
            *shown,
            *[empty] * n_empty,
            [(STATUS, status)],
        ]

    def _go(self, number: int) -> None:
        rows = self.feed.rows
        self._follows = False
        self._message = ""
        self.cursor = max(rows.first, min(number, rows.end - 1))
        self.feed.want(self.cursor + 2 * self.page)

    def _scroll(self) -> None:
        """Keep the cursor on a row that is held, and the window around it."""
        rows = self.feed.rows
        end = rows.end
        if self._follows:
            self.cursor = end - 1
        self.cursor = max(rows.first, min(self.cursor, end - 1))
        highest = self.cursor - self.page + 1
        top = min(self._top, self.cursor)
        self._top = max(rows.first, top, highest)

    def _look(self, start: int) -> None:
        if self.term:
            self._follows = False
            self._message = f"Searching '{self.term}'"
            self._looks_from = start
            self.feed.want(_ALL)

    def _look_on(self) -> None:
        """Search those rows that came since; at the end of all, those before the cursor."""
        if self._looks_from is None:
            return
        rows = self.feed.rows
        end = rows.end
        may_come = self.feed.may_grow and not self.feed.is_endless
        found = self._match(self._looks_from, end)
        if found is None and may_come:
            self._looks_from = end
            return
        if found is None:
            found = self._match(rows.first, self.cursor + 1)
        self._looks_from = None
        if found is None:
            self._message = f"Not found: '{self.term}'"
        else:
            self._go(found)

    def _match(self, start: int, end: int) -> int | None:
        term = self.term.casefold()
        first = max(start, self.feed.rows.first)
        rows = self.feed.rows.window(first, end - first)
        for number, row in enumerate(rows, start=first):
            cells = [cell(value).casefold() for value in row]
            if any(term in text for text in cells):
                return number
        return None

    def _rows_lines(self) -> list[Line]:
        held = self.feed.rows
        rows = held.window(self._top, self.page)
        self._widen(widths_of(held.columns, rows))
        columns = Columns(held.columns, self._widths, self._left, self.width)
        lines = [columns.header()]
        for number, row in enumerate(rows, start=self._top):
            style = op_style(row) if self.feed.is_endless else PLAIN
            if number == self.cursor:
                style = CURSOR
            lines.append(columns.line(row, style))
        return lines

    def _widen(self, needed: list[int]) -> None:
        """Give columns what they need; they only grow, so that what is seen does not jump."""
        if len(self._widths) != len(needed):
            self._widths = needed
        self._widths = list(map(max, self._widths, needed))

    def _row_lines(self) -> list[Line]:
        lines = row_lines(*self._row, self.width)
        lowest = max(0, len(lines) - self.page)
        self._row_top = min(self._row_top, lowest)
        return lines[self._row_top :]

    def _status(self) -> str:
        if self.mode is Mode.SEARCH:
            return f"/{self.term}"
        if self.mode is Mode.ROW:
            return f"row {self.cursor + 1:,}   q: back"
        parts = [self._count(), self._message, printable(self.feed.notice)]
        if self.feed.error is not None:
            parts = [printable(str(self.feed.error))]
        said = "   ".join(part for part in parts if part)
        return f"{said}   q: quit  /: search  n: next  Enter: row  r: refresh"

    def _count(self) -> str:
        what = "change" if self.feed.is_endless else "row"
        more = "+" if self.feed.may_grow else ""
        end = self.feed.rows.end
        if end == 0:
            return f"no {what}s yet" if self.feed.may_grow else f"no {what}s"
        return f"{what} {self.cursor + 1:,} of {end:,}{more}"


_ALL = 1 << 62
"""More rows than there are."""
