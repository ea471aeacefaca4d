"""Jobs that a user launches with a configuration, and that so have no schedule: they do what is done to stored tables by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import dagster as dg
from pydantic import Field

from ebbtide import Pipeline
from ebbtide.dagster.metadata import numbers, report_metadata
from ebbtide.dagster.resources import ClockResource, SparkResource, StorageResource
from ebbtide.dagster.stream import maintenance_pool
from ebbtide.dagster.supervise import supervised

Config = TypeVar("Config", bound=dg.Config)
Operate = Callable[[Pipeline, Config, SparkResource, str, int], Any]
"""Does the work: given the pipeline, the configuration, Spark, the root of all pipelines' tables and the time, epoch ms. Returns its report."""

ACTIONS = {"--apply": "apply"}
"""What reports name to the action that does it."""


def all_numbers(report: Any) -> dict[str, Any]:
    """Return the numbers of a report, as metadata."""
    return dict(numbers(report.as_dict()))


def sink_key(spec: Pipeline) -> dg.AssetKey:
    """Name a pipeline's sink."""
    return dg.AssetKey(spec.name)


@dataclass(frozen=True)
class JobOnRequest(Generic[Config]):
    """A job of one op; its report is an observation of a table.

    Args:
        name: Of the job, after the pipeline's.
        op_name: Of the op, after the pipeline's.
        description: Of both.
        config_type: What it is launched with; has an `action`.
        operate: Does the work.
        observed: Names the table.
        metadata: Makes the observation's metadata of the report.
        takes_turns: It waits in the queue until no run of the pipeline is under way.
    """

    name: str
    op_name: str
    description: str
    config_type: type[Config]
    operate: Operate[Config]
    observed: Callable[[Pipeline], dg.AssetKey]
    metadata: Callable[[Any], dict[str, Any]] = all_numbers
    takes_turns: bool = True

    def of(self, spec: Pipeline) -> dg.JobDefinition:
        """Make it for a pipeline."""

        @dg.op(
            name=f"{spec.name}_{self.op_name}",
            pool=maintenance_pool(spec) if self.takes_turns else None,
            out=dg.Out(dg.Nothing),
            description=self.description,
        )
        def act(
            context: dg.OpExecutionContext,
            config: self.config_type,  # type: ignore[name-defined] # Dagster takes the type from here
            spark: SparkResource,
            storage: StorageResource,
            clock: ClockResource,
        ) -> None:
            report = supervised(lambda say, stop: self.operate(spec, config, spark, storage.root, clock.now_ms()))
            context.log.info(report.text())
            metadata = report_metadata(report, self.name, config.action, ACTIONS) | self.metadata(report)
            context.log_event(dg.AssetObservation(self.observed(spec), metadata=metadata))

        @dg.job(name=f"{spec.name}_{self.name}", description=self.description)
        def job() -> None:
            act()

        return job


class QuarantineReplayConfig(dg.Config):
    """Which records are replayed, and how."""

    action: Literal["plan", "apply"] = Field(default="plan", description="plan: tell what it would do; apply: do it.")
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


def _replay(spec: Pipeline, config: QuarantineReplayConfig, spark: SparkResource, root: str, now_ms: int) -> Any:
    from ebbtide.maintenance.quarantine_replay import Replay
    from ebbtide.sinks.quarantine import Selection

    selection = Selection(tuple(config.reasons), tuple(config.steps), config.limit)
    is_apply = config.action == "apply"
    asked = Replay(selection, config.records, config.accept_late, applies=is_apply)
    return asked.run(lambda: spark.session, spec, root, now_ms)


def _replay_metadata(report: Any) -> dict[str, Any]:
    metadata = {"replayed": report.replayed, "kept": len(report.kept), "late": report.late, **report.counts}
    if report.step is not None:
        metadata["step"] = report.step
    return metadata


QUARANTINE_REPLAY = JobOnRequest(
    name="quarantine_replay",
    op_name="replay_quarantine",
    description="Decode quarantined records again with the spec as it is now, and apply those that are good: plan or apply.",
    config_type=QuarantineReplayConfig,
    operate=_replay,
    observed=sink_key,
    metadata=_replay_metadata,
)
"""The job that replays quarantined records."""


class PauseConfig(dg.Config):
    """Whether the pipeline is to be paused, and why."""

    action: Literal["pause", "resume"] = Field(
        default="pause", description="pause: read nothing new until it is resumed; resume: let it read again."
    )
    by: str = Field(default="Dagster", description="Who asks. Default: Dagster.")
    reason: str = Field(default="", description="Of pause: why; runs, schedules and sensors tell it.")


def _pause(spec: Pipeline, config: PauseConfig, spark: SparkResource, root: str, now_ms: int) -> Any:
    from ebbtide.maintenance import pausing

    if config.action == "resume":
        return pausing.resume(spec, root, now_ms)
    return pausing.pause(spec, root, config.by, config.reason, now_ms)


def _pause_metadata(report: Any) -> dict[str, Any]:
    metadata = {"paused": report.paused, "by": report.by, "reason": report.reason}
    if report.since is not None:
        metadata["since"] = dg.MetadataValue.timestamp(report.since.timestamp())
    return metadata


PAUSE = JobOnRequest(
    name="pause",
    op_name="pause_reading",
    description="Let the pipeline read nothing new until it is resumed: pause or resume.",
    config_type=PauseConfig,
    operate=_pause,
    observed=sink_key,
    metadata=_pause_metadata,
    takes_turns=False,
)
"""The job that pauses a pipeline, or resumes it."""


ON_REQUEST: tuple[JobOnRequest[Any], ...] = (QUARANTINE_REPLAY, PAUSE)
