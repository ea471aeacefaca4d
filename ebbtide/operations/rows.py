"""Rows: counts the rows of a sink by its log."""

from __future__ import annotations

from ebbtide.operations.operation import Context, Operation, Report


class Rows(Operation):
    """Count the rows of a sink. Starts no Spark."""

    name = "rows"

    def plan(self, ctx: Context, params: Operation.Params) -> Report:
        """Count them by the sink's log."""
        from ebbtide.inspect.status import status

        n_rows = status(ctx.spec, ctx.root).sink_rows
        return Report(ctx.spec.name, [f"{n_rows} rows."], {"rows": n_rows})
