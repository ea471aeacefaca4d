"""Which columns of tables the columns of a query are made of, as Spark's analyzed plan shows it: personal ones stay personal.

Each column has an id, and is made once: read from a table, computed by an expression, or shown by a node in the place of others. A
column of a node that is not known here may be made of all that the node reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ebbtide.views.catalyst import column, kind, listed, members, output, subqueries, subqueries_in, table_of

Origin = tuple[str, str]
"""A table and a column of it."""
SETS = {"Union", "Intersect", "Except"}
"""Nodes whose columns are those of each of their branches, by place."""


@dataclass
class Origins:
    """What the columns of a plan are made of.

    Args:
        plan: Spark's analyzed plan.
    """

    plan: Any
    _made_of: dict[int, set[int]] = field(default_factory=dict)
    _tables: dict[int, Origin] = field(default_factory=dict)
    _shared: dict[int, list[int]] = field(default_factory=dict)

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

    def _add(self, made: Iterable[int], of: Iterable[int]) -> None:
        sources = set(of)
        for each in made:
            self._made_of.setdefault(each, set()).update(sources)

    def _add_by_place(self, made: Iterable[int], of: Iterable[int]) -> None:
        for each, source in zip(made, of, strict=True):
            self._add([each], [source])

    def _read(self, plan: Any) -> None:
        below = listed(plan.children())
        for child in below:
            self._read(child)
        for subquery in subqueries(plan):
            self._read(subquery.plan())
            self._add(output(subquery.plan()), _ids(subquery.references()))
        shown = output(plan)
        if not below:
            self._read_leaf(plan)
        elif kind(plan) == "CTERelationDef":
            self._shared[plan.id()] = shown
        elif kind(plan) == "Expand":
            for projection in listed(plan.projections()):
                for each, expression in zip(shown, listed(projection), strict=True):
                    self._add([each], _ids(expression.references()))
        elif kind(plan) in SETS:
            for child in below:
                self._add_by_place(shown, output(child))
        else:
            self._read_computed(plan, below)

    def _read_leaf(self, leaf: Any) -> None:
        if kind(leaf) == "CTERelationRef":
            self._add_by_place(output(leaf), self._shared[leaf.cteId()])
            return
        for attribute in listed(leaf.output()):
            table = table_of(attribute)
            if table is not None:
                self._tables[column(attribute)] = (table, str(attribute.name()))

    def _read_computed(self, plan: Any, below: list[Any]) -> None:
        """Read the columns that a node makes by expressions: by its own where a column has one, else by all that it reads."""
        from_below = [each for child in below for each in output(child)]
        new = set(output(plan)) - set(from_below) - self._made_of.keys()
        if not new:
            return
        expressions = listed(plan.expressions())
        own = {column(expression): expression for expression in expressions if kind(expression) == "Alias"}
        for each in new:
            if each in own:
                self._add([each], _sources(own[each]))
            else:
                sources = [source for expression in expressions for source in _sources(expression)]
                self._add([each], sources or from_below)


def _ids(references: Any) -> list[int]:
    return [column(attribute) for attribute in members(references)]


def _sources(expression: Any) -> list[int]:
    """Return the columns that an expression reads, and those that its subqueries give."""
    sources = _ids(expression.references())
    for subquery in subqueries_in(expression):
        sources += output(subquery.plan())
    return sources
