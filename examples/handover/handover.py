"""An operation of a project's own: `ebbtide handover` and the job `ebbtide_handover` write down what a sink holds."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import Field

import ebbtide
from ebbtide.operations import Context, Operation, Report


class Handover(Operation):
    """Write down how many rows a sink has, and at which step, for those who read it next."""

    name = "handover"

    class Params(Operation.Params):
        """The file, and notes for its readers."""

        to: str = Field(title="FILE", description="The file to write, as JSON.")
        note: list[str] = Field(
            default=[], description="What the readers should know; several times. Default: nothing."
        )

    def plan(self, ctx: Context, params: Params) -> Report:
        """Count the rows."""
        found = ebbtide.status(ctx.spec, ctx.root)
        counts = {"rows": found.sink.rows or 0, "at_step": found.last.step}
        return Report(
            ctx.spec.name,
            [f"{counts['rows']:,} rows at step {found.last.step}."],
            counts,
            {"notes": params.note},
            next_step="To do it: the same with '--apply'.",
        )

    def apply(self, ctx: Context, params: Params) -> Report:
        """Write the file."""
        found = self.plan(ctx, params)
        Path(params.to).write_text(json.dumps(found.as_dict()), encoding="utf-8")
        return Report(
            ctx.spec.name, [*found.lines, f"Written to {params.to} by {ctx.by}."], found.counts, found.details
        )
