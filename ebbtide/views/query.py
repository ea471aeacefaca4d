"""A view's query as Spark reads it: its columns, which of them identify a row, what they are made of."""

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
from ebbtide.errors import ViewQueryError
from ebbtide.redaction import MASK
from ebbtide.spec.ddl import type_ddl
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
"""What decides the result of a query, whatever the session around it has."""
NO_GROUP_LIMIT = ("spark.sql.optimizer.windowGroupLimitThreshold", "-1")
"""Setting under which a window whose first rows alone are shown stays as it is: Spark does not know the keys of what it makes of it."""


def new_session(spark: SparkSession) -> SparkSession:
    """Return a session of its own for a view's query: no views and functions of another one, its settings as they must be."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def evaluate(session: SparkSession, query: str, tables: Mapping[str, DataFrame]) -> DataFrame:
    """Return what a query gives.

    Args:
        session: Of `new_session`.
        query: It.
        tables: What the names in it stand for.

    Raises:
        ViewQueryError: Spark's analyzer does not take it.
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
    """Return what a query is, without a row of its tables.

    Args:
        session: Of `new_session`.
        query: It.
        tables: Name of each table that it may read to the table's columns.
        keys: The tables' keys, where they are known.

    Raises:
        ViewQueryError: it is not usable as a view.
    """
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


def _over_empty_tables(
    session: SparkSession,
    query: str,
    tables: Mapping[str, StructType],
    keys: Mapping[str, Sequence[str]],
) -> DataFrame:
    empty = {name: empty_table(session, name, schema, keys.get(name, ())) for name, schema in tables.items()}
    return evaluate(session, query, empty)


def refuse_other_columns(view: MaterializedView, columns: pa.Schema) -> None:
    """Refuse a query that does not give the columns of a view's spec.

    Raises:
        ViewQueryError: their names, order or types are others.
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
    """Return columns as DDL, but for what is not nullable."""
    return ", ".join(f"{field.name} {type_ddl(field.type)}" for field in columns)


@contextmanager
def errors_as_ours(*, has_personal: bool = False) -> Iterator[None]:
    """Raise what Spark says of a query as an error of ours.

    Args:
        has_personal: Values of columns are not to be shown.
    """
    try:
        yield
    except PySparkException as error:
        own = ViewQueryError.within(error)
        if own is not None:
            raise own from error
        condition = error.getCondition()
        if condition is None:
            raise  # of a machine or a store, not of the query
        said = f"[{condition}] {MASK}" if has_personal else _first_line(error)
        raise ViewQueryError.of(
            "The query of the view fails in Spark.",
            got=said,
        ) from error


def _first_line(error: Exception) -> str:
    """Return an error's words, without the stack and the query below them."""
    first, _, _ = str(error).strip().partition("\n")
    words = re.sub(r" SQLSTATE: \w+.*$", "", first)
    return words.removesuffix(".")
