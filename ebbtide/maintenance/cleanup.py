"""Full-snapshot cleanup: what has expired goes from the state's newest snapshot.

Only files that hold such an entry are rewritten. Older snapshots keep it until VACUUM, as with any Delta table. What has
expired is told by the ledger's clock, not by the time of the job. Source: FLIP-25, "cleanup in full snapshot".
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.model.step import StepKind
from ebbtide.runtime.step import Stepper
from ebbtide.state_table.columns import columns


def cleanup(spark: SparkSession, stepper: Stepper) -> bool:
    """Delete expired and dropped entries of a pipeline's state, with all their versions; tell whether there were any."""
    state = stepper.plan.state
    facts = stepper.maintenance_step(StepKind.CLEANUP)
    gone = state.current(spark, stepper.version).where(F.col("_removed") | state.spent(facts.operator_step))
    # Read twice. Reads are pinned to a version, so a lost partition is recomputed identically.
    gone = gone.select(*columns(state.operator.entry_key)).localCheckpoint()
    if gone.isEmpty():
        return False
    stepper.advance_to(facts, state.purge(spark, gone, facts, stepper.version))
    return True
