"""A round: one run in which the pipelines of a group are brought up to date, checked and maintained, one after the other in one process."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import dagster as dg
from pydantic import Field

from ebbtide import Pipeline
from ebbtide.cron import Cron
from ebbtide.dagster.checks import blocking_checks, judged
from ebbtide.dagster.group import GROUP_TAG, refuse_failing
from ebbtide.dagster.metadata import TURN_TAG
from ebbtide.dagster.operations import carry_out
from ebbtide.dagster.resources import ClockResource, Means, SparkResource, StorageResource
from ebbtide.dagster.sensors import why_not
from ebbtide.dagster.stream import StreamConfig, brought_up_to_date, results
from ebbtide.dagster.supervise import IS_TRANSIENT
from ebbtide.operations import Operation, operations
from ebbtide.redaction import redacted

AT = "H 3 * * *"
"""When a round begins by its schedule; the minute depends on the group."""


class RoundConfig(dg.Config):
    """Launch settings of a round."""

    pipelines: list[str] = Field(default=[], description="Names of pipelines. Default: all of the group.")
    run: bool = Field(
        default=True, description="Read what waits; a continuous pipeline is left to its run. Default: true."
    )
    check: bool = Field(default=True, description="Check the sinks. Default: true.")
    maintain: bool = Field(
        default=True, description="Make the operations that the specs have a schedule for. Default: true."
    )


def round_groups(specs: Sequence[Pipeline]) -> dict[str, list[Pipeline]]:
    """Return the groups that have rounds: those with several pipelines.

    Args:
        specs: All pipelines of a project.
    """
    groups: dict[str, list[Pipeline]] = {}
    for spec in specs:
        groups.setdefault(spec.group, []).append(spec)
    return {group: members for group, members in groups.items() if len(members) > 1}


def round_name(group: str) -> str:
    """Return the name of the job that makes the rounds of a group."""
    return f"ebbtide_round_{group}"


def round_job(group: str, members: Sequence[Pipeline], specs: Sequence[Pipeline]) -> dg.JobDefinition:
    """Make the job that makes the rounds of a group.

    Args:
        group: Its name.
        members: Its pipelines.
        specs: All pipelines of the project.
    """
    name = round_name(group)

    @dg.op(name=f"{name}_op", out=dg.Out(dg.Nothing))
    def make_round(
        context: dg.OpExecutionContext,
        config: RoundConfig,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> None:
        unknown = sorted(set(config.pipelines) - {spec.name for spec in members})
        if unknown:
            raise dg.Failure(f"The group '{group}' has no such pipelines: {', '.join(unknown)}.", allow_retries=False)
        chosen = [spec for spec in members if not config.pipelines or spec.name in config.pipelines]
        _Round(context, config, specs, Means(spark, storage, clock)).make(chosen)

    names = ", ".join(spec.name for spec in members)

    @dg.job(
        name=name,
        description=f"Bring {names} up to date, check and maintain them, one after the other in one process.",
        tags={GROUP_TAG: group, TURN_TAG: name},
    )
    def job() -> None:
        make_round()

    return job


def round_schedule(group: str, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Make the schedule of a group's rounds."""
    return dg.ScheduleDefinition(name=f"{job.name}_schedule", job=job, cron_schedule=Cron.of(AT, group).text)


@dataclass
class _Round:
    """One round.

    Args:
        context: The run's.
        config: Its configuration.
        specs: All pipelines of the project.
        means: The resources.
    """

    context: dg.OpExecutionContext
    config: RoundConfig
    specs: Sequence[Pipeline]
    means: Means
    failing: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Name of a pipeline to the text of its error, and whether that may pass."""

    def make(self, chosen: Sequence[Pipeline]) -> None:
        """Tend pipelines; one that fails by what may pass, as a lease that is held, is tried once more at the end.

        Raises:
            dagster.Failure: some failed, which it names.
        """
        left = deque(chosen)
        while left:
            spec = left.popleft()
            was_tried = spec.name in self.failing
            if self._succeeds(spec):
                self.failing.pop(spec.name, None)
                continue
            _, may_pass = self.failing[spec.name]
            if may_pass and not was_tried:
                left.append(spec)
        refuse_failing(self.failing, goes_on=len(self.failing) < len(chosen))

    def _succeeds(self, spec: Pipeline) -> bool:
        """Tend a pipeline; what fails is noted, and keeps no other pipeline from its turn."""
        obstacle = why_not(spec, self.means.storage.root)
        if obstacle:
            self.context.log.info("%s is left out: %s", spec.name, obstacle)
            return True
        try:
            self._tend(spec)
        except dg.Failure as failure:
            is_transient = failure.metadata.get(IS_TRANSIENT)
            may_pass = bool(is_transient is not None and is_transient.value)
            self._note(spec, str(failure.description), may_pass=may_pass)
        except Exception as error:  # noqa: BLE001 - of a library or a user's code; the other pipelines continue
            self._note(spec, redacted(f"{type(error).__name__}: {error}"), may_pass=False)
        else:
            return True
        return False

    def _note(self, spec: Pipeline, text: str, *, may_pass: bool) -> None:
        self.failing[spec.name] = (text, may_pass)
        self.context.log.error("%s: %s", spec.name, text)

    def _tend(self, spec: Pipeline) -> None:
        """Bring a pipeline up to date, check it and maintain it."""
        if self.config.run and spec.run == "bounded":
            summary = brought_up_to_date(self.context, spec, StreamConfig(), self.means)
            for result in results(spec, summary, self.means.storage):
                key = result.asset_key or dg.AssetKey(spec.name)
                self.context.log_event(dg.AssetMaterialization(key, metadata=result.metadata))
        if self.config.check:
            self._check(spec)
        if self.config.maintain:
            for operation in _scheduled(spec):
                carry_out(self.context, operation, {}, spec, self.specs, self.means)

    def _check(self, spec: Pipeline) -> None:
        """Report the checks of a pipeline.

        Raises:
            dagster.Failure: a check that blocks has failed.
        """
        blocking = blocking_checks(spec)
        red = []
        for result in judged(spec, None, self.context.instance, self.means):
            blocks = result.check_name in blocking
            # Dagster takes evaluations here, though its type of events leaves them out.
            self.context.log_event(cast("Any", _evaluation(result, blocks=blocks)))
            is_error = result.severity is dg.AssetCheckSeverity.ERROR
            if blocks and is_error and not result.passed:
                red.append(f"the check '{result.check_name}' has failed: {result.description}")
        if red:
            raise dg.Failure("\n".join(red), metadata={IS_TRANSIENT: False}, allow_retries=False)


def _evaluation(result: dg.AssetCheckResult, *, blocks: bool) -> dg.AssetCheckEvaluation:
    """Return a check's result as the event of a run that materializes no asset by Dagster's plan."""
    return dg.AssetCheckEvaluation(
        asset_key=cast("dg.AssetKey", result.asset_key),
        check_name=str(result.check_name),
        passed=result.passed,
        severity=result.severity,
        description=result.description,
        metadata=result.metadata,
        blocking=blocks,
    )


def _scheduled(spec: Pipeline) -> list[Operation]:
    """Return the operations that a spec has a time for."""
    times: Mapping[str, Any] = spec.schedules.model_dump()
    return [each for each in operations() if times.get(each.job_name) is not None and each.fits(spec)]
