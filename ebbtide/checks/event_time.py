"""Event time: what arrives is recent, whatever the time at which it was written."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ebbtide.checks.rule import Batch, Judged, rule
from ebbtide.model.durations import to_ms
from ebbtide.runtime.plan import Plan

_COLUMNS = "step BIGINT, newest_event_ms BIGINT, behind_ms BIGINT"


def newest_event(spark: SparkSession, tables: Plan, clock_ms: int) -> DataFrame:
    """Read how old the newest event of all steps is.

    Args:
        spark: Any session.
        tables: The pipeline's.
        clock_ms: Processing time, epoch ms.

    Returns:
        One row: `step`, the last; `newest_event_ms`, epoch ms, and `behind_ms`, how long ago that is, both null where no record had an
        event time. None before the first step.
    """
    commit = tables.state.last()
    rows = []
    if commit is not None:
        _, facts = commit
        newest_ms = facts.frontier.max_event_ms
        behind_ms = None if newest_ms is None else clock_ms - newest_ms
        rows.append((facts.step, newest_ms, behind_ms))
    return spark.createDataFrame(rows, _COLUMNS)


@rule("expect_newest_event_to_be_recent", "The newest event must not lie back more than $max_delay_ms ms.")
def stale_events(newest: DataFrame, max_delay_ms: int) -> DataFrame:
    """Pick the newest event if it is too old, or if there is none.

    Args:
        newest: As from `newest_event`.
        max_delay_ms: How far it may lie back, ms.
    """
    is_unknown = F.col("behind_ms").isNull()
    is_old = F.col("behind_ms") > max_delay_ms
    return newest.where(is_unknown | is_old)


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge how old the newest event is."""
    max_delay = judged.tables.spec.checks.max_event_delay
    if max_delay is None:
        return
    newest = newest_event(judged.spark, judged.tables, judged.clock_ms)
    yield judged.batch(newest, stale_events.expected(max_delay_ms=to_ms(max_delay)))
