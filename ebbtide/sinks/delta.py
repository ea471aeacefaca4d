"""The Delta sink: the user's columns, and two reserved ones.

| column | meaning |
|---|---|
| `_sequence` | sequence mode: the columns of the row's sequence and the rank of the operation (`op`), see `ebbtide.model.sequences`; never null |
| `_changed_by` | struct(step, part, position): the order of the input that caused the row's last change |

The change feed is on from the first commit. Every commit carries the step's identity, so that a replay is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from delta import DeltaTable
from delta.tables import DeltaTableBuilder
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.transaction import transaction, write
from ebbtide.model.changelog import ORDER
from ebbtide.model.entries import DELETE
from ebbtide.model.sequences import stored_sequence_type
from ebbtide.state_table.columns import column, columns, quoted, spark_schema

RESERVED = ("_sequence", "_changed_by")
"""Sink columns that views and comparisons leave out."""


@dataclass(frozen=True)
class SinkTable:
    """One pipeline's sink.

    Args:
        path: Its location.
        columns: The user's columns.
        key: Names of the key's columns.
        sequence: What orders changes: rows carry `_sequence`, and no change may overwrite a newer row. Empty in arrival mode.
        properties: Delta table properties, set when the table is made.
    """

    path: str
    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """The user's columns and the reserved ones."""
        type_ = stored_sequence_type(self.columns, self.sequence)
        sequence = [pa.field("_sequence", type_)] if self.sequence else []
        return pa.schema([*self.columns, *sequence, pa.field("_changed_by", ORDER)])

    def create(self, spark: SparkSession) -> None:
        """Create the table if it is not there."""
        if not log.versions(self.path):
            self._define(DeltaTable.createIfNotExists(spark))

    def _define(self, builder: DeltaTableBuilder) -> None:
        nullable = pa.schema([f.with_nullable(True) if f.name not in self.key else f for f in self.schema])
        builder = builder.location(self.path).addColumns(spark_schema(nullable))
        for name, value in {
            "delta.enableDeletionVectors": "false",
            **self.properties,
            "delta.enableChangeDataFeed": "true",
        }.items():
            builder = builder.property(name, value)
        builder.execute()

    def last_step(self) -> int:
        """Return the last step that changed the sink, 0 before the first."""
        return log.last_step(self.path)

    def version(self) -> int:
        """Return the newest version."""
        return log.versions(self.path)[-1]

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows as of a version."""
        return spark.read.format("delta").option("versionAsOf", version).load(self.path)

    def apply(
        self,
        spark: SparkSession,
        changes: DataFrame,
        facts: StepFacts,
        *,
        only_inserts: bool,
        bounds: tuple[str, object, object] | None,
    ) -> None:
        """Apply a step's change set; see `Sink`.

        Args:
            spark: The session to write in.
            changes: Entries with a `_change`, one per key.
            facts: The step's.
            only_inserts: No key is in the sink yet: append instead of merge.
            bounds: A column of the key, its least and its greatest value among the changes, to prune the target by; None: do not.
        """
        names = self.schema.names
        if only_inserts:
            write(changes.select(*columns(names)), self.path, facts, "sink")
            return
        same_key = [column(k, "t") == column(k, "s") for k in self.key]
        if bounds is not None and not facts.floor_raised:
            first = column(bounds[0], "t")
            same_key += [first >= F.lit(bounds[1]), first <= F.lit(bounds[2])]
        condition = same_key[0]
        for part in same_key[1:]:
            condition &= part
        gone = F.col("s._change") == DELETE
        not_older = F.col("s._sequence") >= F.col("t._sequence") if self.sequence else F.lit(True)
        values: dict[str, str | Column] = {quoted(name): column(name, "s") for name in names}
        merge = (
            DeltaTable.forPath(spark, self.path)
            .alias("t")
            .merge(changes.select("_change", *columns(names)).alias("s"), condition)
        )
        merge = (
            merge.whenMatchedDelete(gone & not_older)
            .whenMatchedUpdate(~gone & not_older, values)
            .whenNotMatchedInsert(~gone, values)
        )
        if facts.floor_raised and facts.floor:
            merge = merge.whenNotMatchedBySourceDelete(self.below(facts.floor, "t."))
        with transaction(spark, facts, "sink"):
            merge.execute()

    def empty(self, spark: SparkSession, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns and properties; its history stays."""
        with transaction(spark, facts, "sink"):
            self._define(DeltaTable.replace(spark))

    def below(self, floor: list[int], side: str = "") -> Column:
        """Tell of a row whether a TRUNCATE left it dead."""
        names = self.sequence or [f.name for f in ORDER]
        place = f"{side}_sequence" if self.sequence else f"{side}_changed_by"
        at = F.struct(*[F.col(f"{place}.{name}").alias(name) for name in names])
        limit = F.struct(*[F.lit(v).cast("bigint").alias(name) for name, v in zip(names, floor, strict=True)])
        return at < limit
