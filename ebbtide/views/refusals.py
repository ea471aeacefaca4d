"""What cannot be kept as a view: rows that may be others without a change of a table, and rows of what is no table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
from ebbtide.spec.changing import has_collation, what_changes
from ebbtide.spec.ddl import ALLOWED_TYPES
from ebbtide.views import determinism
from ebbtide.views.catalyst import everywhere, kind, listed, subqueries, table_of

LIMITS = {"GlobalLimit", "LocalLimit", "Offset", "Tail", "LimitAndOffset"}
"""Nodes that show some of the rows below them."""
IN_ORDER = {*LIMITS, "Filter", "PipeOperator", "Project", "SubqueryAlias"}
"""Nodes that leave the rows below them in their order."""
LEAVES = {"CTERelationRef", "LocalRelation", "OneRowRelation", "Range"}
"""Leaves of plans that read nothing: constants, and the names of WITH."""
ARBITRARY = {"First", "Last", "AnyValue", "CollectList", "CollectSet", "ListAgg"}
"""Aggregates whose result depends on the order in which rows come."""
SORTING = {"ArraySort", "SortArray"}
"""Functions that bring the elements of such a result into order."""
_PLAIN_TYPES = (BinaryType, BooleanType, DateType, NumericType, TimestampNTZType, TimestampType)
"""Types of tables' columns that hold no others; of texts see `_strange_type`."""


def refuse_changing(jvm: Any, query: str, plan: Any) -> None:
    """Refuse what may give other rows tomorrow, or in another process.

    Args:
        jvm: The session's.
        query: The query.
        plan: What Spark's analyzer makes of it.

    Raises:
        ViewQueryError: the query is of that kind.
    """
    got = determinism.what_changes(jvm, plan) or _changing_words(query)
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


def refuse_unfit(jvm: Any, plan: Any, tables: Iterable[str]) -> None:
    """Refuse a plan that reads what is no table, or in which the order of rows decides what is shown.

    Args:
        jvm: The session's.
        plan: What Spark's analyzer makes of a query.
        tables: Names of the tables that it may read.

    Raises:
        ViewQueryError: the query is of that kind.
    """
    aggregates = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE_EXPRESSION()
    for node in everywhere(plan):
        name = kind(node)
        if name == "Sample":
            raise ViewQueryError.of("The query takes a sample, another one each time.", got="TABLESAMPLE")
        if name.startswith("UnionLoop"):
            raise ViewQueryError.of("The query is recursive.", got="WITH RECURSIVE", allowed="WITH")
        if not node.children().size():
            _refuse_stranger(node, tables)
        for expression in listed(node.expressions()):
            if expression.containsPattern(aggregates):
                _refuse_arbitrary(expression)
    _refuse_unsorted(plan)


def _refuse_stranger(leaf: Any, tables: Iterable[str]) -> None:
    """Refuse a leaf that is no table of a pipeline."""
    is_table = kind(leaf) == "LogicalRDD" and all(map(table_of, listed(leaf.output())))
    if not (is_table or kind(leaf) in LEAVES):
        raise ViewQueryError.of(
            "The query reads what is no table of a pipeline.",
            got=kind(leaf),
            allowed=", ".join(tables),
            next_step="Make a pipeline of it, and name that.",
        )


def _refuse_arbitrary(expression: Any, above: str = "") -> None:
    """Refuse aggregates that give what comes first, or a list in the order in which it comes."""
    name = kind(expression)
    if name in ARBITRARY and above not in SORTING:
        raise ViewQueryError.of(
            "The query has an aggregate whose result depends on the order in which rows come.",
            got=name,
            allowed="max_by and min_by; array_sort around collect_list and collect_set",
        )
    directly_above = above if name == "AggregateExpression" else name
    for child in listed(expression.children()):
        _refuse_arbitrary(child, directly_above)


def _refuse_unsorted(plan: Any) -> None:
    """Refuse a LIMIT or an OFFSET over rows in no order: which ones stay depends on the files that they are in."""
    if kind(plan) in LIMITS and not _is_sorted(plan):
        raise ViewQueryError.of(
            "The query takes some of its rows, and nothing says which.",
            got="LIMIT or OFFSET without ORDER BY",
            allowed="LIMIT and OFFSET after ORDER BY, by columns whose values are one a row",
        )
    for child in listed(plan.children()):
        _refuse_unsorted(child)
    for subquery in subqueries(plan):
        inner = subquery.plan()
        while kind(subquery) == "Exists" and kind(inner) in LIMITS:  # which rows there are does not matter
            inner = inner.children().apply(0)
        _refuse_unsorted(inner)


def _is_sorted(limit: Any) -> bool:
    below = limit
    while kind(below) in IN_ORDER:
        below = below.children().apply(0)
    return kind(below) == "Sort" and bool(getattr(below, "global")())


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
