"""The changelog table: what each record emitted, appended step by step.

| column | meaning |
|---|---|
| `_kind` | `+I`, `+U`, `-D`; `T`: the whole table was emptied (TRUNCATE), the row is null |
| the user's columns | the row |
| `_order` | struct(step, part, position): the order of the change that caused it; part -1: the row had expired |
| `_number` | distinguishes emissions of one `_order`: an update may be one record with two changes |

Per key, in the order of (`_order`, `_number`), +I comes only where the key is absent, +U and -D only where it is present, unless expired rows stay
in the sink (`on_expire: keep`). Every commit carries the step's identity, so that a replay is skipped.

Source: FLIP-544; Flink's `SinkUpsertMaterializer` emits so.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from delta import DeltaTable
from delta.tables import DeltaTableBuilder
from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.transaction import transaction, write
from ebbtide.model.changelog import ORDER, TRUNCATE
from ebbtide.state_table.columns import columns, spark_schema


@dataclass(frozen=True)
class ChangelogTable:
    """One pipeline's changelog table.

    Args:
        path: Its location.
        columns: The user's columns.
    """

    path: str
    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        row = [column.with_nullable(True) for column in self.columns]
        fields = [
            pa.field("_kind", pa.string()),
            *row,
            pa.field("_order", ORDER),
            pa.field("_number", pa.int64()),
        ]
        return pa.schema(fields)

    def create(self, spark: SparkSession) -> None:
        """Create the table if it is not there."""
        if not log.versions(self.path):
            self._define(DeltaTable.createIfNotExists(spark))

    def _define(self, builder: DeltaTableBuilder) -> None:
        builder = builder.location(self.path)
        builder = builder.addColumns(spark_schema(self.schema))
        builder.execute()

    def last_step(self) -> int:
        """Return the last step that appended, 0 before the first."""
        return log.last_step(self.path)

    def append(self, spark: SparkSession, emitted: DataFrame, facts: StepFacts) -> None:
        """Append what a step emitted, and its TRUNCATE; a step that was appended is skipped.

        Args:
            spark: The session to write in.
            emitted: Rows of this table.
            facts: The step's.
        """
        if self.last_step() >= facts.step:
            return
        rows = emitted.select(*columns(self.schema.names))
        if facts.floor_raised and facts.floor:
            truncate = self._truncate(facts.floor)
            rows = rows.unionByName(spark.createDataFrame(truncate))
        write(rows, self.path, facts, "changelog")

    def _truncate(self, floor: list[int]) -> pa.Table:
        """Make the row of a TRUNCATE; its order is the floor that it raised."""
        row = {
            "_kind": TRUNCATE,
            "_order": dict(zip(ORDER.names, floor, strict=True)),
        }
        return pa.Table.from_pylist([row], self.schema)

    def empty(self, spark: SparkSession, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns; its history stays. A step that was applied is skipped."""
        if self.last_step() >= facts.step:
            return
        builder = DeltaTable.replace(spark)
        with transaction(spark, facts, "changelog"):
            self._define(builder)
