"""The jobs of a pipeline's runs and checks, and the schedules of all jobs; each is off until it is switched on."""

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import dagster as dg

from ebbtide import Pipeline
from ebbtide.cron import Cron
from ebbtide.dagster.metadata import checks_name, maintenance_pool, pool, run_name, run_tags, state_key
from ebbtide.dagster.operations import BY
from ebbtide.dagster.resources import ClockResource, StorageResource
from ebbtide.dagster.sensors import LOOK_S, UNDER_WAY, why_not
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.operations import Context, Operation
from ebbtide.sessions import OnSpark


def run_job(spec: Pipeline) -> Any:
    """Create the job that updates the sink and checks it. `checks_job` checks continuous runs, parallel to the next run."""
    tables = [state_key(spec), dg.AssetKey(spec.name)]
    assets = dg.AssetSelection.assets(*tables)
    checks = dg.AssetSelection.checks_for_assets(*tables)
    if spec.run == "continuous":
        return dg.define_asset_job(
            run_name(spec),
            assets.without_checks(),
            description=f"Read present and new records into '{spec.name}' and expire old state, until it is stopped or reaches max_run_age.",
            tags=run_tags(spec, pool(spec)),
        )
    return dg.define_asset_job(
        run_name(spec),
        assets | checks,
        description=f"Read all waiting records into '{spec.name}', expire old state, check the sink.",
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
    cron = Cron.of(spec.stream_cron or "", spec.name)

    @dg.schedule(name=f"{job.name}_schedule", job=job, cron_schedule=cron.text)
    def launch(storage: StorageResource) -> dg.RunRequest | dg.SkipReason:
        obstacle = why_not(spec, storage.root)
        if obstacle:
            return dg.SkipReason(obstacle)
        return dg.RunRequest()

    return launch


def check_schedule(spec: Pipeline, job: Any) -> dg.ScheduleDefinition:
    """Create the schedule of the checks parallel to a continuous run."""
    cron = Cron.of(spec.schedules.check or "", spec.name)
    return dg.ScheduleDefinition(name=f"{job.name}_schedule", job=job, cron_schedule=cron.text)


def operation_schedule(
    operation: Operation, specs: Sequence[Pipeline], job: dg.JobDefinition
) -> Iterator[dg.ScheduleDefinition]:
    """Make the schedule of an operation for all pipelines whose spec has a time for it; none without one.

    It ticks at the times of all specs, and launches a run for each pipeline that is due at a tick. At further times it launches
    runs for those pipelines that it is worth its cost for, see `Operation.early`.

    Args:
        operation: The operation.
        specs: The pipelines.
        job: The operation's job.
    """
    by_name = {spec.name: spec for spec in specs}
    crons = {}
    looks = {}
    for name, spec in by_name.items():
        asked = spec.schedules.model_dump().get(operation.job_name)
        if asked is None:
            continue
        crons[name] = Cron.of(asked, name)
        early = operation.early(spec)
        if early is not None:
            look, _ = early
            looks[name] = Cron.of(look, name)
    if not crons:
        return

    @dg.schedule(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=sorted({cron.text for cron in (*crons.values(), *looks.values())}),
        description=f"Launches {job.name} for each pipeline at the time of its spec, 'schedules.{operation.job_name}'.",
    )
    def launch(
        context: dg.ScheduleEvaluationContext,
        storage: StorageResource,
        clock: ClockResource,
    ) -> list[dg.RunRequest] | dg.SkipReason:
        tick = context.scheduled_execution_time
        due = [name for name, cron in crons.items() if cron.is_due(tick)]
        early = [by_name[name] for name in looks if name not in due and looks[name].is_due(tick)]
        ctxs = [Context(spec, storage.root, OnSpark(_no_session), BY, clock.now_ms) for spec in early]
        waits = _looked(operation, ctxs, context, job.name) if ctxs else {}
        due += [name for name in waits if not waits[name]]
        if waits and not due:
            lines = [f"{name}: {reason}" for name, reason in sorted(waits.items())]
            return dg.SkipReason("\n".join(lines))
        requests = []
        for name in due:
            key = f"{name} at {tick.isoformat()}"
            request = dg.RunRequest(run_key=key, partition_key=name)
            requests.append(request)
        return requests

    yield launch


def _looked(
    operation: Operation,
    ctxs: Sequence[Context],
    tick: dg.ScheduleEvaluationContext,
    job_name: str,
) -> dict[str, str]:
    """Return for each pipeline why an operation is not started for it before its time; empty: it is.

    Args:
        operation: The operation.
        ctxs: The pipelines, with what they are looked at with.
        tick: The tick.
        job_name: Name of the operation's job.
    """
    under_way = _under_way(tick.instance, job_name)
    reasons: dict[str, str] = {}
    end = time.monotonic() + LOOK_S
    # In any order: where the time is too short for all of them, none is always the last.
    for ctx in random.sample(ctxs, len(ctxs)):
        name = ctx.spec.name
        is_late = bool(reasons) and time.monotonic() > end
        if name in under_way:
            reasons[name] = "a run is under way"
        elif is_late:
            reasons[name] = f"not looked at within {LOOK_S} s"
        else:
            reasons[name] = _why_not_early(operation, ctx)
    return reasons


def _why_not_early(operation: Operation, ctx: Context) -> str:
    """Return why an operation is not started before its time: what it says itself, or why it does not know."""
    early = operation.early(ctx.spec)
    if early is None:
        return "it starts by its time only"
    _, given = early
    try:
        return operation.why_not(ctx, operation.asked(given))
    except EbbtideError as error:
        return str(error)


def _no_session() -> NoReturn:
    raise ConfigError.of(
        "A schedule looks at tables without Spark.",
        got="more rows than are read without it, or tables that only Spark reaches",
        next_step="The job starts by its time only.",
    )


def _under_way(instance: dg.DagsterInstance, job_name: str) -> set[str]:
    """Return the pipelines that a run of an operation's job is under way for, or queued."""
    filters = dg.RunsFilter(job_name=job_name, statuses=UNDER_WAY)
    return {run.tags.get("dagster/partition", "") for run in instance.get_runs(filters)}
