"""A step of a view: what of it may have changed is computed again, and the difference staged as changes.

1. The inputs' change files, from the versions of the last step to those of this one, give the values of those columns of the
   view that are bound in every changed input (`ebbtide.views.lineage`). Rows with other values stay as they are.
2. The query is evaluated over the pinned versions, each input cut down to the rows with such values where it is bound.
3. Its rows with such values, against those that the view has: what is new or another is an upsert, a key that is gone a delete.

The query is Spark's in any case. Small tables are cut here (`ebbtide.views.cutting`), large ones by Spark's semi joins; no row but
what a task stages leaves the JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.model.step import ViewPosition
from ebbtide.tables.spark_columns import arrow_frame, columns, quoted
from ebbtide.tables.state.staging import Stager
from ebbtide.views import cutting
from ebbtide.views.cutting import PinnedTable
from ebbtide.views.inputs import ViewTables, why_whole
from ebbtide.views.lineage import Cut, Lineage
from ebbtide.views.query import (
    analyse,
    errors_as_ours,
    evaluate,
    new_session,
    refuse_other_columns,
)
from ebbtide.views.staging import StageDifference, as_changes, difference


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


@dataclass(frozen=True)
class Recomputing:
    """Computes one step.

    Args:
        spark: The session of the run.
        tables: The view's inputs.
        sink: Where the view's rows are.
        last: What the view was computed from; None before the first step.
        to: What it is to be computed from.
    """

    spark: SparkSession
    tables: ViewTables
    sink: str
    last: ViewPosition | None
    to: ViewPosition

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
        view = self.tables.view
        refuse_other_columns(view, self.lineage.columns)
        if not (self.extent.reason or self.extent.changed):
            return []
        work = StageDifference(view.name, stager, wall_ms, view.personal)
        with errors_as_ours(has_personal=bool(view.personal)):
            changes = as_changes(self._difference(), view.key, view.name, step, wall_ms)
            done = changes.mapInArrow(work, "result STRING").collect()
        return [row["result"] for row in done]

    @cached_property
    def session(self) -> SparkSession:
        """The session of the query."""
        return new_session(self.spark)

    @cached_property
    def lineage(self) -> Lineage:
        """What the query is."""
        schemas = {name: table.schema for name, table in self.inputs.items()}
        return analyse(self.session, self.tables.view.query, schemas)

    @cached_property
    def inputs(self) -> dict[str, PinnedTable]:
        """The inputs as of the step."""
        pinned = {}
        for name, table in self.to.inputs.items():
            pinned[name] = PinnedTable(self.tables.location(name), table.version)
        return pinned

    @cached_property
    def own(self) -> PinnedTable:
        """The view's rows as they are now."""
        return PinnedTable(self.sink, log.versions(self.sink)[-1])

    @cached_property
    def extent(self) -> Extent:
        """How much is computed."""
        reason = why_whole(self.last, self.to, self.tables)
        if reason:
            return Extent(reason)
        changed = [name for name, files in self.feeds.items() if files]
        columns = self.lineage.common_columns(changed)
        names = ", ".join(changed)
        if changed and not columns:
            return Extent(f"no column shows which rows a change of {names} touches")
        sizes = [file.get("size") or 0 for name in changed for file in self.feeds[name]]
        if sum(sizes) > cutting.FEED_BYTES:
            return Extent(f"the changes of {names} have {sum(sizes)} bytes")
        return Extent("", tuple(columns), tuple(changed))

    @cached_property
    def feeds(self) -> dict[str, list[log.Action]]:
        """The files that show what changed since the last step, of each input that is read."""
        feeds = {}
        for name in sorted(self.lineage.tables):
            table = self.inputs[name]
            before = self.last.inputs[name].version if self.last else -1
            feeds[name] = table.feed(range(before + 1, table.version + 1))
        return feeds

    def _difference(self) -> DataFrame:
        """Return what is new, another or gone; see `difference`."""
        if self.extent.reason:
            tables = {name: self._read(table) for name, table in self.inputs.items()}
            new = evaluate(self.session, self.tables.view.query, tables)
            old = self._read(self.own)
        else:
            touched = self.touched()
            new = self.computed(touched)
            near = self.cut(self.own, (self.extent.columns,), touched)
            old = with_values(near, self.extent.columns, self._frame(touched))
        shown = columns(self.tables.view.table.columns.names)
        return difference(
            new.select(*shown),
            old.select(*shown),
            self.tables.view.key,
            is_unique=self.is_unique,
        )

    @property
    def is_unique(self) -> bool:
        """Whether the query cannot give two rows for a key."""
        own = set(self.tables.view.key)
        return any(own.issuperset(key) for key in self.lineage.keys)

    def touched(self) -> pa.Table:
        """Return the values that changed rows of the inputs have, before and now, in the columns of the extent."""
        fields = [self.tables.view.table.columns.field(name).with_nullable(True) for name in self.extent.columns]
        values = pa.schema(fields)
        found = [values.empty_table()]
        for name in self.extent.changed:
            table = self.inputs[name]
            found += [table.values(self.feeds[name], cut, values) for cut in self._cuts(name)]
        return cutting.distinct(pa.concat_tables(found))

    def computed(self, touched: pa.Table) -> DataFrame:
        """Return the query's rows that have touched values, of inputs that are cut down to what these need."""
        tables = {}
        for name, table in self.inputs.items():
            cuts = self._cuts(name)
            tables[name] = self.cut(table, cuts, touched) if cuts else self._read(table)
        rows = evaluate(self.session, self.tables.view.query, tables)
        return with_values(rows, self.extent.columns, self._frame(touched))

    def _cuts(self, name: str) -> Cut:
        """Return the columns of an input by which it is cut; none: it is not cut."""
        return self.lineage.cut(name, self.extent.columns) or ()

    def cut(self, table: PinnedTable, cuts: Cut, touched: pa.Table) -> DataFrame:
        """Return the rows of a table that have touched values, and perhaps others."""
        rows = table.cut(cuts, touched)
        if rows is not None:
            frame = arrow_frame(self.session, rows, table.schema)
            return frame.coalesce(1)  # so that joins of little with little need no shuffle
        whole = self._read(table)
        return with_values(whole, cuts[0], self._frame(touched)) if len(cuts) == 1 else whole

    def _frame(self, values: pa.Table) -> DataFrame:
        frame = arrow_frame(self.session, values)
        if not cutting.are_exact(values.schema):
            frame = frame.distinct()  # `cutting.distinct` leaves that to Spark
        return frame.coalesce(1) if len(values) <= cutting.MOST_ROWS else frame

    def _read(self, table: PinnedTable) -> DataFrame:
        rows = self.session.read.format("delta").option("versionAsOf", table.version).load(table.location)
        return rows.select(*columns(table.schema.names))


def with_values(rows: DataFrame, own: Sequence[str], values: DataFrame) -> DataFrame:
    """Return the rows that have one of some values, in columns of their own in the same order; null is a value too."""
    are_same = []
    for mine, name in zip(own, values.columns, strict=True):
        value = quoted(name, "v")
        are_same.append(f"{quoted(mine, 'r')} <=> {value}")
    condition = F.expr(" AND ".join(are_same))
    return rows.alias("r").join(values.alias("v"), condition, "left_semi")
