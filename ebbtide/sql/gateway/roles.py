"""What a gateway's clients may execute and set: by their roles, of a gateway that only reads, and of settings."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ebbtide.errors import GatewayError
from ebbtide.sql import statements as ast
from ebbtide.sql.parsing import parse
from ebbtide.sql.settings import SETTINGS, SPARK
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
        allowed=f"with the role {least}: docs/sql-gateway.md lists the statements of each",
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
    """Refuse a statement that is known to do more than read without a JVM. The session judges the others by their plans.

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


OF_SPARK = frozenset(
    {
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
    }
)
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
