"""The operations that a person asks for, on tables as they are. Importing this loads no Spark."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ebbtide.maintenance.operation import Context, Operation, Report


class Clock(Operation):
    """Set the time that a pipeline's state ages by, after a wrong clock or event time."""

    name = "clock"
    observed = "state"

    class Params(Operation.Params):
        """What is set, and why."""

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
        """Tell where clock and watermark stand, and what would be set."""
        from ebbtide.maintenance import clock

        now_ms = ctx.now_ms
        to_ms = clock.time_ms(params.to, now_ms)
        watermark_ms = clock.time_ms(params.watermark, now_ms)
        return clock.plan(ctx.spec, ctx.root, now_ms, to_ms, watermark_ms)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Set them."""
        from ebbtide.maintenance import clock

        now_ms = ctx.now_ms
        to_ms = clock.time_ms(params.to, now_ms)
        watermark_ms = clock.time_ms(params.watermark, now_ms)
        clock.refuse_no_reason(params.reason)
        return clock.apply(ctx.spark, ctx.spec, ctx.root, now_ms, params.reason, to_ms, watermark_ms)


class Migrate(Operation):
    """Make what is stored fit a spec whose columns, TTL or state types have changed."""

    name = "migrate"
    job = "migration"
    observed = "state"
    further: ClassVar = {"undo": "Undo the last step, if it was a migration."}

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Tell what would change."""
        from ebbtide.maintenance import migration

        return migration.plan(ctx.spark, ctx.spec, ctx.root)

    def apply(self, ctx: Context, params: Operation.Params) -> Report:
        """Migrate, in one step."""
        from ebbtide.maintenance import migration

        return migration.apply(ctx.spark, ctx.spec, ctx.root, ctx.now_ms)

    def undo(self, ctx: Context, params: Operation.Params) -> Report:
        """Put the tables back to what they were before a migration that was the last step."""
        from ebbtide.maintenance import migration

        return migration.undo(ctx.spark, ctx.spec, ctx.root)
