"""Source loss: no records were lost before they were read, or read again by a refresh; and, of a topic, no delete of which only the tombstone came."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.checks.version_range import VersionRange
from ebbtide.ledger.facts import StepFacts
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
    keeps_order = tables.spec.source.by_position  # a file with the delete may come after one with its tombstone
    for version, facts in tables.state.steps():
        is_own_reset = version == window.state_since and facts.decision.is_reset  # with it the window begins
        if version <= window.state_since and not is_own_reset:
            break  # the newest come first
        is_in_window = version <= window.state_until
        if is_in_window:
            rows += [(facts.step, lost) for lost in _losses(facts, with_deletes=keeps_order)]
    return spark.createDataFrame(rows, "step BIGINT, lost STRING")


def _losses(facts: StepFacts, *, with_deletes: bool) -> Iterator[str]:
    """Say what of the source a step lacks."""
    if facts.source.lost is not None:
        yield facts.source.lost
    n_lone = facts.decision.counts.get("lone_tombstones", 0)
    if n_lone and with_deletes:
        yield f"deletes of which only the tombstone came, {n_lone:,}: their rows are still there"


@rule("expect_records_to_be_read", "No records of the source may be lost before they are read.")
def lost_records(found: DataFrame) -> DataFrame:
    """Pick the losses that are wrong: all.

    Args:
        found: As from `noted`.
    """
    return found


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge what was lost of the source."""
    losses = noted(judged.spark, judged.tables, judged.window)
    yield judged.batch(losses, lost_records.expected())
