"""Expiry: nothing lives longer than its time to live. Source: FLIP-25, "Expired value cleanup"."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.model.entries import Step
from ebbtide.model.step import clock_after
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.plan import Plan
from ebbtide.state_table import expiry


def entries(spark: SparkSession, tables: Plan, window: VersionRange, clock_ms: int) -> DataFrame:
    """Read the newest version of each entry that may expire; those dropped but still stored are `_removed`.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; the newest is looked at.
        clock_ms: Processing time, epoch ms; the watermark is that of the last step.

    Returns:
        The entries with `_overdue_ms`: for how long each has expired, ms; negative while it lives.
    """
    commit = tables.state.last()
    facts = commit[1] if commit else None
    clock = clock_after(facts, tables.rules, clock_ms, started_ms=clock_ms)
    watermark_ms = facts.watermark_ms if facts else None
    overdue_ms = expiry.overdue_ms(tables.operator, Step(0, clock.now_ms, watermark_ms))
    latest_versions = tables.state.current(spark, window.state_until)
    may_expire = F.col("_overdue_ms").isNotNull()
    return latest_versions.withColumn("_overdue_ms", overdue_ms).where(may_expire)


def overdue(expiring: DataFrame, grace_ms: int) -> DataFrame:
    """Pick the entries that still look alive although they should have been dropped.

    Args:
        expiring: As from `entries`.
        grace_ms: How late an entry may be dropped, ms.
    """
    return leftover(expiring.where("NOT _removed"), grace_ms)


def leftover(expiring: DataFrame, grace_ms: int) -> DataFrame:
    """Pick the expired entries that no cleanup has deleted, dropped ones included.

    Args:
        expiring: As from `entries`.
        grace_ms: How late an entry may be deleted, ms.
    """
    return expiring.where(F.col("_overdue_ms") >= grace_ms)
