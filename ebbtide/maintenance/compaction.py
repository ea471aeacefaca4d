"""Compaction: the state is folded to the newest version of each live entry, the sink's small files are joined.

Steps only append to the state, so superseded versions pile up until this job; what has expired by the ledger's clock is
left out on the way (FLIP-25, "cleanup in the compaction filter"). Rows are laid out by key, so that a step reads few files.
"""

from __future__ import annotations

from delta import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.model.step import StepKind
from ebbtide.runtime.step import Stepper
from ebbtide.state_table.columns import columns
from ebbtide.state_table.layout import FILE

ROWS_PER_FILE = 1_000_000


def compaction(spark: SparkSession, stepper: Stepper) -> bool:
    """Fold a pipeline's state and join the small files of its sink; tell whether there was something to fold."""
    state, facts = stepper.plan.state, stepper.maintenance_step(StepKind.COMPACTION)
    DeltaTable.forPath(spark, stepper.plan.sink.path).optimize().executeCompaction()
    current = state.current(spark, stepper.version)
    if stepper.last and stepper.last.kind is StepKind.COMPACTION:
        return False  # nothing was appended since
    kept = current.where(~F.col("_removed") & ~state.spent(facts.operator_step))
    keys = columns(stepper.spec.key)
    files = -(-kept.count() // ROWS_PER_FILE) or 1
    folded = kept.repartitionByRange(files, *keys).sortWithinPartitions(*keys)
    read = state.read(spark, stepper.version, FILE).coalesce(1)
    stepper.advance_to(facts, state.commit(folded.unionByName(read), facts, stepper.version, "overwrite"))
    return True
