"""The record of what a gateway's clients execute: lines of JSON in a file that its owner alone may read.

A statement has a line before it begins, and one at its end:

    {"at": "2026-05-01T12:00:00.000+00:00", "client": "loader", "role": "writer", "address": "127.0.0.1", "session": "a1b2c3d4",
     "operation": "0011223344556677", "outcome": "begun", "statement": "SELECT ...", "statement_bytes": 10}
    {"at": "2026-05-01T12:00:01.500+00:00", ..., "operation": "0011223344556677", "outcome": "done", "seconds": 1.5}

The outcome at its end is `done`, `cancelled` or `failed: CLASS`. A statement that is refused has one line, with the outcome
`refused: CLASS`; where its session had no place for it, that line follows the first one. Credentials are masked, then a statement
is cut after 2,000 characters. Each line is one append, so the file can be moved away by a log rotation at any time.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.sql.gateway.guard import Client
from ebbtide.sql.gateway.requests import LOG, Refusal, on_thread
from ebbtide.sql.masking import masked

MOST_CHARACTERS = 2_000
"""Of a statement."""
SESSION_CHARACTERS = 8
"""Of a session's id."""
UNREADABLE = "(cannot be read, and may hold a credential)"
"""Stands for a statement whose credentials are not found."""


class Audit:
    """Where lines are written.

    Args:
        file: Appended to; None: nothing is recorded.

    Raises:
        ConfigError: it cannot be written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._is_torn = False
        try:
            self._append(b"")
        except OSError as error:
            raise ConfigError.of(
                "The audit's file cannot be written.",
                got=error,
                next_step="Give --audit a file in a folder that this process may write to.",
            ) from error

    def write(self, line: dict[str, Any]) -> None:
        """Write a line.

        Raises:
            Refusal: it cannot be written.
        """
        try:
            self._append(f"{json.dumps(line)}\n".encode("ascii"))
        except OSError as error:
            LOG.error("The audit's file cannot be written: %s", error)
            what = "The statement cannot be recorded, so it is not executed."
            next_step = "Ask who runs the gateway to see to the audit's file."
            raise Refusal(HTTPStatus.SERVICE_UNAVAILABLE, what, error.strerror, next_step=next_step) from error

    def _append(self, data: bytes) -> None:
        if self._file is None:
            return
        with self._lock:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                whole = b"\n" + data if self._is_torn and data else data
                n_written = os.write(descriptor, whole)
            finally:
                os.close(descriptor)
            self._is_torn = n_written < len(whole)  # by a full disk: the next line begins on one of its own
            if self._is_torn:
                raise OSError(0, "a line was written in part")


class AuditEntry:
    """The lines of one statement.

    Args:
        audit: Takes them.
        client: Who sent it.
        address: The client's.
        session: Id of the session that it was sent to.
        operation: Id of what executes it.
        statement: As it was sent.
    """

    def __init__(
        self, audit: Audit, client: Client, address: str, session: str, operation: str, statement: str
    ) -> None:
        self.operation = operation
        self._audit = audit
        self._of_all_lines = {
            "client": client.name,
            "role": client.role,
            "address": address,
            "session": session[:SESSION_CHARACTERS],
            "operation": operation,
        }
        self._statement = statement
        self._began_at = time.monotonic()

    def begin(self) -> None:
        """Record that the statement is going to be executed.

        Raises:
            Refusal: the line cannot be written.
        """
        self._write_statement("begun")

    @asynccontextmanager
    async def refusals(self) -> AsyncIterator[None]:
        """Record that the statement is refused, if an error says so.

        Raises:
            Refusal: the line cannot be written.
        """
        try:
            yield
        except (EbbtideError, Refusal) as error:
            kind = type(error.error if isinstance(error, Refusal) else error).__name__
            await on_thread(self._write_statement, f"refused: {kind}")
            raise

    def end(self, outcome: str) -> None:
        """Record how the statement ended. A line that cannot be written is logged: the statement is done by then."""
        seconds = time.monotonic() - self._began_at
        line = self._line(outcome) | {"seconds": round(seconds, 3)}
        try:
            self._audit.write(line)
        except Refusal:
            LOG.error("The end of operation %s is not in the audit: %s", self.operation, outcome)

    def _write_statement(self, outcome: str) -> None:
        text = masked(self._statement)
        shown = UNREADABLE if text is None else text[:MOST_CHARACTERS]
        n_bytes = len(self._statement.encode(errors="surrogatepass"))
        self._audit.write(self._line(outcome) | {"statement": shown, "statement_bytes": n_bytes})

    def _line(self, outcome: str) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        return {"at": now, **self._of_all_lines, "outcome": outcome}
