"""The continuous pipelines of a group as one asset job: one process follows them all, with one session of Spark where one is needed."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import dagster as dg

import ebbtide
from ebbtide import Pipeline, RunSummary, StepProgress
from ebbtide.dagster.metadata import TURN_TAG, asset_specs, state_key
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.stream import Observer, StreamConfig, results
from ebbtide.dagster.supervise import IS_TRANSIENT, supervised, waiting_for_lease
from ebbtide.errors import Transient
from ebbtide.fleet import Ended, Failed, Fleet, GoesOn
from ebbtide.inspect import fault_of_all_bad
from ebbtide.redaction import redacted

GROUP_TAG = "ebbtide/group"
"""Tag of runs that follow the pipelines of a group: its name."""
Report = StepProgress | Ended | Failed | GoesOn


def followed_groups(specs: Sequence[Pipeline]) -> dict[str, list[Pipeline]]:
    """Return the groups that are followed by one job each: those with several continuous pipelines.

    Args:
        specs: All pipelines of a project.
    """
    groups: dict[str, list[Pipeline]] = {}
    for spec in specs:
        if spec.run == "continuous":
            groups.setdefault(spec.group, []).append(spec)
    return {group: members for group, members in groups.items() if len(members) > 1}


def follow_name(group: str) -> str:
    """Return the name of the job that follows a group, and of its op."""
    return f"ebbtide_follow_{group}"


def follow_job(group: str, specs: Sequence[Pipeline]) -> Any:
    """Make the job that follows the continuous pipelines of a group.

    Args:
        group: Its name.
        specs: These pipelines.
    """
    keys: list[dg.AssetKey] = []
    for spec in specs:
        keys += _keys(spec)
    assets = dg.AssetSelection.assets(*keys)
    name = follow_name(group)
    names = ", ".join(spec.name for spec in specs)
    return dg.define_asset_job(
        name,
        assets.without_checks(),
        description=f"Read present and new records into {names}, in turns of one process, until it is stopped or reaches the first max_run_age.",
        tags={GROUP_TAG: group, TURN_TAG: name},
    )


def follow_assets(group: str, specs: Sequence[Pipeline]) -> dg.AssetsDefinition:
    """Make the assets of the continuous pipelines of a group; a run follows those that are selected.

    Args:
        group: Its name.
        specs: These pipelines.
    """
    described = []
    for spec in specs:
        for asset in asset_specs(spec):
            skippable = asset.replace_attributes(skippable=True)
            described.append(skippable)

    @dg.multi_asset(name=follow_name(group), specs=described, can_subset=True)
    def follow(
        context: dg.AssetExecutionContext,
        config: StreamConfig,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> Iterator[dg.MaterializeResult[Any]]:
        wanted = context.selected_asset_keys
        of_selection = [spec for spec in specs if not wanted.isdisjoint(_keys(spec))]
        chosen = [spec.on_engine(spark.engine) for spec in of_selection]
        runs = _Runs(chosen, config, spark.for_runs, storage.root, clock.now_ms)
        observers = {spec.name: Observer(context, spec, storage.root) for spec in chosen}
        reports = _Reports(context, observers)
        operate = runs.refresh if config.refresh else runs.follow

        with waiting_for_lease():
            supervised(operate, reports.take)
        for spec in chosen:
            summary = reports.summaries.get(spec.name)
            if summary is None:
                continue
            for result in results(spec, summary, storage):
                if result.asset_key in wanted:
                    yield result
        reports.refuse_failing()

    return follow


def _keys(spec: Pipeline) -> list[dg.AssetKey]:
    return [state_key(spec), dg.AssetKey(spec.name)]


@dataclass(frozen=True)
class _Runs:
    """Runs of the pipelines of a group; each method reports what happens, until `stop` is set.

    Args:
        specs: The pipelines.
        config: Configuration of the runs.
        session, root, clock: See `ebbtide.run`.
    """

    specs: Sequence[Pipeline]
    config: StreamConfig
    session: Any
    root: str
    clock: Callable[[], int]

    def follow(self, report: Callable[[Report], None], stop: threading.Event) -> None:
        """Follow the pipelines."""
        run = Fleet.once(
            ebbtide.run,
            accept_source_path=self.config.accept_source_path,
            accept_loss=self.config.accept_loss,
            accept_changed_files=self.config.accept_changed_files,
        )
        fleet = Fleet(self.specs, partial(self._run, run, report, stop), stop)
        for event in fleet.events():
            report(event)

    def refresh(self, report: Callable[[Report], None], stop: threading.Event) -> None:
        """Rebuild the pipelines one after the other."""
        for spec in self.specs:
            summary = self._run(ebbtide.refresh, report, stop, spec, accept_loss=self.config.accept_loss)
            fault = fault_of_all_bad(spec, self.root, summary)
            report(Ended(spec, summary) if fault is None else Failed(spec, fault, again_s=None))

    def _run(
        self,
        run: Callable[..., RunSummary],
        report: Callable[[Report], None],
        stop: threading.Event,
        spec: Pipeline,
        **given: Any,
    ) -> RunSummary:
        return run(
            self.session,
            spec,
            self.root,
            on_progress=report,
            stop=stop,
            clock=self.clock,
            **given,
        )


@dataclass
class _Reports:
    """Takes what the runs report, on Dagster's thread.

    Args:
        context: Of the group's run.
        observers: Name of a pipeline to what reports its steps.
    """

    context: dg.AssetExecutionContext
    observers: Mapping[str, Observer]
    summaries: dict[str, RunSummary] = field(default_factory=dict)
    failing: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Name of a pipeline to the text of its error, and whether that may pass."""

    def take(self, report: Report) -> None:
        """Take a step, or what has happened to a run."""
        if isinstance(report, StepProgress):
            self.observers[report.pipeline].step(report)
            return
        name = report.spec.name
        self.failing.pop(name, None)
        if isinstance(report, Ended):
            self.observers[name].flush()
            self.summaries[name] = report.summary
        elif isinstance(report, Failed):
            # Not the error, which holds the tables of its run.
            error = report.error
            text = _text(error)
            may_pass = isinstance(error, Transient)
            self.failing[name] = (text, may_pass)
            again = "" if report.again_s is None else f" Begun again in {report.again_s:g} s."
            self.context.log.error("%s: %s%s", name, text, again)
        elif isinstance(report, GoesOn):
            self.context.log.info("%s: continues.", name)

    def refuse_failing(self) -> None:
        """Fail the run if pipelines were failing at its end.

        Raises:
            dagster.Failure: some failed; a retry helps if some continue or the errors are temporary.
        """
        refuse_failing(self.failing, goes_on=bool(self.summaries))


def refuse_failing(failing: Mapping[str, tuple[str, bool]], *, goes_on: bool) -> None:
    """Fail a run of several pipelines if some have failed.

    Args:
        failing: Name of a pipeline to the text of its error, and whether that may pass.
        goes_on: Other pipelines have succeeded.

    Raises:
        dagster.Failure: some failed; a retry helps if some continue or the errors are temporary.
    """
    if not failing:
        return
    may_pass = goes_on or any(passes for _, passes in failing.values())
    texts = [f"{name}: {text}" for name, (text, _) in sorted(failing.items())]
    raise dg.Failure(
        "\n".join(texts),
        metadata={IS_TRANSIENT: may_pass},
        allow_retries=may_pass,
    )


def _text(error: Exception) -> str:
    kind = type(error).__name__
    return redacted(f"{kind}: {error}")
