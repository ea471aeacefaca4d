"""Scheduled maintenance of a pipeline's tables: cleanup, compaction, vacuum. Importing this loads no Spark.

Further jobs are subclasses of `Maintenance`. The schedule of a built-in one is the field of
`ebbtide.spec._scheduling.SchedulesConfig` with the job's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ebbtide.operations._operation import DRY_RUN, Context, Operation, Report

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.runtime import Stepper
    from ebbtide.spec import Pipeline


class Maintenance(Operation):
    """Base class of operations that make a pipeline's tables smaller. They need no `--apply`, since readers see no change."""

    observed = "state"

    def step(self, executor: Executor, stepper: Stepper) -> bool:
        """Do the work, with the lease held and the last step finished.

        Args:
            stepper: Makes the pipeline's steps.

        Returns:
            Whether a step was made.
        """
        raise NotImplementedError

    def apply(self, ctx: Context, params: Any) -> Report:
        """Do the work, and measure the tables before and after."""
        from ebbtide.operations._maintenance.measuring import Done, maintained

        return maintained(ctx, self.job_name, lambda executor, stepper: Done(self.step(executor, stepper)))


class Cleanup(Maintenance):
    """Full snapshot: delete the state's entries that have expired by now, and records above the quarantine's limits."""

    name = "cleanup"
    further: ClassVar = {"dry_run": DRY_RUN}

    class Params(Operation.Params):
        """Bounds of one run."""

        max_files: int | None = Field(
            default=None,
            ge=1,
            description="Maximum data files to remove expired entries from, those with the most first; the next run continues. Default: all.",
        )
        min_share: float = Field(
            default=0,
            ge=0,
            le=1,
            description="Do nothing if a smaller share of entries has expired. Default: 0.",
        )
        min_bytes: int = Field(default=0, ge=0, description="Do nothing if they take fewer bytes. Default: 0.")

    def apply(self, ctx: Context, params: Params) -> Report:
        """Delete them in a step, and measure the tables before and after; do nothing if that would free too little."""
        from ebbtide.operations._maintenance.cleanup import cleanup
        from ebbtide.operations._maintenance.measuring import maintained

        return self._skipped(ctx, params) or maintained(
            ctx, self.job_name, partial(cleanup, wall_ms=ctx.now_ms, max_files=params.max_files)
        )

    def dry_run(self, ctx: Context, params: Params) -> Report:
        """Plan the work."""
        from ebbtide.operations._maintenance.planning import plan_cleanup

        return self._skipped(ctx, params) or plan_cleanup(ctx, params.max_files)

    def early(self, spec: Pipeline) -> tuple[str, Mapping[str, Any]] | None:
        """Return the spec's `schedules.early_cleanup`; None if nothing expires."""
        asked = spec.schedules.early_cleanup
        if asked is None or not spec.ttls:
            return None
        return asked.look, {"min_share": asked.min_share, "min_bytes": asked.min_bytes}

    def why_not(self, ctx: Context, params: Params) -> str:
        """Return why it would free too little."""
        from ebbtide.operations._maintenance.planning import why_little

        if not params.min_share and not params.min_bytes:
            return ""
        return why_little(ctx, params.min_share, params.min_bytes)

    def _skipped(self, ctx: Context, params: Params) -> Report | None:
        reason = self.why_not(ctx, params)
        if not reason:
            return None
        skipped = f"cleanup: skipped: {reason}."
        return Report(ctx.spec.name, [skipped], {}, {"job": self.job_name})


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
            description="Maximum data files to write; the next run continues. Default: all.",
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Fold it in a step, and measure the tables before and after."""
        from ebbtide.operations._maintenance.compaction import compaction
        from ebbtide.operations._maintenance.measuring import maintained

        return maintained(ctx, self.job_name, partial(compaction, max_files=params.max_files))

    def dry_run(self, ctx: Context, params: Params) -> Report:
        """Plan the work."""
        from ebbtide.operations._maintenance.planning import plan_compaction

        return plan_compaction(ctx, params.max_files)


class Vacuum(Maintenance):
    """Delete files that no table needs, and commits past the log's retention."""

    name = "vacuum"
    further: ClassVar = {"dry_run": DRY_RUN}

    class Params(Operation.Params):
        """Bounds of one run."""

        max_files: int | None = Field(
            default=None, ge=1, description="Maximum files to delete; the next run continues. Default: all."
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Delete them, and measure the tables before and after."""
        from ebbtide.operations._maintenance.measuring import maintained
        from ebbtide.operations._maintenance.vacuum import vacuum

        return maintained(ctx, self.job_name, partial(vacuum, max_files=params.max_files))

    def dry_run(self, ctx: Context, params: Params) -> Report:
        """Plan the work."""
        from ebbtide.operations._maintenance.planning import plan_vacuum

        return plan_vacuum(ctx)
