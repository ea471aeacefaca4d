"""Refuses queries that cannot be kept as a view: their rows may change without a change of a table, or are not of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import types as T

from ebbtide.ddl import TableSchema
from ebbtide.errors import ViewQueryError
from ebbtide.expressions import what_may_differ
from ebbtide.sqltext import SqlText
from ebbtide.views.catalyst import (
    LIMITS,
    everywhere,
    kind,
    listed,
    table_of,
)

IN_ORDER = {
    *LIMITS,
    "Filter",
    "PipeOperator",
    "Project",
    "SubqueryAlias",
}
"""Nodes that keep the order of the rows below them."""
LEAVES = {"CTERelationRef", "LocalRelation", "OneRowRelation", "Range"}
"""Leaves of plans that read no table: constants, and references to WITH."""
ARBITRARY = {
    "First",
    "Last",
    "AnyValue",
    "CollectList",
    "CollectSet",
    "ListAgg",
}
"""Aggregates whose result depends on the order of rows."""
SORTING = {"ArraySort", "SortArray"}
"""Functions that sort the elements of such a result."""
_PLAIN_TYPES = (
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.NumericType,
    T.TimestampNTZType,
    T.TimestampType,
)
"""Types of tables' columns without inner types, other than texts without a collation."""


def refuse_changing(jvm: Any, query: str, plan: Any) -> None:
    """Refuse a query whose rows may change with time, or from one process to another.

    Args:
        jvm: JVM of the session.
        query: Text of the query.
        plan: Analyzed plan of the query.

    Raises:
        ViewQueryError: the query is one.
    """
    try:
        got = what_may_differ(jvm, plan) or SqlText(query).what_changes()
    except ValueError as error:
        raise ViewQueryError.of(
            "The query cannot be split into words: whether it follows from its tables alone is not known.",
            got=str(error),
            next_step="Write its texts as literals of standard SQL.",
        ) from error
    if got is not None:
        raise ViewQueryError.of(
            "The query cannot be kept as a view: it may give other rows without a change of a table.",
            got=got,
            allowed="a query whose rows follow from its tables alone",
        )
    refuse_collations(query)


def refuse_collations(query: str) -> None:
    """Refuse COLLATE in a query: the order of rows decides which of several equal texts is shown.

    Raises:
        ViewQueryError: the query has a COLLATE.
    """
    if SqlText(query).has_collation():
        raise ViewQueryError.of(
            "The query compares texts by a collation: which one of several equal texts it shows is left open.",
            got="COLLATE",
            allowed="texts compared as they are; lower(..) or upper(..) of them",
        )


def tables_read(jvm: Any, plan: Any, allowed: Iterable[str]) -> frozenset[str]:
    """Return the tables that a query reads; refuse other inputs, and results that depend on the order of rows.

    Args:
        jvm: JVM of the session.
        plan: Analyzed plan of the query.
        allowed: Names of the tables that the query may read.

    Raises:
        ViewQueryError: the query is refused.
    """
    aggregates = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE_EXPRESSION()
    found: set[str] = set()
    for node in everywhere(plan):
        name = kind(node)
        if name == "Sample":
            raise ViewQueryError.of(
                "The query takes a sample, which differs each time.",
                got="TABLESAMPLE",
            )
        if name.startswith("UnionLoop"):
            raise ViewQueryError.of(
                "The query is recursive.",
                got="WITH RECURSIVE",
                allowed="WITH",
            )
        if name in LIMITS:
            _refuse_unsorted(node)
        if not node.children().size() and name not in LEAVES:
            found.add(_table(node, allowed))
        for expression in listed(node.expressions()):
            if expression.containsPattern(aggregates):
                _refuse_arbitrary(expression)
    return frozenset(found)


def _table(leaf: Any, allowed: Iterable[str]) -> str:
    """Return the table of a pipeline that a leaf of a plan reads."""
    attributes = listed(leaf.output())
    table = table_of(attributes[0]) if attributes and kind(leaf) == "LogicalRDD" else None
    if table is None:
        raise ViewQueryError.of(
            "The query reads something other than pipelines' tables.",
            got=kind(leaf),
            allowed=", ".join(allowed),
            next_step="Make a pipeline of it, and name that.",
        )
    return table


def _refuse_arbitrary(expression: Any, above: str = "") -> None:
    """Refuse aggregates that return the first row, or a list in the order of rows, unless the list is sorted."""
    name = kind(expression)
    if name in ARBITRARY and above not in SORTING:
        raise ViewQueryError.of(
            "The query has an aggregate whose result depends on the order of rows.",
            got=name,
            allowed="max_by and min_by; array_sort around collect_list and collect_set",
        )
    directly_above = above if name == "AggregateExpression" else name
    for child in listed(expression.children()):
        _refuse_arbitrary(child, directly_above)


def _refuse_unsorted(limit: Any) -> None:
    """Refuse a LIMIT or an OFFSET over unsorted rows: the files would decide which rows are shown."""
    # Down through nodes that keep the order of rows, to the Sort that decides which rows are shown, if there is one.
    below = limit
    while kind(below) in IN_ORDER:
        below = below.children().apply(0)
    is_sorted = kind(below) == "Sort" and bool(getattr(below, "global")())
    if not is_sorted:
        raise ViewQueryError.of(
            "The query takes some of its rows, and nothing says which.",
            got="LIMIT or OFFSET without ORDER BY",
            allowed="LIMIT and OFFSET after ORDER BY, by columns whose values are one a row",
        )


def refuse_types(columns: T.StructType) -> None:
    """Refuse columns of a type that no table of a pipeline has.

    Raises:
        ViewQueryError: a column is an INTERVAL, a TIME, a VARIANT, a text with a collation, NULL without a type, or the like.
    """
    for field in columns:
        for type_ in _inner_types(field.dataType):
            is_usual = isinstance(type_, _PLAIN_TYPES) or type_ == T.StringType()
            if not is_usual:
                raise ViewQueryError.of(
                    "A column of the query has a type that no table has.",
                    got=f"{field.name} {type_.simpleString()}",
                    allowed=TableSchema.ALLOWED_TYPES,
                    next_step="A CAST gives the column another type.",
                )


def _inner_types(type_: T.DataType) -> Iterator[T.DataType]:
    """Yield the innermost types of a type."""
    if isinstance(type_, T.StructType):
        for field in type_:
            yield from _inner_types(field.dataType)
    elif isinstance(type_, T.ArrayType):
        yield from _inner_types(type_.elementType)
    elif isinstance(type_, T.MapType):
        yield from _inner_types(type_.keyType)
        yield from _inner_types(type_.valueType)
    else:
        yield type_
