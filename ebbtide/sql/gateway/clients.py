"""What clients of a gateway may execute and set, and the record of what they execute."""

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
from ebbtide.sql import statements as ast
from ebbtide.sql.gateway.requests import LOG, Refusal, on_thread
from ebbtide.sql.judging.plans import names_in
from ebbtide.sql.masking import masked
from ebbtide.sql.parsing import parse
from ebbtide.sql.reference import SETTINGS, SPARK
from ebbtide.sql.statements import Parsed
from ebbtide.sql.tokens import keyword, split


class Role(StrEnum):
    """What a client of a gateway may do; each role may do what those before it may.

    READER: read. WRITER: fill declared tables, and stop the jobs that it began. OWNER: all that the gateway's process can do.
    """

    READER = "reader"
    WRITER = "writer"
    OWNER = "owner"

    def includes(self, other: Role) -> bool:
        """Return whether it may do what another role may.

        Example:
            >>> Role.WRITER.includes(Role.READER), Role.WRITER.includes(Role.OWNER)
            (True, False)
        """
        order = list(Role)
        return order.index(self) >= order.index(other)


@dataclass(frozen=True)
class Client:
    """Who sends a request.

    Args:
        name: Sessions and jobs belong to it.
        role: What it may do.
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
    ast.StopJob: Role.WRITER,  # of its own jobs
    ast.CreateSource: Role.OWNER,
    ast.CreateTable: Role.OWNER,
    ast.CreateView: Role.OWNER,
    ast.CreateFunction: Role.OWNER,
    ast.RefreshView: Role.OWNER,
    ast.Drop: Role.OWNER,
    ast.RunScript: Role.OWNER,  # of no session: the client's shell does these two
    ast.Client: Role.OWNER,
}
"""A kind of statement to the least role that may execute it."""
RUN_BY_SPARK = (ast.Select, ast.Describe, ast.Explain, ast.SparkStatement)
"""Spark may execute these, and knows no roles."""


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
        next_step=f"Ask who runs the gateway for a token of the role {least}.",
    )


def must_only_read(role: Role, asked: Parsed) -> bool:
    """Return whether a statement of a role is judged as in a session that only reads."""
    is_reader = role is Role.READER
    return is_reader or (role is not Role.OWNER and isinstance(asked, RUN_BY_SPARK))


ALLOWED = "SELECT, SHOW, DESCRIBE, EXPLAIN of a query, SET, RESET"
READING = (ast.Select, ast.Show, ast.ShowCreate, ast.Describe, ast.SetOption, ast.Reset)
BEGINNINGS = ("SHOW", "DESCRIBE", "DESC")
"""How statements of Spark begin that read and are no queries."""


def refuse_writing(text: str) -> None:
    """Refuse a statement that is known to do more than read without a JVM. The session judges all other statements by their plans.

    Args:
        text: What a client wants to execute.

    Raises:
        GatewayError: it writes, begins something, or explains what is not a query.
        SqlSyntaxError: it cannot be read.
    """
    for statement in split(text):
        asked = parse(statement)
        is_explained = isinstance(asked, ast.Explain)
        explained = parse(asked.statement) if isinstance(asked, ast.Explain) else asked
        may_read = isinstance(explained, (ast.Select, ast.SparkStatement) if is_explained else READING)
        begins = keyword(statement.tokens[0])
        if not may_read and begins not in BEGINNINGS:
            raise GatewayError.of(
                "This gateway only reads.",
                got=f"EXPLAIN of {type(explained).__name__}" if is_explained else begins,
                allowed=ALLOWED,
                next_step="To write, use a gateway without --read-only.",
            )


OF_SPARK = names_in("""
    spark.sql.adaptive.advisoryPartitionSizeInBytes spark.sql.adaptive.coalescePartitions.enabled
    spark.sql.adaptive.enabled spark.sql.adaptive.skewJoin.enabled spark.sql.ansi.enabled
    spark.sql.autoBroadcastJoinThreshold spark.sql.broadcastTimeout spark.sql.crossJoin.enabled
    spark.sql.decimalOperations.allowPrecisionLoss spark.sql.files.maxPartitionBytes spark.sql.join.preferSortMergeJoin
    spark.sql.legacy.timeParserPolicy spark.sql.mapKeyDedupPolicy spark.sql.pivotMaxValues spark.sql.session.timeZone
    spark.sql.shuffle.partitions
""")
"""Settings of Spark that say how a query is computed, and nothing of what it reaches."""


def refuse_setting(key: str) -> None:
    """Refuse a setting that is the operator's. A name that no session knows is left to the session to refuse.

    Raises:
        GatewayError: it is.
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
    """Refuse SET and RESET of a setting that is the operator's; to show one is allowed.

    Raises:
        GatewayError: it is.
    """
    is_set = isinstance(asked, ast.SetOption) and asked.value is not None
    is_changed = is_set or isinstance(asked, ast.Reset)
    if isinstance(asked, ast.SetOption | ast.Reset) and is_changed and asked.key is not None:
        refuse_setting(asked.key)


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
