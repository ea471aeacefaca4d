"""Completeness: the sink has the rows that the state shows, and no others."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
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


@rule("expect_sink_to_be_complete", "The sink must have the rows that the state shows, and no others.")
def differing_keys(differences: DataFrame) -> DataFrame:
    """Pick the keys of which sink and state differ: all of them.

    Args:
        differences: As from `compared`.
    """
    return differences


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the whole sink beside the whole state."""
    differences = compared(judged.spark, judged.tables, judged.window)
    if differences is not None:
        yield judged.batch(differences, differing_keys.expected())
