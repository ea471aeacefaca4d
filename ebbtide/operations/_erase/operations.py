"""The operation that erases keys. Importing this loads no Spark."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ebbtide.operations._operation import Context, Operation, Report


class Erase(Operation):
    """Erase keys from tables, history and disk, and refuse their later records."""

    name = "erase"
    further: ClassVar = {"release": "Accept records of the keys again."}
    of_one = frozenset({"keys", "where"})

    class Params(Operation.Params):
        """The keys, and the reason."""

        keys: str | None = Field(
            default=None,
            title="FILE",
            description="The keys: JSON lines, or CSV with a header. Default: those of --where.",
        )
        where: str | None = Field(
            default=None,
            title="SQL",
            description="The keys of rows of sink or state that fulfil this condition; Spark starts if Ebbtide cannot judge it. Default: those of --keys.",
        )
        reason: str = Field(default="", description="The reason; kept in the ledger of erasures. Default: none.")

    def plan(self, ctx: Context, params: Params) -> Report:
        """Count what would be erased, by place."""
        from ebbtide.operations._erase import erase

        return erase.plan(ctx, params.keys, params.where)

    def apply(self, ctx: Context, params: Params) -> Report:
        """Erase the keys, in one step, then the files that held them."""
        from ebbtide.operations._erase import erase

        return erase.apply(ctx, params.keys, params.where, params.reason)

    def release(self, ctx: Context, params: Params) -> Report:
        """Forget that the keys were erased, in one step."""
        from ebbtide.operations._erase import erase

        return erase.release(ctx, params.keys, params.where)
