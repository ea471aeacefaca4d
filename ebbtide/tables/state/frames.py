"""What Spark reads of a state table: its entries, what of them the sink must show, what steps decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.model.entries import DELETE, INSERT
from ebbtide.operators.operator import Operator
from ebbtide.operators.selection import KeyNames
from ebbtide.tables.state.columns import column, columns, read_delta, spark_schema
from ebbtide.tables.state.layout import ACKNOWLEDGED, ROW


@dataclass(frozen=True)
class StateFrames:
    """Reads the state table of one pipeline in Spark.

    Args:
        path: Its location.
        operator: The reconciler whose entries it holds.
    """

    path: str
    operator: Operator

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        fields = [
            pa.field("_entry", pa.string()),
            pa.field("_note", pa.string()),
            *self.operator.schema,
        ]
        return pa.schema(fields)

    def read(self, spark: SparkSession, version: int, entry: str = ROW) -> DataFrame:
        """Read one kind of rows as of a version."""
        rows = read_delta(spark, self.path, version)
        is_of_kind = F.col("_entry") == entry
        return rows.where(is_of_kind)

    def current(self, spark: SparkSession, version: int, since: int = 0) -> DataFrame:
        """Read the newest version of each entry written after step `since`, dropped ones included (`_removed`)."""
        entries = self.read(spark, version)
        if since:
            is_later = F.col("_step") > since
            entries = entries.where(is_later)
        if self.operator.has_named_states:
            is_of_state = F.col("_state").isNotNull()  # the rest are rows for the sink
            entries = entries.where(is_of_state)
        return self._newest(entries)

    def _newest(self, entries: DataFrame) -> DataFrame:
        """Pick the newest version of each entry; of rows for the sink all that a key's last step wrote."""
        return _latest(entries, self.operator.entry_key)

    def shown(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the entries whose rows the sink must have, as of a version; not of an operator with named states, which keeps none."""
        entries = self.kept(spark, version)
        names = self.operator.schema.names
        condition = "_shown" if "_shown" in names else "NOT _tombstone"
        shown = entries.where(condition)
        return self._selected(shown) if "_out" in names else shown

    def acknowledged(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the keys of which the sink may differ until they change again: key columns and `_step`, as of a version."""
        rows = self.read(spark, version, ACKNOWLEDGED)
        by_key = rows.groupBy(*columns(self.operator.key))
        last_step = F.max("_step")
        return by_key.agg(last_step.alias("_step"))

    def kept(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the newest version of each entry that is not dropped."""
        entries = self.current(spark, version)
        is_live = ~F.col("_removed")
        return entries.where(is_live)

    def change_set(self, spark: SparkSession, version: int) -> DataFrame:
        """Return the entries that the step committed as `version` wants the sink to take, at most one per key.

        Read from that commit's files alone, and without a literal that changes from step to step: Spark compiles a
        query again for each.
        """
        rows = self._added(spark, version)
        return self._for_sink(rows)

    def decided_since(self, spark: SparkSession, version: int, step: int) -> DataFrame:
        """Read what steps after one wanted the sink to take, as far as a version still holds it."""
        entries = self.read(spark, version)
        is_later = F.col("_step") > step
        later = entries.where(is_later)
        if self._output_key:
            return self._selected(later)
        return self._for_sink(later)

    def decided(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the last decision on each key, as far as a version still holds it: what the sink must take, with its `_step`.

        It follows from the newest versions of entries, and from no older ones: a step may note something of an entry and decide nothing for the
        sink, and a fold leaves the note beside what stands in files that it did not read. What a dropped entry says holds until its
        key is written again: the decision that followed may have been on an entry that has a note by now.
        """
        versions = self.read(spark, version)
        entries = self._newest(versions)
        key = columns(self.operator.key)
        of_key = Window.partitionBy(*key)
        last_step = F.max("_step").over(of_key)
        is_of_last_step = F.col("_step") == F.col("_last_step")
        is_kept = ~F.col("_removed")
        decisions = (
            entries.withColumn("_last_step", last_step)
            .withColumn("_change", self._stated_change)
            .where(is_kept | is_of_last_step)
        )
        changes = _latest(
            decisions.where("_change IS NOT NULL"),
            self.operator.key,
        )
        return self._for_sink(changes)

    @property
    def _stated_change(self) -> Column:
        """What the newest version of an entry says that the sink must do for its key.

        By sequence a key has one entry, and what that shows counts where a later step has noted something of it.
        """
        if self._output_key:
            return F.when(F.col("_shown"), INSERT).otherwise(DELETE)
        change = F.col("_change")
        if "_tombstone" not in self.operator.schema.names:
            return change
        is_shown = ~F.col("_tombstone") & ~F.col("_removed")
        return F.coalesce(change, F.when(is_shown, INSERT))

    def _added(self, spark: SparkSession, version: int) -> DataFrame:
        files = log.added(self.path, version)
        schema = spark_schema(self.schema)
        return spark.read.schema(schema).parquet(*files)

    def _for_sink(self, rows: DataFrame) -> DataFrame:
        is_change = F.col("_change").isNotNull()
        changes = rows.where(is_change)
        return self._selected(changes) if "_out" in self.operator.schema.names else changes

    def _selected(self, rows: DataFrame) -> DataFrame:
        """Return rows under the sink's columns, which stand in `_out`; the key is the entry's where that is known."""
        key = dict(self._output_key)
        out = []
        for name in self.operator.schema.field("_out").type.names:
            value = column(key[name]) if name in key else column(name, "_out")
            out.append(value.alias(name))
        beside = [
            name for name in ("_step", "_change", "_changed_by", "_sequence") if name in self.operator.schema.names
        ]
        return rows.select(*beside, *out)

    @property
    def _output_key(self) -> KeyNames:
        """The key of what a transform selects from the entries; empty without one."""
        key: KeyNames = getattr(self.operator, "output_key", ())
        return key


def _latest(entries: DataFrame, names: Sequence[str]) -> DataFrame:
    """Pick the entries of the greatest step among those that are alike in some columns."""
    alike = Window.partitionBy(*columns(names))
    newest_first = alike.orderBy(F.desc("_step"))
    ranked = entries.withColumn("_rank", F.rank().over(newest_first))
    latest = ranked.where("_rank = 1")
    return latest.drop("_rank")
