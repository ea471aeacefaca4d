"""Completeness: the sink has the rows that the state shows, and no others."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime import completeness
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.way_back import is_kept


def compared(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame | None:
    """Compare the newest versions, whole.

    Args:
        spark: A session with Delta.
        tables: The pipeline's.
        window: The versions; the newest are looked at, and what others changed since it begins.

    Returns:
        As `ebbtide.runtime.completeness.differences`; None where the state does not keep what the sink must show, or the
        last step is not in the sink yet.
    """
    facts = window.last_step(tables)
    if facts is None or not is_kept(tables):
        return None
    return completeness.differences(
        spark,
        tables,
        facts,
        state_version=window.state_until,
        sink_version=window.sink_until,
        sink_since=window.sink_since,
    )


def incomplete(differences: DataFrame) -> DataFrame:
    """Pick the keys of which sink and state differ: all of them.

    Args:
        differences: As from `compared`.
    """
    return differences
