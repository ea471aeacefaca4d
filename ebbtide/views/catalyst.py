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
CONSTANT = {
    "LocalRelation",
    "OneRowRelation",
    "Range",
}
LIMITS = {
    "GlobalLimit",
    "LocalLimit",
    "Offset",
    "Tail",
    "LimitAndOffset",
}
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
            return _column(self)
        return None


def _take(nodes: Iterator[Mapping[str, Any]]) -> Node:
    fields = next(nodes)
    n_children = fields["num-children"]
    children = [_take(nodes) for _ in range(n_children)]
    kind = _last_part(fields["class"])
    return Node(kind, fields, tuple(children))


def _last_part(name: str) -> str:
    """Return the name of a class, without its package."""
    _, _, last = name.rpartition(".")
    return last


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
        for expression in _expressions(plan):
            inner = self._subqueries(expression)
            given = lineage.beside(given, inner, list(_reads(expression)))
        return given

    def _subqueries(self, expression: Node) -> list[Relation]:
        """Return what the subqueries of an expression give."""
        return [self.relation(plan) for plan in _inner_plans(expression)]

    @property
    def read(self) -> frozenset[Origin]:
        """The columns of tables that the plans read."""
        found = set()
        for column, origin in self._tables.items():
            if column in self._used:
                found.add(origin)
        return frozenset(found)

    def _rows(self, plan: Node) -> Relation:
        if _is_own_view(plan) and _view_name(plan) in self.keys:
            return self._table(plan)
        if plan.kind == "Sample":
            raise ViewQueryError.of("The query takes a sample, another one each time.", got="TABLESAMPLE")
        if plan.kind in PASSED:
            return self._below(plan)
        if plan.kind in LIMITS:
            return lineage.unbound(self._below(plan), "LIMIT")
        if plan.kind in CONSTANT:
            columns = _columns(plan.expressions("output"))
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
                column=_column(expression),
                of=expression.column,
                reads=tuple(_reads(expression)),
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
            column = _column(attribute)
            name = str(attribute.fields["name"])
            names[column] = name
            self._tables[column] = (table, name)
            if name in self.keys[table]:
                key.append(column)
        number = next(self._numbers)
        return lineage.read(number, table, names, key)

    def _unknown(self, plan: Node) -> Relation:
        mentioned: list[Column] = []
        for expression in _expressions(plan):
            mentioned += _named(expression)
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
        columns = _columns(plan.expressions("output"))
        reads: dict[Column, list[Column]] = {column: [] for column in columns}
        for expressions in plan.fields["projections"]:
            for column, expression in zip(columns, expressions, strict=True):
                reads[column] += _reads(Node.of(expression))
        outputs = [Output(column, None, tuple(own)) for column, own in reads.items()]
        freed = lineage.unbound(self._below(plan), _not_followed(plan))
        return lineage.project(freed, outputs)

    def filter(self, plan: Node) -> Relation:
        """Read a Filter."""
        condition = plan.expression("condition")
        return lineage.restrict(self._below(plan), _equalities(condition))

    def join(self, plan: Node) -> Relation:
        """Read a Join; of a kind that is not known it binds nothing."""
        scala_type = str(plan.fields["joinType"].get("object", ""))
        how = JOINS.get(_last_part(scala_type))
        if how is None:
            return self._unknown(plan)
        left, right = self._each_below(plan)
        condition = plan.expression("condition")
        return lineage.join(left, right, how, _equalities(condition))

    def aggregate(self, plan: Node) -> Relation:
        """Read an Aggregate."""
        grouping = plan.expressions("groupingExpressions")
        shown = plan.expressions("aggregateExpressions")
        return lineage.group(
            self._below(plan),
            _bare(grouping),
            self._outputs(shown),
            _group_key(grouping, shown),
        )

    def window(self, plan: Node) -> Relation:
        """Read a Window."""
        partition = plan.expressions("partitionSpec")
        computed = plan.expressions("windowExpressions")
        return lineage.window(
            self._below(plan),
            _bare(partition),
            self._outputs(computed),
        )

    def generate(self, plan: Node) -> Relation:
        """Read a Generate, as of LATERAL VIEW."""
        generator = plan.expression("generator")
        if generator is None:
            return self._unknown(plan)
        reads = tuple(_reads(generator))
        within = self._within(generator)
        made = _columns(plan.expressions("generatorOutput"))
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
        columns = _columns(plan.expressions("output"))
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


def _expressions(plan: Node) -> Iterator[Node]:
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


def _inner_plans(expression: Node) -> Iterator[Node]:
    """Yield the plans of the subqueries in an expression."""
    for node in expression.below():
        plan = node.fields.get("plan")
        if isinstance(plan, list):
            yield Node.of(plan)


def _columns(attributes: Sequence[Node]) -> list[Column]:
    return [_column(each) for each in attributes]


def _column(named: Node) -> Column:
    """Return the id under which an expression is shown."""
    return int(named.fields["exprId"]["id"])


def _bare(expressions: Sequence[Node]) -> list[Column]:
    """Return those of some expressions that are columns as they are."""
    columns = []
    for expression in expressions:
        column = expression.column
        if column is not None:
            columns.append(column)
    return columns


def _named(expression: Node) -> Iterator[Column]:
    """Yield all ids in an expression, of what it reads and of what it makes."""
    for node in expression.below():
        if "exprId" in node.fields:
            yield _column(node)


def _reads(expression: Node) -> Iterator[Column]:
    for node in expression.below():
        if node.kind == "AttributeReference":
            yield _column(node)


def _equalities(condition: Node | None) -> list[Equality]:
    """Return the columns that a condition wants to be equal whatever else it says."""
    if condition is None:
        return []
    if condition.kind == "And":
        pairs: list[Equality] = []
        for part in condition.children:
            pairs += _equalities(part)
        return pairs
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        return []
    first, second = condition.children
    is_bare = first.kind == second.kind == "AttributeReference"
    if not is_bare:
        return []
    pair = (_column(first), _column(second))
    return [pair]


def _group_key(
    grouping: Sequence[Node],
    shown: Sequence[Node],
) -> frozenset[Column] | None:
    """Return the outputs that show what an aggregate is grouped by; None if one of these is not shown."""
    found = set()
    for wanted in grouping:
        output = _output_of(wanted, shown)
        if output is None:
            return None
        found.add(_column(output))
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
