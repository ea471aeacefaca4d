"""Which rows of a query's result a row of an input can touch, as Spark's optimizer shows it.

A column `a` of a result is **bound** to a column `c` of a table if, for any set of values V, the rows with `a` in V stay the same
when the table is cut down to its rows with `c` in V. So a change of rows of the table with `c` = v touches no row but those with
`a` = v, and these are computed right from the cut table. Null counts as a value. Several columns are bound together, by tuples of values.

A filter `a <=> m` is put above the query, where the marker `m` is a value that the optimizer knows nothing of. The optimizer moves
and copies filters downward as long as the result is the same, whatever rows the tables have. Where `c <=> m` arrives at a
table, its other rows do not matter to rows with `a` = m: there `a` is bound to `c`. What holds for each value m holds for a set of them,
since a reading that is given more rows than those of m filters them by itself. Where no filter arrives, all rows are computed.

A table that is read twice is two readings here, each bound by itself. The optimizer passes filters from one side of a join to the
other by `=` alone; for `<=>`, as of INTERSECT and EXCEPT, `_narrowed` does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ebbtide.views.catalyst import (
    TABLE,
    column,
    conjuncts,
    everywhere,
    kind,
    listed,
    members,
    output,
    table_of,
)
from ebbtide.views.origins import Origin, Origins

Cut = tuple[tuple[str, ...], ...]
"""For each reading of an input the columns of it that hold the values of some columns of the view."""
RIGHT_FOLLOWS = {"Inner", "LeftSemi", "LeftAnti", "LeftOuter"}
"""Joins whose right side matters only where it matches the left one."""
LEFT_FOLLOWS = {"Inner", "LeftSemi", "RightOuter"}
"""Joins whose left side matters only where it matches the right one."""
REASONS = {
    "Aggregate": "an aggregate that is grouped by no column of it that is selected",
    "Window": "a window that is partitioned by no column of it that is selected",
    "GlobalLimit": "LIMIT",
    "LocalLimit": "LIMIT",
    "Offset": "LIMIT",
    "LeftOuter": "a left join",
    "RightOuter": "a right join",
    "FullOuter": "a full join",
}
"""Operators and joins that a filter does not pass, in words."""
IN_SUBQUERY = "it is read in a subquery of an expression"
NOT_SHOWN = "no column that identifies its rows is selected"


@dataclass(frozen=True)
class Reading:
    """A place where the optimized query reads a table.

    Args:
        table: The table's name.
        bound: Columns of the view to the columns of the table that they are bound to.
        stopped: Why a filter did not arrive; empty if none was stopped on the way.
    """

    table: str
    bound: Mapping[str, str]
    stopped: str = ""


def empty_table(
    session: SparkSession,
    name: str,
    schema: StructType,
    key: Sequence[str] = (),
) -> DataFrame:
    """Return a table as the optimizer is to see it: its columns name it, and it might have any rows.

    Args:
        session: Of the query.
        name: The table's name.
        schema: Its columns.
        key: Columns that identify its rows; none: unknown.
    """
    named = StructType()
    for each in schema:
        named.add(each.name, each.dataType, nullable=True, metadata={TABLE: name})
    classic: Any = session
    java_schema = classic._jsparkSession.parseDataType(named.json())
    no_rows = classic.sparkContext._jsc.emptyRDD()  # of a list of rows the optimizer would know that there are none
    table = DataFrame(classic._jsparkSession.createDataFrame(no_rows, java_schema), session)
    if not key:
        return table
    others = [F.any_value(other).alias(other) for other in schema.names if other not in key]
    each_key_once = table.groupBy(*key).agg(*others) if others else table.distinct()
    return each_key_once.select(*schema.names)


@dataclass(frozen=True)
class Lineage:
    """What a view's columns say of its inputs.

    Args:
        rows: What the query gives, over tables of `empty_table`.
        keyed: The same over such tables with their keys.
    """

    rows: DataFrame
    keyed: DataFrame
    _known: dict[tuple[str, ...], list[Reading]] = field(default_factory=dict)

    @property
    def _analyzed(self) -> Any:
        return self.rows._jdf.queryExecution().analyzed()

    @cached_property
    def tables(self) -> set[str]:
        """The inputs that are read."""
        found: set[str | None] = set()
        for node in everywhere(self._analyzed):
            attributes = [] if node.children().size() else listed(node.output())
            found.update(map(table_of, attributes))
        return {table for table in found if table is not None}

    def columns_of(self, table: str) -> list[str]:
        """Return the columns of the view that are bound in every reading of an input; none: it has to be computed whole."""
        return self.common_columns([table])

    def common_columns(self, tables: Iterable[str]) -> list[str]:
        """Return the columns of the view that are bound, together, in every reading of several inputs."""
        wanted = set(tables)
        columns = list(self.rows.columns)
        while columns:
            bound = [reading.bound for reading in self.readings(columns) if reading.table in wanted]
            kept = [name for name in columns if all(name in own for own in bound)]
            if kept == columns:
                break
            columns = kept  # what the others' filters helped to bind may be free without them
        return columns

    def cut(self, table: str, columns: Sequence[str]) -> Cut | None:
        """Return for each reading of an input what columns of the view are called there.

        Args:
            table: The input.
            columns: Of the view, some of `common_columns`.

        Returns:
            Them, none if the optimizer finds no use of the input; None: in a reading some are not bound.
        """
        cuts = set()
        for reading in self.readings(columns):
            if reading.table != table:
                continue
            if not reading.bound.keys() >= set(columns):
                return None
            cuts.add(tuple(reading.bound[name] for name in columns))
        return tuple(sorted(cuts))

    def reason(self, table: str) -> str:
        """Say why an input has to be computed whole."""
        columns = list(self.rows.columns)
        for reading in self.readings(columns):
            if reading.table == table and not reading.bound:
                return reading.stopped or NOT_SHOWN
        return "no column of the view is bound to one column in all places where it is read"

    @property
    def key(self) -> list[str] | None:
        """The columns by which the query identifies its rows, as few as can be; None if that is not known."""
        return min(self.keys, key=len, default=None)

    @cached_property
    def keys(self) -> list[list[str]]:
        """Columns of which no two rows have the same values, as Spark knows them: the leftmost ones first."""
        plan = self.keyed._jdf.queryExecution().optimizedPlan()
        place_of = {id_: place for place, id_ in enumerate(output(plan))}
        found = []
        for expressions in members(plan.distinctKeys()):
            ids = [column(each) for each in members(expressions)]
            if ids and place_of.keys() >= set(ids):
                found.append(sorted(place_of[id_] for id_ in ids))
        return [[self.keyed.columns[place] for place in places] for places in sorted(found)]

    def origins(self, name: str) -> frozenset[Origin]:
        """Return what a column of the view is made of."""
        place = self.rows.columns.index(name)
        column_id = output(self._analyzed)[place]
        return self._origins.of(column_id)

    @cached_property
    def _origins(self) -> Origins:
        return Origins(self._analyzed)

    def readings(self, columns: Sequence[str]) -> list[Reading]:
        """Return where the optimizer reads tables for the rows with some values of columns of the view."""
        names = tuple(columns)
        if names not in self._known:
            pushdown = Pushdown(self.rows.sparkSession, names)
            self._known[names] = pushdown.readings(self.rows)
        return self._known[names]


@dataclass(frozen=True)
class Pushdown:
    """Filters of some columns, and where they arrive.

    Args:
        session: Of the query.
        columns: The columns; the number of each is that of its marker.
    """

    session: Any
    columns: tuple[str, ...]

    def readings(self, rows: DataFrame) -> list[Reading]:
        """Return the readings of tables below filters of the columns.

        Args:
            rows: What a query gives.
        """
        attributes = listed(rows._jdf.queryExecution().analyzed().output())
        attribute_of = dict(zip(rows.columns, attributes, strict=True))
        wanted = []
        for number, name in enumerate(self.columns):
            attribute = attribute_of[name]
            marker = self._expressions.BoundReference(number, attribute.dataType(), True)
            wanted.append(self._expressions.EqualNullSafe(attribute, marker))
        plan = self._optimized(rows._jdf.queryExecution().analyzed(), wanted)
        return list(self._below(plan))

    @property
    def _expressions(self) -> Any:
        return self.session._jvm.org.apache.spark.sql.catalyst.expressions

    def _optimized(self, plan: Any, conditions: Sequence[Any]) -> Any:
        """Return what the optimizer makes of a plan below some filters."""
        spark_sql = self.session._jvm.org.apache.spark.sql
        for condition in conditions:
            plan = spark_sql.catalyst.plans.logical.Filter(condition, plan)
        filtered = spark_sql.classic.Dataset.ofRows(self.session._jsparkSession, plan)
        return filtered.queryExecution().optimizedPlan()

    def _below(self, plan: Any, conditions: Sequence[Any] = (), stopped: str = "") -> Iterator[Reading]:
        """Yield the readings below a node.

        Args:
            plan: The node.
            conditions: What a filter directly above it asks for.
            stopped: Why a filter further above did not arrive.
        """
        below = self._sides(plan) if kind(plan) == "Join" else listed(plan.children())
        own = listed(plan.output()) if not below else []
        table = table_of(own[0]) if own else None
        if table is not None:
            yield Reading(table, self._bound(conditions), stopped)
        is_stopping = bool(below) and any(map(_has_marker, conditions))
        if is_stopping:
            stopped = _reason(plan)
        asked = conjuncts(plan.condition()) if kind(plan) == "Filter" else []
        for child in below:
            yield from self._below(child, asked, stopped)
        for inner in listed(plan.subqueries()):
            yield from self._below(inner, stopped=IN_SUBQUERY)

    def _bound(self, conditions: Sequence[Any]) -> dict[str, str]:
        """Return which columns of the view conditions on a table bind, to which of its columns."""
        bound: dict[str, str] = {}
        for condition in conditions:
            for attribute, marker in _marked(condition):
                bound.setdefault(self.columns[marker.ordinal()], attribute.name())
        return bound

    def _sides(self, join: Any) -> list[Any]:
        """Return the sides of a join, each filtered by what `<=>` makes of the other one's filters."""
        left, right = join.left(), join.right()
        condition = join.condition()
        asked = conjuncts(condition.get()) if condition.isDefined() else []
        equal = [each for each in asked if kind(each) == "EqualNullSafe"]
        how = join.joinType().toString()
        if how in RIGHT_FOLLOWS:
            right = self._narrowed(right, left, equal)
        if how in LEFT_FOLLOWS:
            left = self._narrowed(left, right, equal)
        return [left, right]

    def _narrowed(self, side: Any, other: Any, equal: Sequence[Any]) -> Any:
        """Return a side of a join with the filters that hold in the other one, where its columns are to be equal."""
        markers: dict[int, list[Any]] = {}
        for condition in members(other.constraints()) if equal else ():
            for attribute, marker in _marked(condition):
                markers.setdefault(column(attribute), []).append(marker)
        own = output(side)
        conditions = []
        for pair in equal:
            for one, same in _both_ways(pair):
                is_bare = kind(one) == kind(same) == "AttributeReference"
                if is_bare and column(same) in own:
                    found = markers.get(column(one), ())
                    conditions += [self._expressions.EqualNullSafe(same, marker) for marker in found]
        return self._optimized(side, conditions) if conditions else side


def _both_ways(equality: Any) -> list[tuple[Any, Any]]:
    left, right = equality.left(), equality.right()
    return [(left, right), (right, left)]


def _has_marker(condition: Any) -> bool:
    is_equality = kind(condition) == "EqualNullSafe"
    return is_equality and any(kind(side) == "BoundReference" for side in _both_ways(condition)[0])


def _marked(condition: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the column and the marker that a condition wants to be equal, if it is of this kind."""
    if kind(condition) != "EqualNullSafe":
        return
    for one, other in _both_ways(condition):
        if kind(one) == "AttributeReference" and kind(other) == "BoundReference":
            yield one, other


def _reason(plan: Any) -> str:
    name = plan.joinType().toString() if kind(plan) == "Join" else kind(plan)
    return REASONS.get(name, f"{name}, through which keys are not followed")
