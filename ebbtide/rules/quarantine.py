"""Quarantine: the share of bad records stays below what was agreed."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.delta import log
from ebbtide.model.step import StepKind
from ebbtide.rules.window import Window
from ebbtide.runtime.plan import Plan


def steps(spark: SparkSession, tables: Plan, window: Window) -> DataFrame:
    """Read what the steps met.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per batch: `step`, `records` (bad ones included), `quarantined`.
    """
    own = log.own_commits(tables.state.path)
    rows = [
        (facts["step"], facts["records"], facts["quarantined"])
        for version, facts in own
        if window.state_since < version <= window.state_until and facts["kind"] == StepKind.BATCH
    ]
    return spark.createDataFrame(rows, "step BIGINT, records BIGINT, quarantined BIGINT")


def too_many(found: DataFrame, max_rate: float) -> DataFrame:
    """Pick the steps with bad records, if all steps together have a greater share of them than `max_rate`.

    Args:
        found: As from `steps`.
        max_rate: Greatest share allowed, 0 to 1.
    """
    total = found.agg(F.sum("quarantined").alias("_bad"), F.sum("records").alias("_all"))
    over = found.crossJoin(total).where(F.col("_bad") > F.col("_all") * max_rate)
    return over.where("quarantined > 0").drop("_bad", "_all")
