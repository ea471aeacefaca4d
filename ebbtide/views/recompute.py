"""A step of a view: the rows that may have changed are computed again, and the difference is staged as changes.

1. The change files of the inputs, from the versions of the last step to those of this one, have the touched values of the columns
   that are bound in every changed input (`ebbtide.views.lineage`). Rows with other values cannot change.
2. The query is evaluated over the pinned versions; bound inputs are reduced to the rows with touched values.
3. The result is compared with the rows of the view that have touched values: a new or different row is an upsert, a missing key a
   delete.

Spark always evaluates the query. Small tables are reduced here (`ebbtide.views.cutting`), large ones by semi joins of Spark; only the
rows that a task stages leave the JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.columns import quoted
from ebbtide.delta import Action, Log
from ebbtide.model import ViewPosition
from ebbtide.runtime import Stager
from ebbtide.sessions import Frames
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
    """Extent of the computation in a step.

    Args:
        reason: Reason to compute the whole view; empty if only touched rows are computed.
        columns: Columns of the view whose values determine the touched rows.
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
        tables: Inputs of the view.
        sink: Location of the view's rows.
        last: Position of the last step; None before the first.
        to: Position of this step.
    """

    spark: SparkSession
    tables: ViewTables
    sink: str
    last: ViewPosition | None
    to: ViewPosition

    def stage(self, stager: Stager, step: int, wall_ms: int) -> list[str]:
        """Compute the changes and stage them; return the results of the tasks, see `StageDifference`.

        Args:
            stager: Writes changes into the folder of the step.
            step: Number of the step.
            wall_ms: Wall time of the step, epoch ms.

        Raises:
            ViewQueryError: the query is not usable, or fails on a row.
            ViewKeyError: the query has several rows for one key.
        """
        view = self.tables.view
        refuse_other_columns(view, self.lineage.columns)
        if not (self.extent.reason or self.extent.changed):
            return []
        work = StageDifference(view.name, stager, wall_ms, view.personal)
        has_personal = bool(view.personal)
        with errors_as_ours(has_personal=has_personal):
            rows = self._difference()
            changes = as_changes(rows, view.key, view.name, step, wall_ms)
            results = changes.mapInArrow(work, "result STRING")
            done = results.collect()
        return [row["result"] for row in done]

    @cached_property
    def session(self) -> SparkSession:
        """Session of the query."""
        return new_session(self.spark)

    @cached_property
    def lineage(self) -> Lineage:
        """Lineage of the query."""
        schemas = {name: table.schema for name, table in self.inputs.items()}
        return analyse(self.session, self.tables.view.query, schemas)

    @cached_property
    def inputs(self) -> dict[str, PinnedTable]:
        """Inputs as of the step."""
        pinned = {}
        for name, table in self.to.inputs.items():
            pinned[name] = PinnedTable(self.tables.location(name), table.version)
        return pinned

    @cached_property
    def own(self) -> PinnedTable:
        """Rows of the view before the step."""
        newest = Log(self.sink).versions()[-1]
        return PinnedTable(self.sink, newest)

    @cached_property
    def extent(self) -> Extent:
        """Extent of the computation."""
        # Checks in the order of their cost: the logs of the inputs, the optimizer, the sizes of change files.
        reason = why_whole(self.last, self.to, self.tables)
        if reason:
            return Extent(reason)
        changed = [name for name, files in self.feeds.items() if files]
        columns = self.lineage.common_columns(changed)
        names = ", ".join(changed)
        if changed and not columns:
            return Extent(f"no column shows which rows a change of {names} touches")
        files = chain.from_iterable(self.feeds[name] for name in changed)
        n_bytes = sum(file.get("size") or 0 for file in files)
        if n_bytes > cutting.FEED_BYTES:
            return Extent(f"the changes of {names} have {n_bytes} bytes")
        return Extent("", tuple(columns), tuple(changed))

    @cached_property
    def feeds(self) -> dict[str, list[Action]]:
        """Files with the changes since the last step, for each input that is read."""
        feeds = {}
        for name in sorted(self.lineage.tables):
            table = self.inputs[name]
            before = self.last.inputs[name].version if self.last else -1
            versions = range(before + 1, table.version + 1)
            feeds[name] = table.feed(versions)
        return feeds

    def _difference(self) -> DataFrame:
        """Return the new, different and missing rows; see `difference`."""
        if self.extent.reason:
            tables = {name: self._read(table) for name, table in self.inputs.items()}
            new = evaluate(self.session, self.tables.view.query, tables)
            old = self._read(self.own)
        else:
            touched = self.touched()
            new = self.computed(touched)
            near = self.cut(self.own, (self.extent.columns,), touched)
            old = with_values(near, self.extent.columns, self._frame(touched))
        shown = [quoted(name) for name in self.tables.view.table.columns.names]
        return difference(
            new.select(*shown),
            old.select(*shown),
            self.tables.view.key,
            is_unique=self.is_unique,
        )

    @property
    def is_unique(self) -> bool:
        """True if the query has at most one row for each key."""
        own = set(self.tables.view.key)
        return any(own.issuperset(key) for key in self.lineage.keys)

    def touched(self) -> pa.Table:
        """Return the values of changed rows of the inputs, before and after, in the columns of the extent."""
        # A feed has rows before and after each change, so both the old and the new values of a row are touched. Of an input with several
        # readings each gives values, by its own columns.
        columns_of_view = self.tables.view.table.columns
        fields = [columns_of_view.field(name).with_nullable(True) for name in self.extent.columns]
        values = pa.schema(fields)
        found = [values.empty_table()]
        for name in self.extent.changed:
            table = self.inputs[name]
            feed = self.feeds[name]
            found += [table.values(feed, cut, values) for cut in self._cuts(name)]
        return cutting.distinct(pa.concat_tables(found))

    def computed(self, touched: pa.Table) -> DataFrame:
        """Return the rows of the query with touched values, from reduced inputs."""
        tables = {}
        for name, table in self.inputs.items():
            cuts = self._cuts(name)
            tables[name] = self.cut(table, cuts, touched) if cuts else self._read(table)
        rows = evaluate(self.session, self.tables.view.query, tables)
        values = self._frame(touched)
        return with_values(rows, self.extent.columns, values)

    def _cuts(self, name: str) -> Cut:
        """Return the columns that reduce an input; empty: it is read whole."""
        return self.lineage.cut(name, self.extent.columns) or ()

    def cut(self, table: PinnedTable, cuts: Cut, touched: pa.Table) -> DataFrame:
        """Return a superset of the rows of a table with touched values."""
        rows = table.cut(cuts, touched)
        if rows is not None:
            frame = Frames(self.session).of_arrow(rows, table.schema)
            return frame.coalesce(1)  # so that joins of few rows need no shuffle
        whole = self._read(table)
        if len(cuts) != 1:
            return whole
        [cut] = cuts
        return with_values(whole, cut, self._frame(touched))

    def _frame(self, values: pa.Table) -> DataFrame:
        frame = Frames(self.session).of_arrow(values)
        if not cutting.are_exact(values.schema):
            frame = frame.distinct()  # `cutting.distinct` leaves this to Spark
        is_small = len(values) <= cutting.MOST_ROWS
        return frame.coalesce(1) if is_small else frame

    def _read(self, table: PinnedTable) -> DataFrame:
        rows = Frames(self.session).of_delta(table.location, table.version)
        return rows.select(*map(quoted, table.schema.names))


def with_values(rows: DataFrame, own: Sequence[str], values: DataFrame) -> DataFrame:
    """Return the rows with one of some tuples of values; null is a value too.

    Args:
        own: Columns of the rows, in the order of the values' columns.
        values: Tuples of values.
    """
    equalities = []
    for name_of_row, name_of_value in zip(own, values.columns, strict=True):
        of_row = quoted(name_of_row, "r")
        of_value = quoted(name_of_value, "v")
        equalities.append(f"{of_row} <=> {of_value}")
    condition = F.expr(" AND ".join(equalities))
    return rows.alias("r").join(values.alias("v"), condition, "left_semi")
