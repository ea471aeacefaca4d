"""The job that builds a pipeline's tables once more beside those in use, and swaps them in."""

import threading
import time
from collections.abc import Callable
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from ebbtide import Pipeline, StepProgress
from ebbtide.dagster.metadata import report_metadata
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.supervise import supervised

OBSERVE_EVERY_S = 10.0
"""Least time between two observations; for each the source is asked what waits."""

ACTIONS = {
    "'ebbtide backfill start'": "start",
    "'ebbtide backfill swap'": "compare",
    "'ebbtide backfill swap --apply'": "swap",
}
"""Commands that reports name to the actions that do the same."""


class BackfillConfig(dg.Config):
    """What a backfill is launched to do."""

    action: Literal["start", "status", "compare", "swap", "drop", "into"] = Field(
        default="start",
        description="start: build, or go on; status: tell how far it is; compare: tell in what rows it differs; swap: put it in the place of the tables; drop: delete it; into: read records of a topic up to where the paused pipeline stands into its tables.",
    )
    begin: str | None = Field(
        default=None,
        description="Of start and into: where to begin to read: earliest, or of a topic a time, 2026-01-31T12:00:00, or offsets, 0=12,1=40. Default: earliest, or where the one begun does.",
    )
    rate: int | None = Field(default=None, gt=0, description="Records a second at most. Default: as the spec says.")
    snapshot: str | None = Field(
        default=None, description="Of start: a topic that is read before, whole. Default: none, or as begun."
    )
    reason: str = Field(default="", description="Of into: why; kept with the steps.")


def backfill_job(spec: Pipeline) -> dg.JobDefinition:
    """Make the job; it takes turns with nobody, since the pipeline runs on meanwhile. What it reports are observations of the sink."""

    @dg.op(
        name=f"{spec.name}_build_backfill",
        out=dg.Out(dg.Nothing),
        description="Build the tables once more beside those in use, compare them, swap them in.",
    )
    def act(
        context: dg.OpExecutionContext,
        config: BackfillConfig,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> None:
        last_s = float("-inf")

        def observe(report: Any) -> None:
            # Under names of their own, or the pipeline's own plots would go on with them.
            numbers = {name: value for name, value in report.as_dict().items() if isinstance(value, int | float)}
            plotted = {f"backfill_{name}": value for name, value in numbers.items()}
            metadata = report_metadata(report, "backfill", config.action, ACTIONS) | plotted
            context.log_event(dg.AssetObservation(spec.name, metadata=metadata))

        def on_step(step: StepProgress) -> None:
            nonlocal last_s
            context.log.info(step.line())
            if config.action == "start" and time.monotonic() - last_s >= OBSERVE_EVERY_S:
                last_s = time.monotonic()
                observe(_operate(spec, BackfillConfig(action="status"), spark, storage.root, clock))

        def work(say: Callable[[StepProgress], None], stop: threading.Event) -> Any:
            return _operate(spec, config, spark, storage.root, clock, say, stop)

        report = supervised(work, on_step)
        context.log.info(report.text())
        observe(report)

    @dg.job(
        name=f"{spec.name}_backfill",
        description="Build the tables once more beside those in use, and swap them in: start, status, compare, swap or drop.",
    )
    def job() -> None:
        act()

    return job


def _operate(
    spec: Pipeline,
    config: BackfillConfig,
    spark: SparkResource,
    root: str,
    clock: ClockResource,
    say: Callable[[StepProgress], None] = lambda step: None,
    stop: threading.Event | None = None,
) -> Any:
    """Do what is asked; return its report."""
    from ebbtide.maintenance import backfill, backfill_asked, backfill_status, backfill_swap, rereading

    match config.action:
        case "status":
            return backfill_status.status(spec, root, clock.now_ms())
        case "drop":
            return backfill.drop(spec, root)
        case "start":
            return backfill.start(
                spark.session,
                spec,
                root,
                None if config.begin is None else backfill_asked.start_of(config.begin),
                snapshot=config.snapshot,
                max_records_per_second=config.rate,
                on_progress=say,
                stop=stop,
                clock=clock.now_ms,
            )
        case "into":
            return rereading.reread(
                spark.session,
                spec if config.rate is None else spec.at_rate(config.rate),
                root,
                backfill_asked.start_of(config.begin or "earliest"),
                config.reason,
                on_progress=say,
                stop=stop,
                clock=clock.now_ms,
            )
        case _:
            return backfill_swap.swap_in(
                spark.session,
                spec,
                root,
                applies=config.action == "swap",
                clock=clock.now_ms,
            )
