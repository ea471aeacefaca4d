"""The Dagster definitions of pipelines: of each its tables, of all together what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.at_hand import at_hand, job_at_hand
from ebbtide.dagster.checks import sink_checks
from ebbtide.dagster.group import follow_assets, follow_job, followed_groups
from ebbtide.dagster.jobs import check_schedule, checks_job, operation_schedule, run_job, run_schedule
from ebbtide.dagster.keeping import keeping_sensor
from ebbtide.dagster.operations import job_name, operation_job
from ebbtide.dagster.rounds import round_groups, round_job, round_name, round_schedule
from ebbtide.dagster.sensors import backlog_sensor
from ebbtide.dagster.stream import stream_assets
from ebbtide.operations import operations


def pipeline_definitions(*specs: Pipeline) -> dg.Definitions:
    """Return the assets, checks, jobs, schedules and sensors of a project's pipelines.

    Args:
        specs: All pipelines of the project: they share the jobs of operations and the sensors.
    """
    tables = [table_definitions(spec, specs) for spec in specs]
    automation = automation_definitions(specs)
    return dg.Definitions.merge(*tables, automation)


def table_definitions(spec: Pipeline, specs: Sequence[Pipeline]) -> dg.Definitions:
    """Return a pipeline's assets and their checks; the assets of those that are followed as a group come with the group's job.

    Args:
        specs: All pipelines of the project.
    """
    if spec not in at_hand(specs, job_at_hand()):
        return dg.Definitions()
    groups = followed_groups(specs)
    is_in_group = spec in groups.get(spec.group, ())
    assets = []
    if not is_in_group:
        assets.append(stream_assets(spec))
    checks = sink_checks(spec)
    return dg.Definitions(assets=assets, asset_checks=[checks])


def automation_definitions(specs: Sequence[Pipeline]) -> dg.Definitions:
    """Return the jobs, schedules and sensors of all pipelines of a project.

    Each pipeline has a job; operations, and the sensors, are for all. A run worker gets the job at hand.
    """
    name = job_at_hand()
    chosen = at_hand(specs, name)
    if name is not None and len(chosen) < len(specs):
        return _alone(name, chosen, specs)
    runs: dict[str, Any] = {}
    checks: dict[str, Any] = {}
    schedules = []
    continuous = []
    for spec in specs:
        job = run_job(spec)
        runs[spec.name] = job
        if spec.stream_cron:
            schedules.append(run_schedule(spec, job))
        if spec.run != "continuous":
            continue
        continuous.append(spec)
        job = checks_job(spec)
        checks[spec.name] = job
        if spec.schedules.check:
            schedules.append(check_schedule(spec, job))
    sensors = [backlog_sensor(specs, runs)]
    groups = followed_groups(specs)
    follows = {group: follow_job(group, members) for group, members in groups.items()}
    if continuous:
        sensors.append(keeping_sensor(continuous, runs, checks, follows))
    jobs = [*runs.values(), *checks.values(), *follows.values()]
    for operation in operations():
        fitting = [spec for spec in specs if operation.fits(spec)]
        if not fitting:
            continue
        job = operation_job(operation, fitting)
        jobs.append(job)
        schedules += operation_schedule(operation, fitting, job)
    for group, members in round_groups(specs).items():
        job = round_job(group, members, specs)
        jobs.append(job)
        schedules.append(round_schedule(group, job))
    return dg.Definitions(
        assets=[follow_assets(group, members) for group, members in groups.items()],
        jobs=jobs,
        schedules=schedules,
        sensors=sensors,
    )


def _alone(name: str, chosen: Sequence[Pipeline], specs: Sequence[Pipeline]) -> dg.Definitions:
    """Return the definitions of one job: those of its pipelines, or of its operation.

    Args:
        name: Its name.
        chosen: The pipelines whose tables it needs.
        specs: All pipelines of the project.
    """
    jobs: list[Any] = [run_job(spec) for spec in chosen]
    jobs += [checks_job(spec) for spec in chosen if spec.run == "continuous"]
    assets = []
    for group, members in followed_groups(specs).items():
        if any(spec in members for spec in chosen):
            assets.append(follow_assets(group, members))
            jobs.append(follow_job(group, members))
    for group, members in round_groups(specs).items():
        if name == round_name(group):
            jobs.append(round_job(group, members, specs))
    for operation in operations():
        if name == job_name(operation):
            jobs.append(operation_job(operation, specs))
    return dg.Definitions(assets=assets, jobs=jobs)
