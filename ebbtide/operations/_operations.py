"""The operations that are one command each. Importing this loads no Spark."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ebbtide.operations._operation import Context, Operation, Report


class Acknowledge(Operation):
    """Accept what other clients changed in a sink, and what checks have found so far: checks begin behind that."""

    name = "acknowledge"

    class Params(Operation.Params):
        """The reason."""

        reason: str = Field(description="Why the sink shall stay as it is; kept in the ledger.")
        new_log: str | None = Field(
            default=None,
            title="TIME",
            description="The source's log began again, from lower positions, at this event time, UTC unless it says otherwise: changes from then on come after all earlier ones. Default: it did not.",
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Accept the sink, in one step."""
        from ebbtide.operations import _clock as clock
        from ebbtide.operations._repair import repair

        new_log_ms = clock.time_ms(params.new_log, ctx.now_ms)
        done = repair.acknowledge(ctx.spark, ctx.spec, ctx.root, params.reason, new_log_ms)
        return done.as_report()


class Adopt(Operation):
    """Make a table that is at DIR/NAME/sink already the sink, with its rows."""

    name = "adopt"

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Count the rows."""
        from ebbtide.operations import _adopt as adopt

        return adopt.plan(ctx.spark, ctx.spec, ctx.root)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Adopt them, in steps of a million."""
        from ebbtide.operations import _adopt as adopt

        return adopt.apply(ctx.spark, ctx.spec, ctx.root, ctx.now_ms)


class Clock(Operation):
    """Set the time that a pipeline's state ages by, after a wrong clock or event time."""

    name = "clock"
    observed = "state"
    needed = ("reason",)

    class Params(Operation.Params):
        """The times to set, and the reason."""

        to: str | None = Field(
            default=None,
            title="TIME",
            description="Processing time goes on from here: now, or a time, UTC unless it says otherwise. Default: it is left.",
        )
        watermark: str | None = Field(
            default=None,
            title="TIME",
            description="The watermark goes back to this, likewise, and rises from there. Default: it is left.",
        )
        reason: str = Field(default="", description="Why, kept with the step; needed to apply it.")

    def plan(self, ctx: Context, params: Params) -> Report:
        """Show clock and watermark, and the values that would be set."""
        from ebbtide.operations import _clock as clock

        now_ms = ctx.now_ms
        to_ms = clock.time_ms(params.to, now_ms)
        watermark_ms = clock.time_ms(params.watermark, now_ms)
        return clock.plan(ctx.spec, ctx.root, now_ms, to_ms, watermark_ms)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Set clock and watermark, in one step."""
        from ebbtide.operations import _clock as clock

        now_ms = ctx.now_ms
        to_ms = clock.time_ms(params.to, now_ms)
        watermark_ms = clock.time_ms(params.watermark, now_ms)
        return clock.apply(
            ctx.spark,
            ctx.spec,
            ctx.root,
            now_ms,
            params.reason,
            to_ms,
            watermark_ms,
        )


class Migrate(Operation):
    """Make what is stored fit a spec whose columns, TTL or state types have changed."""

    name = "migrate"
    job = "migration"
    observed = "state"
    further: ClassVar = {"undo": "Undo the last step, if it was a migration."}

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """List the changes."""
        from ebbtide.operations._migration import migrate

        return migrate.plan(ctx.spark, ctx.spec, ctx.root)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Migrate, in one step."""
        from ebbtide.operations._migration import migrate

        return migrate.apply(ctx.spark, ctx.spec, ctx.root, ctx.now_ms)

    def undo(self, ctx: Context, params: Operation.Params) -> Report:
        """Put the tables back to what they were before a migration that was the last step."""
        from ebbtide.operations._migration.undo import undo

        return undo(ctx.spark, ctx.spec, ctx.root)


class Pause(Operation):
    """Stop pipelines from reading until they are resumed: a run ends after its step, a continuous one waits. Starts no Spark."""

    name = "pause"
    takes_turns = False

    class Params(Operation.Params):
        """The reason, and who asks."""

        reason: str = Field(description="Why; runs, schedules and the status show it.")
        by: str = Field(default="", description="Who asks. Default: the user at this host, or Dagster.")

    def apply(self, ctx: Context, params: Params) -> Report:
        """Pause it."""
        from ebbtide.operations import _pausing as pausing

        by = params.by or ctx.by
        return pausing.pause(ctx.spec, ctx.root, by, params.reason, ctx.now_ms)


class Resume(Operation):
    """Resume paused pipelines; processing time has stood still, so nothing has expired. Starts no Spark."""

    name = "resume"
    takes_turns = False

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Resume it."""
        from ebbtide.operations import _pausing as pausing

        return pausing.resume(ctx.spec, ctx.root, ctx.now_ms)


class Repair(Operation):
    """Bring a damaged, dropped or restored sink to what the state shows."""

    name = "repair"

    class Params(Operation.Params):
        """The way."""

        by_snapshot: bool = Field(
            default=False,
            description="Delete the rows that the newest snapshot of the whole source table did not show: their deletes were lost with the connector's slot or offsets. Default: compare with the state.",
        )

    def plan(self, ctx: Context, params: Params) -> Report:
        """List the findings and the ways to repair them."""
        from ebbtide.operations._repair import by_snapshot, repair

        if params.by_snapshot:
            return by_snapshot.plan(ctx.spec, ctx.root)
        planned = repair.plan(ctx.spark, ctx.spec, ctx.root)
        return planned.as_report()

    def apply(self, ctx: Context, params: Params) -> Report:
        """Repair it, in one step."""
        from ebbtide.operations._repair import by_snapshot, repair

        if params.by_snapshot:
            return by_snapshot.repair(ctx.spark, ctx.spec, ctx.root, ctx.now_ms)
        done = repair.repair(ctx.spark, ctx.spec, ctx.root)
        return done.as_report()


class Rewind(Operation):
    """Bring all tables back to what they were after an earlier step."""

    name = "rewind"
    observed = "state"

    class Params(Operation.Params):
        """The step to go back to."""

        to_step: int = Field(ge=1, description="The step to go back to.")

    def plan(self, ctx: Context, params: Params) -> Report:
        """Show the steps that would be undone."""
        from ebbtide.operations import _rewind as rewind

        return rewind.plan(ctx.spark, ctx.spec, ctx.root, params.to_step)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Go back, in a step of its own."""
        from ebbtide.operations import _rewind as rewind

        return rewind.apply(ctx.spark, ctx.spec, ctx.root, params.to_step)
