"""Ordering: changes reach the sink in order, and the sink shows what the state decided.

Source: DESIGN, "Expectations"; FLIP-544, on what a disordered changelog does to a sink.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as Per
from pyspark.sql import functions as F

from ebbtide.model.changelog import ORDER
from ebbtide.model.entries import DELETE
from ebbtide.rules.window import Window
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.columns import columns, spark_schema


def sink_changes(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read the sink's change feed.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per changed row and image: key columns, `_changed_by`, `_change_type`, `_commit_version`.
    """
    if window.sink_since >= window.sink_until:  # Delta refuses to read from a version that is not there yet
        fields = [*(tables.sink.columns.field(name) for name in tables.sink.key), pa.field("_changed_by", ORDER)]
        empty = pa.schema([*fields, pa.field("_change_type", pa.string()), pa.field("_commit_version", pa.int64())])
        return spark.createDataFrame([], spark_schema(empty))
    read = columns([*tables.sink.key, "_changed_by", "_change_type", "_commit_version"])
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", window.sink_since + 1)
    return feed.option("endingVersion", window.sink_until).load(tables.sink.path).select(*read)


def disordered(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Pick the changes whose `_changed_by` is not after that of the row before, per key.

    Args:
        changes: As from `sink_changes`.
        key: Names of the key's columns.
    """
    image = F.when(F.col("_change_type").isin("delete", "update_preimage"), 0).otherwise(1)
    earlier = Per.partitionBy(*columns(key)).orderBy("_commit_version", image)
    before = F.lag("_changed_by").over(earlier)
    written = F.col("_change_type").isin("insert", "update_postimage")
    late = F.col("_changed_by").isNull() | (F.col("_changed_by") <= F.col("_before"))
    return changes.withColumn("_before", before).where(written & late)


def decisions(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read, for the keys that changed, what the state decided last and what the sink shows.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; keys count that either table changed.

    Returns:
        One row per key: key columns, `decided` and `shown`: the row as JSON with its `_changed_by`, null if it must not
        be, or is not, there. Keys that a TRUNCATE swept, or of which the state keeps no decision, are left out.
    """
    key, names = [*tables.sink.key], tables.sink.columns.names
    stored = tables.state.decided(spark, window.state_until)
    decided_keys = stored.where(F.col("_step") > window.step_since(tables)).select(*columns(key))
    keys = sink_changes(spark, tables, window).select(*columns(key)).union(decided_keys).distinct()
    found = tables.state.last()
    floor = found[1].floor if found else None
    newest = Per.partitionBy(*columns(key)).orderBy(F.desc("_step"))
    decided = stored.join(keys, key, "left_semi").withColumn("_n", F.row_number().over(newest)).where("_n = 1")
    if floor:
        decided = decided.where(~tables.sink.below(floor))
    row = F.to_json(F.struct(*columns(names), "_changed_by"), {"ignoreNullFields": "false"})
    decided = decided.select(*columns(key), F.when(F.col("_change") != DELETE, row).alias("decided"))
    shown = (
        tables.sink.read(spark, window.sink_until)
        .join(keys, key, "left_semi")
        .select(*columns(key), row.alias("shown"))
    )
    return decided.join(shown, key, "left")


def sequenced(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read what the state says of the rows it wrote by their sequence.

    Args:
        spark: A session with Delta.
        tables: The pipeline's; it goes by sequence.
        window: The versions.

    Returns:
        One row per live key: key columns, `_sequence`, whether it has a `_conflict`, the columns for whose value it `_waits`.
    """
    entries = tables.state.current(spark, window.state_until, window.step_since(tables))
    live = entries.where(~F.col("_removed") & ~F.col("_tombstone"))
    unknown = F.map_keys(F.map_filter("_columns", lambda _, since: since.isNull()))
    return live.select(*columns(tables.spec.key), "_sequence", "_conflict", unknown.alias("_waits"))


def undecided(rows: DataFrame) -> DataFrame:
    """Pick the rows at whose sequence another content stood: their order is not known.

    Args:
        rows: As from `sequenced`.
    """
    return rows.where("_conflict")


def waiting(rows: DataFrame) -> DataFrame:
    """Pick the rows that show null since a value was not sent and has not been found yet.

    Args:
        rows: As from `sequenced`.
    """
    return rows.where(F.size("_waits") > 0)


def unlike(decided: DataFrame) -> DataFrame:
    """Pick the keys whose row in the sink is not the one that was decided.

    Args:
        decided: As from `decisions`.
    """
    return decided.where(~F.col("decided").eqNullSafe(F.col("shown")))
