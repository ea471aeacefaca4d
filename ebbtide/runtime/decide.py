"""Decide: a step's changes and the stored entries of their keys in, one commit to the state out.

That commit is the decision: what the sink is to show follows from it alone (`ebbtide.runtime.publish`).
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ebbtide.formats.summary import KINDS
from ebbtide.ledger.facts import Head, StepFacts
from ebbtide.model.entries import SINK_STEP
from ebbtide.model.offsets import OffsetRanges
from ebbtide.model.step import BatchSummary, StepKind
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.stage import Staged
from ebbtide.sources.source import Part
from ebbtide.state_table.columns import column, columns, spark_schema
from ebbtide.state_table.layout import ROW
from ebbtide.state_table.size import TableSize
from ebbtide.state_table.table import LINKED

ROWS_PER_PARTITION = 50_000
"""Changes and entries that one call of the operator takes; more make fewer tasks, each with more memory."""
ROWS_PER_SMALL_PARTITION = 5_000
"""The same in a small step, where tasks cost more than what they do."""
BROADCAST_ROWS = 200_000
"""Touched keys up to which the state is joined without a shuffle."""


def decide(
    spark: SparkSession,
    plan: Plan,
    head: Head,
    staged: Staged,
    facts: StepFacts,
    parts: list[Part],
    state_size: TableSize,
) -> int:
    """Decide a batch.

    Args:
        spark: The batch's own session.
        plan: The pipeline.
        head: Its last step.
        staged: The batch's records.
        facts: The step's.
        parts: Parts of the source that the batch read, to be remembered.
        state_size: Of the state.

    Returns:
        The version of the state that holds the decision.

    Raises:
        LeaseLostError: another run committed this step first.
    """
    state, key, summary = plan.state, plan.spec.key, staged.summary
    changes = staged.rows(spark).where(F.col("_kind").isin(KINDS))
    linked = _linked_keys(spark, plan, head, changes, summary)
    entries = _entries(spark, plan, head, changes, summary, linked, state_size)
    schema = spark_schema(state.schema, nullable=True)
    rows = _padded(changes, schema) if entries is None else changes.unionByName(entries, allowMissingColumns=True)
    partition_by = columns(key)
    if linked is not None:
        rows = rows.join(F.broadcast(linked.withColumn(LINKED, F.lit(True))), [*key], "left")
        partition_by = [F.when(F.col(LINKED).isNull(), each) for each in partition_by]  # linked keys: to one partition
    seen = OffsetRanges(head.facts.positions if head.facts else {}) if plan.tracks_offsets else None
    reconcile = state.reconciler(facts.operator_step, seen, plan.spec.max_group_bytes)
    out = rows.repartition(partitions(spark, summary.changes), *partition_by).mapInArrow(reconcile, schema)
    if parts:
        out = out.unionByName(state.file_rows(spark, parts, facts.step), allowMissingColumns=True)
    return state.commit(out, facts, head.version)


def expire(spark: SparkSession, plan: Plan, head: Head, facts: StepFacts, *, must_commit: bool) -> int | None:
    """Decide a tick: drop what has expired, fire timers.

    Args:
        spark: The session.
        plan: The pipeline.
        head: Its last step.
        facts: The step's.
        must_commit: Commit though nothing is due: the facts tell something new.

    Returns:
        The version of the state that holds the decision; None if nothing is due.

    Raises:
        LeaseLostError: another run committed this step first.
    """
    state, key = plan.state, plan.spec.key
    at = facts.operator_step
    entries = state.read(spark, head.version)
    due_keys = entries.where(state.due(at)).select(*columns(key)).distinct()
    mine = entries.join(due_keys, [*key], "left_semi")
    work = state.expirer(at, plan.spec.max_group_bytes)
    schema = spark_schema(state.schema, nullable=True)
    out = mine.repartition(partitions(spark), *columns(key)).mapInArrow(work, schema)
    # Looked at before the commit. Reads are pinned to a version, so a lost partition is recomputed identically.
    out = out.localCheckpoint()
    if not must_commit and out.where(F.col("_entry") == ROW).isEmpty():
        return None
    return state.commit(out, facts, head.version)


def partitions(spark: SparkSession, rows: int | None = None) -> int:
    """Return how many partitions a step's rows go to; without a number of rows as many as Spark is set to."""
    most = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    if rows is None:
        return most
    of_small = min(most, 1 + rows // ROWS_PER_SMALL_PARTITION)
    of_large = -(-rows // ROWS_PER_PARTITION)
    return max(of_small, of_large)


def _linked_keys(
    spark: SparkSession, plan: Plan, head: Head, changes: DataFrame, summary: BatchSummary
) -> DataFrame | None:
    """Return the keys of rows that wait for a value, now or in the state, and the keys that these rows had before.

    None where no row does. They are decided on together: a value may have to be looked for under another key.
    """
    found = [changes] if summary.key_changes else []
    if head.pending_key_changes:
        found.append(plan.state.waiting(spark, head.version))
    keys: list[DataFrame] = []
    for rows in found:
        moved = rows.where(F.col("_moved_from").isNotNull())  # all of them, where one of a step left values out
        old_keys = moved.select(F.explode("_moved_from.key").alias("_key")).select("_key.*")
        keys += [moved.select(*columns(plan.spec.key)), old_keys]
    return reduce(DataFrame.union, keys).distinct() if keys else None


def _entries(
    spark: SparkSession,
    plan: Plan,
    head: Head,
    changes: DataFrame,
    summary: BatchSummary,
    linked: DataFrame | None,
    state_size: TableSize,
) -> DataFrame | None:
    """Read what is stored under the touched and linked keys; where live entries expire, the sink's rows too."""
    if head.facts is None or head.facts.kind is StepKind.RESET:
        return None
    spec = plan.spec
    keys = changes.select(*columns(spec.key)).distinct()
    entries = plan.state.read(spark, head.version)
    if linked is not None:
        keys = keys.union(linked).distinct()
    elif summary.bounds is not None and state_size.is_large(spark):
        entries = entries.where(column(spec.key[0]).between(*summary.bounds))
    keys = F.broadcast(keys) if summary.changes <= BROADCAST_ROWS else keys
    if spec.expires_live:
        stand_in = {"_step": F.lit(SINK_STEP).cast("bigint"), "_stamp_ms": F.lit(0).cast("bigint")}
        sink = plan.sink
        rows = sink.read(spark, sink.version()).withColumns(stand_in)
        entries = entries.unionByName(rows, allowMissingColumns=True)
    return entries.join(keys, [*spec.key], "left_semi")


def _padded(frame: DataFrame, schema: StructType) -> DataFrame:
    """Add the columns that a frame has not, as nulls."""
    missing = {field.name: F.lit(None).cast(field.dataType) for field in schema if field.name not in frame.columns}
    return frame.withColumns(missing)
