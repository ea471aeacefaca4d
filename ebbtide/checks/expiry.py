"""Expiry: nothing lives longer than its time to live. Source: FLIP-25, "Expired value cleanup"."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.model.durations import to_ms
from ebbtide.model.entries import Step
from ebbtide.runtime.plan import Plan
from ebbtide.tables.state import expiry


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
    facts = window.last_step(tables)
    watermark_ms = None if facts is None else facts.frontier.watermark_ms
    clock = tables.clock_after(None if facts is None else facts.frontier, clock_ms)
    at = Step(0, clock.now_ms, watermark_ms)
    overdue_ms = expiry.overdue_ms(tables.operator, at)
    latest_versions = tables.state.latest_versions(spark, window.state_until)
    timed = latest_versions.withColumn("_overdue_ms", overdue_ms)
    may_expire = F.col("_overdue_ms").isNotNull()
    return timed.where(may_expire)


@rule("expect_entries_to_expire", "No entry may live $grace_ms ms or more past its time.")
def overdue_entries(expiring: DataFrame, grace_ms: int) -> DataFrame:
    """Pick the entries that still look alive although they should have been dropped.

    Args:
        expiring: As from `entries`.
        grace_ms: How late an entry may be dropped, ms.
    """
    visible = expiring.where("NOT _removed")
    return uncollected_entries(visible, grace_ms)


@rule(
    "expect_expired_entries_to_be_deleted",
    "No entry may be stored $grace_ms ms or more past its time; run the cleanup job.",
)
def uncollected_entries(expiring: DataFrame, grace_ms: int) -> DataFrame:
    """Pick the expired entries that no cleanup has deleted, dropped ones included.

    Args:
        expiring: As from `entries`.
        grace_ms: How late an entry may be deleted, ms.
    """
    is_late = F.col("_overdue_ms") >= grace_ms
    return expiring.where(is_late)


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge how long entries that have expired are still there."""
    if not judged.tables.operator.expiry.ttls:
        return
    allowed = judged.tables.spec.checks
    late_ms = to_ms(allowed.expiry_grace)
    stored_ms = to_ms(allowed.cleanup_within)
    expiring = entries(judged.spark, judged.tables, judged.window, judged.clock_ms)
    yield judged.batch(
        expiring,
        overdue_entries.expected(grace_ms=late_ms),
        overdue_entries.expected("warning", grace_ms=0),
        uncollected_entries.expected("warning", grace_ms=stored_ms),
    )
