"""Expiry: nothing lives past its time. Source: FLIP-25, "Expired value cleanup"."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ebbtide.rules.window import Window
from ebbtide.streaming.tables import Tables


def entries(spark: SparkSession, tables: Tables, window: Window) -> DataFrame:
    """Read the newest version of each entry that may expire; those dropped but still stored are `_removed`.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; the newest is looked at.
    """
    return tables.state.current(spark, window.state_until).where(tables.state.mortal)


def overdue(found: DataFrame, due_ms: int) -> DataFrame:
    """Pick the entries that still look alive although they should have been dropped.

    Args:
        found: As from `entries`.
        due_ms: Stamp up to which none may live: clock - ttl - grace, epoch ms.
    """
    return found.where("NOT _removed").where(found["_stamp_ms"] <= due_ms)


def leftover(found: DataFrame, due_ms: int) -> DataFrame:
    """Pick the expired entries that no cleanup has deleted, dropped ones included.

    Args:
        found: As from `entries`.
        due_ms: Stamp up to which none may be stored: clock - ttl - the time that cleanup may take, epoch ms.
    """
    return found.where(found["_stamp_ms"] <= due_ms)
