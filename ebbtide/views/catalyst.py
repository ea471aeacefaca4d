"""Spark's analyzed plan of a query, as its `toJSON` gives it, to what `ebbtide.views.lineage` makes of it.

Spark has resolved every name there, and shows the casts that it adds: an equality of two bare columns is one of equal types. A
node that is not known here binds nothing: what it reads is computed whole. A leaf that is not known is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ebbtide.errors import ViewQueryError
from ebbtide.views import lineage, nodes
from ebbtide.views.lineage import Column, Joining, Origin, Output, Relation
from ebbtide.views.nodes import LIMITS, Node

PASSED = {
    "SubqueryAlias",
    "PipeOperator",
    "View",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "RebalancePartitions",
    "ResolvedHint",
}
"""Nodes that show the rows below them as they are."""
CONSTANT = {
    "LocalRelation",
    "OneRowRelation",
    "Range",
}
IN_ORDER = {
    *LIMITS,
    "Filter",
    "PipeOperator",
    "Project",
    "SubqueryAlias",
}
"""Nodes that leave the rows below them in their order."""
JOINS = {
    "Inner$": Joining.INNER,
    "Cross$": Joining.INNER,
    "LeftOuter$": Joining.LEFT,
    "RightOuter$": Joining.RIGHT,
    "FullOuter$": Joining.FULL,
    "LeftSemi$": Joining.SEMI,
    "LeftAnti$": Joining.ANTI,
}
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


@dataclass
class PlanReader:
    """Reads one plan.

    Args:
        keys: Name of each table that the query may read, as the temporary view is called, to its key.
    """

    keys: Mapping[str, Sequence[str]]
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _shared: dict[int, Node] = field(default_factory=dict)

    def relation(self, plan: Node) -> Relation:
        """Return what a plan gives.

        Raises:
            ViewQueryError: it reads something else, or its result may differ from run to run.
        """
        for expression in nodes.expressions(plan):
            _refuse_arbitrary(expression)
        given = self._rows(plan)
        for expression in nodes.expressions(plan):
            inner = self._subqueries(expression)
            given = lineage.beside(given, inner, list(nodes.reads(expression)))
        return given

    def _subqueries(self, expression: Node) -> list[Relation]:
        """Return what the subqueries of an expression give."""
        return [self.relation(plan) for plan in nodes.inner_plans(expression)]

    def _rows(self, plan: Node) -> Relation:
        if _is_own_view(plan) and _view_name(plan) in self.keys:
            return self._table(plan)
        if plan.kind == "Sample":
            raise ViewQueryError.of("The query takes a sample, another one each time.", got="TABLESAMPLE")
        if plan.kind in PASSED:
            return self._below(plan)
        if plan.kind in LIMITS:
            _refuse_unsorted(plan)
            return lineage.unbound(self._below(plan), "LIMIT")
        if plan.kind in CONSTANT:
            columns = nodes.columns(plan.expressions("output"))
            return lineage.constants(columns)
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

    def _below(self, plan: Node) -> Relation:
        """Return what the one plan below a plan gives."""
        return self.relation(plan.children[0])

    def _each_below(self, plan: Node) -> list[Relation]:
        """Return what the plans below a plan give."""
        return [self.relation(child) for child in plan.children]

    def _outputs(self, expressions: Sequence[Node]) -> list[Output]:
        """Return expressions as columns of a projection."""
        outputs = []
        for expression in expressions:
            output = Output(
                column=nodes.column(expression),
                of=expression.column,
                reads=tuple(nodes.reads(expression)),
                within=self._within(expression),
            )
            outputs.append(output)
        return outputs

    def _within(self, expression: Node) -> frozenset[Origin]:
        """Return what the columns of an expression's subqueries are made of."""
        origins: set[Origin] = set()
        for inner in self._subqueries(expression):
            origins |= inner.origins_of(inner.columns)
        return frozenset(origins)

    def _table(self, view: Node) -> Relation:
        table = _view_name(view)
        [rows] = view.children
        names = {}
        key = []
        for attribute in rows.expressions("output"):
            column = nodes.column(attribute)
            name = str(attribute.fields["name"])
            names[column] = name
            if name in self.keys[table]:
                key.append(column)
        number = next(self._numbers)
        return lineage.read(number, table, names, key)

    def _unknown(self, plan: Node) -> Relation:
        mentioned: list[Column] = []
        for expression in nodes.expressions(plan):
            mentioned += nodes.named(expression)
        return lineage.unknown(
            self._each_below(plan),
            mentioned,
            _not_followed(plan),
        )

    def project(self, plan: Node) -> Relation:
        """Read a Project."""
        outputs = self._outputs(plan.expressions("projectList"))
        return lineage.project(self._below(plan), outputs)

    def expand(self, plan: Node) -> Relation:
        """Read an Expand, as of GROUP BY ROLLUP and UNPIVOT: several rows for each row, each by expressions of its own."""
        below = self._below(plan)
        columns = nodes.columns(plan.expressions("output"))
        reads: dict[Column, list[Column]] = {column: [] for column in columns}
        projections = plan.fields["projections"]
        for expressions in projections or ():
            for column, expression in zip(columns, expressions, strict=True):
                reads[column] += nodes.reads(Node.of(expression))
        if projections is None:
            # `toJSON` shows a list of lists only if the inner ones are Scala's `List`; over a UNION they are a `Vector`. Of all fields
            # of the plans that are read here no other one is such a list. Each column may then be made of all that there is below.
            reads = {column: list(below.columns) for column in columns}
        outputs = [Output(column, None, tuple(own)) for column, own in reads.items()]
        freed = lineage.unbound(below, _not_followed(plan))
        return lineage.project(freed, outputs)

    def filter(self, plan: Node) -> Relation:
        """Read a Filter."""
        condition = plan.expression("condition")
        return lineage.restrict(self._below(plan), nodes.equalities(condition))

    def join(self, plan: Node) -> Relation:
        """Read a Join; of a kind that is not known it binds nothing."""
        scala_type = str(plan.fields["joinType"].get("object", ""))
        how = JOINS.get(nodes.last_part(scala_type))
        if how is None:
            return self._unknown(plan)
        left, right = self._each_below(plan)
        condition = plan.expression("condition")
        return lineage.join(left, right, how, nodes.equalities(condition))

    def aggregate(self, plan: Node) -> Relation:
        """Read an Aggregate."""
        grouping = plan.expressions("groupingExpressions")
        shown = plan.expressions("aggregateExpressions")
        return lineage.group(
            self._below(plan),
            nodes.bare(grouping),
            self._outputs(shown),
            nodes.group_key(grouping, shown),
        )

    def window(self, plan: Node) -> Relation:
        """Read a Window."""
        partition = plan.expressions("partitionSpec")
        computed = plan.expressions("windowExpressions")
        return lineage.window(
            self._below(plan),
            nodes.bare(partition),
            self._outputs(computed),
        )

    def generate(self, plan: Node) -> Relation:
        """Read a Generate, as of LATERAL VIEW."""
        generator = plan.expression("generator")
        if generator is None:
            return self._unknown(plan)
        reads = tuple(nodes.reads(generator))
        within = self._within(generator)
        made = nodes.columns(plan.expressions("generatorOutput"))
        outputs = [Output(column, None, reads, within) for column in made]
        return lineage.generate(self._below(plan), outputs)

    def distinct(self, plan: Node) -> Relation:
        """Read a Distinct."""
        return lineage.distinct(self._below(plan))

    def combine(self, plan: Node) -> Relation:
        """Read a Union, an Intersect or an Except."""
        return lineage.combine(self._each_below(plan))

    def shared(self, plan: Node) -> Relation:
        """Read a query with the subqueries that it names (WITH)."""
        *definitions, query = plan.children
        for definition in definitions:
            number = definition.fields["id"]
            self._shared[number] = definition.children[0]
        return self.relation(query)

    def reference(self, plan: Node) -> Relation:
        """Read a place where such a subquery is named: each is a reading of its own."""
        if plan.fields.get("recursive"):
            raise ViewQueryError.of(
                "The query is recursive.",
                got="WITH RECURSIVE",
                allowed="WITH",
            )
        number = plan.fields["cteId"]
        below = self.relation(self._shared[number])
        columns = nodes.columns(plan.expressions("output"))
        return lineage.renumbered(below, columns)


_READERS: dict[str, Callable[[PlanReader, Node], Relation]] = {
    "Project": PlanReader.project,
    "Expand": PlanReader.expand,
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
    if plan.kind != "View" or not plan.fields["isTempView"]:
        return False
    return "database" not in plan.fields["desc"]["identifier"]


def _view_name(view: Node) -> str:
    identifier = view.fields["desc"]["identifier"]
    return str(identifier["table"])


def _not_followed(plan: Node) -> str:
    return f"{plan.kind}, through which keys are not followed"


def _refuse_unsorted(limit: Node) -> None:
    """Refuse a LIMIT or an OFFSET over rows in no order: which ones stay depends on the files that they are in."""
    below = limit
    while below.kind in IN_ORDER:
        [below] = below.children
    is_sorted = below.kind == "Sort" and below.fields["global"]
    if not is_sorted:
        raise ViewQueryError.of(
            "The query takes some of its rows, and nothing says which.",
            got="LIMIT or OFFSET without ORDER BY",
            allowed="LIMIT and OFFSET after ORDER BY, by columns whose values are one a row",
        )


def _refuse_arbitrary(expression: Node, above: str = "") -> None:
    """Refuse aggregates that give what comes first, or a list in the order in which it comes."""
    if expression.kind in ARBITRARY and above not in SORTING:
        raise ViewQueryError.of(
            "The query has an aggregate whose result depends on the order in which rows come.",
            got=expression.kind,
            allowed="max_by and min_by; array_sort around collect_list and collect_set",
        )
    is_wrapper = expression.kind == "AggregateExpression"
    directly_above = above if is_wrapper else expression.kind
    for child in expression.children:
        _refuse_arbitrary(child, directly_above)
