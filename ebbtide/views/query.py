"""A view's query as Spark reads it: its columns, which of them identify a row, what they are made of."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ebbtide.errors import ViewQueryError
from ebbtide.redaction import MASK
from ebbtide.spec.changing import has_collation, what_changes
from ebbtide.spec.ddl import ALLOWED_TYPES, type_ddl
from ebbtide.spec.view import MaterializedView
from ebbtide.views import determinism
from ebbtide.views.catalyst import PlanReader
from ebbtide.views.lineage import Column, Lineage
from ebbtide.views.nodes import Node

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.variable.substitute": "false",
}
"""What decides the result of a query, whatever the session around it has."""
_PLAIN_TYPES = (BinaryType, BooleanType, DateType, NumericType, TimestampNTZType, TimestampType)
"""Types of tables' columns that hold no others; of texts see `_strange_type`."""


@dataclass(frozen=True)
class Analysis:
    """What Spark's analyzer says of a query.

    Args:
        columns: Its columns.
        lineage: What they are made of.
    """

    columns: pa.Schema
    lineage: Lineage


def new_session(spark: SparkSession) -> SparkSession:
    """Return a session of its own for a view's query: no views and functions of another one, its settings as they must be."""
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    return session


def evaluate(
    session: SparkSession,
    query: str,
    tables: Mapping[str, DataFrame],
) -> DataFrame:
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
) -> Analysis:
    """Read a query, without a row of its tables.

    Args:
        session: Of `new_session`.
        query: It.
        tables: Name of each table that it may read to the table's columns.
        keys: The tables' keys, where they are known.

    Raises:
        ViewQueryError: it is not usable as a view.
    """
    empty = {}
    for name, schema in tables.items():
        empty[name] = _no_rows(session, schema)
    frame = evaluate(session, query, empty)
    plan: Any = frame._jdf.queryExecution().analyzed()
    _refuse_changing(session, query, plan)
    known_keys = keys or {}
    reader = PlanReader({name: known_keys.get(name, ()) for name in tables})
    nodes = json.loads(plan.toJSON())
    result = reader.relation(Node.of(nodes))
    shown = replace(result, columns=_columns_shown(plan))
    refuse_types(frame.schema)
    columns = to_arrow_schema(frame.schema, timezone="UTC")
    return Analysis(
        columns=_as_spec_has_them(columns),
        lineage=Lineage(tuple(columns.names), shown),
    )


def _no_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """Return a table without rows; made by the JVM, since rows of Python's cost a job."""
    given: Any = session
    java_schema = given._jsparkSession.parseDataType(schema.json())
    java_rows = given._jvm.java.util.ArrayList()
    java_frame = given._jsparkSession.createDataFrame(java_rows, java_schema)
    return DataFrame(java_frame, session)


def _columns_shown(plan: Any) -> tuple[Column, ...]:
    """Return the ids of the columns that a plan gives, in order."""
    output = plan.output()
    columns = []
    for place in range(output.size()):
        attribute = output.apply(place)
        number = attribute.exprId().id()
        columns.append(int(number))
    return tuple(columns)


def _refuse_changing(session: SparkSession, query: str, plan: Any) -> None:
    """Refuse what may give other rows tomorrow, or in another process."""
    got = determinism.what_changes(session._jvm, plan) or _changing_words(query)
    if got is not None:
        raise ViewQueryError.of(
            "The query cannot be kept as a view: it may give other rows without a change of a table.",
            got=got,
            allowed="a query whose rows follow from its tables alone",
        )
    refuse_collations(query)


def _changing_words(query: str) -> str | None:
    try:
        return what_changes(query)
    except ValueError as error:
        raise ViewQueryError.of(
            "The query cannot be split into words: whether it follows from its tables alone is not known.",
            got=str(error),
            next_step="Write its texts without what Spark alone takes for one.",
        ) from error


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
    described = []
    for field in columns:
        type_ = type_ddl(field.type)
        described.append(f"{field.name} {type_}")
    return ", ".join(described)


def _as_spec_has_them(columns: pa.Schema) -> pa.Schema:
    """Return columns with the types that a spec's DDL stands for."""
    fields = []
    for field in columns:
        own = pa.field(field.name, _type_in_spec(field.type))
        fields.append(own)
    return pa.schema(fields)


def _type_in_spec(type_: pa.DataType) -> pa.DataType:
    if not pa.types.is_timestamp(type_):
        return type_
    zone = "UTC" if type_.tz else None
    return pa.timestamp("us", zone)


def refuse_types(columns: StructType) -> None:
    """Refuse columns of a type that no table of a pipeline has.

    Raises:
        ViewQueryError: a column is an INTERVAL, a TIME, a VARIANT, a text with a collation, NULL without a type, or the like.
    """
    for field in columns:
        strange = _strange_type(field.dataType)
        if strange is not None:
            raise ViewQueryError.of(
                "A column of the query has a type that no table has.",
                got=f"{field.name} {strange.simpleString()}",
                allowed=ALLOWED_TYPES,
                next_step="A CAST gives the column another type.",
            )


def _strange_type(type_: DataType) -> DataType | None:
    """Return the type, or the first one in it, that no table has; None if there is none."""
    if isinstance(type_, StructType):
        inner = [field.dataType for field in type_]
    elif isinstance(type_, ArrayType):
        inner = [type_.elementType]
    elif isinstance(type_, MapType):
        inner = [type_.keyType, type_.valueType]
    else:
        is_usual = type_ == StringType() if isinstance(type_, StringType) else isinstance(type_, _PLAIN_TYPES)
        return None if is_usual else type_
    found = map(_strange_type, inner)
    return next(filter(None, found), None)


def refuse_collations(query: str) -> None:
    """Refuse COLLATE in a query: of texts that a collation takes for equal, the order of rows says which one is shown.

    Raises:
        ViewQueryError: it has one.
    """
    if has_collation(query):
        raise ViewQueryError.of(
            "The query compares texts by a collation: which one of several equal texts it shows is left open.",
            got="COLLATE",
            allowed="texts compared as they are; lower(..) or upper(..) of them",
        )


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
