"""Keeps continuous pipelines running: the next run is launched when one has ended, of age or by a crash."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ebbtide import Pipeline
from ebbtide.dagster.group import follow_name
from ebbtide.dagster.metadata import checks_name, run_name
from ebbtide.dagster.resources import StorageResource
from ebbtide.dagster.sensors import UNDER_WAY, why_not
from ebbtide.dagster.supervise import IS_TRANSIENT

EVERY_S = 10
"""Least time between two looks, seconds."""
FIRST_WAIT_S = 10.0
LONGEST_WAIT_S = 1_800.0
"""Wait before the next run after a failure: the first one, and the longest after many in a row."""
MOST_FAILED = 10
"""Last runs that the sensor looks at."""


@dataclass(frozen=True)
class Ended:
    """A run that has ended.

    Args:
        run_id: Its id.
        status: The status that it ended with.
        end_s: Time of its end, seconds since 1970.
        is_wanted: A user has terminated it.
        is_lasting: It failed with an error that stays until a user acts.
    """

    run_id: str
    status: dg.DagsterRunStatus
    end_s: float
    is_wanted: bool = False
    is_lasting: bool = False

    @property
    def has_failed(self) -> bool:
        """Return whether it failed and may be tried again."""
        return self.status is not dg.DagsterRunStatus.SUCCESS


def reason_to_wait(ended: Sequence[Ended], now_s: float) -> str | None:
    """Return the reason to launch no run now; None if one is launched.

    Args:
        ended: The last runs, the newest first.
        now_s: The time, seconds since 1970.

    Example:
        >>> reason_to_wait([], 0.0) is None
        True
    """
    if not ended:
        return None
    newest = ended[0]
    if newest.is_wanted:
        return "the last run was terminated; launch the next one by hand"
    if newest.is_lasting:
        return "the last run failed with an error that does not pass by itself; correct the cause, and launch the next run by hand"
    n_failed = 0
    for run in ended:
        if not run.has_failed:
            break
        n_failed += 1
    if not n_failed:
        return None
    # The wait doubles with each failure in a row, up to the longest.
    wait_s = min(FIRST_WAIT_S * 2 ** (n_failed - 1), LONGEST_WAIT_S)
    left_s = newest.end_s + wait_s - now_s
    if left_s <= 0:
        return None
    return f"{n_failed} runs have failed in a row; the next one in {left_s:.0f} s"


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


def ended_of(instance: dg.DagsterInstance, record: dg.RunRecord) -> Ended:
    """Return the end of a run, by its events.

    Args:
        instance: Has its events.
        record: The run.
    """
    run_id = record.dagster_run.run_id

    def events(kind: dg.DagsterEventType) -> list[dg.DagsterEvent]:
        found = instance.get_records_for_run(run_id, of_type=kind).records
        return [each.event_log_entry.get_dagster_event() for each in found]

    is_lasting = False
    for event in events(dg.DagsterEventType.STEP_FAILURE):
        said = event.step_failure_data.user_failure_data
        is_transient = said.metadata.get(IS_TRANSIENT) if said else None
        is_lasting = is_lasting or (is_transient is not None and not is_transient.value)
    return Ended(
        run_id,
        record.dagster_run.status,
        record.end_time or record.update_timestamp.timestamp(),
        is_wanted=bool(events(dg.DagsterEventType.RUN_CANCELING)),
        is_lasting=is_lasting,
    )
