"""The maintenance of a pipeline's tables that runs by schedule: cleanup, compaction, vacuum. Importing this loads no Spark.

A further one is a subclass of `Maintenance`. The schedule of a built-in one is the field of `ebbtide.spec.scheduling.SchedulesConfig` with
the job's name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ebbtide.operations.operation import DRY_RUN, Context, Operation, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ebbtide.runtime.step import Stepper


class Maintenance(Operation):
    """Base class of operations that make a pipeline's tables smaller. They need no `--apply`: they change nothing that a reader sees."""

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
        from ebbtide.operations.maintenance.measuring import Done, maintained

        return maintained(ctx, self.job_name, lambda spark, stepper: Done(self.step(spark, stepper)))


class Cleanup(Maintenance):
    """Full snapshot: delete what has expired from the state, and what the quarantine's limits no longer keep."""

    name = "cleanup"
    further: ClassVar = {"dry_run": DRY_RUN}

    class Params(Operation.Params):
        """Bounds of one run."""

        max_files: int | None = Field(
            default=None,
            ge=1,
            description="Most data files to take expired entries from, those with the most first; the next run goes on. Default: all.",
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Delete it, in a step, and measure the tables before and after."""
        from ebbtide.operations.maintenance.cleanup import cleanup
        from ebbtide.operations.maintenance.measuring import maintained

        return maintained(ctx, self.job_name, partial(cleanup, max_files=params.max_files))

    def dry_run(self, ctx: Context, params: Params) -> Report:
        """Plan it."""
        from ebbtide.operations.maintenance.planning import plan_cleanup

        return plan_cleanup(ctx, params.max_files)


class Compact(Maintenance):
    """Fold the state to the newest version of each entry; join the sink's small files."""

    name = "compact"
    job = "compaction"
    further: ClassVar = {"dry_run": DRY_RUN}

    class Params(Operation.Params):
        """Bounds of one run."""

        max_files: int | None = Field(
            default=None,
            ge=1,
            description="Most data files to write; the next run goes on. Default: all.",
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Fold it, in a step, and measure the tables before and after."""
        from ebbtide.operations.maintenance.compaction import compaction
        from ebbtide.operations.maintenance.measuring import maintained

        return maintained(ctx, self.job_name, partial(compaction, max_files=params.max_files))

    def dry_run(self, ctx: Context, params: Params) -> Report:
        """Plan it."""
        from ebbtide.operations.maintenance.planning import plan_compaction

        return plan_compaction(ctx, params.max_files)


class Vacuum(Maintenance):
    """Delete files that no table needs any more, and commits past the log's retention."""

    name = "vacuum"
    further: ClassVar = {"dry_run": DRY_RUN}

    class Params(Operation.Params):
        """Bounds of one run."""

        max_files: int | None = Field(
            default=None, ge=1, description="Most files to delete; the next run goes on. Default: all."
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Delete them, and measure the tables before and after."""
        from ebbtide.operations.maintenance.measuring import maintained
        from ebbtide.operations.maintenance.vacuum import vacuum

        return maintained(ctx, self.job_name, partial(vacuum, max_files=params.max_files))

    def dry_run(self, ctx: Context, params: Params) -> Report:
        """Plan it."""
        from ebbtide.operations.maintenance.planning import plan_vacuum

        return plan_vacuum(ctx)
