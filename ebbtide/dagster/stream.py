"""The assets of a pipeline: its state and its sink, brought up to date by one bounded run."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

import ebbtide
from ebbtide import Pipeline, RunSummary, StepProgress
from ebbtide.dagster.metadata import asset_specs, pool, state_key
from ebbtide.dagster.report import report_of
from ebbtide.dagster.resources import ClockResource, Means, SparkResource, StorageResource
from ebbtide.dagster.supervise import supervised, waiting_for_lease
from ebbtide.inspect import fault_of_all_bad
from ebbtide.storage import Location

RUN_TOTALS = ("steps", "records", "inserted", "updated", "deleted", "quarantined", "expired")
"""Sums over the steps of a run, which its materialization has."""
OBSERVE_EVERY_S = 5.0
"""Least time between two observations; each is a row of Dagster's event log."""
OBSERVE_FOLLOWING_EVERY_S = 60.0
"""The same of a continuous run, which may take weeks."""


class StreamConfig(dg.Config):
    """Launch settings of a stream."""

    refresh: bool = Field(
        default=False, description="Drop state, sink rows and quarantine, and rebuild from the source."
    )
    accept_source_path: bool = Field(
        default=False, description="The source's files have moved to the spec's new path: continue reading there."
    )
    accept_changed_files: bool = Field(
        default=False,
        description="Files have changed since they were read: read them again; with order: sequence, where that changes nothing twice.",
    )
    accept_loss: bool = Field(
        default=False,
        description="Records of the source are lost: continue with the remaining ones, or with refresh rebuild from them; the check 'source_loss' then fails.",
    )


def stream_assets(spec: Pipeline) -> dg.AssetsDefinition:
    """Make the assets of a pipeline."""

    @dg.multi_asset(name=f"{spec.name}_reconcile", specs=asset_specs(spec), pool=pool(spec))
    def reconcile(
        context: dg.AssetExecutionContext,
        config: StreamConfig,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> Iterator[dg.MaterializeResult[Any]]:
        with waiting_for_lease():
            summary = brought_up_to_date(context, spec, config, Means(spark, storage, clock))
        yield from results(spec, summary, storage)

    return reconcile


def brought_up_to_date(
    context: dg.OpExecutionContext | dg.AssetExecutionContext,
    spec: Pipeline,
    config: StreamConfig,
    means: Means,
) -> RunSummary:
    """Run a bounded pipeline, and report its steps.

    Args:
        context: The run's.
        spec: The pipeline.
        config: Its configuration.
        means: The resources.

    Raises:
        dagster.Failure: it failed, or has read bad records alone.
    """
    root = means.storage.root
    observer = Observer(context, spec, root)
    again = partial(
        ebbtide.run,
        accept_source_path=config.accept_source_path,
        accept_loss=config.accept_loss,
        accept_changed_files=config.accept_changed_files,
    )
    refresh = partial(ebbtide.refresh, accept_loss=config.accept_loss)
    operate = refresh if config.refresh else again

    def work(report: Any, stop: Any) -> RunSummary:
        summary = operate(
            means.spark.for_runs,
            spec.on_engine(means.spark.engine),
            root,
            on_progress=report,
            stop=stop,
            clock=means.clock.now_ms,
        )
        fault = fault_of_all_bad(spec, root, summary)
        if fault is not None:
            raise fault
        return summary

    summary = supervised(work, observer.step)
    observer.flush()
    if summary.nothing_matched:
        context.log.warning(summary.nothing_matched)
    return summary


class Observer:
    """Turns steps into observations of the sink, several into one when they come fast, and into lines of the run's log.

    A continuous run logs a line for each observation only, as its log would grow with every second.

    Args:
        context: The run's.
        spec: The pipeline.
        root: Folder of all pipelines' tables.
    """

    def __init__(self, context: dg.OpExecutionContext | dg.AssetExecutionContext, spec: Pipeline, root: str) -> None:
        self._context = context
        self._spec = spec
        self._root = root
        self._goes_on = spec.run == "continuous"
        self._waiting: list[StepProgress] = []
        self._last = float("-inf")

    def step(self, step: StepProgress) -> None:
        """Report a step, now or together with the next ones."""
        if not self._goes_on:
            self._context.log.info(step.line())
        self._waiting.append(step)
        every_s = OBSERVE_FOLLOWING_EVERY_S if self._goes_on else OBSERVE_EVERY_S
        if time.monotonic() - self._last >= every_s:
            self.flush()

    def flush(self) -> None:
        """Report the steps that were not reported yet."""
        if not self._waiting:
            return
        counts: Counter[str] = Counter()
        for step in self._waiting:
            counts.update(step.counts)
        n_steps = len(self._waiting)
        seconds = sum(step.seconds for step in self._waiting)
        last = self._waiting[-1]
        tables = {}
        if self._goes_on:  # a bounded run reports by its materialization
            self._context.log.info(last.line())
            status = ebbtide.status(self._spec, self._root, asks_source=False)
            status.refuse_unread()
            tables = {"state_rows": status.state.rows or 0}
            if status.sink.type == "delta":
                tables["sink_rows"] = status.sink.rows or 0
        numbers: dict[str, int | float] = {
            "step": last.step,
            "seconds": round(seconds, 3),
            "seconds_per_step": round(seconds / n_steps, 3),
            "records_per_second": round(counts["records"] / seconds, 1) if seconds else 0.0,
            "clock_held_back_ms": last.clock.held_ms,
            "steps": n_steps,
            **{name: counts[name] for name in ("records", "inserted", "updated", "deleted", "quarantined")},
            **{name: n for name, n in counts.items() if n},
            **tables,
        }
        times = {"now": dg.MetadataValue.timestamp(last.clock.now_ms / 1000)}
        if last.clock.watermark_ms is not None:
            times["watermark"] = dg.MetadataValue.timestamp(last.clock.watermark_ms / 1000)
        metadata = {**numbers, **times}
        observation = dg.AssetObservation(self._spec.name, metadata=metadata)
        self._context.log_event(observation)
        self._waiting = []
        self._last = time.monotonic()


def results(spec: Pipeline, summary: RunSummary, storage: StorageResource) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield the materializations of a pipeline's state and sink by a run that has ended."""
    status = ebbtide.status(spec, storage.root, asks_source=False)
    status.refuse_unread()
    of_state = {
        "dagster/uri": f"{summary.root}/state",
        "table_version": status.state.version or 0,
        "step": status.last.step,
        "expired": summary.totals["expired"],
        "dagster/row_count": status.state.rows,
        **_size_of_state(spec, storage.root),
    }
    yield dg.MaterializeResult(asset_key=state_key(spec), metadata=_known(of_state))
    of_sink = {
        "dagster/uri": f"{summary.root}/sink",
        "table_version": status.sink.version,
        "step": status.last.step,
        "engine": summary.engine,
        "report": dg.MetadataValue.md(report_of(summary)),
        "page": dg.MetadataValue.path(_written_page(spec, storage)),
        "dagster/row_count": status.sink.rows,
        **_run_totals(spec, summary),
        "nothing_matched": summary.nothing_matched or None,
        "foreign_writes": len(summary.foreign_writes) or None,
    }
    yield dg.MaterializeResult(asset_key=spec.name, metadata=_known(of_sink))


def _written_page(spec: Pipeline, storage: StorageResource) -> str:
    """Write the page on a pipeline next to its Data Docs; return its path."""
    from ebbtide.inspect import page

    path = storage.docs_of(spec.name) / "report.html"
    html = page([spec], storage.root, lambda _: ["launched by the schedules of its jobs"])
    Location(path).replace_bytes(html.encode())
    return str(path)


def _run_totals(spec: Pipeline, summary: RunSummary) -> dict[str, int]:
    """Return the totals of a run under separate names.

    Dagster plots a name over all events of an asset, and steps have numbers of the same kind.
    """
    totals = {f"run_{name}": summary.totals[name] for name in RUN_TOTALS}
    if not spec.sequence:
        totals["run_unmatched"] = summary.totals["unmatched"]
    return totals


def _known(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out None values: unknown or missing."""
    return {name: value for name, value in metadata.items() if value is not None}


def _size_of_state(spec: Pipeline, root: str) -> dict[str, int]:
    """Return files and bytes that the newest version of the state names, as maintenance reports them: one plot has both."""
    from ebbtide.delta import Snapshot
    from ebbtide.runtime import Plan

    location = Plan.under(root, spec).at("state")
    state = Snapshot.read(location, any_features=True)
    if state is None:
        return {}
    n_bytes = sum(file.size for file in state.files.values())
    return {"files_after": len(state.files), "bytes_after": n_bytes}
