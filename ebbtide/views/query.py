"""Analysis and evaluation of a view's query by Spark, in a session with fixed settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ebbtide import MaterializedView
from ebbtide.ddl import type_ddl
from ebbtide.errors import ViewQueryError
from ebbtide.expressions import Call, Parser
from ebbtide.redaction import MASK
from ebbtide.sessions import SparkVersion
from ebbtide.views.lineage import Lineage, empty_table
from ebbtide.views.refusals import (
    refuse_changing,
    refuse_types,
    tables_read,
)

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.variable.substitute": "false",
}
"""Settings that the result of a query depends on; they do not follow the session around it."""
NO_GROUP_LIMIT = ("spark.sql.optimizer.windowGroupLimitThreshold", "-1")
"""Setting that keeps a window with a limit of rows as it is: Spark derives no keys from the node that it would make of it."""


def new_session(spark: SparkSession) -> SparkSession:
    """Return a new session for a view's query, without the views and functions of other sessions, and with `SETTINGS`."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def evaluate(session: SparkSession, query: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """Return the result of a query.

    Args:
        session: Session of `new_session`.
        query: Text of the query.
        tables: Tables by name.

    Raises:
        ViewQueryError: Spark's analyzer refuses the query.
    """
    for name, rows in tables.items():
        rows.createOrReplaceTempView(f"`{name}`")
    with errors_as_ours():
        return session.sql(query)


def analyse(
    session: SparkSession,
    query: str,
    tables: Mapping[str, StructType],
    keys: Mapping[str, Sequence[str]] | None = None,
) -> Lineage:
    """Return the lineage of a query, without reading rows.

    Args:
        session: Session of `new_session`.
        query: Text of the query.
        tables: Columns of the tables that the query may read, by name.
        keys: Keys of the tables, as far as they are known.

    Raises:
        ViewQueryError: the query is not usable as a view.
    """
    refuse_calls(session, query)
    rows = _over_empty_tables(session, query, tables, {})
    plan: Any = rows._jdf.queryExecution().analyzed()
    refuse_changing(session._jvm, query, plan)
    found = tables_read(session._jvm, plan, tables)
    refuse_types(rows.schema)
    keyed = rows
    if keys:
        beside = new_session(session)
        beside.conf.set(*NO_GROUP_LIMIT)
        keyed = _over_empty_tables(beside, query, tables, keys)
    return Lineage(rows, keyed, found)


def refuse_calls(session: SparkSession, query: str) -> None:
    """Refuse a query that calls a function of Spark's which is not listed, before Spark analyses it.

    Raises:
        ViewQueryError: it does, or Spark cannot read it.
    """
    parser = Parser(session)
    with errors_as_ours():
        fault = Call.first_fault(parser, parser.plan(query))
    if fault is not None:
        raise ViewQueryError.of(
            "The query cannot be kept as a view: it calls a function, or gives it an option, that is not allowed.",
            got=fault.got,
            allowed=fault.allowed,
        )


def _over_empty_tables(
    session: SparkSession,
    query: str,
    tables: Mapping[str, StructType],
    keys: Mapping[str, Sequence[str]],
) -> DataFrame:
    empty = {}
    for name, schema in tables.items():
        empty[name] = empty_table(session, name, schema, keys.get(name, ()))
    return evaluate(session, query, empty)


def refuse_other_columns(view: MaterializedView, columns: pa.Schema) -> None:
    """Refuse a query whose columns are not those of a view's spec.

    Raises:
        ViewQueryError: names, order or types differ.
    """
    given = _described(columns)
    wanted = _described(view.table.columns)
    if given != wanted:
        raise ViewQueryError.of(
            f"The query of the view '{view.name}' does not give the columns of its schema.",
            got=given,
            allowed=wanted,
            next_step="Correct the query or the schema; a CAST gives a column another type.",
        )


def _described(columns: pa.Schema) -> str:
    """Return columns as DDL without NOT NULL."""
    return ", ".join(f"{field.name} {type_ddl(field.type)}" for field in columns)


@contextmanager
def errors_as_ours(*, has_personal: bool = False) -> Iterator[None]:
    """Raise errors of Spark for a query as errors of ours.

    Args:
        has_personal: Leave out the text, which may have values of columns.
    """
    try:
        yield
    except PySparkException as error:
        own = ViewQueryError.within(error)
        if own is not None:
            raise own from error
        condition = SparkVersion.of_pyspark().condition_of(error)
        if condition is None:
            raise  # an error of a machine or a store, not of the query
        text = f"[{condition}] {MASK}" if has_personal else _first_line(error)
        raise ViewQueryError.of(
            "The query of the view fails in Spark.",
            got=text,
        ) from (None if has_personal else error)  # a trace shows the cause, and its words


def _first_line(error: Exception) -> str:
    """Return the first line of an error, without the SQL state."""
    first, _, _ = str(error).strip().partition("\n")
    words = re.sub(r" SQLSTATE: \w+.*$", "", first)
    return words.removesuffix(".")
