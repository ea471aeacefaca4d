"""Operations with a single command. Importing this loads no Spark."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ebbtide.operations._operation import Context, Operation, Report


class Acknowledge(Operation):
    """Accept other clients' changes in a sink and the checks' findings so far: checks start after that."""

    name = "acknowledge"

    class Params(Operation.Params):
        """The reason."""

        reason: str = Field(description="Why the sink is accepted; kept in the ledger.")
        new_log: str | None = Field(
            default=None,
            title="TIME",
            description="The source's log restarted at lower positions, at this event time, UTC unless stated otherwise: later changes are ordered after all earlier ones. Default: no restart.",
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Accept the sink, in one step."""
        from ebbtide.operations import _clock as clock
        from ebbtide.operations._repair import repair

        new_log_ms = clock.time_ms(params.new_log, ctx.now_ms)
        done = repair.acknowledge(ctx.executor, ctx.spec, ctx.root, params.reason, new_log_ms)
        return done.as_report()


class Adopt(Operation):
    """Make an existing table at DIR/NAME/sink the sink, with its rows."""

    name = "adopt"

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Count the rows."""
        from ebbtide.operations import _adopt as adopt

        return adopt.plan(ctx.executor, ctx.spec, ctx.root)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Adopt them, in steps of a million."""
        from ebbtide.operations import _adopt as adopt

        return adopt.apply(ctx.executor, ctx.spec, ctx.root, ctx.now_ms)


class Clock(Operation):
    """Set the clock for the ageing of a pipeline's state, after a wrong clock or event time."""

    name = "clock"
    observed = "state"
    needed = ("reason",)

    class Params(Operation.Params):
        """The times to set, and the reason."""

        to: str | None = Field(
            default=None,
            title="TIME",
            description="New processing time: now, or a time, UTC unless stated otherwise. Default: unchanged.",
        )
        watermark: str | None = Field(
            default=None,
            title="TIME",
            description="New, lower watermark, from which it rises again. Default: unchanged.",
        )
        reason: str = Field(default="", description="The reason, kept with the step; required to apply it.")

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
            ctx.executor,
            ctx.spec,
            ctx.root,
            now_ms,
            params.reason,
            to_ms,
            watermark_ms,
        )


class Migrate(Operation):
    """Adapt stored data to a spec whose columns, TTL or state types have changed."""

    name = "migrate"
    job = "migration"
    observed = "state"
    further: ClassVar = {"undo": "Undo the last step, if it was a migration."}

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """List the changes."""
        from ebbtide.operations._migration import migrate

        return migrate.plan(ctx.executor, ctx.spec, ctx.root)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Migrate, in one step."""
        from ebbtide.operations._migration import migrate

        return migrate.apply(ctx.executor, ctx.spec, ctx.root, ctx.now_ms)

    def undo(self, ctx: Context, params: Operation.Params) -> Report:
        """Restore the tables to before a migration that was the last step."""
        from ebbtide.operations._migration.undo import undo

        return undo(ctx.executor, ctx.spec, ctx.root)


class Pause(Operation):
    """Stop pipelines from reading until they are resumed: a run ends after its step, a continuous one waits. Starts no Spark."""

    name = "pause"
    takes_turns = False

    class Params(Operation.Params):
        """The reason, and who asks."""

        reason: str = Field(description="The reason; runs, schedules and the status show it.")
        by: str = Field(default="", description="Who asks. Default: the user at this host, or Dagster.")

    def apply(self, ctx: Context, params: Params) -> Report:
        """Pause it."""
        from ebbtide.operations import _pausing as pausing

        by = params.by or ctx.by
        return pausing.pause(ctx.spec, ctx.root, by, params.reason, ctx.now_ms)


class Resume(Operation):
    """Resume paused pipelines. Processing time stood still, so nothing has expired. Starts no Spark."""

    name = "resume"
    takes_turns = False

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Resume it."""
        from ebbtide.operations import _pausing as pausing

        return pausing.resume(ctx.spec, ctx.root, ctx.now_ms)


class Repair(Operation):
    """Restore a damaged, dropped or restored sink to the state's rows."""

    name = "repair"

    class Params(Operation.Params):
        """The way."""

        by_snapshot: bool = Field(
            default=False,
            description="Delete rows missing from the newest snapshot of the whole source table: their deletes were lost with the connector's slot or offsets. Default: compare with the state.",
        )

    def plan(self, ctx: Context, params: Params) -> Report:
        """List the findings and the ways to repair them."""
        from ebbtide.operations._repair import by_snapshot, repair

        if params.by_snapshot:
            return by_snapshot.plan(ctx.spec, ctx.root)
        planned = repair.plan(ctx.executor, ctx.spec, ctx.root)
        return planned.as_report()

    def apply(self, ctx: Context, params: Params) -> Report:
        """Repair it, in one step."""
        from ebbtide.operations._repair import by_snapshot, repair

        if params.by_snapshot:
            return by_snapshot.repair(ctx.executor, ctx.spec, ctx.root, ctx.now_ms)
        done = repair.repair(ctx.executor, ctx.spec, ctx.root)
        return done.as_report()


class Rewind(Operation):
    """Restore all tables to their content after an earlier step."""

    name = "rewind"
    observed = "state"

    class Params(Operation.Params):
        """The step to go back to."""

        to_step: int = Field(ge=1, description="The step to go back to.")

    def plan(self, ctx: Context, params: Params) -> Report:
        """Show the steps that would be undone."""
        from ebbtide.operations import _rewind as rewind

        return rewind.plan(ctx.executor, ctx.spec, ctx.root, params.to_step)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Go back, in a separate step."""
        from ebbtide.operations import _rewind as rewind

        return rewind.apply(ctx.executor, ctx.spec, ctx.root, params.to_step)


class Savepoint(Operation):
    """Copy all tables as of the newest step, also under a run."""

    name = "savepoint"
    observed = "state"
    takes_turns = False
    further: ClassVar = {
        "start": "Start from a savepoint, as 'ebbtide run --from'.",
        "show": "Describe and verify a savepoint; of a folder list all.",
        "delete": "Delete a savepoint.",
    }

    class Params(Operation.Params):
        """The place."""

        to: str = Field(title="URI", description="The savepoint: a new folder.")

    def apply(self, ctx: Context, params: Params) -> Report:
        """Take it."""
        from ebbtide.operations import _savepoint as savepoint

        return savepoint.take(ctx, _resolved(params.to))

    def start(self, ctx: Context, params: Params) -> Report:
        """Start from it."""
        from ebbtide.operations import _savepoint as savepoint

        return savepoint.start(ctx, _resolved(params.to))

    def show(self, ctx: Context, params: Params) -> Report:
        """Describe it."""
        from ebbtide.operations import _savepoint as savepoint

        return savepoint.show(ctx, _resolved(params.to))

    def delete(self, ctx: Context, params: Params) -> Report:
        """Delete it."""
        from ebbtide.operations import _savepoint as savepoint

        return savepoint.delete(ctx, _resolved(params.to))


def _resolved(uri: str) -> str:
    from ebbtide.storage import Location

    Location(uri).refuse_unusable("--to")
    return Location(uri).resolved()
