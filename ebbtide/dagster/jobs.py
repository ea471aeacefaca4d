"""The jobs of a pipeline and their schedules."""

from collections.abc import Iterator
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from ebbtide import Pipeline
from ebbtide.dagster.metadata import state_key
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.stream import pool
from ebbtide.dagster.supervise import supervised
from ebbtide.maintenance.jobs import MaintenanceJob

MIGRATION = "Make what is stored fit a spec whose columns, TTL or state types have changed: plan, apply or undo."

REWIND = "Bring all tables back to what they were after an earlier step: plan or apply."
REPAIR = "Bring the sink to what the state shows, or accept it as it is: plan, apply or acknowledge."


def stream_job(spec: Pipeline) -> Any:
    """Make the job that brings the sink up to date and judges it."""
    tables = [state_key(spec), dg.AssetKey(spec.name)]
    assets = dg.AssetSelection.assets(*tables)
    checks = dg.AssetSelection.checks_for_assets(*tables)
    return dg.define_asset_job(
        f"{spec.name}_stream",
        assets | checks,
        description=f"Read all that is there into '{spec.name}', expire what is due, check the sink.",
    )


def maintenance_job(spec: Pipeline, job: MaintenanceJob) -> dg.JobDefinition:
    """Make one of the maintenance jobs; its report is an observation of the state."""

    @dg.op(
        name=f"{spec.name}_{job.name}_state",
        pool=pool(spec),
        out=dg.Out(dg.Nothing),
        description=job.description,
    )
    def keep(context: dg.OpExecutionContext, spark: SparkResource, storage: StorageResource) -> None:
        from ebbtide.maintenance.job import maintain

        report = supervised(lambda say, stop: maintain(spark.session, spec, storage.root, job.name))
        context.log.info(report.text())
        numbers = _numbers(report.as_dict())
        metadata: dict[str, Any] = {"job": job.name, **numbers}
        oldest_ms = metadata.pop("oldest_ms", None)
        if oldest_ms is not None:
            oldest_s = oldest_ms / 1000
            metadata["oldest"] = dg.MetadataValue.timestamp(oldest_s)
        context.log_event(dg.AssetObservation(state_key(spec), metadata=metadata))

    @dg.job(name=f"{spec.name}_{job.name}", description=job.description)
    def definition() -> None:
        keep()

    return definition


class MigrationConfig(dg.Config):
    """What a migration is launched to do."""

    action: Literal["plan", "apply", "undo"] = Field(
        default="plan", description="plan: tell what it would do; apply: do it; undo: undo one that was the last step."
    )


def migration_job(spec: Pipeline) -> dg.JobDefinition:
    """Make the job that makes stored state fit a changed spec."""

    @dg.op(name=f"{spec.name}_migrate_state", pool=pool(spec), out=dg.Out(dg.Nothing), description=MIGRATION)
    def migrate(
        context: dg.OpExecutionContext,
        config: MigrationConfig,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> None:
        from ebbtide.maintenance import migration

        def work(say: Any, stop: Any) -> migration.MigrationPlan:
            session, root = spark.session, storage.root
            match config.action:
                case "plan":
                    return migration.plan(session, spec, root)
                case "apply":
                    return migration.apply(session, spec, root, clock.now_ms())
                case "undo":
                    return migration.undo(session, spec, root)

        report = supervised(work)
        context.log.info(report.text())
        changes = "\n".join(f"- {change}" for change in report.changes)
        metadata: dict[str, Any] = {
            "job": f"migration: {config.action}",
            "changes": dg.MetadataValue.md(changes or "none"),
            **_numbers(report.as_dict()),
        }
        context.log_event(dg.AssetObservation(state_key(spec), metadata=metadata))

    @dg.job(name=f"{spec.name}_migration", description=MIGRATION)
    def job() -> None:
        migrate()

    return job


class RepairConfig(dg.Config):
    """What a repair is launched to do."""

    action: Literal["plan", "apply", "acknowledge"] = Field(
        default="plan",
        description="plan: tell in what the sink differs; apply: bring it to what the state shows; acknowledge: leave it so.",
    )
    reason: str = Field(default="", description="Of acknowledge: why the sink shall stay as it is.")


def repair_job(spec: Pipeline) -> dg.JobDefinition:
    """Make the job that ends what is red: it repairs the sink from the state, or accepts it as it is."""

    @dg.op(name=f"{spec.name}_repair_sink", pool=pool(spec), out=dg.Out(dg.Nothing), description=REPAIR)
    def mend(
        context: dg.OpExecutionContext,
        config: RepairConfig,
        spark: SparkResource,
        storage: StorageResource,
    ) -> None:
        from ebbtide.maintenance import repair as repairing

        def work(say: Any, stop: Any) -> repairing.RepairReport:
            session, root = spark.session, storage.root
            match config.action:
                case "plan":
                    return repairing.plan(session, spec, root)
                case "apply":
                    return repairing.repair(session, spec, root)
                case "acknowledge":
                    return repairing.acknowledge(session, spec, root, config.reason)

        report = supervised(work)
        context.log.info(report.text())
        metadata: dict[str, Any] = {"job": f"repair: {config.action}", **_numbers(report.as_dict())}
        context.log_event(dg.AssetObservation(dg.AssetKey(spec.name), metadata=metadata))

    @dg.job(name=f"{spec.name}_repair", description=REPAIR)
    def job() -> None:
        mend()

    return job


class RewindConfig(dg.Config):
    """Where a rewind is launched to go."""

    to_step: int = Field(description="The step to go back to.")
    action: Literal["plan", "apply"] = Field(default="plan", description="plan: tell what it would undo; apply: do it.")


def rewind_job(spec: Pipeline) -> dg.JobDefinition:
    """Make the job that brings all tables back to what they were after an earlier step."""

    @dg.op(name=f"{spec.name}_rewind_tables", pool=pool(spec), out=dg.Out(dg.Nothing), description=REWIND)
    def go_back(
        context: dg.OpExecutionContext,
        config: RewindConfig,
        spark: SparkResource,
        storage: StorageResource,
    ) -> None:
        from ebbtide.maintenance import rewind as rewinding

        go = rewinding.apply if config.action == "apply" else rewinding.plan
        report = supervised(lambda say, stop: go(spark.session, spec, storage.root, config.to_step))
        context.log.info(report.text())
        metadata: dict[str, Any] = {"job": f"rewind: {config.action}", **_numbers(report.as_dict())}
        context.log_event(dg.AssetObservation(state_key(spec), metadata=metadata))

    @dg.job(name=f"{spec.name}_rewind", description=REWIND)
    def job() -> None:
        go_back()

    return job


def schedules(spec: Pipeline, jobs: dict[str, Any]) -> Iterator[dg.ScheduleDefinition]:
    """Make a schedule for each job that the spec gives a time to; switched off at first.

    Args:
        spec: The pipeline.
        jobs: Name of a job, as in the spec's `schedules`, to the job.
    """
    crons = spec.schedules.model_dump()
    for kind, job in jobs.items():
        cron = crons.get(kind)
        if cron is None:
            continue
        name = f"{spec.name}_{kind}_schedule"
        yield dg.ScheduleDefinition(name=name, job=job, cron_schedule=cron)


def _numbers(report: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in report.items() if isinstance(value, int)}
