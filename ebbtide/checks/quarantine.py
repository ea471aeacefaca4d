"""Quarantine: the share of bad records stays below what was agreed."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.runtime.plan import Plan


def steps(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read what the steps met.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per batch: `step`, `records` (bad ones included), `quarantined`.
    """
    rows = []
    for version, facts in tables.state.steps():
        if version <= window.state_since:
            break
        if version <= window.state_until and facts.decision.reads_source:
            rows.append((facts.step, facts.read.records, facts.read.quarantined))
    return spark.createDataFrame(rows, "step BIGINT, records BIGINT, quarantined BIGINT")


@rule("expect_quarantine_rate_to_stay_below", "At most $max_rate of the records may be bad.")
def excess_bad_records(batches: DataFrame, max_rate: float) -> DataFrame:
    """Pick the steps with bad records, if all steps together have a greater share of them than `max_rate`.

    Args:
        batches: As from `steps`.
        max_rate: Greatest share allowed, 0 to 1.
    """
    n_bad = F.sum("quarantined")
    n_records = F.sum("records")
    is_over = n_bad > n_records * max_rate
    verdict = batches.agg(is_over.alias("_is_over"))
    judged = batches.crossJoin(verdict)
    bad_steps = judged.where("_is_over AND quarantined > 0")
    return bad_steps.drop("_is_over")


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the share of bad records of each step."""
    batches = steps(judged.spark, judged.tables, judged.window)
    max_rate = judged.tables.spec.checks.max_quarantine_rate
    yield judged.batch(batches, excess_bad_records.expected(max_rate=max_rate))
