"""A step of a view: what of it may have changed is computed again, and the difference staged as changes.

1. The inputs' change feeds, from the versions of the last step to those of this one, give the values of those columns of the
   view that are bound in every changed input (`ebbtide.views.lineage`). Rows with other values stay as they are.
2. The query is evaluated over the pinned versions, each input cut down to the rows with such values where it is bound.
3. Its rows with such values, against those that the view has: what is new or another is an upsert, a key that is gone a delete.

Rows go from Spark's tasks to files; the driver sees none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.model.step import ViewPosition
from ebbtide.paths import join
from ebbtide.sinks.delta import RESERVED
from ebbtide.spec.view import MaterializedView
from ebbtide.state_table.columns import column, columns, spark_schema
from ebbtide.state_table.staged import Stager
from ebbtide.views.inputs import ViewTables, why_whole
from ebbtide.views.query import Analysis, analyse, evaluate, new_session, refuse_other_columns, told_errors
from ebbtide.views.staging import COPIES, KIND, StageDifference


@dataclass(frozen=True)
class Extent:
    """How much of a view a step computes.

    Args:
        reason: Why all of it; empty if only touched rows.
        columns: Those columns of the view whose values tell which rows are touched.
        changed: The inputs that have changed.
    """

    reason: str = ""
    columns: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all rows are computed."""
        return bool(self.reason)


@dataclass(frozen=True)
class Recomputing:
    """Computes one step.

    Args:
        spark: The session of the run.
        tables: The view's inputs.
        sink: Where the view's rows are.
        last: What the view was computed from; None before the first step.
        to: What it is to be computed from.
        folder: For the files of this step.
    """

    spark: SparkSession
    tables: ViewTables
    sink: str
    last: ViewPosition | None
    to: ViewPosition
    folder: str

    @property
    def view(self) -> MaterializedView:
        """The view."""
        return self.tables.view

    def stage(self, stager: Stager, step: int, wall_ms: int) -> list[str]:
        """Compute what has changed, and stage it; return what the tasks returned, see `StageDifference`.

        Args:
            stager: Writes changes into the step's folder.
            step: Its number.
            wall_ms: Its wall time, epoch ms.

        Raises:
            ViewQueryError: the query is not usable, or fails on a row.
            ViewKeyError: it gives several rows for one key.
        """
        refuse_other_columns(self.view, self.analysis.columns)
        work = StageDifference(self.view.name, stager, self.view.table.columns, step, wall_ms, self.view.personal)
        with told_errors(has_personal=bool(self.view.personal)):
            done = self._difference(self.extent).mapInArrow(work, "result STRING").collect()
        return [row["result"] for row in done]

    @cached_property
    def session(self) -> SparkSession:
        """The session of the query."""
        return new_session(self.spark)

    @cached_property
    def analysis(self) -> Analysis:
        """What the query is."""
        schemas = {name: self._at(name).schema for name in self.view.inputs}
        return analyse(self.session, self.view.query, schemas)

    @cached_property
    def extent(self) -> Extent:
        """How much is computed."""
        reason = why_whole(self.last, self.to, self.tables)
        if reason or self.last is None:
            return Extent(reason)
        before = self.last.inputs
        lineage = self.analysis.lineage
        changed = [name for name, now in self.to.inputs.items() if now.version > before[name].version]
        changed = [name for name in changed if name in lineage.tables]
        for name in changed:
            if not lineage.columns_of(name):
                return Extent(f"'{name}' has changed: {lineage.reason(name)}")
        common = lineage.common_columns(changed)
        if changed and not common:
            return Extent(f"{', '.join(changed)} have changed, and share no column of the view")
        return Extent("", tuple(common), tuple(changed))

    def _difference(self, extent: Extent) -> DataFrame:
        """Return what is new, another or gone, as `StageDifference` takes it."""
        own = self.view.table.columns.names
        if not extent.is_whole and not extent.changed:
            return self.session.createDataFrame([], spark_schema(self._difference_schema, nullable=True))
        touched = None if extent.is_whole else self._touched(extent)
        rows = {name: self._cut(name, extent, touched) for name in self.view.inputs}
        new = evaluate(self.session, self.view.query, rows)
        old = self._shown()
        if touched is not None:
            new = _with_values(new, extent.columns, touched, extent.columns)
            old = _with_values(old, extent.columns, touched, extent.columns)
        return difference(
            new.select(*columns(own)), old.select(*columns(own)), self.view.key, is_unique=self._is_unique
        )

    @property
    def _is_unique(self) -> bool:
        """Whether the query cannot give two rows for a key."""
        known = self.analysis.lineage.key
        return known is not None and set(known) <= set(self.view.key)

    @property
    def _difference_schema(self) -> pa.Schema:
        return pa.schema([(KIND, pa.string()), (COPIES, pa.int64()), *self.view.table.columns])

    def _touched(self, extent: Extent) -> DataFrame:
        """Return the values that the change feeds give, each once; from a file, whose size Spark then knows."""
        lineage = self.analysis.lineage
        parts = []
        for name in extent.changed:
            feed = self._feed(name)
            for cut in lineage.cut(name, extent.columns):
                pairs = zip(cut, extent.columns, strict=True)
                parts.append(feed.select(*[column(own).alias(shown) for own, shown in pairs]))
        values = reduce(DataFrame.unionByName, parts).distinct()
        location = join(self.folder, "touched")
        values.write.mode("overwrite").parquet(location)
        return self.session.read.parquet(location)

    def _feed(self, name: str) -> DataFrame:
        """Return the rows that came, went or changed in an input since the last step, before and after."""
        last = self.last.inputs[name].version if self.last else 0
        reader = self.session.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", last + 1).option("endingVersion", self.to.inputs[name].version)
        return reader.load(self.tables.location(name))

    def _cut(self, name: str, extent: Extent, touched: DataFrame | None) -> DataFrame:
        """Return an input's rows as of the step; those that matter alone, where it is known which these are."""
        rows = self._at(name)
        lineage = self.analysis.lineage
        is_bound = set(extent.columns) <= set(lineage.columns_of(name))
        if touched is None or not is_bound:
            return rows
        cuts = lineage.cut(name, extent.columns)
        parts = []
        for cut in cuts:  # what an earlier part has is left out of the later ones
            parts.append(_with_values(rows, cut, touched, extent.columns))
            rows = _with_values(rows, cut, touched, extent.columns, how="left_anti")
        return reduce(DataFrame.unionAll, parts)

    def _at(self, name: str) -> DataFrame:
        location = self.tables.location(name)
        version = self.to.inputs[name].version
        rows = self.session.read.format("delta").option("versionAsOf", version).load(location)
        return rows.drop(*RESERVED)

    def _shown(self) -> DataFrame:
        """Return the view's rows as they are now."""
        version = log.versions(self.sink)[-1]
        return self.session.read.format("delta").option("versionAsOf", version).load(self.sink)


def difference(new: DataFrame, old: DataFrame, key: Sequence[str], *, is_unique: bool) -> DataFrame:
    """Return what becomes of rows, as `StageDifference` takes it.

    Args:
        new: The rows that there are to be.
        old: Those that there are; each key once, none of them null.
        key: Names of the key's columns.
        is_unique: `new` has each key once.
    """
    names = new.columns
    copies = F.lit(1).cast("bigint")
    if not is_unique:
        copies = F.count(F.lit(1)).over(Window.partitionBy(*columns(key)))
    counted = new.select(copies.alias(COPIES), F.struct(*columns(names)).alias("new"), *columns(key))
    known = old.select(F.struct(*columns(names)).alias("old"), *columns(key))
    is_same_key = [column(name, "n") == column(name, "o") for name in key]
    both = counted.alias("n").join(known.alias("o"), reduce(Column.__and__, is_same_key), "full_outer")
    is_gone = F.col("new").isNull()
    is_other = ~F.col("new").eqNullSafe(F.col("old"))
    changed = both.where(is_other | (F.col(COPIES) > 1))
    row = F.coalesce(F.col("new"), F.col("old"))
    kind = F.when(is_gone, F.lit("-D")).otherwise(F.lit("+U"))
    fields = [row.getField(name).alias(name) for name in names]
    return changed.select(kind.alias(KIND), F.coalesce(F.col(COPIES), F.lit(1)).alias(COPIES), *fields)


def _with_values(
    rows: DataFrame, own: Sequence[str], values: DataFrame, names: Sequence[str], how: str = "left_semi"
) -> DataFrame:
    """Return the rows that have one of some values in some columns, or those that have not; null is a value too."""
    left, right = rows.alias("r"), values.alias("v")
    pairs = zip(own, names, strict=True)
    is_there = [column(mine, "r").eqNullSafe(column(name, "v")) for mine, name in pairs]
    return left.join(right, reduce(Column.__and__, is_there), how)
