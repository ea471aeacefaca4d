"""Spark's plans and expressions, as py4j shows them."""

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
"""Nodes that show some of the rows below them."""


def listed(collection: Any) -> list[Any]:
    """Return the items of a sequence or a set of Scala's."""
    sequence = collection.toSeq()
    return [sequence.apply(place) for place in range(sequence.size())]


def kind(node: Any) -> str:
    """Return the name of the class of a plan or an expression."""
    return str(node.getClass().getSimpleName())


def column(named: Any) -> int:
    """Return the id under which an expression is shown."""
    return int(named.exprId().id())


def output(plan: Any) -> list[int]:
    """Return the ids of the columns that a plan gives."""
    return [column(attribute) for attribute in listed(plan.output())]


def subqueries(plan: Any) -> list[Any]:
    """Return the expressions of a plan's own node that hold a plan.

    Raises:
        ViewQueryError: there is one of a kind that is not known.
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
    """Yield an expression and those below it, as far as they hold a plan."""
    if kind(expression) in SUBQUERIES:
        yield expression
    for child in listed(expression.children()):
        yield from subqueries_in(child)


def everywhere(plan: Any) -> Iterator[Any]:
    """Yield a plan's nodes, and those of the subqueries in its expressions; of EXISTS without its LIMIT, which does not matter."""
    yield plan
    for child in listed(plan.children()):
        yield from everywhere(child)
    for subquery in subqueries(plan):
        inner = subquery.plan()
        while kind(subquery) == "Exists" and kind(inner) in LIMITS:
            inner = inner.children().apply(0)
        yield from everywhere(inner)


def null_safe_pairs(join: Any) -> list[tuple[Any, Any]]:
    """Return what a join wants to be equal by `<=>`, both ways."""
    condition = join.condition()
    asked = _conjuncts(condition.get()) if condition.isDefined() else []
    pairs: list[tuple[Any, Any]] = []
    for each in asked:
        pairs += both_ways(each)
    return pairs


def _conjuncts(condition: Any) -> list[Any]:
    if kind(condition) != "And":
        return [condition]
    return _conjuncts(condition.left()) + _conjuncts(condition.right())


def both_ways(condition: Any) -> list[tuple[Any, Any]]:
    """Return the sides of `<=>` both ways; none of another condition."""
    if kind(condition) != "EqualNullSafe":
        return []
    left, right = condition.left(), condition.right()
    return [(left, right), (right, left)]


def table_of(attribute: Any) -> str | None:
    """Return the table that a column was read from, if its metadata names one."""
    metadata = attribute.metadata()
    return str(metadata.getString(TABLE)) if metadata.contains(TABLE) else None
