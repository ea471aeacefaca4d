"""The protocol of sessions, embedded or in a gateway: statements go in; columns, and rows as JSON values, come back page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from ebbtide.amounts import amount

Row = Sequence[Any]
"""JSON values: structures are lists and objects; numbers that JSON cannot hold exactly, dates, times and bytes are texts."""


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result.

    Args:
        name: Name of the column.
        type: Type of the column, as Spark writes it.
    """

    name: str
    type: str = "string"


class ResultKind(StrEnum):
    """Kind of the rows of a result."""

    DONE = "done"
    """There are none; the message says what the statement did."""
    ROWS = "rows"
    """Rows as of one moment."""
    CHANGES = "changes"
    """Changes of rows, perhaps without end. The columns of the query follow `op` (+I -U +U -D) and the table's `version`."""


@dataclass(frozen=True)
class Result:
    """The part of a result that is known before its rows.

    Args:
        kind: Kind of the rows.
        columns: Columns of the rows.
        message: Note for people: the effect of the statement, or that rows are cut off at a limit.
    """

    kind: ResultKind
    columns: tuple[ResultColumn, ...] = ()
    message: str = ""

    @classmethod
    def done(cls, message: str) -> Result:
        """Return the result of a statement without rows."""
        return cls(ResultKind.DONE, message=message)


def cut_off(most: int) -> str:
    """Return the message of a result that has more rows than the session's `max-rows`."""
    return f"Cut off at {amount(most, 'row')}; there are more. SET max-rows = 0 returns all."


@dataclass(frozen=True)
class Page:
    """Some of the rows.

    Args:
        rows: Rows in order.
        next: Token of the next page; None at the last.
        position: Position after these changes, for `EMIT CHANGES FROM 'position'`.
        notice: Note for people, such as that rows are cut off at a limit; empty: none.
    """

    rows: list[Row] = field(default_factory=list)
    next: int | None = None
    position: str | None = None
    notice: str = ""


class OperationStatus(StrEnum):
    """Status of an operation."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"
    FAILED = "FAILED"


class CompletionKind(StrEnum):
    """Kind of a completion."""

    KEYWORD = "keyword"
    TABLE = "table"
    COLUMN = "column"
    FUNCTION = "function"
    SETTING = "setting"


@dataclass(frozen=True)
class Completion:
    """A completion of a word.

    Args:
        text: The whole word.
        start: Offset of the word in the text that was typed.
        kind: Kind of the word.
    """

    text: str
    start: int
    kind: CompletionKind


class Operation(Protocol):
    """A statement that is being executed."""

    @property
    def id(self) -> str:
        """Id of the operation."""

    @property
    def status(self) -> OperationStatus:
        """Status of the operation."""

    def result(self, timeout_s: float | None = None) -> Result | None:
        """Wait until the columns are known, or a statement without rows is done.

        Args:
            timeout_s: How long to wait. Default: as long as it takes.

        Returns:
            None if the time is up.

        Raises:
            EbbtideError: the statement failed; the message has the place in the statement.
            OperationCanceledError: the operation was cancelled.
        """

    def page(self, token: int = 0, timeout_s: float | None = None) -> Page | None:
        """Return a page of rows.

        Args:
            token: 0 for the first page, then `next` of the page before. A page can be repeated until the next but one was read.
            timeout_s: How long to wait for rows that have yet to come. Default: as long as it takes.

        Returns:
            None if the time is up.

        Raises:
            EbbtideError: as `result`.
        """

    def cancel(self) -> None:
        """End the operation, not the session; does nothing if it has ended."""

    def close(self) -> None:
        """Forget the operation and delete its rows; cancels it if it runs."""


class Session(Protocol):
    """A session with its own settings, temporary views and catalog. One statement runs at a time."""

    @property
    def id(self) -> str:
        """Id of the session."""

    @property
    def catalog_name(self) -> str:
        """Name of the catalog in use."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of the session, credentials masked."""

    def execute(self, statement: str) -> Operation:
        """Begin to execute one statement; the operation raises the errors of the statement.

        Args:
            statement: Text of the statement; the semicolon is optional. HELP, CLEAR, QUIT and SOURCE are the client's.

        Raises:
            EbbtideError: the gateway refuses the statement or is gone.
        """

    def complete(self, text: str, offset: int) -> list[Completion]:
        """Return the completions of the word before an offset. Starts no JVM."""

    def close(self) -> None:
        """End the session: its queries are cancelled, its jobs continue."""
