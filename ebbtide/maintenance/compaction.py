"""Compaction: the state is folded to the newest version of each live entry, the sink's small files are joined.

Steps only append to the state, so superseded versions pile up until this job; what has expired by the ledger's clock is
left out on the way (FLIP-25, "cleanup in the compaction filter"). Rows are laid out by key, so that a step reads few files.
"""

from __future__ import annotations

import math

from delta import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.model.step import StepKind
from ebbtide.runtime.step import Stepper
from ebbtide.state_table.columns import columns
from ebbtide.state_table.expiry import is_deletable
from ebbtide.state_table.layout import FILE

ROWS_PER_FILE = 1_000_000


def compaction(spark: SparkSession, stepper: Stepper) -> bool:
    """Fold a pipeline's state and join the small files of its sink; return whether there was something to fold."""
    state = stepper.plan.state
    facts = stepper.maintenance_step(StepKind.COMPACTION)
    sink = DeltaTable.forPath(spark, stepper.plan.sink.path)
    sink.optimize().executeCompaction()
    last = stepper.last
    if last is not None and last.kind is StepKind.COMPACTION:
        return False  # nothing was appended since

    # One shuffle to find the newest versions, one to lay them out; the result replaces the table in one commit.
    is_removed = F.col("_removed")
    may_be_deleted = is_deletable(state.operator, facts.operator_step)
    entries = state.current(spark, stepper.version)
    kept = entries.where(~(is_removed | may_be_deleted))
    n_files = max(1, math.ceil(kept.count() / ROWS_PER_FILE))
    key = columns(stepper.spec.key)
    by_key = kept.repartitionByRange(n_files, *key)
    folded = by_key.sortWithinPartitions(*key)
    files_read = state.read(spark, stepper.version, FILE)
    rows = folded.unionByName(files_read.coalesce(1))
    version = state.commit(
        rows,
        facts,
        read_version=stepper.version,
        mode="overwrite",
    )
    stepper.advance_to(facts, version)
    return True
