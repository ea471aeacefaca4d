"""The job that replays a pipeline's quarantined records."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field

from ebbtide import Pipeline
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.stream import pool
from ebbtide.dagster.supervise import supervised

REPLAY = "Decode quarantined records again with the spec as it is now, and apply those that are good: plan or apply."


class QuarantineReplayConfig(dg.Config):
    """Which records are replayed, and how."""

    action: Literal["plan", "apply"] = Field(
        default="plan", description="plan: tell what it would do; apply: do it. Default: plan."
    )
    reasons: list[str] = Field(default=[], description="Only records bad for one of these reasons. Default: any.")
    steps: list[int] = Field(default=[], description="Only records of these steps. Default: any.")
    limit: int | None = Field(default=None, gt=0, description="The oldest records, no more than this. Default: all.")
    records: str | None = Field(
        default=None,
        description="File of mended records, JSON lines with origin and raw; only those are replayed. Default: the records as they are.",
    )
    accept_late: bool = Field(
        default=False, description="With order: arrival, apply late records now, after all that came since."
    )


def quarantine_replay_job(spec: Pipeline) -> dg.JobDefinition:
    """Make the job that replays quarantined records; its report is an observation of the sink."""

    @dg.op(name=f"{spec.name}_replay_quarantine", pool=pool(spec), out=dg.Out(dg.Nothing), description=REPLAY)
    def replay(
        context: dg.OpExecutionContext,
        config: QuarantineReplayConfig,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> None:
        from ebbtide.maintenance import quarantine_replay
        from ebbtide.maintenance.redecoding import read_mended
        from ebbtide.sinks.quarantine import Selection

        def work(say: Any, stop: Any) -> quarantine_replay.ReplayReport:
            selection = Selection(tuple(config.reasons), tuple(config.steps), config.limit)
            mended = None if config.records is None else read_mended(config.records)
            if config.action == "plan":
                return quarantine_replay.plan(spec, storage.root, clock.now_ms(), selection, mended)
            return quarantine_replay.apply(
                spark.session,
                spec,
                storage.root,
                clock.now_ms(),
                selection,
                mended,
                accept_late=config.accept_late,
            )

        report = supervised(work)
        context.log.info(report.text())
        metadata: dict[str, Any] = {
            "job": f"quarantine_replay: {config.action}",
            "replayed": report.replayed,
            "kept": len(report.kept),
            "late": report.late,
            **report.counts,
        }
        if report.step is not None:
            metadata["step"] = report.step
        context.log_event(dg.AssetObservation(spec.name, metadata=metadata))

    @dg.job(name=f"{spec.name}_quarantine_replay", description=REPLAY)
    def job() -> None:
        replay()

    return job
