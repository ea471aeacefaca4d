"""The table columns that a query's columns are derived from, by Spark's plan: a column derived from a personal one is personal.

Each column has an id and one definition: it is read from a table, computed by an expression, or merged from the inputs of a node. In
an optimized plan WITH, INTERSECT, EXCEPT and correlated subqueries are joins. A column of an unknown node counts as derived from all
columns that the node reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ebbtide.views.catalyst import (
    column,
    kind,
    listed,
    null_safe_pairs,
    output,
    subqueries_in,
    table_of,
)

Origin = tuple[str, str]
"""A table and a column of it."""


@dataclass
class Origins:
    """Origins of the columns of a plan.

    Args:
        plan: Optimized plan of Spark.
    """

    plan: Any
    _made_of: dict[int, set[int]] = field(default_factory=dict)
    _tables: dict[int, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read(self.plan)

    def of(self, column_id: int) -> frozenset[Origin]:
        """Return the table columns that a column is derived from."""
        seen: set[int] = set()
        waiting = [column_id]
        while waiting:
            id_ = waiting.pop()
            if id_ not in seen:
                seen.add(id_)
                waiting += self._made_of.get(id_, ())
        return frozenset(self._tables[id_] for id_ in seen & self._tables.keys())

    def _add(self, made: int, of: Iterable[int]) -> None:
        self._made_of.setdefault(made, set()).update(of)

    def _read(self, plan: Any) -> None:
        # Bottom up: the columns of the nodes below, and of subqueries, are known before those of a node.
        below = listed(plan.children())
        for inner in below + listed(plan.subqueries()):
            self._read(inner)
        shown = output(plan)
        if not below:
            self._read_table(plan)
        elif kind(plan) == "Union":
            for branch in below:
                for made, source in zip(shown, output(branch), strict=True):
                    self._add(made, [source])
        elif kind(plan) == "Expand":
            for projection in listed(plan.projections()):
                for made, expression in zip(shown, listed(projection), strict=True):
                    self._add(made, _sources(expression))
        else:
            self._read_computed(plan, below)

    def _read_table(self, leaf: Any) -> None:
        for attribute in listed(leaf.output()):
            table = table_of(attribute)
            if table is not None:
                self._tables[column(attribute)] = (
                    table,
                    str(attribute.name()),
                )

    def _read_computed(self, plan: Any, below: list[Any]) -> None:
        """Read the columns that a node computes: by the column's own expression, or else by all that the node reads."""
        if kind(plan) == "Join":  # in INTERSECT and EXCEPT the columns of both sides are equal
            for one, same in null_safe_pairs(plan):
                for made in _sources(one):
                    self._add(made, _sources(same))
        from_below = [id_ for child in below for id_ in output(child)]
        new = set(output(plan)) - set(from_below)
        if not new:
            return
        everything: list[int] = []
        own_sources: dict[int, list[int]] = {}
        for expression in listed(plan.expressions()):
            sources = _sources(expression)
            everything += sources
            if kind(expression) == "Alias":
                own_sources[column(expression)] = sources
        for made in new:
            self._add(made, own_sources.get(made, everything or from_below))


def _sources(expression: Any) -> list[int]:
    """Return the columns that an expression reads, and the output columns of its subqueries."""
    sources = [column(attribute) for attribute in listed(expression.references())]
    for subquery in subqueries_in(expression):
        sources += output(subquery.plan())
    return sources
