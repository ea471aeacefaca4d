"""Which columns of tables the columns of a query are made of, as Spark's plan shows it: what is made of personal ones is personal.

Each column has an id, and is made once: read from a table, computed by an expression, or shown by a node in the place of others. In
an optimized plan the names of WITH, INTERSECT, EXCEPT and what a subquery reads outside of itself are joins. A column of a
node that is not known here may be made of all that the node reads.
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
    """What the columns of a plan are made of.

    Args:
        plan: Spark's optimized plan.
    """

    plan: Any
    _made_of: dict[int, set[int]] = field(default_factory=dict)
    _tables: dict[int, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._read(self.plan)

    def of(self, column_id: int) -> frozenset[Origin]:
        """Return what a column is made of."""
        seen: set[int] = set()
        waiting = [column_id]
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += self._made_of.get(each, ())
        return frozenset(self._tables[each] for each in seen if each in self._tables)

    def _add(self, made: int, of: Iterable[int]) -> None:
        self._made_of.setdefault(made, set()).update(of)

    def _read(self, plan: Any) -> None:
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
        """Read the columns that a node makes by expressions: by its own where a column has one, else by all that it reads."""
        if kind(plan) == "Join":  # of INTERSECT and EXCEPT, where each side stands for the other
            for one, same in null_safe_pairs(plan):
                for made in _sources(one):
                    self._add(made, _sources(same))
        from_below = [each for child in below for each in output(child)]
        new = set(output(plan)) - set(from_below)
        if not new:
            return
        expressions = listed(plan.expressions())
        own = {column(expression): expression for expression in expressions if kind(expression) == "Alias"}
        everything = [source for expression in expressions for source in _sources(expression)]
        for made in new:
            self._add(
                made,
                _sources(own[made]) if made in own else everything or from_below,
            )


def _sources(expression: Any) -> list[int]:
    """Return the columns that an expression reads, and those that its subqueries give."""
    sources = [column(attribute) for attribute in listed(expression.references())]
    for subquery in subqueries_in(expression):
        sources += output(subquery.plan())
    return sources
