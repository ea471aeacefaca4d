"""Spark's analyzed plan of a query, as its `toJSON` gives it, to what `ebbtide.views.lineage` makes of it.

Spark has resolved every name there, and shows the casts that it adds: an equality of two bare columns is one of equal types. A
node that is not known here binds nothing: what it reads is computed whole. A leaf that is not known is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ebbtide.errors import ViewQueryError
from ebbtide.views import lineage
from ebbtide.views.lineage import Column, Equality, Joining, Origin, Output, Relation

PASSED = {
    "SubqueryAlias",
    "View",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
}
"""Nodes that show the rows below them as they are."""
CONSTANT = {"LocalRelation", "OneRowRelation", "Range"}
LIMITS = {"GlobalLimit", "LocalLimit", "Offset", "Tail", "LimitAndOffset"}
JOINS = {
    "Inner$": Joining.INNER,
    "Cross$": Joining.INNER,
    "LeftOuter$": Joining.LEFT,
    "RightOuter$": Joining.RIGHT,
    "FullOuter$": Joining.FULL,
    "LeftSemi$": Joining.SEMI,
    "LeftAnti$": Joining.ANTI,
}
ARBITRARY = {"First", "Last", "AnyValue", "CollectList", "CollectSet", "ListAgg"}
"""Aggregates whose result depends on the order in which rows come."""
SORTING = {"ArraySort", "SortArray"}
"""Functions that bring the elements of such a result into order."""


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
        return int(self.fields["exprId"]["id"]) if self.kind == "AttributeReference" else None


def _take(nodes: Iterator[Mapping[str, Any]]) -> Node:
    fields = next(nodes)
    kind = str(fields["class"]).rpartition(".")[2]
    children = tuple(_take(nodes) for _ in range(fields["num-children"]))
    return Node(kind, fields, children)


@dataclass
class PlanReader:
    """Reads one plan.

    Args:
        keys: Name of each table that the query may read, as the temporary view is called, to its key.
    """

    keys: Mapping[str, Sequence[str]]
    _tables: dict[Column, Origin] = field(default_factory=dict)
    _used: set[Column] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _shared: dict[int, Node] = field(default_factory=dict)

    def relation(self, plan: Node) -> Relation:
        """Return what a plan gives.

        Raises:
            ViewQueryError: it reads something else, or its result may differ from run to run.
        """
        for expression in _expressions(plan):
            _refuse_arbitrary(expression)
            self._used.update(_reads(expression))
        given = self._rows(plan)
        inner = [self.relation(Node.of(each)) for each in _subqueries(plan)]
        return lineage.beside(given, inner)

    @property
    def read(self) -> frozenset[Origin]:
        """The columns of tables that the plans read."""
        return frozenset(origin for column, origin in self._tables.items() if column in self._used)

    def _rows(self, plan: Node) -> Relation:
        if _is_own_view(plan) and _view_name(plan) in self.keys:
            return self._table(plan)
        if plan.kind == "Sample":
            raise ViewQueryError.of("The query takes a sample, another one each time.", got="TABLESAMPLE")
        if plan.kind in PASSED:
            return self.relation(plan.children[0])
        if plan.kind in LIMITS:
            return lineage.unbound(self.relation(plan.children[0]), "LIMIT")
        if plan.kind in CONSTANT:
            return lineage.constants(_columns(plan.expressions("output")))
        read = _READERS.get(plan.kind)
        if read is not None:
            return read(self, plan)
        if plan.children:
            return self._unknown(plan)
        raise ViewQueryError.of(
            "The query reads what is no table of a pipeline.",
            got=plan.kind,
            allowed=", ".join(self.keys),
            next_step="Make a pipeline of it, and name that.",
        )

    def _table(self, view: Node) -> Relation:
        name = _view_name(view)
        output = [Node.of(each) for each in view.children[0].fields["output"]]
        names = {_column(each): str(each.fields["name"]) for each in output}
        self._tables.update({column: (name, own) for column, own in names.items()})
        key = [column for column, own in names.items() if own in self.keys[name]]
        return lineage.read(next(self._numbers), name, names, key)

    def _unknown(self, plan: Node) -> Relation:
        parts = [self.relation(child) for child in plan.children]
        columns = tuple(column for part in parts for column in part.columns)
        readings = {number: table for part in parts for number, table in part.readings.items()}
        losses = {number: why for part in parts for number, why in part.losses.items()}
        together = dict.fromkeys(readings, f"{plan.kind}, through which keys are not followed")
        return Relation(columns, readings, losses={**together, **losses})

    def project(self, plan: Node) -> Relation:
        """Read a Project."""
        return lineage.project(self.relation(plan.children[0]), _outputs(plan.expressions("projectList")))

    def filter(self, plan: Node) -> Relation:
        """Read a Filter."""
        below = self.relation(plan.children[0])
        return lineage.restrict(below, _equalities(plan.expression("condition")))

    def join(self, plan: Node) -> Relation:
        """Read a Join; of a kind that is not known it binds nothing."""
        left, right = (self.relation(child) for child in plan.children)
        kind = str(plan.fields["joinType"].get("object", "")).rpartition(".")[2]
        if kind not in JOINS:
            return self._unknown(plan)
        return lineage.join(left, right, JOINS[kind], _equalities(plan.expression("condition")))

    def aggregate(self, plan: Node) -> Relation:
        """Read an Aggregate."""
        below = self.relation(plan.children[0])
        grouping = plan.expressions("groupingExpressions")
        shown = plan.expressions("aggregateExpressions")
        by = [column for column in (each.column for each in grouping) if column is not None]
        return lineage.group(below, by, _outputs(shown), _group_key(grouping, shown))

    def window(self, plan: Node) -> Relation:
        """Read a Window."""
        below = self.relation(plan.children[0])
        partition = [each.column for each in plan.expressions("partitionSpec")]
        by = [column for column in partition if column is not None]
        return lineage.window(below, by, _outputs(plan.expressions("windowExpressions")))

    def generate(self, plan: Node) -> Relation:
        """Read a Generate, as of LATERAL VIEW."""
        below = self.relation(plan.children[0])
        generator = plan.expression("generator")
        reads = tuple(_reads(generator)) if generator else ()
        made = _columns(plan.expressions("generatorOutput"))
        return lineage.generate(below, [Output(column, None, reads) for column in made])

    def distinct(self, plan: Node) -> Relation:
        """Read a Distinct."""
        return lineage.distinct(self.relation(plan.children[0]))

    def combine(self, plan: Node) -> Relation:
        """Read a Union, an Intersect or an Except."""
        return lineage.combine([self.relation(child) for child in plan.children])

    def shared(self, plan: Node) -> Relation:
        """Read a query with the subqueries that it names (WITH)."""
        *definitions, query = plan.children
        for definition in definitions:
            self._shared[definition.fields["id"]] = definition.children[0]
        return self.relation(query)

    def reference(self, plan: Node) -> Relation:
        """Read a place where such a subquery is named: each is a reading of its own."""
        if plan.fields.get("recursive"):
            raise ViewQueryError.of("The query is recursive.", got="WITH RECURSIVE", allowed="WITH")
        below = self.relation(self._shared[plan.fields["cteId"]])
        return lineage.renumbered(below, _columns(plan.expressions("output")))


_READERS: dict[str, Callable[[PlanReader, Node], Relation]] = {
    "Project": PlanReader.project,
    "Filter": PlanReader.filter,
    "Join": PlanReader.join,
    "Aggregate": PlanReader.aggregate,
    "Window": PlanReader.window,
    "Generate": PlanReader.generate,
    "Distinct": PlanReader.distinct,
    "Union": PlanReader.combine,
    "Intersect": PlanReader.combine,
    "Except": PlanReader.combine,
    "WithCTE": PlanReader.shared,
    "CTERelationRef": PlanReader.reference,
}


def _is_own_view(plan: Node) -> bool:
    """Return whether a node is a temporary view of the session: one of all sessions has a database."""
    return (
        plan.kind == "View" and bool(plan.fields["isTempView"]) and "database" not in plan.fields["desc"]["identifier"]
    )


def _view_name(view: Node) -> str:
    return str(view.fields["desc"]["identifier"]["table"])


def _expressions(plan: Node) -> Iterator[Node]:
    """Yield the expressions of a plan's own fields."""
    for value in plan.fields.values():
        if not isinstance(value, list) or not value:
            continue
        listed = value if isinstance(value[0], list) else [value]
        for nodes in listed:
            if nodes and isinstance(nodes[0], Mapping) and "num-children" in nodes[0]:
                yield Node.of(nodes)


def _subqueries(plan: Node) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the plans of the subqueries in a plan's own expressions."""
    for expression in _expressions(plan):
        for node in expression.below():
            inner = node.fields.get("plan")
            if isinstance(inner, list):
                yield inner


def _outputs(expressions: Sequence[Node]) -> list[Output]:
    return [Output(_column(each), each.column, tuple(_reads(each))) for each in expressions]


def _columns(attributes: Sequence[Node]) -> list[Column]:
    return [_column(each) for each in attributes]


def _column(named: Node) -> Column:
    """Return the id under which an expression is shown."""
    return int(named.fields["exprId"]["id"])


def _reads(expression: Node) -> Iterator[Column]:
    for node in expression.below():
        if node.kind == "AttributeReference":
            yield _column(node)


def _equalities(condition: Node | None) -> list[Equality]:
    """Return the columns that a condition wants to be equal whatever else it says."""
    if condition is None:
        return []
    if condition.kind == "And":
        return [pair for part in condition.children for pair in _equalities(part)]
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        return []
    first, second = condition.children
    is_bare = first.kind == second.kind == "AttributeReference"
    return [(_column(first), _column(second))] if is_bare else []


def _group_key(grouping: Sequence[Node], shown: Sequence[Node]) -> frozenset[Column] | None:
    """Return the outputs that show what an aggregate is grouped by; None if one of these is not shown."""
    found = set()
    for wanted in grouping:
        fitting = [each for each in shown if _is_same(_unnamed(each), wanted)]
        if not fitting:
            return None
        found.add(_column(fitting[0]))
    return frozenset(found) or None


def _unnamed(expression: Node) -> Node:
    return expression.children[0] if expression.kind == "Alias" else expression


def _is_same(one: Node, other: Node) -> bool:
    """Return whether two expressions are the same, but for the names by which columns were called."""
    if _meaning(one) != _meaning(other) or len(one.children) != len(other.children):
        return False
    return all(map(_is_same, one.children, other.children))


def _meaning(node: Node) -> dict[str, Any]:
    """Return what a node says, but for the name of the table that a column was called by."""
    return {name: value for name, value in node.fields.items() if name != "qualifier"}


def _refuse_arbitrary(expression: Node, above: str = "") -> None:
    """Refuse aggregates that give what comes first, or a list in the order in which it comes."""
    if expression.kind in ARBITRARY and above not in SORTING:
        raise ViewQueryError.of(
            "The query has an aggregate whose result depends on the order in which rows come.",
            got=expression.kind,
            allowed="max_by and min_by; array_sort around collect_list and collect_set",
        )
    passes = expression.kind == "AggregateExpression"
    for child in expression.children:
        _refuse_arbitrary(child, above if passes else expression.kind)
