"""A result's pages as a gateway hands them out: none longer than its limit, each to be had again if an answer was lost."""

from __future__ import annotations

from dataclasses import replace

from ebbtide.errors import SqlError
from ebbtide.sql.results import Page
from ebbtide.sql.session import Operation

KEPT = 2
"""Pages that can be asked for again: the protocol's own promise."""


class Pages:
    """Cuts an operation's pages where they are too long; its tokens count them from 0. For one caller at a time.

    Args:
        operation: Whose rows they are.
        most_rows: Of a page.
    """

    def __init__(self, operation: Operation, most_rows: int) -> None:
        self._operation = operation
        self._most_rows = most_rows
        self._handed_out: dict[int, Page] = {}
        self._next: int | None = 0
        self._source_token = 0
        self._source: Page | None = None
        self._n_cut = 0

    def page(self, token: int, timeout_s: float) -> Page | None:
        """Return a page; None if its rows have not come within a time.

        Raises:
            SqlError: it is neither the next one nor one of those handed out last.
            EbbtideError: as the operation's `page`.
        """
        if token in self._handed_out:
            return self._handed_out[token]
        if token != self._next:
            known = [*self._handed_out, *([] if self._next is None else [self._next])]
            raise SqlError.of(
                "This page is not to be had.",
                got=token,
                allowed=" or ".join(map(str, known)),
                next_step="Ask for the page that 'next' of the last one names.",
            )
        if self._source is None:
            self._source = self._operation.page(self._source_token, timeout_s)
        if self._source is None:
            return None
        page = self._cut(token, self._source)
        self._next = page.next
        self._handed_out[token] = page
        self._handed_out.pop(token - KEPT, None)
        return page

    def _cut(self, token: int, source: Page) -> Page:
        """Take the next rows of the session's page; what else it says belongs to its last rows."""
        end = self._n_cut + self._most_rows
        rows = source.rows[self._n_cut : end]
        if end < len(source.rows):
            self._n_cut = end
            return Page(rows, next=token + 1)
        self._n_cut = 0
        self._source = None
        if source.next is None:
            return replace(source, rows=rows)
        self._source_token = source.next
        return replace(source, rows=rows, next=token + 1)
