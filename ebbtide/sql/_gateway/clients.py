"""The statements and settings that each role of a gateway's clients allows, and the audit of their statements."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ebbtide.errors import ConfigError, EbbtideError, GatewayError
from ebbtide.sql import _statements as ast
from ebbtide.sql._gateway.requests import LOG, Refusal, on_thread
from ebbtide.sql._masking import masked
from ebbtide.sql._parsing import parse
from ebbtide.sql._settings import SETTINGS, SPARK
from ebbtide.sql._statements import Parsed
from ebbtide.sql._tokens import Statement, keyword, split


class Role(StrEnum):
    """Role of a client; each role includes those before it.

    READER: read. WRITER: fill declared tables, and stop the jobs that it began. OWNER: all that the gateway's process can do.
    """

    READER = "reader"
    WRITER = "writer"
    OWNER = "owner"

    def includes(self, other: Role) -> bool:
        """Return whether this role includes another.

        Example:
            >>> Role.WRITER.includes(Role.READER), Role.WRITER.includes(Role.OWNER)
            (True, False)
        """
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True)
class Client:
    """A client of a gateway.

    Args:
        name: Name that owns sessions and jobs.
        role: Role of the client.
    """

    name: str
    role: Role


LEAST_ROLES: Mapping[type, Role] = {
    ast.Select: Role.READER,
    ast.Show: Role.READER,
    ast.ShowCreate: Role.READER,
    ast.Describe: Role.READER,
    ast.Explain: Role.READER,
    ast.SetOption: Role.READER,
    ast.Reset: Role.READER,
    ast.SparkStatement: Role.READER,  # below OWNER it is judged
    ast.Use: Role.WRITER,
    ast.Insert: Role.WRITER,
    ast.StatementSet: Role.WRITER,
    ast.StopJob: Role.WRITER,  # only its jobs
    ast.RestartJob: Role.WRITER,  # only its jobs
    ast.CreateSource: Role.OWNER,
    ast.CreateTable: Role.OWNER,
    ast.CreateView: Role.OWNER,
    ast.CreateFunction: Role.OWNER,
    ast.RefreshView: Role.OWNER,
    ast.Drop: Role.OWNER,
    ast.RunScript: Role.OWNER,  # the shell executes these two, no session
    ast.Client: Role.OWNER,
}
"""Kind of statement to the least role that may execute it."""
RUN_BY_SPARK = (ast.Select, ast.Describe, ast.Explain, ast.SparkStatement)
"""Statements that Spark may execute, which knows no roles."""


def refuse_beyond(role: Role, asked: Parsed) -> None:
    """Refuse a statement that a role may not execute.

    Raises:
        GatewayError: it may not.
    """
    least = LEAST_ROLES[type(asked)]
    if role.includes(least):
        return
    raise GatewayError.of(
        f"The role {role} may not execute this statement.",
        got=type(asked).__name__,
        allowed=f"with the role {least}: docs/reference/sql-gateway.md lists the statements of each",
        next_step=f"Ask the gateway's operator for a token of the role {least}.",
    )


def must_only_read(role: Role, asked: Parsed) -> bool:
    """Return whether a statement of a role is judged as in a read-only session."""
    is_reader = role is Role.READER
    return is_reader or (role is not Role.OWNER and isinstance(asked, RUN_BY_SPARK))


ALLOWED = "SELECT, SHOW, DESCRIBE, EXPLAIN of a query, SET, RESET"
READING = (ast.Select, ast.Show, ast.ShowCreate, ast.Describe, ast.SetOption, ast.Reset)
BEGINNINGS = ("SHOW", "DESCRIBE", "DESC")
"""First words of Spark's reading statements other than queries."""


def refuse_writing(text: str) -> None:
    """Refuse a statement whose text shows that it does more than read.

    This needs no JVM. The session judges all other statements by their plans.

    Args:
        text: Statements of a client.

    Raises:
        GatewayError: one writes, begins something, or explains a statement that is not a query.
        SqlSyntaxError: the text cannot be read.
    """
    for statement in split(text):
        refused = _writing_part(statement)
        if refused is not None:
            raise GatewayError.of(
                "This gateway only reads.",
                got=refused,
                allowed=ALLOWED,
                next_step="To write, use a gateway without --read-only.",
            )


def _writing_part(statement: Statement) -> str | None:
    """Return the part of a statement that shows that it does more than read; None if no part does."""
    asked = parse(statement)
    if isinstance(asked, ast.Explain):
        explained = parse(asked.statement)
        is_query = isinstance(explained, ast.Select | ast.SparkStatement)
        return None if is_query else f"EXPLAIN of {type(explained).__name__}"
    begins = keyword(statement.tokens[0])
    only_reads = isinstance(asked, READING) or begins in BEGINNINGS
    return None if only_reads else begins


OF_SPARK = frozenset(
    [
        "spark.sql.adaptive.advisoryPartitionSizeInBytes",
        "spark.sql.adaptive.coalescePartitions.enabled",
        "spark.sql.adaptive.enabled",
        "spark.sql.adaptive.skewJoin.enabled",
        "spark.sql.ansi.enabled",
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.broadcastTimeout",
        "spark.sql.crossJoin.enabled",
        "spark.sql.decimalOperations.allowPrecisionLoss",
        "spark.sql.files.maxPartitionBytes",
        "spark.sql.join.preferSortMergeJoin",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.mapKeyDedupPolicy",
        "spark.sql.pivotMaxValues",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
    ]
)
"""Settings of Spark that change how a query is computed, not what it can reach."""


def refuse_setting(key: str) -> None:
    """Refuse a setting that only the operator may change; the session refuses unknown names.

    Raises:
        GatewayError: the setting is one.
    """
    is_of_spark = key.lower().startswith(SPARK)
    if not is_of_spark or key in OF_SPARK:
        return
    raise GatewayError.of(
        f"The setting '{key}' is not set by a gateway's clients.",
        got=key,
        allowed=", ".join([*SETTINGS, *sorted(OF_SPARK)]),
        next_step="The gateway's operator can set it in the environment's file.",
    )


def refuse_configuring(asked: Parsed) -> None:
    """Refuse SET and RESET of a setting that only the operator may change; to show one is allowed.

    Raises:
        GatewayError: the statement changes one.
    """
    match asked:
        case ast.SetOption(str(key), str()) | ast.Reset(str(key)):
            refuse_setting(key)


MOST_CHARACTERS = 2_000
"""Maximum length of a statement in the audit."""
SESSION_CHARACTERS = 8
"""Characters of a session's id in the audit."""
UNREADABLE = "(cannot be read, and may hold a credential)"
"""Written in place of a statement whose credentials cannot be found."""


class Audit:
    """The audit: a file to which lines of JSON are appended.

    Args:
        file: Path of the file; None: nothing is recorded.

    Raises:
        ConfigError: the file cannot be written.
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
            Refusal: the line cannot be written.
        """
        try:
            self._append(f"{json.dumps(line)}\n".encode("ascii"))
        except OSError as error:
            LOG.error("The audit's file cannot be written: %s", error)
            what = "The statement cannot be recorded, so it is not executed."
            next_step = "Ask the gateway's operator to check the audit's file."
            raise Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                what,
                error.strerror,
                next_step=next_step,
            ) from error

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
            self._is_torn = n_written < len(whole)  # by a full disk: the next line begins with a line break
            if self._is_torn:
                raise OSError(0, "a line was written in part")


class AuditEntry:
    """The lines of one statement.

    Args:
        audit: Audit that takes the lines.
        client: Client of the statement.
        address: Address of the client.
        session: Id of the session.
        operation: Id of the operation.
        statement: Text of the statement.
    """

    def __init__(
        self,
        audit: Audit,
        client: Client,
        address: str,
        session: str,
        operation: str,
        statement: str,
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
        """Record the beginning of the statement.

        Raises:
            Refusal: the line cannot be written.
        """
        self._write_statement("begun")

    @asynccontextmanager
    async def refusals(self) -> AsyncIterator[None]:
        """Record a refusal of the statement, if an error is raised inside.

        Raises:
            Refusal: the line cannot be written.
        """
        try:
            yield
        except (EbbtideError, Refusal) as error:
            refusal = error.error if isinstance(error, Refusal) else error
            class_name = type(refusal).__name__
            await on_thread(self._write_statement, f"refused: {class_name}")
            raise

    def end(self, outcome: str) -> None:
        """Record the end of the statement; if the line cannot be written, that is logged, since the statement is done."""
        seconds = time.monotonic() - self._began_at
        try:
            self._write(outcome, seconds=round(seconds, 3))
        except Refusal:
            LOG.error(
                "The end of operation %s is not in the audit: %s",
                self.operation,
                outcome,
            )

    def _write_statement(self, outcome: str) -> None:
        text = masked(self._statement)
        shown = UNREADABLE if text is None else text[:MOST_CHARACTERS]
        encoded = self._statement.encode(errors="surrogatepass")
        self._write(outcome, statement=shown, statement_bytes=len(encoded))

    def _write(self, outcome: str, **further: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"at": now, **self._of_all_lines, "outcome": outcome, **further}
        self._audit.write(line)
