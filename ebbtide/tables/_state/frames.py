"""Reads the change set of a step in Spark."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.columns import quoted
from ebbtide.delta import Log
from ebbtide.operators import Operator
from ebbtide.sessions import spark_schema
from ebbtide.tables._state.layout import columns_of_state

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
            value = F.col(quoted(name, "_out"))
            if name in key:
                value = F.col(quoted(key[name]))
            out.append(value.alias(name))
        beside = [name for name in BESIDE_OUT if name in self.operator.schema.names]
        return rows.select(*beside, *out)

    @property
    def _output_key(self) -> tuple[tuple[str, str], ...]:
        """The key of the rows that a transform selects from the entries; empty without a transform."""
        key: tuple[tuple[str, str], ...] = getattr(self.operator, "output_key", ())
        return key
