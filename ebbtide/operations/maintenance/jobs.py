"""The maintenance of a pipeline's tables that runs by schedule: cleanup, compaction, vacuum. Importing this loads no Spark.

A further one is a subclass of `Maintenance`. The schedule of a built-in one is the field of `ebbtide.spec.parts.SchedulesConfig` with
the job's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebbtide.operations.operation import Context, Operation, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.runtime.step import Stepper


class Maintenance(Operation):
    """Base class of operations that make a pipeline's tables smaller; they run without being planned."""

    observed = "state"

    def step(self, spark: SparkSession, stepper: Stepper) -> bool:
        """Do the work, the lease held and the last step finished.

        Args:
            spark: A session with Delta.
            stepper: Makes the pipeline's steps.

        Returns:
            Whether a step was made.
        """
        raise NotImplementedError

    def apply(self, ctx: Context, params: Any) -> Report:
        """Do the work, and measure the tables before and after."""
        from ebbtide.operations.maintenance.measuring import maintained

        return maintained(ctx.spark, ctx.spec, ctx.root, self.job_name, self.step)


class Cleanup(Maintenance):
    """Full snapshot: delete what has expired from the state, and what the quarantine's limits no longer keep."""

    name = "cleanup"

    def step(self, spark: SparkSession, stepper: Stepper) -> bool:
        """See `ebbtide.operations.maintenance.cleanup`."""
        from ebbtide.operations.maintenance.cleanup import cleanup

        return cleanup(spark, stepper)


class Compact(Maintenance):
    """Fold the state to the newest version of each entry; join the sink's small files."""

    name = "compact"
    job = "compaction"

    def step(self, spark: SparkSession, stepper: Stepper) -> bool:
        """See `ebbtide.operations.maintenance.compaction`."""
        from ebbtide.operations.maintenance.compaction import compaction

        return compaction(spark, stepper)


class Vacuum(Maintenance):
    """Delete files that no table needs any more, and commits past the log's retention."""

    name = "vacuum"

    def step(self, spark: SparkSession, stepper: Stepper) -> bool:
        """See `ebbtide.operations.maintenance.vacuum`."""
        from ebbtide.operations.maintenance.vacuum import vacuum

        return vacuum(spark, stepper)
