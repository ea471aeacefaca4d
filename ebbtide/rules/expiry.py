"""Expiry: nothing lives past its time. Source: FLIP-25, "Expired value cleanup"."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.model.entries import Step
from ebbtide.model.step import clock_after
from ebbtide.rules.window import Window
from ebbtide.runtime.plan import Plan


def entries(spark: SparkSession, tables: Plan, window: Window, clock_ms: int) -> DataFrame:
    """Read the newest version of each entry that may expire; those dropped but still stored are `_removed`.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; the newest is looked at.
        clock_ms: Processing time, epoch ms; the watermark is that of the last step.

    Returns:
        The entries with `_overdue_ms`, how long the time of each is over; negative while it lives.
    """
    found = tables.state.last()
    last = found[1] if found else None
    clock = clock_after(last, tables.rules, clock_ms, started_ms=clock_ms)
    at = Step(0, clock.now_ms, last.watermark_ms if last else None)
    current = tables.state.current(spark, window.state_until)
    return current.withColumn("_overdue_ms", tables.state.overdue_ms(at)).where(F.col("_overdue_ms").isNotNull())


def overdue(found: DataFrame, grace_ms: int) -> DataFrame:
    """Pick the entries that still look alive although they should have been dropped.

    Args:
        found: As from `entries`.
        grace_ms: How late an entry may be dropped, ms.
    """
    return found.where("NOT _removed").where(F.col("_overdue_ms") >= grace_ms)


def leftover(found: DataFrame, grace_ms: int) -> DataFrame:
    """Pick the expired entries that no cleanup has deleted, dropped ones included.

    Args:
        found: As from `entries`.
        grace_ms: How late an entry may be deleted, ms.
    """
    return found.where(F.col("_overdue_ms") >= grace_ms)
