"""A step of a view: what of it may have changed is computed again, and the difference staged as changes.

1. The inputs' change feeds, from the versions of the last step to those of this one, give the values of those columns of the
   view that are bound in every changed input (`ebbtide.views.lineage`). Rows with other values stay as they are.
2. The query is evaluated over the pinned versions, each input cut down to the rows with such values where it is bound.
3. Its rows with such values, against those that the view has: what is new or another is an upsert, a key that is gone a delete.

The query is Spark's in any case. What is little is cut here (`ebbtide.views.cutting`), and Spark is given that; else Spark cuts, and no
row but what a task stages leaves the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ebbtide.delta import log
from ebbtide.model.step import ViewPosition
from ebbtide.paths import join
from ebbtide.spec.ddl import is_exact
from ebbtide.spec.view import MaterializedView
from ebbtide.state_table.columns import column, columns
from ebbtide.state_table.staged import Stager
from ebbtide.views.cutting import MOST_ROWS, PinnedTable, distinct
from ebbtide.views.inputs import ViewTables, why_whole
from ebbtide.views.lineage import Cut
from ebbtide.views.query import Analysis, analyse, errors_as_ours, evaluate, new_session, refuse_other_columns
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
class Touched:
    """The values that changed rows have.

    Args:
        frame: Them, each once, for Spark.
        rows: The same, if they are few.
    """

    frame: DataFrame
    rows: pa.Table | None = None


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

    def stage(
        self,
        stager: Stager,
        step: int,
        wall_ms: int,
    ) -> list[str]:
        """Compute what has changed, and stage it; return what the tasks returned, see `StageDifference`.

        Args:
            stager: Writes changes into the step's folder.
            step: Its number.
            wall_ms: Its wall time, epoch ms.

        Raises:
            ViewQueryError: the query is not usable, or fails on a row.
            ViewKeyError: it gives several rows for one key.
        """
        view = self.view
        refuse_other_columns(view, self.analysis.columns)
        extent = self.extent
        if not (extent.is_whole or extent.changed):
            return []
        work = StageDifference(
            view=view.name,
            stager=stager,
            columns=view.table.columns,
            step=step,
            wall_ms=wall_ms,
            personal=view.personal,
        )
        with errors_as_ours(has_personal=bool(view.personal)):
            rows = self._difference(extent)
            done = rows.mapInArrow(work, "result STRING").collect()
        return [row["result"] for row in done]

    @cached_property
    def session(self) -> SparkSession:
        """The session of the query."""
        return new_session(self.spark)

    @cached_property
    def analysis(self) -> Analysis:
        """What the query is."""
        return analyse(self.session, self.view.query, self._schemas)

    @cached_property
    def _schemas(self) -> dict[str, StructType]:
        return {name: self._pinned(name).schema for name in self.view.inputs}

    @cached_property
    def extent(self) -> Extent:
        """How much is computed."""
        reason = why_whole(self.last, self.to, self.tables)
        if reason or self.last is None:
            return Extent(reason)
        lineage = self.analysis.lineage
        changed = self._changed(self.last)
        columns = lineage.common_columns(changed)
        touching = [name for name in changed if lineage.cut(name, columns) != ()]
        if columns or not touching:
            return Extent("", tuple(columns), tuple(touching))
        for name in changed:
            if not lineage.columns_of(name):
                return Extent(f"'{name}' has changed: {lineage.reason(name)}")
        names = ", ".join(changed)
        return Extent(f"{names} have changed, and share no column of the view")

    def _changed(self, last: ViewPosition) -> list[str]:
        """Return the inputs that the query reads and that have new versions."""
        changed = []
        for name in self.to.inputs:
            is_newer = self.to.inputs[name].version > last.inputs[name].version
            is_read = name in self.analysis.lineage.tables
            if is_newer and is_read:
                changed.append(name)
        return changed

    def _difference(self, extent: Extent) -> DataFrame:
        """Return what is new, another or gone, as `StageDifference` takes it."""
        if extent.is_whole:
            new = self._evaluated({name: self._at(name) for name in self.view.inputs})
            old = _read(self.session, self._own)
        else:
            touched = self.touched(extent)
            new = self.computed(extent, touched)
            old = self._cut_table(
                self._own,
                cuts=(extent.columns,),
                touched=touched,
            )
        own = columns(self.view.table.columns.names)
        return difference(
            new.select(*own),
            old.select(*own),
            self.view.key,
            is_unique=self._is_unique,
        )

    def computed(self, extent: Extent, touched: Touched) -> DataFrame:
        """Return the query's rows that have touched values, of inputs that are cut down to what these need."""
        tables = {name: self._cut(name, extent, touched) for name in self.view.inputs}
        return with_values(self._evaluated(tables), extent.columns, touched.frame)

    def _evaluated(self, tables: Mapping[str, DataFrame]) -> DataFrame:
        """Return what the query gives over some rows of its inputs."""
        return evaluate(self.session, self.view.query, tables)

    @property
    def _is_unique(self) -> bool:
        """Whether the query cannot give two rows for a key."""
        return any(set(known) <= set(self.view.key) for known in self.analysis.lineage.keys)

    def touched(self, extent: Extent) -> Touched:
        """Return the values that changed rows of the inputs have, before and now, in the columns of the extent."""
        rows = self._touched_here(extent)
        if rows is not None:
            frame = self.session.createDataFrame(rows)
            return Touched(frame.coalesce(1), rows)
        each_once = self._touched_there(extent).distinct()
        location = join(self.folder, "touched")  # a file, whose size Spark then knows
        each_once.write.mode("overwrite").parquet(location)
        return Touched(self.session.read.parquet(location))

    def _touched_there(self, extent: Extent) -> DataFrame:
        """Return the values that changed rows have, found by Spark."""
        parts = []
        for name in extent.changed:
            feed = self._feed(name)
            for cut in self._cuts(name, extent):
                values = []
                for own, shown in zip(cut, extent.columns, strict=True):
                    value = column(own).alias(shown)
                    values.append(value)
                parts.append(feed.select(*values))
        return reduce(DataFrame.unionByName, parts)

    def _touched_here(self, extent: Extent) -> pa.Table | None:
        """Return the values that changed rows have; None if they are many, or not to be compared here."""
        values = self._schema_of(extent.columns)
        if not all(is_exact(type_) for type_ in values.types):
            return None
        found = []
        for name in extent.changed:
            own = self._pinned(name).changed_values(
                self._version_before(name),
                self._cuts(name, extent),
                values,
            )
            if own is None:
                return None
            found.append(own)
        each_once = distinct(pa.concat_tables(found))
        return each_once if len(each_once) <= MOST_ROWS else None

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        """Return columns of the view, all nullable."""
        fields = []
        for name in names:
            field = self.view.table.columns.field(name)
            fields.append(field.with_nullable(True))
        return pa.schema(fields)

    def _feed(self, name: str) -> DataFrame:
        """Return the rows that came, went or changed in an input since the last step, before and after."""
        feed: dict[str, str | int] = {
            "readChangeFeed": "true",
            "startingVersion": self._version_before(name) + 1,
            "endingVersion": self.to.inputs[name].version,
        }
        location = self.tables.location(name)
        return self.session.read.format("delta").options(**feed).load(location)

    def _version_before(self, name: str) -> int:
        if self.last is None:
            return -1
        return self.last.inputs[name].version

    def _cut(
        self,
        name: str,
        extent: Extent,
        touched: Touched,
    ) -> DataFrame:
        """Return an input's rows as of the step; those that matter alone, where it is known which these are."""
        cuts = self._cuts(name, extent)
        if not cuts:
            return self._at(name)
        return self._cut_table(self._pinned(name), cuts, touched)

    def _cuts(self, name: str, extent: Extent) -> Cut:
        """Return the columns of an input by which it is cut; none: it is not cut."""
        return self.analysis.lineage.cut(name, extent.columns) or ()

    def _cut_table(
        self,
        table: PinnedTable,
        cuts: Cut,
        touched: Touched,
    ) -> DataFrame:
        """Return the rows of a table that have touched values."""
        if touched.rows is not None:
            rows = table.cut(cuts, touched.rows)
            if rows is not None:
                frame = self.session.createDataFrame(rows, table.schema)
                return frame.coalesce(1)  # so that joins of little with little need no shuffle
        left = _read(self.session, table)
        parts = []
        for cut in cuts:  # what an earlier part has is left out of the later ones
            fitting = with_values(left, cut, touched.frame)
            parts.append(fitting)
            left = with_values(left, cut, touched.frame, how="left_anti")
        return reduce(DataFrame.unionAll, parts)

    def _at(self, name: str) -> DataFrame:
        return _read(self.session, self._pinned(name))

    def _pinned(self, name: str) -> PinnedTable:
        return self._inputs[name]

    @cached_property
    def _inputs(self) -> dict[str, PinnedTable]:
        pinned = {}
        for name, table in self.to.inputs.items():
            location = self.tables.location(name)
            pinned[name] = PinnedTable(location, table.version)
        return pinned

    @cached_property
    def _own(self) -> PinnedTable:
        """The view's rows as they are now."""
        newest = log.versions(self.sink)[-1]
        return PinnedTable(self.sink, newest)


def _read(session: SparkSession, table: PinnedTable) -> DataFrame:
    reader = session.read.format("delta").option("versionAsOf", table.version)
    rows = reader.load(table.location)
    return rows.select(*columns(table.schema.names))


def difference(
    new: DataFrame,
    old: DataFrame,
    key: Sequence[str],
    *,
    is_unique: bool,
) -> DataFrame:
    """Return what becomes of rows, as `StageDifference` takes it.

    Args:
        new: The rows that there are to be.
        old: Those that there are; each key once, none of them null.
        key: Names of the key's columns.
        is_unique: `new` has each key once.
    """
    names = new.columns
    own_key = columns(key)
    whole_row = F.struct(*columns(names))
    counted = new.select(
        _copies(key, is_unique=is_unique),
        whole_row.alias("new"),
        *own_key,
    )
    known = old.select(whole_row.alias("old"), *own_key)
    both = counted.alias("n").join(
        known.alias("o"),
        on=_is_same_key(key),
        how="full_outer",
    )
    new_row = F.col("new")
    old_row = F.col("old")
    n_copies = F.col(COPIES)
    is_other = ~new_row.eqNullSafe(old_row)
    changed = both.where(is_other | (n_copies > 1))
    kind = F.when(new_row.isNull(), "-D").otherwise("+U")
    shown = F.coalesce(new_row, old_row)
    fields = [shown.getField(name).alias(name) for name in names]
    at_least_one = F.coalesce(n_copies, F.lit(1))
    return changed.select(
        kind.alias(KIND),
        at_least_one.alias(COPIES),
        *fields,
    )


def _copies(key: Sequence[str], *, is_unique: bool) -> Column:
    """Count the rows that have the same key."""
    one = F.lit(1)
    if is_unique:
        return one.cast("bigint").alias(COPIES)
    rows_of_key = Window.partitionBy(*columns(key))
    n_rows = F.count(one).over(rows_of_key)
    return n_rows.alias(COPIES)


def _is_same_key(key: Sequence[str]) -> Column:
    """Return whether a new row has the key of an old one; of a row without a key that is never so."""
    are_same = []
    for name in key:
        new_value = column(name, "n")
        old_value = column(name, "o")
        are_same.append(new_value == old_value)
    return reduce(Column.__and__, are_same)


def with_values(
    rows: DataFrame,
    own: Sequence[str],
    values: DataFrame,
    *,
    how: str = "left_semi",
) -> DataFrame:
    """Return the rows that have one of some values; null is a value too.

    Args:
        rows: Any.
        own: Columns of them, in the order of the values'.
        values: The values.
        how: `left_semi`; `left_anti`: the rows that have none.
    """
    left = rows.alias("r")
    right = values.alias("v")
    are_same = []
    for mine, name in zip(own, values.columns, strict=True):
        value = column(name, "v")
        is_same = column(mine, "r").eqNullSafe(value)
        are_same.append(is_same)
    has_all = reduce(Column.__and__, are_same)
    return left.join(right, has_all, how)
