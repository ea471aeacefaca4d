"""Keeps continuous pipelines running: the next run is launched when one has ended, of age or by a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.ended import MOST_FAILED, ended_of, reason_to_wait
from ebbtide.dagster.group import follow_name
from ebbtide.dagster.lost import end_lost
from ebbtide.dagster.metadata import checks_name, run_name
from ebbtide.dagster.resources import StorageResource
from ebbtide.dagster.sensors import UNDER_WAY, why_not

EVERY_S = 10
"""Least time between two looks, seconds."""


def keeping_sensor(
    specs: Sequence[Pipeline],
    runs: Mapping[str, Any],
    checks: Mapping[str, Any],
    follows: Mapping[str, Any],
) -> dg.SensorDefinition:
    """Make the sensor that launches the next runs, and the checks, when runs have ended; switched off at first.

    Args:
        specs: The pipelines; their runs are continuous.
        runs: Name of a pipeline to the job of its runs.
        checks: The same of its checks.
        follows: Name of a group that is followed by one job to that job.
    """
    kept = _kept_jobs(specs, follows)

    @dg.sensor(
        name="ebbtide_keep_running",
        jobs=[*(runs[spec.name] for spec in specs), *checks.values(), *follows.values()],
        minimum_interval_seconds=EVERY_S,
        description="Launches the next run of each continuous pipeline when none is under way, and its checks when one has ended well; not after one that was terminated.",
    )
    def look(
        context: dg.SensorEvaluationContext,
        storage: StorageResource,
    ) -> dg.SensorResult:
        requests: list[dg.RunRequest] = []
        waits = []
        end_lost(context.instance, runs, follows)
        for job, members in kept.items():
            launched, reason = _next_runs(context.instance, job, members, storage.root)
            requests += launched
            if reason:
                waits.append(f"{job}: {reason}")
        return dg.SensorResult(requests, skip_reason=None if requests else "; ".join(waits))

    return look


def _kept_jobs(specs: Sequence[Pipeline], follows: Mapping[str, Any]) -> dict[str, list[Pipeline]]:
    """Return the jobs that are kept running, and the pipelines of each: that of a group, or of one pipeline."""
    kept: dict[str, list[Pipeline]] = {}
    for spec in specs:
        job = follow_name(spec.group) if spec.group in follows else run_name(spec)
        kept.setdefault(job, []).append(spec)
    return kept


def _next_runs(
    instance: dg.DagsterInstance,
    job: str,
    specs: Sequence[Pipeline],
    root: str,
) -> tuple[list[dg.RunRequest], str | None]:
    """Return the runs to launch for a job and the checks of its pipelines now, and the reason to launch no further run of it."""
    of_job = dg.RunsFilter(job_name=job)
    records = instance.get_run_records(of_job, limit=MOST_FAILED)
    statuses = {record.dagster_run.status for record in records}
    if not statuses.isdisjoint(UNDER_WAY):
        return [], "a run is under way"
    ended = [ended_of(instance, record) for record in records]
    last = ended[0].run_id if ended else "none"
    # Run keys name the pipeline and its last run: Dagster launches each key once, however often the sensor looks.
    requests = []
    if ended and not ended[0].has_failed:
        for spec in specs:
            key = f"checks of {spec.name} {last}"
            checks = dg.RunRequest(run_key=key, job_name=checks_name(spec))
            requests.append(checks)
    obstacles = [why_not(spec, root) for spec in specs]
    # One pipeline that is paused, or does not fit its tables, keeps no other one of its group from its run.
    waits = obstacles[0] if all(obstacles) else reason_to_wait(ended, time.time())
    if not waits:
        key = f"{job} after {last}"
        next_run = dg.RunRequest(run_key=key, job_name=job)
        requests.append(next_run)
    return requests, waits
