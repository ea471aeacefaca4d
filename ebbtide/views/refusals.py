"""What cannot be kept as a view: rows that may be others without a change of a table, and rows of what is no table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import types as T

from ebbtide.errors import ViewQueryError
from ebbtide.spec import determinism
from ebbtide.spec.changing import has_collation, what_changes
from ebbtide.spec.ddl import ALLOWED_TYPES
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
"""Nodes that leave the rows below them in their order."""
LEAVES = {"CTERelationRef", "LocalRelation", "OneRowRelation", "Range"}
"""Leaves of plans that read nothing: constants, and the names of WITH."""
ARBITRARY = {
    "First",
    "Last",
    "AnyValue",
    "CollectList",
    "CollectSet",
    "ListAgg",
}
"""Aggregates whose result depends on the order in which rows come."""
SORTING = {"ArraySort", "SortArray"}
"""Functions that bring the elements of such a result into order."""
_PLAIN_TYPES = (
    T.BinaryType,
    T.BooleanType,
    T.DateType,
    T.NumericType,
    T.TimestampNTZType,
    T.TimestampType,
)
"""Types of tables' columns that hold no others, beside texts without a collation."""


def refuse_changing(jvm: Any, query: str, plan: Any) -> None:
    """Refuse what may give other rows tomorrow, or in another process.

    Args:
        jvm: The session's.
        query: The query.
        plan: What Spark's analyzer makes of it.

    Raises:
        ViewQueryError: the query is of that kind.
    """
    try:
        got = determinism.what_changes(jvm, plan) or what_changes(query)
    except ValueError as error:
        raise ViewQueryError.of(
            "The query cannot be split into words: whether it follows from its tables alone is not known.",
            got=str(error),
            next_step="Write its texts without what Spark alone takes for one.",
        ) from error
    if got is not None:
        raise ViewQueryError.of(
            "The query cannot be kept as a view: it may give other rows without a change of a table.",
            got=got,
            allowed="a query whose rows follow from its tables alone",
        )
    refuse_collations(query)


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


def tables_read(jvm: Any, plan: Any, allowed: Iterable[str]) -> frozenset[str]:
    """Return the tables that a plan reads, and no others.

    Args:
        jvm: The session's.
        plan: What Spark's analyzer makes of a query.
        allowed: Names of the tables that it may read.

    Raises:
        ViewQueryError: it reads what is no table, or the order of rows decides what it shows.
    """
    aggregates = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.AGGREGATE_EXPRESSION()
    found: set[str] = set()
    for node in everywhere(plan):
        name = kind(node)
        if name == "Sample":
            raise ViewQueryError.of(
                "The query takes a sample, another one each time.",
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
    """Return the table of a pipeline that a leaf of a plan is."""
    attributes = listed(leaf.output())
    table = table_of(attributes[0]) if attributes and kind(leaf) == "LogicalRDD" else None
    if table is None:
        raise ViewQueryError.of(
            "The query reads what is no table of a pipeline.",
            got=kind(leaf),
            allowed=", ".join(allowed),
            next_step="Make a pipeline of it, and name that.",
        )
    return table


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


def _refuse_unsorted(limit: Any) -> None:
    """Refuse a LIMIT or an OFFSET over rows in no order: which ones stay depends on the files that they are in."""
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
                    allowed=ALLOWED_TYPES,
                    next_step="A CAST gives the column another type.",
                )


def _inner_types(type_: T.DataType) -> Iterator[T.DataType]:
    """Yield the types that a type is made of, which hold no others."""
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
