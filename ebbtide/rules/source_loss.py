"""Source loss: no records were lost before they were read, or read again by a refresh."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.model.step import StepKind
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.plan import Plan


def accepted(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read which losses were accepted.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per step that notes a loss: `step`, `lost`.
    """
    rows = []
    for version, facts in log.own_commits(tables.state.path):
        is_own_reset = version == window.state_since and facts["kind"] == StepKind.RESET  # with it the window begins
        if version <= window.state_since and not is_own_reset:
            break  # the newest come first
        is_in_window = version <= window.state_until
        lost = facts.get("lost")
        if is_in_window and lost is not None:
            rows.append((facts["step"], lost))
    return spark.createDataFrame(rows, "step BIGINT, lost STRING")


def records_lost(found: DataFrame) -> DataFrame:
    """Pick the losses that are wrong: all.

    Args:
        found: As from `accepted`.
    """
    return found
