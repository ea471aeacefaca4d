"""What a client talks to: a session, embedded in its process or in a gateway (`--gateway URL`); both behave alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ebbtide.sql.results import OperationStatus, Page, Result


class CompletionKind(StrEnum):
    """What a completion is."""

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
        kind: What it is.
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
