"""Full-snapshot cleanup: what has expired goes from the state's newest snapshot.

Only files that hold such an entry are rewritten. Older snapshots keep it until VACUUM, as with any Delta table. The
clock is that of the last step, not the time of the job. Source: FLIP-25, "cleanup in full snapshot".
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.model.step import StepKind
from ebbtide.runtime.step import Stepper
from ebbtide.state_table.columns import columns
from ebbtide.state_table.expiry import is_deletable


def cleanup(spark: SparkSession, stepper: Stepper) -> bool:
    """Delete expired and dropped entries of a pipeline's state, with all their versions; return whether there were any."""
    state = stepper.plan.state
    facts = stepper.maintenance_step(StepKind.CLEANUP)
    operator = state.operator
    entries = state.current(spark, stepper.version)
    is_removed = F.col("_removed")
    may_be_deleted = is_deletable(operator, facts.operator_step)
    deleted = entries.where(is_removed | may_be_deleted)
    entry_keys = deleted.select(*columns(operator.entry_key))
    # Read twice. Reads are pinned to a version, so a lost partition is recomputed identically.
    entry_keys = entry_keys.localCheckpoint()
    if entry_keys.isEmpty():
        return False
    version = state.purge(spark, entry_keys, facts, stepper.version)
    stepper.advance_to(facts, version)
    return True
