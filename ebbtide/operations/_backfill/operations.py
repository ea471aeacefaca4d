"""The operations on a backfill: new tables of a pipeline are built and swapped with those in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ebbtide.operations._operation import DRY_RUN, Context, Operation, Report

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline

BEGIN = "Start of reading: earliest, or for a topic a time, 2026-01-31T12:00:00, or offsets, 0=12,1=40."
RATE = "Maximum records per second. Default: from the spec."


class _Backfill(Operation):
    """Base class: the pipeline may run meanwhile, and has separate plots."""

    takes_turns = False
    prefix = "backfill_"

    def fits(self, spec: Pipeline) -> bool:
        """Return whether the pipeline reads a source."""
        return not spec.is_view


class Start(_Backfill):
    """Build new tables from the source's beginning or another start, or resume an interrupted build."""

    name = "backfill.start"
    can_stop = True

    class Params(Operation.Params):
        """Start and rate of the backfill."""

        begin: str | None = Field(
            default=None,
            alias="from",
            title="PLACE",
            description=f"{BEGIN} Default: earliest, or that of the present backfill.",
        )
        snapshot: str | None = Field(
            default=None,
            title="TOPIC",
            description="A topic to read completely before the source: by sequence, records of the same form. Default: none, or that of the present backfill.",
        )
        rate: int | None = Field(default=None, ge=1, description=RATE)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Build them up to the newest record."""
        from ebbtide.operations._backfill import build
        from ebbtide.operations._backfill.asked import start_of

        begin = None if params.begin is None else start_of(params.begin)
        return build.start(
            ctx.executor,
            ctx.spec,
            ctx.root,
            begin,
            snapshot=params.snapshot,
            max_records_per_second=params.rate,
            on_progress=ctx.on_progress,
            on_phase=ctx.on_phase,
            stop=ctx.stop,
            clock=ctx.clock,
        )

    def watch(self, ctx: Context) -> Report:
        """Return its progress."""
        from ebbtide.operations._backfill.status import status

        return status(ctx.spec, ctx.root, ctx.now_ms)


class Into(_Backfill):
    """Read records of a topic, from a start up to a paused pipeline's position, into its tables; by sequence only."""

    name = "backfill.into"
    can_stop = True

    class Params(Operation.Params):
        """Start and rate of reading, and the reason."""

        begin: str = Field(alias="from", title="PLACE", description=BEGIN)
        reason: str = Field(description="The reason; kept with the steps.")
        rate: int | None = Field(default=None, ge=1, description=RATE)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Read them, in steps."""
        from ebbtide.operations._backfill import rereading
        from ebbtide.operations._backfill.asked import start_of

        begin = start_of(params.begin)
        return rereading.reread(
            ctx.executor,
            ctx.spec.at_rate(params.rate),
            ctx.root,
            begin,
            params.reason,
            on_progress=ctx.on_progress,
            on_phase=ctx.on_phase,
            stop=ctx.stop,
            clock=ctx.clock,
        )


class Status(_Backfill):
    """Show the progress of a backfill. Starts no Spark."""

    name = "backfill.status"

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Read the status of its tables and the source."""
        from ebbtide.operations._backfill.status import status

        return status(ctx.spec, ctx.root, ctx.now_ms)


class Swap(_Backfill):
    """Replace the pipeline's tables by a backfill: the sink changes in one commit."""

    name = "backfill.swap"

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Count the rows that differ."""
        from ebbtide.operations._backfill.swap import swap_in

        return swap_in(ctx.executor, ctx.spec, ctx.root, applies=False, clock=ctx.clock)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Swap it in, in one step."""
        from ebbtide.operations._backfill.swap import swap_in

        return swap_in(ctx.executor, ctx.spec, ctx.root, applies=True, clock=ctx.clock)


class Drop(_Backfill):
    """Delete a backfill. Starts no Spark."""

    name = "backfill.drop"
    further: ClassVar = {"dry_run": DRY_RUN}

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Delete it."""
        from ebbtide.operations._backfill import build

        return build.drop(ctx.spec, ctx.root)

    def dry_run(self, ctx: Context, params: Operation.Params) -> Report:
        """Plan the deletion."""
        from ebbtide.operations._backfill import build

        return build.plan_drop(ctx.spec, ctx.root)
