"""Full-snapshot cleanup: what has expired goes from the state's newest snapshot.

Only files that hold such an entry are rewritten. Older snapshots keep it until VACUUM, as with any Delta table. What has
expired is told by the ledger's clock, not by the time of the job. Source: FLIP-25, "cleanup in full snapshot".
"""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ebbtide.runtime.step import Stepper
from ebbtide.state_table.columns import columns


def cleanup(spark: SparkSession, stepper: Stepper) -> bool:
    """Delete expired and dropped entries of a pipeline's state, with all their versions; tell whether there were any."""
    state = stepper.tables.state
    facts = stepper.between_now("cleanup")
    gone = state.current(spark, stepper.version).where(F.col("_removed") | state.spent(stepper.at(facts)))
    # Read twice. It is read as of a version: a lost block is made again alike.
    gone = gone.select(*columns(state.operator.entry_key)).localCheckpoint()
    if gone.isEmpty():
        return False
    stepper.take(facts, state.purge(spark, gone, facts, stepper.version))
    return True
