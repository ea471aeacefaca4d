"""The changelog: per key an insertion comes only after a deletion, an update or a deletion only after an insertion or update.

Source: FLIP-544, on what sinks expect of a changelog.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Per
from pyspark.sql import functions as F

from ebbtide.model.changelog import TRUNCATE
from ebbtide.rules.window import Window
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.columns import columns


def emitted(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read what was emitted for the keys that the window's steps emitted anything for, from the first record on.

    Args:
        spark: A session with Delta.
        tables: The pipeline's; it emits every record.
        window: The versions.

    Returns:
        Key columns, `_kind`, `_order`, `_number`, whether it is `_new`: of the window, and how many TRUNCATEs came before (`_truncates`).
    """
    key = columns(tables.sink.key)
    rows = spark.read.format("delta").load(tables.changelog.path)
    truncates = rows.where(F.col("_kind") == TRUNCATE).select(F.col("_order").alias("_emptied"))
    before = F.count_if(F.col("_emptied") < F.col("_order")).alias("_truncates")
    rows = rows.where(F.col("_kind") != TRUNCATE).select(
        *key, "_kind", "_order", "_number", (F.col("_order.step") > window.step_since(tables)).alias("_new")
    )
    rows = (
        rows.join(F.broadcast(truncates), F.lit(True), "left")
        .groupBy(*key, "_kind", "_order", "_number", "_new")
        .agg(before)
    )
    return rows.join(rows.where("_new").select(*key).distinct(), [*tables.sink.key], "left_semi")


def misplaced(rows: DataFrame, key: Sequence[str], orphans: bool) -> DataFrame:  # noqa: FBT001 - an expectation's argument
    """Pick the records that cannot follow the one before, per key.

    Args:
        rows: As from `emitted`.
        key: Names of the key's columns.
        orphans: The sink keeps rows whose time is over: an insertion may come while one is there.
    """
    before = F.lag("_kind").over(Per.partitionBy(*columns(key), "_truncates").orderBy("_order", "_number"))
    inserted_twice = (F.col("_kind") == "+I") & (F.col("_before") != "-D") & F.lit(not orphans)
    not_there = (F.col("_kind") != "+I") & (F.col("_before") == "-D")
    return rows.withColumn("_before", before).where(F.col("_new") & (inserted_twice | not_there))
