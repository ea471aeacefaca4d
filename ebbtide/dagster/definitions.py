"""The Dagster definitions of one pipeline."""

from __future__ import annotations

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.checks import sink_checks
from ebbtide.dagster.jobs import checks_job, schedules, stream_job
from ebbtide.dagster.keeping import keeping_sensor
from ebbtide.dagster.operations import operation_job
from ebbtide.dagster.sensors import backlog_sensor
from ebbtide.dagster.stream import stream_assets
from ebbtide.operations.registry import operations


def pipeline_definitions(spec: Pipeline) -> dg.Definitions:
    """Return a pipeline's assets, checks, jobs, schedules and sensors.

    Args:
        spec: The pipeline.
    """
    jobs = {"stream": stream_job(spec)}
    for operation in operations():
        if operation.fits(spec):
            jobs[operation.job_name] = operation_job(spec, operation)
    sensors = [backlog_sensor(spec)]
    if spec.run == "continuous":
        jobs["check"] = checks_job(spec)
        sensors.append(keeping_sensor(spec, jobs["stream"], jobs["check"]))
    return dg.Definitions(
        assets=[stream_assets(spec)],
        asset_checks=[sink_checks(spec)],
        jobs=list(jobs.values()),
        schedules=list(schedules(spec, jobs)),
        sensors=sensors,
    )
