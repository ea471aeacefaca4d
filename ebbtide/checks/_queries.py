"""A project's queries for Spark: those with the same meaning in DuckDB can run in this process.

The parts of a query and the types that it compares must be on a list; otherwise Spark runs it.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from ebbtide.sqltext import Condition

BATCH = "_ebbtide_batch"


def for_duckdb(query: str, columns: pa.Schema) -> str | None:
    """Return a query in DuckDB's SQL; None if it may mean something else there.

    Args:
        query: In Spark's SQL; `{batch}` is the rows.
        columns: Those of the rows.
    """
    if query.count("{batch}") != 1 or query.count("{") != 1:
        return None
    try:
        parsed = parse_one(query.replace("{batch}", BATCH), read="spark")
    except SqlglotError:
        return None
    if not isinstance(parsed, exp.Select) or not _selects_known(parsed, columns):
        return None
    for name in parsed.find_all(exp.Identifier):
        name.set("quoted", True)
    return parsed.sql(dialect="duckdb")


def _selects_known(query: exp.Select, columns: pa.Schema) -> bool:
    """Return whether all parts of a query mean the same to both engines."""
    given = {name for name, value in query.args.items() if value}
    if not given <= {"expressions", "from", "from_", "where", "kind"}:
        return False
    tables = list(query.find_all(exp.Table))
    if [table.name for table in tables] != [BATCH] or tables[0].alias:
        return False
    where = query.args.get("where")
    parts = [] if where is None else [where.this]
    parts += [part for part in query.expressions if not isinstance(part, exp.Star)]
    return all(Condition.is_known(part, columns) for part in parts)
