"""What each role may execute: the least role of every kind of statement, in one table.

Statements that Spark executes are read by a reader's and a writer's session and change nothing: `read_only` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ebbtide.errors import GatewayError
from ebbtide.sql import statements as ast
from ebbtide.sql.statements import Parsed


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
OF_SPARK = (ast.Select, ast.Describe, ast.Explain, ast.SparkStatement)
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
    return is_reader or (role is not Role.OWNER and isinstance(asked, OF_SPARK))
