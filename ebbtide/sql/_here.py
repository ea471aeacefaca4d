"""Queries that are answered in this process: some columns of one table, where a condition holds. Spark, which starts for seconds, answers the rest.

Only what means the same here and in Spark is taken. All that is in doubt, or would fail, is Spark's: its error names the place.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from ebbtide.columns import columns_named
from ebbtide.ddl import type_ddl
from ebbtide.delta import Snapshot
from ebbtide.errors import EbbtideError
from ebbtide.runtime import Plan
from ebbtide.sql._catalog import Filled
from ebbtide.sql._json import json_rows
from ebbtide.sql._names import Names
from ebbtide.sql._operations import Listed, Output, Whole
from ebbtide.sql._results import Result, ResultColumn, ResultKind, cut_off
from ebbtide.sql._settings import Settings
from ebbtide.sql._statements import Select, SparkStatement
from ebbtide.sqltext import Condition, UnfitExpressionError

MOST_ROWS = 2_000_000
"""Maximum rows of a table that is read here."""
MOST_BYTES = 256 * 2**20
"""Maximum bytes of its files."""
_PARTS = {"expressions", "from", "from_", "where", "limit"}
"""The parts of a query that are known here."""


@dataclass(frozen=True)
class _Asked:
    """A query of one table.

    Args:
        table: Its name.
        columns: Names of the columns; None: all.
        where: The condition, Spark's SQL; None: all rows.
        limit: Maximum number of rows; None: all.
    """

    table: str
    columns: tuple[str, ...] | None
    where: str | None
    limit: int | None


def answered_here(asked: Select | SparkStatement, names: Names, settings: Settings) -> Output | None:
    """Return the rows of a query; None if it is for Spark.

    Args:
        asked: The query.
        names: Catalog of the statement.
        settings: Settings of the session.
    """
    if not isinstance(asked, Select) or asked.emits_changes or settings["runtime-mode"] == "streaming":
        return None
    query = _understood(asked.statement.text)
    if query is None:
        return None
    entry = names.entries.get(query.table)
    if not isinstance(entry, Filled) or entry.spec.sink.type != "delta":
        return None
    try:
        found = _rows(query, names.plan(query.table))
    except (EbbtideError, UnfitExpressionError):
        return None
    if found is None:
        return None
    most = int(settings["max-rows"])
    message = ""
    if most and len(found) > most:
        message = cut_off(most)
        found = found.slice(0, most)
    columns = tuple(ResultColumn(field.name, type_ddl(field.type).lower()) for field in found.schema)
    rows = list(json_rows(found))
    return Whole(Result(ResultKind.ROWS, columns, message), Listed(rows), int(settings["page-rows"]))


def _understood(text: str) -> _Asked | None:
    """Return the parts of a query; None if it has more than those known here."""
    try:
        query = parse_one(text, read="spark")
    except SqlglotError:
        return None
    if not isinstance(query, exp.Select) or not {name for name, value in query.args.items() if value} <= _PARTS:
        return None
    read = query.args.get("from_") or query.args.get("from")
    table = None if read is None else read.this
    if not isinstance(table, exp.Table) or {name for name, value in table.args.items() if value} != {"this"}:
        return None
    columns = _columns(query.expressions)
    limit = query.args.get("limit")
    is_number = limit is None or (isinstance(limit.expression, exp.Literal) and str(limit.expression.this).isdecimal())
    if columns == () or not is_number:
        return None
    where = query.args.get("where")
    return _Asked(
        table.name,
        columns,
        None if where is None else where.this.sql(dialect="spark"),
        None if limit is None else int(limit.expression.this),
    )


def _columns(expressions: list[exp.Expression]) -> tuple[str, ...] | None:
    """Return the names of the columns that are shown; None: all; empty: there are other expressions, or one twice."""
    if len(expressions) == 1 and isinstance(expressions[0], exp.Star):
        return None
    names = [each.name for each in expressions if isinstance(each, exp.Column) and len(each.parts) == 1]
    is_known = len(names) == len(expressions) == len(set(names))
    return tuple(names) if is_known else ()


def _rows(query: _Asked, plan: Plan) -> pa.Table | None:
    """Return the rows of a query; None if it is for Spark."""
    columns = plan.spec.sink_table.columns
    shown = tuple(columns.names) if query.columns is None else query.columns
    if not set(shown) <= set(columns.names) or any(pa.types.is_nested(columns.field(name).type) for name in shown):
        return None
    condition = None if query.where is None else Condition.of(query.where, columns)
    if query.where is not None and condition is None:
        return None
    snapshot = Snapshot.read(plan.at("sink"))
    if snapshot is None or not _is_small(snapshot):
        return None
    read = columns if condition is not None else columns_named(columns, shown)
    rows = snapshot.rows(read)
    if condition is not None:
        rows = rows.filter(pa.array(condition.marks(rows)))
    return rows.select(list(shown)).slice(0, query.limit)


def _is_small(snapshot: Snapshot) -> bool:
    files = snapshot.files.values()
    n_rows = sum(file.likely_rows for file in files)
    n_bytes = sum(file.size for file in files)
    return n_rows <= MOST_ROWS and n_bytes <= MOST_BYTES
