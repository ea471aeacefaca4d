"""What a gateway that only reads refuses before it is begun. What Spark executes is judged by its plan beside, in the session."""

from __future__ import annotations

from ebbtide.errors import GatewayError
from ebbtide.sql import statements as ast
from ebbtide.sql.parsing import parse
from ebbtide.sql.tokens import keyword, split

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
