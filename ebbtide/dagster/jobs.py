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

MAINTENANCE = {
    "cleanup": "Full snapshot: delete what has expired from the state.",
    "compaction": "Fold the state to the newest version of each entry; join the sink's small files.",
}

MIGRATION = "Make the stored state fit a spec whose TTL or state types have changed: plan, apply or undo."


def stream_job(spec: Pipeline) -> Any:
    """Make the job that brings the sink up to date and judges it."""
    keys = [state_key(spec), dg.AssetKey(spec.name)]
    selection = dg.AssetSelection.assets(*keys) | dg.AssetSelection.checks_for_assets(*keys)
    description = f"Read all that is there into '{spec.name}', expire what is due, check the sink."
    return dg.define_asset_job(f"{spec.name}_stream", selection, description=description)


def maintenance_job(spec: Pipeline, kind: str) -> dg.JobDefinition:
    """Make one of the maintenance jobs; its report is an observation of the state."""

    @dg.op(name=f"{spec.name}_{kind}_state", pool=pool(spec), out=dg.Out(dg.Nothing), description=MAINTENANCE[kind])
    def keep(context: dg.OpExecutionContext, spark: SparkResource, storage: StorageResource) -> None:
        from ebbtide.maintenance.job import maintain

        report = supervised(lambda say, stop: maintain(spark.session, spec, storage.root, kind))
        context.log.info(report.text())
        numbers = {name: value for name, value in report.as_dict().items() if isinstance(value, int)}
        oldest = {} if report.oldest_ms is None else {"oldest": dg.MetadataValue.timestamp(report.oldest_ms / 1000)}
        numbers.pop("oldest_ms", None)
        context.log_event(dg.AssetObservation(state_key(spec), metadata={"job": kind, **numbers, **oldest}))

    @dg.job(name=f"{spec.name}_{kind}", description=MAINTENANCE[kind])
    def job() -> None:
        keep()

    return job


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
            if config.action == "apply":
                return migration.apply(spark.session, spec, storage.root, clock.now_ms())
            return {"plan": migration.plan, "undo": migration.undo}[config.action](spark.session, spec, storage.root)

        report = supervised(work)
        context.log.info(report.text())
        facts = {name: value for name, value in report.as_dict().items() if isinstance(value, int)}
        changes = dg.MetadataValue.md("\n".join(f"- {change}" for change in report.changes) or "none")
        metadata: dict[str, Any] = {"job": f"migration: {config.action}", "changes": changes, **facts}
        context.log_event(dg.AssetObservation(state_key(spec), metadata=metadata))

    @dg.job(name=f"{spec.name}_migration", description=MIGRATION)
    def job() -> None:
        migrate()

    return job


def schedules(spec: Pipeline, jobs: dict[str, Any]) -> Iterator[dg.ScheduleDefinition]:
    """Make a schedule for each job that the spec gives a time to; switched off at first.

    Args:
        spec: The pipeline.
        jobs: `stream`, `cleanup`, `compaction` to their jobs.
    """
    for kind, job in jobs.items():
        cron = getattr(spec.schedules, kind)
        if cron is not None:
            yield dg.ScheduleDefinition(name=f"{spec.name}_{kind}_schedule", job=job, cron_schedule=cron)
