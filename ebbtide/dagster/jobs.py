"""The jobs of a pipeline's runs and checks, and the schedules of all jobs; each is off until it is switched on."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.metadata import checks_name, maintenance_pool, pool, run_name, run_tags, state_key
from ebbtide.dagster.resources import StorageResource
from ebbtide.dagster.sensors import why_not
from ebbtide.model.cron import is_due, spread_minute
from ebbtide.operations.operation import Operation


def run_job(spec: Pipeline) -> Any:
    """Make the job that brings the sink up to date and checks it. Continuous runs are checked by `checks_job`, beside the next run."""
    tables = [state_key(spec), dg.AssetKey(spec.name)]
    assets = dg.AssetSelection.assets(*tables)
    checks = dg.AssetSelection.checks_for_assets(*tables)
    if spec.run == "continuous":
        return dg.define_asset_job(
            run_name(spec),
            assets.without_checks(),
            description=f"Read what is there and what comes into '{spec.name}', expire what is due, until it is stopped or as old as max_run_age.",
            tags=run_tags(spec, pool(spec)),
        )
    return dg.define_asset_job(
        run_name(spec),
        assets | checks,
        description=f"Read all that is there into '{spec.name}', expire what is due, check the sink.",
        tags=run_tags(spec, pool(spec)),
    )


def checks_job(spec: Pipeline) -> Any:
    """Make the job that checks the sink of a continuous run, which yields between two steps."""
    return dg.define_asset_job(
        checks_name(spec),
        dg.AssetSelection.checks_for_assets(dg.AssetKey(spec.name)),
        description=f"Check the sink of '{spec.name}' as it is between two steps.",
        tags=run_tags(spec, maintenance_pool(spec)),
    )


def run_schedule(spec: Pipeline, job: Any) -> dg.ScheduleDefinition:
    """Make the schedule of a pipeline's runs, which launches none while the pipeline is paused."""
    cron = spread_minute(spec.stream_cron or "", spec.name)

    @dg.schedule(name=f"{job.name}_schedule", job=job, cron_schedule=cron)
    def launch(storage: StorageResource) -> dg.RunRequest | dg.SkipReason:
        obstacle = why_not(spec, storage.root)
        if obstacle:
            return dg.SkipReason(obstacle)
        return dg.RunRequest()

    return launch


def check_schedule(spec: Pipeline, job: Any) -> dg.ScheduleDefinition:
    """Make the schedule of the checks beside a continuous run."""
    cron = spread_minute(spec.schedules.check or "", spec.name)
    return dg.ScheduleDefinition(name=f"{job.name}_schedule", job=job, cron_schedule=cron)


def operation_schedule(
    operation: Operation, specs: Sequence[Pipeline], job: dg.JobDefinition
) -> Iterator[dg.ScheduleDefinition]:
    """Make the schedule of an operation for all pipelines whose spec has a time for it; none without one.

    It ticks at the times of all specs, and launches a run for each pipeline that is due at a tick.

    Args:
        operation: The operation.
        specs: The pipelines.
        job: The operation's job.
    """
    crons = {}
    for spec in specs:
        asked = spec.schedules.model_dump().get(operation.job_name)
        if asked is not None:
            crons[spec.name] = spread_minute(asked, spec.name)
    if not crons:
        return

    @dg.schedule(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=sorted(set(crons.values())),
        description=f"Launches {job.name} for each pipeline at the time of its spec, 'schedules.{operation.job_name}'.",
    )
    def launch(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
        tick = context.scheduled_execution_time
        requests = []
        for name, cron in crons.items():
            if not is_due(cron, tick):
                continue
            key = f"{name} at {tick.isoformat()}"
            request = dg.RunRequest(run_key=key, partition_key=name)
            requests.append(request)
        return requests

    yield launch
