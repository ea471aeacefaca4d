"""The jobs that are made from operations: configuration, description and metadata come from the operation's class."""

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from pydantic import Field, create_model

from ebbtide import Pipeline, StepProgress
from ebbtide.dagster.metadata import maintenance_pool, run_tags, state_key
from ebbtide.dagster.resources import ClockResource, Means, SparkResource, StorageResource
from ebbtide.dagster.supervise import supervised, waiting_for_lease
from ebbtide.errors import ConfigError
from ebbtide.lines import lines_of
from ebbtide.markdown import prose
from ebbtide.operations import Context, Operation, Report, operations
from ebbtide.runtime import Phase
from ebbtide.sessions import OnSpark

OBSERVE_EVERY_S = 10.0
"""Least time between two observations of an operation under way; each may ask the source for its backlog."""
BY = "Dagster"
"""The default of who asks."""
NAMED = re.compile(r"'(?:ebbtide )?([^']*)'")
"""A command, or options to add to one, in the next step of a report."""


def operation_job(operation: Operation, specs: Sequence[Pipeline]) -> dg.JobDefinition:
    """Make the job of an operation, for all pipelines of a project: its partitions are their names.

    It has one op, whose reports are observations of a table.

    Args:
        operation: The operation.
        specs: The pipelines; it is for those that it fits.
    """
    by_name = {spec.name: spec for spec in specs if operation.fits(spec)}
    name = job_name(operation)

    @dg.op(
        name=f"{name}_op",
        out=dg.Out(dg.Nothing),
        description=operation.description,
        config_schema=_config_schema(operation),
    )
    def act(
        context: dg.OpExecutionContext,
        spark: SparkResource,
        storage: StorageResource,
        clock: ClockResource,
    ) -> None:
        spec = _chosen(context, by_name)
        given = dict(context.op_config or {})
        with waiting_for_lease():
            carry_out(context, operation, given, spec, specs, Means(spark, storage, clock))

    def tags(pipeline: str) -> dict[str, str]:
        spec = by_name[pipeline]
        turn = maintenance_pool(spec) if operation.takes_turns else None
        return run_tags(spec, turn)

    pipelines: dg.PartitionedConfig[Any] = dg.PartitionedConfig(
        dg.StaticPartitionsDefinition(sorted(by_name)),
        run_config_for_partition_key_fn=lambda _: {},
        tags_for_partition_key_fn=tags,
    )

    description = f"{operation.description} The partition is the pipeline."

    @dg.job(name=name, description=description, config=pipelines)
    def job() -> None:
        act()

    return job


def carry_out(
    context: dg.OpExecutionContext,
    operation: Operation,
    given: Mapping[str, Any],
    spec: Pipeline,
    specs: Sequence[Pipeline],
    means: Means,
) -> None:
    """Carry out an operation for a pipeline; its report is an observation.

    Args:
        context: The run's.
        operation: The operation.
        given: Its parameters, and the `action` where it is not the first one.
        spec: The pipeline.
        specs: All pipelines of the project.
        means: The resources.

    Raises:
        dagster.Failure: it failed.
    """
    params = dict(given)
    action = params.pop("action", operation.actions[0])
    spark, storage = means.spark, means.storage
    docs = Path(storage.data_docs).resolve()
    ctx = Context(
        spec.on_engine(spark.engine),
        storage.root,
        OnSpark.for_root(lambda: spark.session, storage.root),
        BY,
        means.clock.now_ms,
        beside=lambda: specs,
        data_docs=docs,
    )
    observer = _Observer(context, operation, action, ctx)

    def work(say: Callable[[StepProgress | Phase], None], stop: threading.Event) -> Report:
        watched = replace(ctx, on_progress=say, on_phase=say, stop=stop)
        return operation.act(action, watched, operation.asked(params))

    report = supervised(work, observer.progress)
    context.log.info(report.text())
    observer.observe(report)


def job_name(operation: Operation) -> str:
    """Return the name of an operation's job."""
    return f"ebbtide_{operation.job_name}"


def _chosen(context: dg.OpExecutionContext, by_name: Mapping[str, Pipeline]) -> Pipeline:
    """Return the pipeline that a run is for.

    Raises:
        dagster.Failure: the run names no partition, or an unknown one.
    """
    got = context.partition_key if context.has_partition_key else "none"
    if got in by_name:
        return by_name[got]
    error = ConfigError.of(
        "The run's partition is not the name of a pipeline.",
        got=got,
        allowed=", ".join(sorted(by_name)),
        next_step="Choose one in the launchpad, or launch it by 'dg launch --job JOB --partition NAME'.",
    )
    raise dg.Failure(f"ConfigError: {error}", allow_retries=False)


@cache
def _config_schema(operation: Operation) -> Any:
    """Make the configuration of an operation's job: its `Params`, and the action if it has several."""
    fields: dict[str, Any] = {}
    if len(operation.actions) > 1:
        meanings = {
            "plan": "show what it would do",
            "apply": "do it",
            **operation.further,
        }
        described = [f"{name}: {meanings[name]}" for name in operation.actions]
        listed = "; ".join(described)
        first, *_ = operation.actions
        action = Field(default=first, description=f"{listed}. Default: {first}.")
        fields["action"] = (Literal[operation.actions], action)
    for name, info in operation.Params.model_fields.items():
        default = ...
        if not info.is_required():
            default = info.get_default(call_default_factory=True)
        field = Field(default, description=info.description)
        fields[name] = (info.annotation, field)
    if not fields:
        return {}
    name = type(operation).__name__
    model = create_model(f"{name}Config", __base__=dg.Config, **fields)
    return model.to_config_schema()


class _Observer:
    """Turns an operation's steps into lines of the run's log, and its reports into observations.

    Args:
        context: The run's.
        operation: The operation.
        action: The action under way.
        ctx: The context that it is watched with.
    """

    def __init__(self, context: dg.OpExecutionContext, operation: Operation, action: str, ctx: Context) -> None:
        self._context = context
        self._operation = operation
        self._action = action
        self._ctx = ctx
        self._last_s = float("-inf")

    def progress(self, progress: StepProgress | Phase) -> None:
        """Log a step, or a phase that no step has: a line at the end says of those."""
        if isinstance(progress, StepProgress):
            self.step(progress)
        elif progress.step is None:
            self._context.log.info("%s: %s", progress.pipeline, progress.name)

    def step(self, step: StepProgress) -> None:
        """Log a step; observe the progress of the operation, at most every `OBSERVE_EVERY_S`."""
        self._context.log.info(step.line())
        now_s = time.monotonic()
        if now_s - self._last_s < OBSERVE_EVERY_S:
            return
        self._last_s = now_s
        report = self._operation.watch(self._ctx)
        if report is not None:
            self.observe(report)

    def observe(self, report: Report) -> None:
        """Report to Dagster by an observation of the operation's table."""
        spec = self._ctx.spec
        is_of_state = self._operation.observed == "state"
        key = state_key(spec) if is_of_state else dg.AssetKey(spec.name)
        metadata = report_metadata(report, self._operation, self._action)
        observation = dg.AssetObservation(key, metadata=metadata)
        self._context.log_event(observation)


def report_metadata(report: Report, operation: Operation, action: str) -> dict[str, Any]:
    """Return a report as metadata: its text, its counts, and the job of its next step.

    Args:
        report: The report.
        operation: The operation that made it.
        action: The action that it was asked for.
    """
    first, *further = lines_of(report.text())
    listed = [f"- {prose(line.strip())}" for line in further]  # the UI joins lines of plain text
    lines = [prose(first), "", *listed]
    page = "\n".join(lines)
    job = operation.job_name
    if len(operation.actions) > 1:
        job = f"{job}: {action}"
    metadata: dict[str, Any] = {
        "job": job,
        "report": dg.MetadataValue.md(page.strip()),
    }
    following = _next_job(report.next_step, operation)
    if following:
        metadata["next"] = following
    for each, value in _values(report):
        metadata[f"{operation.prefix}{each}"] = value
    return metadata


def _values(report: Report) -> Iterator[tuple[str, Any]]:
    """Yield the values of a report as Dagster shows them; those that it has no form for are left to the text."""
    for name, value in report.counts.items():
        if value is None:
            continue
        if name.endswith("_ms"):
            time_of = name.removesuffix("_ms")
            yield time_of, dg.MetadataValue.timestamp(value / 1000)
        else:
            yield name, value
    for name, value in report.details.items():
        if name == "counts":  # those of the step
            yield from value.items()
            continue
        shown = _shown(value)
        if shown is not None:
            yield name, shown
    if report.step is not None:
        yield "step", report.step


def _shown(value: Any) -> Any:
    """Return a value as Dagster shows it: texts as a list, other lists by their length; None if it has no form for it."""
    if isinstance(value, datetime):
        seconds = value.timestamp()
        return dg.MetadataValue.timestamp(seconds)
    if isinstance(value, str | int | float):
        return value
    if not isinstance(value, list | tuple):
        return None
    are_texts = all(isinstance(each, str) for each in value)
    if not value or not are_texts:
        return len(value)
    items = [f"- {each}" for each in value]
    listed = "\n".join(items)
    return dg.MetadataValue.md(listed)


def jobs_named(text: str) -> list[str]:
    """Return the jobs of the commands that a text names, each once.

    Args:
        text: Names commands as `'ebbtide repair'`.

    Example:
        >>> jobs_named("Run 'ebbtide repair', or 'ebbtide refresh'.")
        ['ebbtide_repair']
    """
    job_of = {}
    for operation in operations():
        job_of[operation.command] = job_name(operation)
    jobs: list[str] = []
    for named in NAMED.findall(text):
        command, _, _ = named.partition(" --")
        job = job_of.get(command)
        if job is not None and job not in jobs:
            jobs.append(job)
    return jobs


def _next_job(next_step: str, operation: Operation) -> str:
    """Return a sentence on the job that does the next step of a report; empty if none does.

    Args:
        next_step: The report's.
        operation: The operation that made the report.
    """
    named = NAMED.search(next_step)
    if named is None:
        return ""
    words = named[1].split()
    options = {word for word in words if word.startswith("--")}
    # The words before the first option name the command; options alone are meant for the same command.
    command_words = takewhile(lambda word: not word.startswith("--"), words)
    command = " ".join(command_words)
    of_command = {each.command: each for each in operations()}
    following = of_command.get(command) if command else operation
    if following is None:
        return ""
    launch = f"launch {job_name(following)}"
    for action in following.actions[1:]:
        if f"--{action}" in options:
            return f"{launch} with action: {action}"
    return launch
