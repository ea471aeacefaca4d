"""Access to Spark's plans and expressions over py4j."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ebbtide.errors import ViewQueryError

TABLE = "ebbtide.table"
"""Key in the metadata of a table's columns: the table's name."""
SUBQUERIES = {"Exists", "LateralSubquery", "ListQuery", "ScalarSubquery"}
"""Expressions that hold a plan."""
LIMITS = {
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "Tail",
    "LimitAndOffset",
}
"""Nodes that return some of the rows below them."""


def listed(collection: Any) -> list[Any]:
    """Return the items of a sequence or a set of Scala."""
    sequence = collection.toSeq()
    return [sequence.apply(place) for place in range(sequence.size())]


def kind(node: Any) -> str:
    """Return the name of the class of a plan or an expression."""
    return str(node.getClass().getSimpleName())


def column(named: Any) -> int:
    """Return the id of a named expression."""
    return int(named.exprId().id())


def output(plan: Any) -> list[int]:
    """Return the ids of a plan's output columns."""
    return [column(attribute) for attribute in listed(plan.output())]


def subqueries(plan: Any) -> list[Any]:
    """Return the expressions of a plan's root that hold a plan.

    Raises:
        ViewQueryError: one is of an unknown kind.
    """
    n_plans = plan.subqueries().size()
    if not n_plans:
        return []
    found: list[Any] = []
    for expression in listed(plan.expressions()):
        found += subqueries_in(expression)
    if len(found) != n_plans:
        raise ViewQueryError.of(
            "The query has a subquery of a kind that no view can have.",
            got=kind(plan),
            allowed="subqueries that are scalar, of IN, of EXISTS, or LATERAL",
        )
    return found


def subqueries_in(expression: Any) -> Iterator[Any]:
    """Yield the expressions at and below an expression that hold a plan."""
    if kind(expression) in SUBQUERIES:
        yield expression
    for child in listed(expression.children()):
        yield from subqueries_in(child)


def everywhere(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan and of the subqueries in its expressions; the LIMIT of EXISTS has no effect and is left out."""
    yield plan
    for child in listed(plan.children()):
        yield from everywhere(child)
    for subquery in subqueries(plan):
        inner = subquery.plan()
        while kind(subquery) == "Exists" and kind(inner) in LIMITS:
            inner = inner.children().apply(0)
        yield from everywhere(inner)


def null_safe_pairs(join: Any) -> list[tuple[Any, Any]]:
    """Return the pairs of expressions that a join compares by `<=>`, in both orders."""
    condition = join.condition()
    conjuncts = _conjuncts(condition.get()) if condition.isDefined() else []
    pairs: list[tuple[Any, Any]] = []
    for conjunct in conjuncts:
        pairs += both_ways(conjunct)
    return pairs


def _conjuncts(condition: Any) -> list[Any]:
    if kind(condition) != "And":
        return [condition]
    return _conjuncts(condition.left()) + _conjuncts(condition.right())


def both_ways(condition: Any) -> list[tuple[Any, Any]]:
    """Return the sides of `<=>` in both orders; an empty list for another condition."""
    if kind(condition) != "EqualNullSafe":
        return []
    left, right = condition.left(), condition.right()
    return [(left, right), (right, left)]


def table_of(attribute: Any) -> str | None:
    """Return the table that a column was read from, if its metadata names one."""
    metadata = attribute.metadata()
    return str(metadata.getString(TABLE)) if metadata.contains(TABLE) else None
