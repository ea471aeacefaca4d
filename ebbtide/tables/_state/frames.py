"""Reads a state table in Spark: its entries, the rows that the sink must show, the decisions of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ebbtide.delta import Log
from ebbtide.frames import column, columns, read_delta, spark_schema
from ebbtide.operators import Operator
from ebbtide.tables._state.layout import EntryKind, columns_of_state

BESIDE_OUT = ("_step", "_change", "_changed_by", "_sequence")
"""Columns of an entry in addition to the fields of its `_out`, if it has them."""


@dataclass(frozen=True)
class StateFrames:
    """Reads the state table of one pipeline in Spark.

    Args:
        path: Its location.
        operator: The reconciler whose entries it holds.
    """

    path: str
    operator: Operator

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows of entries as of a version."""
        rows = read_delta(spark, self.path, version)
        is_of_kind = F.col("_entry") == EntryKind.ROW.value
        return rows.where(is_of_kind)

    def latest_versions(self, spark: SparkSession, version: int, since: int = 0) -> DataFrame:
        """Read the newest version of each entry written after step `since`, dropped ones included (`_removed`)."""
        entries = self.read(spark, version)
        if since:
            is_later = F.col("_step") > since
            entries = entries.where(is_later)
        if self.operator.has_named_states:
            is_of_state = F.col("_state").isNotNull()  # rows without a state are for the sink
            entries = entries.where(is_of_state)
        return self._newest(entries)

    def _newest(self, entries: DataFrame) -> DataFrame:
        """Return the newest version of each entry; of rows for the sink, all that the last step of their key wrote."""
        return _latest(entries, self.operator.entry_key)

    def live_entries(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the newest version of each entry that is not dropped."""
        entries = self.latest_versions(spark, version)
        is_live = ~F.col("_removed")
        return entries.where(is_live)

    def change_set(self, spark: SparkSession, version: int) -> DataFrame:
        """Return the change set of the step that made a version, at most one row per key."""
        # From that commit's files alone, and without a literal that changes with the step: Spark would compile the query
        # again for each.
        rows = self._added(spark, version)
        return self._for_sink(rows)

    def _added(self, spark: SparkSession, version: int) -> DataFrame:
        files = Log(self.path).added(version)
        schema = spark_schema(columns_of_state(self.operator))
        return spark.read.schema(schema).parquet(*files)

    def _for_sink(self, rows: DataFrame) -> DataFrame:
        is_change = F.col("_change").isNotNull()
        changes = rows.where(is_change)
        if "_out" in self.operator.schema.names:
            return self._selected(changes)
        return changes

    def _selected(self, rows: DataFrame) -> DataFrame:
        """Return rows under the sink's columns, the fields of `_out`; key columns that the entry has are taken from it."""
        key = dict(self._output_key)
        out = []
        for name in self.operator.schema.field("_out").type.names:
            value = column(name, "_out")
            if name in key:
                value = column(key[name])
            out.append(value.alias(name))
        beside = [name for name in BESIDE_OUT if name in self.operator.schema.names]
        return rows.select(*beside, *out)

    @property
    def _output_key(self) -> tuple[tuple[str, str], ...]:
        """The key of the rows that a transform selects from the entries; empty without a transform."""
        key: tuple[tuple[str, str], ...] = getattr(self.operator, "output_key", ())
        return key


def _latest(entries: DataFrame, names: Sequence[str]) -> DataFrame:
    """Return the entries of the greatest step among those that are equal in some columns."""
    # `rank`, not `row_number`: one step may have written several rows for a key, and all of them count.
    of_names = columns(names)
    alike = Window.partitionBy(*of_names)
    newest_first = alike.orderBy(F.desc("_step"))
    rank = F.rank().over(newest_first)
    ranked = entries.withColumn("_rank", rank)
    latest = ranked.where("_rank = 1")
    return latest.drop("_rank")
