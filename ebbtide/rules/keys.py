"""Keys: the sink has one row per key."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.rules.window import Window
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.columns import columns


def sink_keys(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read the key columns of the sink's rows.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; the newest is looked at.
    """
    return tables.sink.read(spark, window.sink_until).select(*columns(tables.sink.key))


def repeated(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Pick the keys with more than one row, with their count (`rows`), and those that have a null.

    Args:
        rows: Rows with the key's columns.
        key: Names of the key's columns.
    """
    has_null = F.greatest(*(each.isNull() for each in columns(key)), F.lit(False))
    return rows.groupBy(*columns(key)).agg(F.count("*").alias("rows")).where((F.col("rows") > 1) | has_null)
