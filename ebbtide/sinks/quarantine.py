"""The quarantine: bad records, with the reason, their place and their bytes.

| column | meaning |
|---|---|
| `step` | the step that met the record |
| `reason`, `detail` | see docs/bad-records.md |
| `origin`, `order` | where it stands in its source; in what order it was read |
| `raw` | its bytes, of a record that is too long the first of them |
| `at` | the step's clock |
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.transaction import write
from ebbtide.model.changelog import ORDER, ORIGIN
from ebbtide.state_table.columns import spark_schema

COLUMNS = pa.schema(
    [
        ("step", pa.int64()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("origin", ORIGIN),
        ("order", ORDER),
        ("raw", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True)
class QuarantineTable:
    """One pipeline's quarantine; made with its first bad record.

    Args:
        path: Its location.
        knows_offsets: Records are known by their offsets: one that is delivered again is taken once.
    """

    path: str
    knows_offsets: bool

    def new(self, staged: DataFrame) -> DataFrame:
        """Pick the bad records among staged rows that are not in the table yet."""
        is_bad = F.col("_reason").isNotNull()
        bad = staged.where(is_bad)
        if not self.knows_offsets:
            return bad
        # A redelivered record has the same origin and the same bytes.
        record_key = ["_origin", "_raw"]
        bad = bad.dropDuplicates(record_key)
        if not log.versions(self.path):
            return bad
        stored = staged.sparkSession.read.format("delta").load(self.path)
        known = stored.select(
            F.col("origin").alias("_origin"),
            F.col("raw").alias("_raw"),
        )
        return bad.join(known, record_key, "left_anti")

    def append(self, staged: DataFrame, facts: StepFacts) -> None:
        """Append a step's bad records; a step that was appended is skipped."""
        step = F.lit(facts.step).cast("bigint")
        at = F.timestamp_millis(F.lit(facts.now_ms))
        bad = self.new(staged)
        rows = bad.select(
            step.alias("step"),
            F.col("_reason").alias("reason"),
            F.col("_detail").alias("detail"),
            F.col("_origin").alias("origin"),
            F.col("_order").alias("order"),
            F.col("_raw").alias("raw"),
            at.alias("at"),
        )
        write(rows, self.path, facts, "quarantine")

    def empty(self, spark: SparkSession, facts: StepFacts) -> None:
        """Delete all rows, if the table is there; its history stays."""
        if not log.versions(self.path):
            return
        no_rows = spark.createDataFrame([], spark_schema(COLUMNS))
        write(
            no_rows,
            self.path,
            facts,
            stage="quarantine",
            mode="overwrite",
        )
