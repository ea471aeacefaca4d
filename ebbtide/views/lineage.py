"""Lineage of a query: the rows of its result that a row of an input can touch, found by Spark's optimizer.

A column `a` of a result is **bound** to a column `c` of a table if, for any set of values V, the rows with `a` in V stay the same
when the table is reduced to its rows with `c` in V. So a change of rows of the table with `c` = v touches only rows with `a` = v,
and these are correct if they are computed from the reduced table. Null counts as a value. Several columns are bound together, by
tuples of values.

A filter `a <=> m` is put above the query, where the marker `m` is a value unknown to the optimizer. The optimizer pushes and copies
filters down where that keeps the result for any rows of the tables. Where `c <=> m` arrives at a table, its other rows cannot matter
for rows with `a` = m: so `a` is bound to `c` there. This extends from one value m to a set of values, since a reading with more rows
than those of m filters them itself. Without a filter at a table, all rows are computed.

A table that is read twice has two readings, each bound by itself. The optimizer passes filters from one side of a join to the other
for `=` only; `_narrowed` does the same for `<=>`, as in INTERSECT and EXCEPT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ebbtide.sessions import Frames, arrow_schema
from ebbtide.views import catalyst
from ebbtide.views.catalyst import TABLE, column, kind, listed, output
from ebbtide.views.origins import Origin, Origins

Cut = tuple[tuple[str, ...], ...]
"""For each reading of an input, its columns with the values of some columns of the view."""
RIGHT_FOLLOWS = {"Inner", "LeftSemi", "LeftAnti", "LeftOuter"}
"""Joins for which only the rows of the right side that match the left one matter."""
LEFT_FOLLOWS = {"Inner", "LeftSemi", "RightOuter"}
"""Joins for which only the rows of the left side that match the right one matter."""
Reading = tuple[str, dict[str, str]]
"""A reading of a table: the table's name, and the bound columns of the view, each with its column of the table."""


def empty_table(
    session: SparkSession,
    name: str,
    schema: StructType,
    key: Sequence[str] = (),
) -> DataFrame:
    """Return a table for the optimizer: the metadata of its columns names it, and its rows are unknown.

    Args:
        session: Session of the query.
        name: Name of the table.
        schema: Columns of the table.
        key: Columns that identify rows; empty: unknown.
    """
    named = StructType()
    for field_of_table in schema:
        named.add(
            field_of_table.name,
            field_of_table.dataType,
            nullable=True,
            metadata={TABLE: name},
        )
    classic: Any = session
    java_schema = classic._jsparkSession.parseDataType(named.json())
    no_rows = classic.sparkContext._jsc.emptyRDD()  # with an empty list the optimizer would use that there are no rows
    table = DataFrame(
        classic._jsparkSession.createDataFrame(no_rows, java_schema),
        session,
    )
    return table.dropDuplicates(list(key)) if key else table


@dataclass(frozen=True)
class Lineage:
    """Lineage of a query.

    Args:
        rows: Result of the query over tables of `empty_table`.
        keyed: The same over tables with their keys.
        tables: The inputs that are read.
    """

    rows: DataFrame
    keyed: DataFrame
    tables: frozenset[str]
    _known: dict[tuple[str, ...], list[Reading]] = field(default_factory=dict)

    @property
    def columns(self) -> pa.Schema:
        """Columns of the view."""
        return arrow_schema(self.rows.schema)

    def common_columns(self, tables: Iterable[str]) -> list[str]:
        """Return the columns of the view that are bound together in every reading of some inputs; empty: all rows are computed."""
        # Columns help each other: a filter on one may let that of another pass. So the search is repeated with the bound columns
        # alone until all of them are bound; it takes at most one round for each column.
        wanted = set(tables)
        columns = list(self.rows.columns)
        while columns:
            bound = [own for table, own in self.readings(columns) if table in wanted]
            kept = [name for name in columns if all(name in own for own in bound)]
            if kept == columns:
                break
            columns = kept
        return columns

    def cut(self, table: str, columns: Sequence[str]) -> Cut | None:
        """Return the columns of each reading of an input that columns of the view are bound to; None if one is not bound."""
        cuts = set()
        for name, bound in self.readings(columns):
            if name != table:
                continue
            if not bound.keys() >= set(columns):
                return None
            cut = tuple(bound[own] for own in columns)
            cuts.add(cut)
        return tuple(sorted(cuts))

    @property
    def key(self) -> list[str] | None:
        """Shortest and leftmost key of the query's rows; None if no key is known."""
        names = list(self.keyed.columns)
        return min(
            self.keys,
            key=lambda key: (
                len(key),
                [names.index(name) for name in key],
            ),
            default=None,
        )

    @cached_property
    def keys(self) -> list[list[str]]:
        """Keys of the query's rows, as Spark derives them."""
        plan = self.keyed._jdf.queryExecution().optimizedPlan()
        names = dict(zip(output(plan), self.keyed.columns, strict=True))
        found = []
        for key in listed(plan.distinctKeys()):
            ids = {column(attribute) for attribute in listed(key)}
            if ids and ids <= names.keys():
                of_key = [name for id_, name in names.items() if id_ in ids]
                found.append(of_key)
        return found

    def origins(self, name: str) -> frozenset[Origin]:
        """Return the table columns that a column of the view is derived from."""
        position = self.rows.columns.index(name)
        ids = output(self._origins.plan)
        return self._origins.of(ids[position])

    @cached_property
    def _origins(self) -> Origins:
        return Origins(self.rows._jdf.queryExecution().optimizedPlan())

    def readings(self, columns: Sequence[str]) -> list[Reading]:
        """Return the readings of tables for the rows with given values in columns of the view."""
        names = tuple(columns)
        known = self._known.get(names)
        if known is None:
            pushdown = Pushdown(self.rows.sparkSession, names)
            known = pushdown.readings(self.rows)
            self._known[names] = known
        return known


@dataclass(frozen=True)
class Pushdown:
    """Pushes filters on some columns down to the tables.

    Args:
        session: Session of the query.
        columns: The columns; the marker of a column has its number.
    """

    session: Any
    columns: tuple[str, ...]

    def readings(self, rows: DataFrame) -> list[Reading]:
        """Return the readings of tables in a query's result below filters on the columns."""
        plan = rows._jdf.queryExecution().analyzed()
        attributes = listed(plan.output())
        attribute_of = dict(zip(rows.columns, attributes, strict=True))
        wanted = []
        for number, name in enumerate(self.columns):
            attribute = attribute_of[name]
            marker = self._expressions.BoundReference(number, attribute.dataType(), True)
            wanted.append(self._expressions.EqualNullSafe(attribute, marker))
        optimized = self._optimized(plan, wanted)
        return list(self._below(optimized))

    @property
    def _expressions(self) -> Any:
        return self.session._jvm.org.apache.spark.sql.catalyst.expressions

    def _optimized(self, plan: Any, conditions: Sequence[Any]) -> Any:
        """Return the optimized plan of a plan below some filters."""
        spark_sql = self.session._jvm.org.apache.spark.sql
        filter_above = spark_sql.catalyst.plans.logical.Filter
        for condition in conditions:
            plan = filter_above(condition, plan)
        return Frames(self.session).of_plan(plan).queryExecution().optimizedPlan()

    def _below(self, plan: Any, above: Any = None) -> Iterator[Reading]:
        """Yield the readings in a plan, given the node above it, if any."""
        below = self._sides(plan) if kind(plan) == "Join" else listed(plan.children())
        attributes = [] if below else listed(plan.output())
        table = catalyst.table_of(attributes[0]) if attributes else None
        if table is not None:
            yield table, self._bound(above)
        for child in below:
            yield from self._below(child, plan)
        for inner in listed(plan.subqueries()):
            yield from self._below(inner)

    def _bound(self, above: Any) -> dict[str, str]:
        """Return the columns of the view that a filter directly above a table binds, each with its column of the table."""
        bound: dict[str, str] = {}
        has_filter = above is not None and kind(above) == "Filter"
        if not has_filter:
            return bound
        for attribute, marker in _marked(above):
            of_view = self.columns[marker.ordinal()]
            of_table = str(attribute.name())
            bound.setdefault(of_view, of_table)
        return bound

    def _sides(self, join: Any) -> list[Any]:
        """Return the sides of a join, each narrowed by the filters of the other side over `<=>`."""
        left, right = join.left(), join.right()
        equal = catalyst.null_safe_pairs(join)
        how = join.joinType().toString()
        if how in RIGHT_FOLLOWS:
            right = self._narrowed(right, left, equal)
        if how in LEFT_FOLLOWS:
            left = self._narrowed(left, right, equal)
        return [left, right]

    def _narrowed(self, side: Any, other: Any, equal: Sequence[tuple[Any, Any]]) -> Any:
        """Return a side of a join with the filters of the other side, translated by pairs of equal expressions."""
        conditions = []
        own_columns = side.outputSet()
        marked = list(_marked(other)) if equal else []
        for (attribute, marker), (one, same) in product(marked, equal):
            is_of_side = same.references().subsetOf(own_columns)
            if is_of_side and one.semanticEquals(attribute):
                condition = self._expressions.EqualNullSafe(same, marker)
                conditions.append(condition)
        return self._optimized(side, conditions) if conditions else side


def _marked(plan: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the columns that equal a marker in all rows of a plan, each with its marker."""
    for constraint in listed(plan.constraints()):
        for one, other in catalyst.both_ways(constraint):
            is_column = kind(one) == "AttributeReference"
            if is_column and kind(other) == "BoundReference":
                yield one, other
