"""Source loss: no records were lost before they were read, or read again by a refresh; and, of a topic, no delete of which only the tombstone came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ebbtide.delta import log
from ebbtide.model.step import StepKind
from ebbtide.rules.version_range import VersionRange
from ebbtide.runtime.plan import Plan


def noted(spark: SparkSession, tables: Plan, window: VersionRange) -> DataFrame:
    """Read which losses were accepted, or met.

    Args:
        spark: Any session.
        tables: The pipeline's.
        window: The versions.

    Returns:
        One row per step that notes a loss: `step`, `lost`.
    """
    rows = []
    keeps_order = tables.spec.source.type == "kafka"  # a file with the delete may come after one with its tombstone
    for version, facts in log.own_commits(tables.state.path):
        is_own_reset = version == window.state_since and facts["kind"] == StepKind.RESET  # with it the window begins
        if version <= window.state_since and not is_own_reset:
            break  # the newest come first
        is_in_window = version <= window.state_until
        if is_in_window:
            rows += [(facts["step"], lost) for lost in _losses(facts, with_deletes=keeps_order)]
    return spark.createDataFrame(rows, "step BIGINT, lost STRING")


def _losses(facts: dict[str, Any], *, with_deletes: bool) -> Iterator[str]:
    """Say what of the source a step lacks."""
    lost = facts.get("lost")
    if lost is not None:
        yield lost
    counts = facts.get("counts") or {}
    n_lone = counts.get("lone_tombstones", 0)
    if n_lone and with_deletes:
        yield f"deletes of which only the tombstone came, {n_lone:,}: their rows are still there"


def records_lost(found: DataFrame) -> DataFrame:
    """Pick the losses that are wrong: all.

    Args:
        found: As from `noted`.
    """
    return found
