"""The jobs of a pipeline's runs and checks, and the schedules of all its jobs."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.metadata import checks_name, state_key, stream_name
from ebbtide.dagster.resources import StorageResource
from ebbtide.dagster.sensors import why_not
from ebbtide.model.cron import spread_minute


def stream_job(spec: Pipeline) -> Any:
    """Make the job that brings the sink up to date and checks it. Continuous runs are checked by `checks_job`, beside the next run."""
    tables = [state_key(spec), dg.AssetKey(spec.name)]
    assets = dg.AssetSelection.assets(*tables)
    checks = dg.AssetSelection.checks_for_assets(*tables)
    if spec.run == "continuous":
        return dg.define_asset_job(
            stream_name(spec),
            assets.without_checks(),
            description=f"Read what is there and what comes into '{spec.name}', expire what is due, until it is stopped or as old as max_run_age.",
        )
    return dg.define_asset_job(
        stream_name(spec),
        assets | checks,
        description=f"Read all that is there into '{spec.name}', expire what is due, check the sink.",
    )


def checks_job(spec: Pipeline) -> Any:
    """Make the job that checks the sink of a continuous run, which yields between two steps."""
    return dg.define_asset_job(
        checks_name(spec),
        dg.AssetSelection.checks_for_assets(dg.AssetKey(spec.name)),
        description=f"Check the sink of '{spec.name}' as it is between two steps.",
    )


def schedules(spec: Pipeline, jobs: dict[str, Any]) -> Iterator[dg.ScheduleDefinition]:
    """Make a schedule for each job with a time in the spec; switched off at first.

    Args:
        spec: The pipeline.
        jobs: Name of a job, as in the spec's `schedules`, to the job.
    """
    crons = {**spec.schedules.model_dump(), "stream": spec.stream_cron}
    for kind, job in jobs.items():
        asked = crons.get(kind)
        if asked is None:
            continue
        cron = spread_minute(asked, spec.name)
        name = f"{spec.name}_{kind}_schedule"
        if kind == "stream":
            yield _stream_schedule(spec, name, job, cron)
        else:
            yield dg.ScheduleDefinition(name=name, job=job, cron_schedule=cron)


def _stream_schedule(spec: Pipeline, name: str, job: Any, cron: str) -> dg.ScheduleDefinition:
    """Make the schedule of runs, which launches none while the pipeline is paused."""

    @dg.schedule(name=name, job=job, cron_schedule=cron)
    def launch(storage: StorageResource) -> dg.RunRequest | dg.SkipReason:
        obstacle = why_not(spec, storage.root)
        if obstacle:
            return dg.SkipReason(obstacle)
        return dg.RunRequest()

    return launch
