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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ebbtide.views import catalyst
from ebbtide.views.catalyst import TABLE, column, kind, listed, output
from ebbtide.views.origins import Origin, Origins

Cut = tuple[tuple[str, ...], ...]
"""For each reading of an input the columns of it that hold the values of some columns of the view."""
RIGHT_FOLLOWS = {"Inner", "LeftSemi", "LeftAnti", "LeftOuter"}
"""Joins whose right side matters only where it matches the left one."""
LEFT_FOLLOWS = {"Inner", "LeftSemi", "RightOuter"}
"""Joins whose left side matters only where it matches the right one."""
Reading = tuple[str, dict[str, str]]
"""A table, at a place where it is read, and the columns of the view that are bound there, to which of its columns."""


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
        named.add(
            each.name,
            each.dataType,
            nullable=True,
            metadata={TABLE: name},
        )
    classic: Any = session
    java_schema = classic._jsparkSession.parseDataType(named.json())
    no_rows = classic.sparkContext._jsc.emptyRDD()  # of a list of rows the optimizer would know that there are none
    table = DataFrame(
        classic._jsparkSession.createDataFrame(no_rows, java_schema),
        session,
    )
    return table.dropDuplicates(list(key)) if key else table


@dataclass(frozen=True)
class Lineage:
    """What a view's columns say of its inputs.

    Args:
        rows: What the query gives, over tables of `empty_table`.
        keyed: The same over such tables with their keys.
        tables: The inputs that are read.
    """

    rows: DataFrame
    keyed: DataFrame
    tables: frozenset[str]
    _known: dict[tuple[str, ...], list[Reading]] = field(default_factory=dict)

    @property
    def columns(self) -> pa.Schema:
        """The view's columns."""
        return to_arrow_schema(self.rows.schema, timezone="UTC")

    def common_columns(self, tables: Iterable[str]) -> list[str]:
        """Return the columns of the view that are bound, together, in every reading of some inputs; none: all is computed."""
        wanted = set(tables)
        columns = list(self.rows.columns)
        while columns:
            bound = [own for table, own in self.readings(columns) if table in wanted]
            kept = [name for name in columns if all(name in own for own in bound)]
            if kept == columns:
                break
            columns = kept  # what the others' filters helped to bind may be free without them
        return columns

    def cut(self, table: str, columns: Sequence[str]) -> Cut | None:
        """Return what columns of the view are called in each reading of an input, of which there may be none; None: some are not bound."""
        cuts = set()
        for name, bound in self.readings(columns):
            if name != table:
                continue
            if not bound.keys() >= set(columns):
                return None
            cuts.add(tuple(bound[own] for own in columns))
        return tuple(sorted(cuts))

    @property
    def key(self) -> list[str] | None:
        """The columns by which the query identifies its rows, as few and as far left as can be; None if that is not known."""
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
        """Columns of which no two rows have the same values, as Spark knows them."""
        plan = self.keyed._jdf.queryExecution().optimizedPlan()
        shown = dict(zip(output(plan), self.keyed.columns, strict=True))
        found = []
        for key in listed(plan.distinctKeys()):
            ids = {column(each) for each in listed(key)}
            if ids and ids <= shown.keys():
                found.append([name for id_, name in shown.items() if id_ in ids])
        return found

    def origins(self, name: str) -> frozenset[Origin]:
        """Return what a column of the view is made of."""
        place = self.rows.columns.index(name)
        return self._origins.of(output(self._origins.plan)[place])

    @cached_property
    def _origins(self) -> Origins:
        return Origins(self.rows._jdf.queryExecution().optimizedPlan())

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
        """Return the readings of tables below filters of the columns, in what a query gives."""
        plan = rows._jdf.queryExecution().analyzed()
        attribute_of = dict(zip(rows.columns, listed(plan.output()), strict=True))
        wanted = []
        for number, name in enumerate(self.columns):
            attribute = attribute_of[name]
            marker = self._expressions.BoundReference(number, attribute.dataType(), True)
            wanted.append(self._expressions.EqualNullSafe(attribute, marker))
        return list(self._below(self._optimized(plan, wanted)))

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

    def _below(self, plan: Any, above: Any = None) -> Iterator[Reading]:
        """Yield the readings in a plan, which is below a node or stands alone."""
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
        """Return which columns of the view a filter directly above a table binds, to which of its columns."""
        bound: dict[str, str] = {}
        if above is not None and kind(above) == "Filter":
            for attribute, marker in _marked(above):
                bound.setdefault(self.columns[marker.ordinal()], str(attribute.name()))
        return bound

    def _sides(self, join: Any) -> list[Any]:
        """Return the sides of a join, each filtered by what `<=>` makes of the other one's filters."""
        left, right = join.left(), join.right()
        equal = catalyst.null_safe_pairs(join)
        how = join.joinType().toString()
        if how in RIGHT_FOLLOWS:
            right = self._narrowed(right, left, equal)
        if how in LEFT_FOLLOWS:
            left = self._narrowed(left, right, equal)
        return [left, right]

    def _narrowed(self, side: Any, other: Any, equal: Sequence[tuple[Any, Any]]) -> Any:
        """Return a side of a join with the filters that hold in the other one, where values are to be equal."""
        conditions = []
        for attribute, marker in _marked(other) if equal else ():
            for one, same in equal:
                if one.semanticEquals(attribute) and same.references().subsetOf(side.outputSet()):
                    conditions.append(self._expressions.EqualNullSafe(same, marker))
        return self._optimized(side, conditions) if conditions else side


def _marked(plan: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the columns that equal markers in all rows of a plan, each with its marker."""
    for constraint in listed(plan.constraints()):
        for one, other in catalyst.both_ways(constraint):
            if kind(one) == "AttributeReference" and kind(other) == "BoundReference":
                yield one, other
