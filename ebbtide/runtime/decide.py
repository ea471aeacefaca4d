"""Decide: a step's changes and the stored entries of their keys in, one commit to the state out.

That commit is the decision: what the sink is to show follows from it alone (`ebbtide.runtime.publish`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

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
from ebbtide.state_table.deciding import LINKED, Work
from ebbtide.state_table.expiry import needs_tick
from ebbtide.state_table.layout import ROW
from ebbtide.state_table.size import TableSize

ROWS_PER_PARTITION = 50_000
"""Changes and entries that one call of the operator takes; more make fewer tasks, each with more memory."""
ROWS_PER_SMALL_PARTITION = 5_000
"""The same in a small step, where tasks cost more than what they do."""
BROADCAST_ROWS = 200_000
"""Touched keys up to which the state is joined without a shuffle."""


@dataclass(frozen=True)
class Touched:
    """What a batch touches.

    Args:
        changes: Its changes.
        summary: What they are, in sum.
        linked: Keys that are decided on together; None: there are none.
    """

    changes: DataFrame
    summary: BatchSummary
    linked: DataFrame | None


def decide(
    spark: SparkSession,
    plan: Plan,
    head: Head,
    staged: Staged,
    facts: StepFacts,
    *,
    parts: list[Part],
    size: TableSize,
) -> int:
    """Decide a batch.

    Args:
        spark: The batch's own session.
        plan: The pipeline.
        head: Its last step.
        staged: The batch's records.
        facts: The step's.
        parts: Parts of the source that the batch read, to be remembered.
        size: Of the state.

    Returns:
        The version of the state that holds the decision.

    Raises:
        LeaseLostError: another run committed this step first.
    """
    state = plan.state
    schema = spark_schema(state.schema, nullable=True)
    is_change = F.col("_kind").isin(KINDS)
    changes = staged.rows(spark).where(is_change)
    linked = _linked_keys(spark, plan, head, changes, staged.summary)
    touched = Touched(changes, staged.summary, linked)
    # A key's changes and its entries meet in one partition, by one shuffle; each partition is then reconciled on its own.
    entries = _entries(spark, plan, head, touched, size)
    rows = _padded(changes, schema) if entries is None else changes.unionByName(entries, allowMissingColumns=True)
    work = Work.of(
        plan.operator,
        state.schema,
        facts.operator_step,
        plan.spec.max_group_bytes,
    )
    reconcile = partial(work.reconcile, read_before=_read_before(plan, head))
    by_key = _by_key(spark, plan, rows, touched)
    decided = by_key.mapInArrow(reconcile, schema)
    if parts:
        remembered = state.file_rows(spark, parts, facts.step)
        decided = decided.unionByName(remembered, allowMissingColumns=True)
    return state.commit(decided, facts, head.version)


def expire(spark: SparkSession, plan: Plan, head: Head, facts: StepFacts, *, must_commit: bool) -> int | None:
    """Decide a tick: drop what has expired, fire timers.

    Args:
        spark: The session.
        plan: The pipeline.
        head: Its last step.
        facts: The step's.
        must_commit: Commit even if nothing is due: the facts hold something new.

    Returns:
        The version of the state that holds the decision; None if nothing is due.

    Raises:
        LeaseLostError: another run committed this step first.
    """
    state = plan.state
    schema = spark_schema(state.schema, nullable=True)
    key = list(plan.spec.key)
    at = facts.operator_step
    # A stored version that is due selects its key, superseded ones too: the operator sees all versions of the key, and decides.
    entries = state.read(spark, head.version)
    is_due = needs_tick(plan.operator, at)
    due_keys = entries.where(is_due).select(*columns(key)).distinct()
    entries_of_due_keys = entries.join(due_keys, key, "left_semi")
    by_key = entries_of_due_keys.repartition(partitions(spark), *columns(key))
    work = Work.of(
        plan.operator,
        state.schema,
        at,
        plan.spec.max_group_bytes,
    )
    decided = by_key.mapInArrow(work.expire, schema)
    # Looked at before the commit. Reads are pinned to a version, so a lost partition is recomputed identically.
    decided = decided.localCheckpoint()
    is_entry = F.col("_entry") == ROW
    changes_entries = not decided.where(is_entry).isEmpty()
    if not (must_commit or changes_entries):
        return None
    return state.commit(decided, facts, head.version)


def partitions(spark: SparkSession, rows: int | None = None) -> int:
    """Return how many partitions a step's rows go to; without a number of rows as many as Spark is set to."""
    n_default = int(spark.conf.get("spark.sql.shuffle.partitions") or 2)
    if rows is None:
        return n_default
    n_small = 1 + rows // ROWS_PER_SMALL_PARTITION
    n_large = -(-rows // ROWS_PER_PARTITION)  # rounded up
    return max(min(n_default, n_small), n_large)


def _linked_keys(
    spark: SparkSession,
    plan: Plan,
    head: Head,
    changes: DataFrame,
    summary: BatchSummary,
) -> DataFrame | None:
    """Return the keys of rows that wait for a value, now or in the state, and the keys that these rows had before.

    None where no row does. They are decided on together: a value may have to be looked for under another key.
    """
    sources: list[DataFrame] = []
    if summary.key_changes:
        sources.append(changes)
    if head.pending_key_changes:
        waiting = plan.state.waiting(spark, head.version)
        sources.append(waiting)
    if not sources:
        return None
    keys: list[DataFrame] = []
    for rows in sources:
        has_moved = F.col("_moved_from").isNotNull()
        moved = rows.where(has_moved)  # all of them, where one of a step left values out
        new_keys = moved.select(*columns(plan.spec.key))
        old_keys = moved.select(F.explode("_moved_from.key").alias("_key"))
        keys.append(new_keys)
        keys.append(old_keys.select("_key.*"))
    return reduce(DataFrame.union, keys).distinct()


def _entries(
    spark: SparkSession,
    plan: Plan,
    head: Head,
    touched: Touched,
    size: TableSize,
) -> DataFrame | None:
    """Read what is stored under the touched and linked keys; where live entries expire, the sink's rows too."""
    if head.facts is None or head.facts.kind is StepKind.RESET:
        return None
    spec = plan.spec
    summary = touched.summary
    key = list(spec.key)
    keys = touched.changes.select(*columns(key)).distinct()
    entries = plan.state.read(spark, head.version)
    if touched.linked is not None:
        keys = keys.union(touched.linked).distinct()
    elif summary.bounds is not None and size.is_large(spark):
        least, greatest = summary.bounds
        is_in_bounds = column(key[0]).between(least, greatest)
        entries = entries.where(is_in_bounds)
    if summary.changes <= BROADCAST_ROWS:
        keys = F.broadcast(keys)
    if spec.expires_live:
        sink_rows = _sink_rows(spark, plan)
        entries = entries.unionByName(sink_rows, allowMissingColumns=True)
    return entries.join(keys, key, "left_semi")


def _sink_rows(spark: SparkSession, plan: Plan) -> DataFrame:
    """Read the sink's rows as entries, older than any: of a row that has expired the state may have none."""
    version = plan.sink.version()
    rows = plan.sink.read(spark, version)
    older_than_any = {
        "_step": F.lit(SINK_STEP).cast("bigint"),
        "_stamp_ms": F.lit(0).cast("bigint"),
    }
    return rows.withColumns(older_than_any)


def _by_key(spark: SparkSession, plan: Plan, rows: DataFrame, touched: Touched) -> DataFrame:
    """Bring rows of one key to one partition, and all linked keys to one."""
    key = list(plan.spec.key)
    key_columns = columns(key)
    linked = touched.linked
    n_partitions = partitions(spark, touched.summary.changes)
    if linked is None:
        return rows.repartition(n_partitions, *key_columns)
    # Linked rows are partitioned by nulls in place of their keys, which sends them all to one partition.
    linked = linked.withColumn(LINKED, F.lit(True))
    marked = rows.join(F.broadcast(linked), key, "left")
    is_alone = F.col(LINKED).isNull()
    key_if_alone = [F.when(is_alone, key_column) for key_column in key_columns]
    return marked.repartition(n_partitions, *key_if_alone)


def _read_before(plan: Plan, head: Head) -> OffsetRanges | None:
    """Return the offsets that earlier steps read; None where the operator knows redelivered records by itself."""
    if not plan.tracks_offsets:
        return None
    last = head.facts
    offsets = last.positions if last else {}
    return OffsetRanges(offsets)


def _padded(frame: DataFrame, schema: StructType) -> DataFrame:
    """Add the columns that a frame does not have, as nulls."""
    present = frame.columns
    nulls = {}
    for field in schema:
        if field.name not in present:
            null = F.lit(None)
            nulls[field.name] = null.cast(field.dataType)
    return frame.withColumns(nulls)
