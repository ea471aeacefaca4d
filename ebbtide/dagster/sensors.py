"""Sensors of a pipeline's backlog: each half minute it is reported and plotted, and a bounded run is launched to read it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import BetaWarning

from ebbtide import Pipeline, UpsertPipelines
from ebbtide.dagster.metadata import stream_name
from ebbtide.dagster.resources import ClockResource, StorageResource
from ebbtide.errors import PausedError, Transient

if TYPE_CHECKING:
    from ebbtide.inspect.backlog import Lag

# Dagster copies the sensors of components with all their parameters, and warns of each that was not given.
warnings.filterwarnings("ignore", "Parameter `owners` of initializer `SensorDefinition", BetaWarning)

EVERY_S = 30
"""Least time between two looks, seconds."""
TOPICS_EVERY_S = 300
"""The same, for topics that no pipeline reads."""
MOST_PARTITIONS = 32
"""Partitions up to which each is plotted; of more, only the sum is."""
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def backlog_sensor(spec: Pipeline) -> dg.SensorDefinition:
    """Make the sensor that plots the backlog, and launches a bounded run if there is one; switched off at first.

    Args:
        spec: The pipeline.
    """
    job = stream_name(spec)
    launching = "" if spec.run == "continuous" else f", and launches {job} if anything does"

    @dg.sensor(
        name=f"{spec.name}_backlog",
        job_name=job,
        minimum_interval_seconds=EVERY_S,
        description=f"Looks what waits in the source of '{spec.name}', plots it{launching}.",
    )
    def look(
        context: dg.SensorEvaluationContext,
        storage: StorageResource,
        clock: ClockResource,
    ) -> dg.SensorResult | dg.SkipReason:
        from ebbtide.inspect.backlog import lag

        try:
            found = lag(spec, storage.root, clock.now_ms())
        except Transient as error:
            return dg.SkipReason(str(error))
        text = found.text()
        is_news = found.fingerprint != context.cursor
        goes_on = spec.run == "continuous"
        # Records that wait get older although none arrives: their age is plotted again.
        waits_on = bool(found.backlog.held) or (goes_on and not found.backlog.is_empty)
        observations = [_observation(spec, found)] if is_news or waits_on else []
        if goes_on:
            return dg.SensorResult(skip_reason=text, asset_events=observations, cursor=found.fingerprint)
        obstacle = why_not(spec, storage.root)
        if not obstacle and _is_under_way(context.instance, job):
            obstacle = "a run is under way"
        if obstacle:
            return dg.SensorResult(
                skip_reason=f"{text}; {obstacle}",
                asset_events=observations,
                cursor=context.cursor,
            )
        # One run for a backlog: if it fails, the next one is launched by a user, or when further records arrive.
        launches = is_news and not found.backlog.is_empty
        # Named after the last run too: after a rewind the same records wait again, and Dagster launches no key twice.
        run_key = f"{found.fingerprint} after {_last_run(context.instance, job)}"
        requests = [dg.RunRequest(run_key=run_key)] if launches else []
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if launches else text,
            asset_events=observations,
            cursor=found.fingerprint,
        )

    return look


def why_not(spec: Pipeline, root: str) -> str:
    """Return the reason to launch no run, a pause; empty if there is none.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
    """
    from ebbtide.ledger.pauses import refuse_paused
    from ebbtide.runtime.plan import Plan

    try:
        refuse_paused(spec.name, Plan.under(root, spec).turn)
    except PausedError as error:
        return str(error)
    return ""


def topics_sensor(several: UpsertPipelines) -> dg.SensorDefinition:
    """Make the sensor that reports topics which no pipeline of a file reads; switched off at first.

    Args:
        several: The pipelines, with a pattern of topics.
    """

    @dg.sensor(
        name=f"{several.name}_{several.listed}",
        minimum_interval_seconds=TOPICS_EVERY_S,
        description=f"Looks for {several.listed} like '{several.pattern}' that no pipeline of '{several.name}' reads, and reports them.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from ebbtide.inspect.backlog import unread_topics

        try:
            found = unread_topics(several)
        except Transient as error:
            return dg.SkipReason(str(error))
        if found is None:
            return dg.SkipReason("no pattern")
        text = found.text()
        if found.topics and context.cursor != text:
            context.log.warning(text)
        context.update_cursor(text)
        return dg.SkipReason(text)

    return look


def _is_under_way(instance: dg.DagsterInstance, job_name: str) -> bool:
    runs = dg.RunsFilter(job_name=job_name, statuses=UNDER_WAY)
    return instance.get_runs_count(runs) > 0


def _last_run(instance: dg.DagsterInstance, job_name: str) -> str:
    runs = instance.get_runs(dg.RunsFilter(job_name=job_name), limit=1)
    return runs[0].run_id if runs else "none"


def _observation(spec: Pipeline, found: Lag) -> dg.AssetObservation:
    """Return the numbers of a backlog for plots in the UI; 0 s for a topic where nothing waits, as the plot would have gaps."""
    numbers: dict[str, Any] = {}
    counts = found.as_dict()
    for name in ("files", "bytes", "records"):
        if counts[name] is not None:
            numbers[f"waiting_{name}"] = counts[name]
    partitions = found.backlog.records
    held = found.backlog.held
    if partitions:
        numbers["held_records"] = sum(held.values())
    if found.behind_ms is not None or (partitions and found.backlog.is_empty and not held):
        numbers["waiting_seconds"] = (found.behind_ms or 0) / 1000
    if len(partitions) <= MOST_PARTITIONS:
        for partition, n in partitions.items():
            numbers[f"waiting_records_{partition}"] = n
        for partition, behind_ms in found.behind_ms_of.items():
            numbers[f"waiting_seconds_{partition}"] = behind_ms / 1000
    return dg.AssetObservation(spec.name, metadata=numbers)
