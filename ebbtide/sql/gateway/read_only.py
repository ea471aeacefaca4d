"""What a gateway that only reads takes: SELECT, SHOW, DESCRIBE, EXPLAIN, SET and RESET."""

from __future__ import annotations

from itertools import pairwise

from ebbtide.errors import GatewayError
from ebbtide.sql import statements as ast
from ebbtide.sql.parsing import parse
from ebbtide.sql.settings import DAGSTER, SPARK
from ebbtide.sql.tokens import Statement, keyword, split

ALLOWED = "SELECT, SHOW, DESCRIBE, EXPLAIN, SET, RESET"
READING = (ast.Select, ast.Show, ast.ShowCreate, ast.Describe, ast.Explain, ast.SetOption, ast.Reset)
BEGINNINGS = ("SHOW", "DESCRIBE", "DESC")
"""Of Spark's own statements that read."""
OF_QUERIES = "spark.sql."
OF_CATALOGS = "spark.sql.catalog"
"""Settings of Spark that clients may and may not set."""
WRITING = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
"""What may follow on WITH and FROM in the place of SELECT."""
REACHING_OUT = frozenset({"REFLECT", "JAVA_METHOD", "TRY_REFLECT", "IDENTIFIER"})
"""Functions that call any method of the JVM, and the clause that makes a text the name of one."""


def refuse_setting(key: str) -> None:
    """Refuse a setting that says what a session reaches: hosts, file systems, catalogs.

    Raises:
        GatewayError: it does.
    """
    is_of_spark = key.lower().startswith(SPARK)
    reaches_out = key == DAGSTER or (is_of_spark and not key.startswith(OF_QUERIES))
    if reaches_out or key.startswith(OF_CATALOGS):
        raise GatewayError.of(
            "This gateway only reads, and what it reaches is not set by its clients.",
            got=key,
            allowed=f"settings of results, and {OF_QUERIES}* but {OF_CATALOGS}*",
            next_step="Who runs the gateway can set it in its environment's file.",
        )


def refuse_writing(text: str) -> None:
    """Refuse a statement that does more than read.

    Args:
        text: What a client wants to execute.

    Raises:
        GatewayError: it may write, or reach out of SQL.
        SqlSyntaxError: it cannot be read.
    """
    for statement in split(text):
        parsed = parse(statement)
        begins = keyword(statement.tokens[0])
        if not isinstance(parsed, READING) and begins not in BEGINNINGS:
            raise _refusal(begins)
        if isinstance(parsed, ast.SetOption) and parsed.key is not None and parsed.value is not None:
            refuse_setting(parsed.key)
        if isinstance(parsed, ast.Select):
            _refuse_writing_query(statement)
            _refuse_reaching_out(statement)


def _refuse_writing_query(statement: Statement) -> None:
    """Refuse `WITH .. INSERT` and `FROM .. INSERT`: the word stands outside of all parentheses."""
    depth = 0
    for token in statement.tokens:
        word = keyword(token)
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth <= 0 and word in WRITING:
            raise _refusal(word)


def _refuse_reaching_out(statement: Statement) -> None:
    """Refuse functions that call the JVM's methods, and programs that rows are sent through (`TRANSFORM .. USING 'program'`)."""
    for token, after in pairwise(statement.tokens):
        is_called = keyword(after) == "("
        if is_called and token.text.upper() in REACHING_OUT:
            raise _refusal(f"{token.text}(..)")
        if keyword(token) == "USING" and not is_called:
            raise _refusal("USING 'program'")


def _refusal(got: str) -> GatewayError:
    return GatewayError.of(
        "This gateway only reads.",
        got=got,
        allowed=ALLOWED,
        next_step="A column of that name is written in backquotes; to write, use a gateway without --read-only.",
    )
