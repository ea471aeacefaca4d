"""What a client asks of a session, embedded or in a gateway, and what comes back: columns, and rows page by page, as JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

Row = Sequence[Any]
"""JSON values: numbers that JSON cannot hold exactly, dates, times and bytes as text, structures as lists and objects."""


@dataclass(frozen=True)
class ResultColumn:
    """A column of a result.

    Args:
        name: Its name.
        type: Its type, as Spark writes it.
    """

    name: str
    type: str = "string"


class ResultKind(StrEnum):
    """What the rows are."""

    DONE = "done"
    """None: the statement did something; its message says what."""
    ROWS = "rows"
    """A table's, all of one moment."""
    CHANGES = "changes"
    """Changes of it: before the columns asked for stand `op` (+I -U +U -D) and `version`, the table's; they may never end."""


@dataclass(frozen=True)
class Result:
    """What is known of a result before its rows.

    Args:
        kind: What they are.
        columns: Of each row.
        message: For people: what was done, or what is to be known of the rows (cut off at a limit).
    """

    kind: ResultKind
    columns: tuple[ResultColumn, ...] = ()
    message: str = ""

    @classmethod
    def done(cls, message: str) -> Result:
        """Say what a statement did."""
        return cls(ResultKind.DONE, message=message)


@dataclass(frozen=True)
class Page:
    """Some of the rows.

    Args:
        rows: They, in order.
        next: What to ask the next page by; None: there is none.
        position: Of changes, where they can be taken up again: `EMIT CHANGES FROM 'position'`.
        notice: What is to be known now, such as that rows were cut off at a limit; empty: nothing.
    """

    rows: list[Row] = field(default_factory=list)
    next: int | None = None
    position: str | None = None
    notice: str = ""


class OperationStatus(StrEnum):
    """Where an operation stands."""

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
    """What a word may become.

    Args:
        text: The whole word.
        start: Where the word begins, an offset of what was typed.
        kind: Kind of the word.
    """

    text: str
    start: int
    kind: CompletionKind


class Operation(Protocol):
    """A statement that is being executed."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def status(self) -> OperationStatus:
        """Where it stands."""

    def result(self, timeout_s: float | None = None) -> Result | None:
        """Wait until its columns are known, or until it did what it was to do.

        Args:
            timeout_s: How long to wait. Default: as long as it takes.

        Returns:
            None if the time is up.

        Raises:
            EbbtideError: it failed, with its place in the statement.
            OperationCanceledError: it was cancelled.
        """

    def page(self, token: int = 0, timeout_s: float | None = None) -> Page | None:
        """Return a page of rows.

        Args:
            token: 0 for the first page, then `next` of the one before; a page can be asked for again until the one after the next was.
            timeout_s: How long to wait for rows that are still to come. Default: as long as it takes.

        Returns:
            None if the time is up.

        Raises:
            EbbtideError: as `result`.
        """

    def cancel(self) -> None:
        """End it; the session lives on. Does nothing if it is over."""

    def close(self) -> None:
        """Forget it and delete what it stored; cancels it if it runs."""


class Session(Protocol):
    """A session: settings, temporary views and a catalog of its own. One statement runs at a time."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def catalog_name(self) -> str:
        """Name of the catalog in use."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Its settings, credentials masked."""

    def execute(self, statement: str) -> Operation:
        """Begin to execute one statement; errors are raised by the operation.

        Args:
            statement: Its text, with or without a semicolon. HELP, CLEAR, QUIT and SOURCE are the client's.
        """

    def complete(self, text: str, offset: int) -> list[Completion]:
        """Return what the word before an offset may become. Starts no JVM."""

    def close(self) -> None:
        """End it: its queries are cancelled, its jobs go on."""
