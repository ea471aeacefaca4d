"""The operations on a backfill: a pipeline's tables are built once more beside those in use, and swapped in."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from ebbtide.operations._operation import DRY_RUN, Context, Operation, Report

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline

BEGIN = "Where to begin to read: earliest, or of a topic a time, 2026-01-31T12:00:00, or offsets, 0=12,1=40."
RATE = "Records a second at most. Default: as the spec says."


class _Backfill(Operation):
    """Base class: the pipeline itself may run meanwhile, and its plots are its own."""

    takes_turns = False
    prefix = "backfill_"

    def fits(self, spec: Pipeline) -> bool:
        """Return whether the pipeline reads a source of its own."""
        return not spec.is_view


class Start(_Backfill):
    """Build the tables once more, from the source's beginning or another place, beside those in use; or go on with that."""

    name = "backfill.start"
    can_stop = True

    class Params(Operation.Params):
        """Start and pace of the backfill."""

        begin: str | None = Field(
            default=None,
            alias="from",
            title="PLACE",
            description=f"{BEGIN} Default: earliest, or where the one begun does.",
        )
        snapshot: str | None = Field(
            default=None,
            title="TOPIC",
            description="A topic that is read before, whole: by sequence, records of the same form. Default: none, or as begun.",
        )
        rate: int | None = Field(default=None, ge=1, description=RATE)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Build them up to what is there."""
        from ebbtide.operations._backfill import build
        from ebbtide.operations._backfill.asked import start_of

        begin = None if params.begin is None else start_of(params.begin)
        return build.start(
            ctx.spark,
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
        """Return how far it is."""
        from ebbtide.operations._backfill.status import status

        return status(ctx.spec, ctx.root, ctx.now_ms)


class Into(_Backfill):
    """Read records of a topic, from some place up to where a paused pipeline stands, into its tables; by sequence only."""

    name = "backfill.into"
    can_stop = True

    class Params(Operation.Params):
        """Start and pace of the reading, and its reason."""

        begin: str = Field(alias="from", title="PLACE", description=BEGIN)
        reason: str = Field(description="Why; kept with the steps.")
        rate: int | None = Field(default=None, ge=1, description=RATE)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Read them, in steps."""
        from ebbtide.operations._backfill import rereading
        from ebbtide.operations._backfill.asked import start_of

        begin = start_of(params.begin)
        return rereading.reread(
            ctx.spark,
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
        """Look at its tables and at the source."""
        from ebbtide.operations._backfill.status import status

        return status(ctx.spec, ctx.root, ctx.now_ms)


class Swap(_Backfill):
    """Put a backfill in the place of the pipeline's tables: the sink changes in one commit."""

    name = "backfill.swap"

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Count the rows that differ."""
        from ebbtide.operations._backfill.swap import swap_in

        return swap_in(ctx.spark, ctx.spec, ctx.root, applies=False, clock=ctx.clock)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Swap it in, in one step."""
        from ebbtide.operations._backfill.swap import swap_in

        return swap_in(ctx.spark, ctx.spec, ctx.root, applies=True, clock=ctx.clock)


class Drop(_Backfill):
    """Delete a backfill. Starts no Spark."""

    name = "backfill.drop"
    further: ClassVar = {"dry_run": DRY_RUN}

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Delete it."""
        from ebbtide.operations._backfill import build

        return build.drop(ctx.spec, ctx.root)

    def dry_run(self, ctx: Context, params: Operation.Params) -> Report:
        """Plan it."""
        from ebbtide.operations._backfill import build

        return build.plan_drop(ctx.spec, ctx.root)
