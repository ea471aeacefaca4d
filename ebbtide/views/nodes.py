"""Spark's plans and expressions as trees of nodes, as `toJSON` lists them; and what an expression says of columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebbtide.views.lineage import Column, Equality

LIMITS = {
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "Tail",
    "LimitAndOffset",
}
"""Nodes that show some of the rows below them."""


@dataclass(frozen=True)
class Node:
    """A node of a plan, or of an expression.

    Args:
        kind: The last part of its class's name.
        fields: What the JSON says of it.
        children: Those below it.
    """

    kind: str
    fields: Mapping[str, Any]
    children: tuple[Node, ...] = ()

    @classmethod
    def of(cls, nodes: Sequence[Mapping[str, Any]]) -> Node:
        """Put together a tree whose nodes are listed each before its children."""
        return _take(iter(nodes))

    def expression(self, name: str) -> Node | None:
        """Return the expression in a field; None if there is none."""
        value = self.fields.get(name)
        return Node.of(value) if value else None

    def expressions(self, name: str) -> list[Node]:
        """Return the expressions in a field."""
        return [Node.of(each) for each in self.fields.get(name) or []]

    def below(self) -> Iterator[Node]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.below()

    @property
    def column(self) -> Column | None:
        """The column that an expression is, under another name perhaps; None: it computes something."""
        if self.kind == "Alias":
            return self.children[0].column
        if self.kind == "AttributeReference":
            return column(self)
        return None


def _take(nodes: Iterator[Mapping[str, Any]]) -> Node:
    fields = next(nodes)
    n_children = fields["num-children"]
    children = [_take(nodes) for _ in range(n_children)]
    kind = last_part(fields["class"])
    return Node(kind, fields, tuple(children))


def last_part(name: str) -> str:
    """Return the name of a class, without its package."""
    _, _, last = name.rpartition(".")
    return last


def expressions(plan: Node) -> Iterator[Node]:
    """Yield the expressions of a plan's own fields."""
    for value in plan.fields.values():
        yield from _listed(value)


def _listed(value: Any) -> Iterator[Node]:
    """Yield the expressions in a field: one, or a list of them, or a list of lists."""
    if not isinstance(value, list) or not value:
        return
    first = value[0]
    if isinstance(first, Mapping) and "num-children" in first:
        yield Node.of(value)
        return
    for each in value:
        yield from _listed(each)


def inner_plans(expression: Node) -> Iterator[Node]:
    """Yield the plans of the subqueries in an expression."""
    for node in expression.below():
        nodes = node.fields.get("plan")
        if not isinstance(nodes, list):
            continue
        plan = Node.of(nodes)
        while node.kind == "Exists" and plan.kind in LIMITS:  # which rows there are does not matter
            [plan] = plan.children
        yield plan


def columns(attributes: Sequence[Node]) -> list[Column]:
    """Return the ids of some attributes."""
    return [column(each) for each in attributes]


def column(named: Node) -> Column:
    """Return the id under which an expression is shown."""
    return int(named.fields["exprId"]["id"])


def bare(expressions: Sequence[Node]) -> list[Column]:
    """Return those of some expressions that are columns as they are."""
    columns = []
    for expression in expressions:
        column = expression.column
        if column is not None:
            columns.append(column)
    return columns


def named(expression: Node) -> Iterator[Column]:
    """Yield all ids in an expression, of what it reads and of what it makes."""
    for node in expression.below():
        if "exprId" in node.fields:
            yield column(node)


def reads(expression: Node) -> Iterator[Column]:
    """Yield the ids of what an expression reads."""
    for node in expression.below():
        if node.kind == "AttributeReference":
            yield column(node)


def equalities(condition: Node | None) -> list[Equality]:
    """Return the columns that a condition wants to be equal whatever else it says."""
    if condition is None:
        return []
    if condition.kind == "And":
        pairs: list[Equality] = []
        for part in condition.children:
            pairs += equalities(part)
        return pairs
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        return []
    first, second = condition.children
    is_bare = first.kind == second.kind == "AttributeReference"
    if not is_bare:
        return []
    pair = (column(first), column(second))
    return [pair]


def group_key(
    grouping: Sequence[Node],
    shown: Sequence[Node],
) -> frozenset[Column] | None:
    """Return the outputs that show what an aggregate is grouped by; None if one of these is not shown."""
    found = set()
    for wanted in grouping:
        output = _output_of(wanted, shown)
        if output is None:
            return None
        found.add(column(output))
    return frozenset(found) or None


def _output_of(wanted: Node, shown: Sequence[Node]) -> Node | None:
    """Return the first output that shows an expression; None if there is none."""
    for output in shown:
        if _is_same(_unnamed(output), wanted):
            return output
    return None


def _unnamed(expression: Node) -> Node:
    return expression.children[0] if expression.kind == "Alias" else expression


def _is_same(one: Node, other: Node) -> bool:
    """Return whether two expressions are the same, but for the names by which columns were called."""
    if _meaning(one) != _meaning(other):
        return False
    if len(one.children) != len(other.children):
        return False
    return all(map(_is_same, one.children, other.children))


def _meaning(node: Node) -> dict[str, Any]:
    """Return what a node says, but for the name of the table that a column was called by."""
    meaning = dict(node.fields)
    meaning.pop("qualifier", None)
    return meaning
