"""Recomputes the materialized views that read the sink, directly or through further views, without the erased rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ebbtide.delta import Held
from ebbtide.errors import EbbtideError
from ebbtide.ledger import ErasureLedger
from ebbtide.operations._places import NOW, Place
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.operations._operation import Context
    from ebbtide.runtime import Plan
    from ebbtide.spec import Pipeline


def views_above(plan: Plan) -> list[str]:
    """Return the views that read the sink, directly or through further views, each after its inputs."""
    views = plan.views_beside()
    inputs = {name: read for name, read in views.items() if read is not None}
    left = _above(plan.spec.name, inputs)
    ordered: list[str] = []
    while left:
        # Views have no cycles, so one of the remaining views reads none of the remaining ones.
        ready = [name for name in left if not inputs[name] & left]
        ordered += sorted(ready)
        left -= set(ready)
    return ordered


def _above(pipeline: str, inputs: Mapping[str, frozenset[str]]) -> set[str]:
    """Return the views that read a pipeline's sink, directly or through further views.

    Args:
        pipeline: Its name.
        inputs: View to the names that it reads.
    """
    above: set[str] = set()
    read_now = {pipeline}
    while read_now:
        readers = {name for name, read in inputs.items() if read & read_now}
        read_now = readers - above
        above |= readers
    return above


def planned_views(plan: Plan) -> list[Place]:
    """Return the views for a plan."""
    fate = f"{NOW}: it is recomputed from scratch"
    views = [Place(f"view {name}", Held(), fate) for name in views_above(plan)]
    return [*views, *_unreadable(plan)]


def _unreadable(plan: Plan) -> list[Place]:
    """Return the pipelines under the root that may be views over the sink."""
    fate = "unknown: its state cannot be read; if it is a view over this sink, refresh it, and run this again"
    views = plan.views_beside()
    unreadable = [name for name, read in views.items() if read is None]
    return [Place(name, Held(), fate) for name in unreadable]


def computed_again(ctx: Context, plan: Plan) -> list[Place]:
    """Run the views whose tables may hold erased rows; return the result of each.

    Args:
        ctx: The context of the erasure, which has given these views a mark.
        plan: The erased pipeline.
    """
    specs, unusable = _specs(ctx)
    places = []
    for name in views_above(plan):
        problem = unusable
        if name in specs:
            problem = _run(ctx, specs[name])
        elif not problem:
            problem = "its spec is not in this project"
        fate = f"{NOW}: it was recomputed"
        if problem:
            fate = f"deleted by the next run of the view: {problem}"
        view = Place(f"view {name}", Held(), fate)
        places.append(view)
    return [*places, *_unreadable(plan)]


def _specs(ctx: Context) -> tuple[Mapping[str, Pipeline], str]:
    """Return the project's specs by name, or the reason why they are unknown."""
    try:
        specs = {spec.name: spec for spec in ctx.beside()}
    except EbbtideError as error:
        return {}, f"its spec was not read: {error}"
    return specs, ""


def _run(ctx: Context, spec: Pipeline) -> str:
    """Run a view; return the reason why it still has files with erased rows, empty if it has none."""
    from ebbtide.runtime import run

    erasures = ErasureLedger(Location(ctx.root) / spec.name)
    if erasures.unfinished() is None:
        return ""
    try:
        run(
            ctx.executor,
            spec,
            ctx.root,
            on_progress=ctx.on_progress,
            on_phase=ctx.on_phase,
            clock=ctx.clock,
        )
    except EbbtideError as error:
        return f"it was not computed now: {error}"
    if erasures.unfinished() is not None:
        return "an input is still to be computed"
    return ""
