"""The operations on the quarantine: bad records are replayed, or dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ebbtide.operations._operation import Context, Operation, Report

if TYPE_CHECKING:
    from ebbtide.tables import Selection


class Selecting(Operation.Params):
    """The selection of records."""

    reasons: list[str] = Field(
        default=[],
        alias="reason",
        description="Only records with this reason, or one of several. Default: any.",
    )
    steps: list[int] = Field(
        default=[], alias="step", description="Only records of this step, or of one of several. Default: any."
    )
    limit: int | None = Field(
        default=None, ge=1, description="Maximum number of records, the oldest first. Default: all."
    )

    def selection(self) -> Selection:
        """Return the selection for the quarantine."""
        from ebbtide.tables import Selection

        return Selection(tuple(self.reasons), tuple(self.steps), self.limit)


class Replay(Operation):
    """Decode quarantined records again with the present spec, and apply those that are now good."""

    name = "quarantine.replay"
    of_one = frozenset({"records"})

    class Params(Selecting):
        """The selection of records, and how they are replayed."""

        records: str | None = Field(
            default=None,
            title="FILE",
            description=(
                "Replay corrected records: JSON lines with origin and raw, as show --json prints them; only those."
                " Default: the stored records."
            ),
        )
        accept_late: bool = Field(
            default=False,
            description="With order: arrival, apply late records now, after all later ones. Default: false.",
        )

    def plan(self, ctx: Context, params: Params) -> Report:
        """Count the records that are now good, and show why the rest is not."""
        from ebbtide.operations._quarantine import replay
        from ebbtide.operations._quarantine.redecoding import read_corrected

        corrected = None if params.records is None else read_corrected(params.records)
        selection = params.selection()
        return replay.plan(ctx.spec, ctx.root, ctx.now_ms, selection, corrected)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Apply the good records, in one step."""
        from ebbtide.operations._quarantine import replay
        from ebbtide.operations._quarantine.redecoding import read_corrected

        corrected = None if params.records is None else read_corrected(params.records)
        return replay.apply(
            ctx.executor,
            ctx.spec,
            ctx.root,
            ctx.now_ms,
            params.selection(),
            corrected,
            accept_late=params.accept_late,
        )


class Drop(Operation):
    """Drop quarantined records."""

    name = "quarantine.drop"
    needed = ("note",)

    class Params(Selecting):
        """The selection of records, and the reason."""

        note: str = Field(default="", description="The reason, kept with the step; required to apply it.")

    def plan(self, ctx: Context, params: Params) -> Report:
        """Count them."""
        from ebbtide.operations._quarantine import drop

        return drop.plan(ctx.spec, ctx.root, params.selection())

    def apply(self, ctx: Context, params: Params) -> Report:
        """Drop them, in one step."""
        from ebbtide.operations._quarantine import drop

        selection = params.selection()
        return drop.apply(ctx.executor, ctx.spec, ctx.root, selection, params.note)
