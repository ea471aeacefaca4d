"""What a pipeline's source holds that no run has read, looked at every half minute: told, plotted, and read by a run."""

from __future__ import annotations

import warnings
from typing import Any

import dagster as dg
from dagster import BetaWarning

from ebbtide import Pipeline, UpsertPipelines
from ebbtide.dagster.resources import ClockResource, StorageResource
from ebbtide.errors import PausedError, Transient

# Dagster copies the sensors of components with all their parameters, and warns of one that nobody has given.
warnings.filterwarnings("ignore", "Parameter `owners` of initializer `SensorDefinition", BetaWarning)

EVERY_S = 30
"""Least time between two looks, seconds."""
TOPICS_EVERY_S = 300
"""The same, for topics that nobody reads."""
_UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def backlog_sensor(spec: Pipeline) -> dg.SensorDefinition:
    """Make the sensor that launches a run once records, or files, wait; switched off at first.

    Args:
        spec: The pipeline.
    """
    job = f"{spec.name}_stream"

    @dg.sensor(
        name=f"{spec.name}_backlog",
        job_name=job,
        minimum_interval_seconds=EVERY_S,
        description=f"Looks what waits in the source of '{spec.name}', plots it, and launches {job} if anything does.",
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
        told = found.text()
        is_news = found.fingerprint != context.cursor
        observations = [_observation(spec, found.as_dict())] if is_news else []
        obstacle = why_not(spec, storage.root)
        if not obstacle and _is_under_way(context.instance, job):
            obstacle = "a run is under way"
        if obstacle:
            return dg.SensorResult(
                skip_reason=f"{told}; {obstacle}",
                asset_events=observations,
                cursor=context.cursor,
            )
        # One run for what waits: if it fails, the next one is for whoever sees to it, or for what comes.
        launches = is_news and not found.backlog.is_empty
        requests = [dg.RunRequest(run_key=found.fingerprint)] if launches else []
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if launches else told,
            asset_events=observations,
            cursor=found.fingerprint,
        )

    return look


def why_not(spec: Pipeline, root: str) -> str:
    """Return why no run is to be launched: the pipeline is paused; empty if it is not.

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
    """Make the sensor that tells topics which none of several pipelines reads; switched off at first.

    Args:
        several: The pipelines, with a pattern of topics.
    """

    @dg.sensor(
        name=f"{several.name}_topics",
        minimum_interval_seconds=TOPICS_EVERY_S,
        description=f"Looks for topics like '{several.topics}' that no pipeline of '{several.name}' reads, and tells them.",
    )
    def look(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        from ebbtide.inspect.backlog import unread_topics

        try:
            found = unread_topics(several)
        except Transient as error:
            return dg.SkipReason(str(error))
        if found is None:
            return dg.SkipReason("no pattern of topics")
        told = found.text()
        if found.topics and context.cursor != told:
            context.log.warning(told)
        context.update_cursor(told)
        return dg.SkipReason(told)

    return look


def _is_under_way(instance: dg.DagsterInstance, job_name: str) -> bool:
    runs = dg.RunsFilter(job_name=job_name, statuses=_UNDER_WAY)
    return instance.get_runs_count(runs) > 0


def _observation(spec: Pipeline, lag: dict[str, Any]) -> dg.AssetObservation:
    """Return the numbers of a lag as the UI plots them."""
    numbers: dict[str, Any] = {}
    for name in ("files", "bytes", "records", "behind_ms"):
        if lag[name] is not None:
            numbers[f"waiting_{name}"] = lag[name]
    for partition, n in lag["partitions"].items():
        numbers[f"waiting_records_{partition}"] = n
    return dg.AssetObservation(spec.name, metadata=numbers)
