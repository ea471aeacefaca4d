"""`ebbtide run` and `ebbtide refresh`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ebbtide.amounts import amount
from ebbtide.cli.commands import QUIET, VERBOSE, level
from ebbtide.cli.errors import FAILED, NOTHING_MATCHED
from ebbtide.cli.live import Live, RunView
from ebbtide.cli.options import engine_option, metrics_options, of_pipelines, rate_option, spark_options
from ebbtide.cli.quiet import QuietSpark, quiet_spark
from ebbtide.cli.reporting import Located, Reporter, load_specs, say
from ebbtide.cli.stopping import stop_on_signal
from ebbtide.errors import ConfigError
from ebbtide.runtime import system_clock

if TYPE_CHECKING:
    from ebbtide.executors import EngineKind
    from ebbtide.inspect import WatchedFleet
    from ebbtide.runtime import RunSummary
    from ebbtide.spec import Pipeline

UNMATCHED = (
    "{}: {} matched no row. Deletes with only the key leave their rows in the sink. Next: order: upsert, or {{sequence: ...}}, "
    "and 'ebbtide refresh'; or {}, then a new snapshot."
)
LOOPBACK = "127.0.0.1"
COUNTS = ("steps", "records", "inserted", "updated", "deleted", "quarantined", "unmatched", "expired")
"""The counts of a run's summary, shown unless 0."""
Operate = Callable[..., "RunSummary"]
"""Runs one pipeline in a session: (session, spec, root, on_progress, on_phase, stop)."""


@click.command()
@of_pipelines
@click.option(
    "--accept-source-path", is_flag=True, help="Accept that the source's files have moved to the spec's new path."
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Records of a topic are lost: continue with the remaining ones, and note the loss.",
)
@click.option(
    "--accept-changed-files",
    is_flag=True,
    help="Read changed files again; with order: sequence, where this applies nothing twice.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Run continuously until SIGINT or SIGTERM; all pipelines in this process, in turns.",
)
@click.option(
    "--from",
    "starts_from",
    metavar="URI",
    help="Start from a savepoint, in a root without the pipeline's tables.",
)
@rate_option
@engine_option
@metrics_options
@spark_options
def run(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    accept_source_path: bool,
    accept_loss: bool,
    accept_changed_files: bool,
    follow: bool,
    starts_from: str | None,
    rate: int | None,
    engine: EngineKind | None,
    metrics_port: int | None,
    metrics_host: str | None,
    healthy_within: float | None,
) -> None:
    """Process all waiting input, update the sinks, expire old state. With nothing to do, Spark is not started.

    Logs of Spark and output of your functions are in ROOT/.logs.
    """
    from ebbtide.runtime import RunBegun, idle_run

    if metrics_port is None and (metrics_host is not None or healthy_within is not None):
        raise click.UsageError("Got --metrics-host or --healthy-within. Allowed: with --metrics-port.")

    def operate(*arguments: Any, **options: Any) -> RunSummary:
        from ebbtide.runtime import run as run_pipeline

        return run_pipeline(*arguments, **options)

    def run_idle(spec: Pipeline) -> RunSummary | None:
        if accept_loss or accept_changed_files:
            return None
        summary = idle_run(spec, root, system_clock())
        if summary is not None:
            RunBegun(spec, root, goes_on=False).end_idle(summary)
        return summary

    accepted = {
        "accept_source_path": accept_source_path,
        "accept_loss": accept_loss,
        "accept_changed_files": accept_changed_files,
    }
    reporter = Reporter(root, as_json)
    located = [(location, spec.at_rate(rate).on_engine(engine)) for location, spec in load_specs(specs)]
    with reporter.errors():
        if starts_from is not None:
            _start_from(starts_from, located, reporter)
        followed = _going_on(located, follow=follow)
        if metrics_port is not None:
            refuse_unwatched(followed)
    if not followed:
        _run_each(located, reporter, partial(operate, **accepted), run_idle)
        return
    from ebbtide.cli.following import Followers
    from ebbtide.fleet import Fleet

    with ExitStack() as stack:
        watched = None
        if metrics_port is not None:
            from ebbtide.inspect import WatchedFleet

            watched = WatchedFleet.of([spec for _, spec in followed], root, healthy_within)
            with reporter.errors():
                stack.enter_context(_served(watched, metrics_host or LOOPBACK, metrics_port))
        Followers(followed, reporter, Fleet.once(operate, **accepted), _report, watched).run()


def _start_from(uri: str, located: Sequence[Located], reporter: Reporter) -> None:
    """Give pipelines the tables of a savepoint, before they run."""
    from ebbtide.executors import InProcess
    from ebbtide.operations import Context, operations

    [savepoint] = operations("savepoint")
    params = savepoint.asked({"to": uri})
    for _, spec in located:
        say(savepoint.act("start", Context(spec, reporter.root, InProcess()), params).text())


@click.command()
@of_pipelines
@click.option(
    "--accept-loss",
    is_flag=True,
    help="If files or records are gone, rebuild from the remaining ones and note the loss.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@engine_option
@spark_options
def refresh(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    accept_loss: bool,
    yes: bool,
    engine: EngineKind | None,
) -> None:
    """Drop state, sink rows and quarantine, and rebuild them from the source."""
    located = [(location, spec.on_engine(engine)) for location, spec in load_specs(specs)]
    if not yes:
        names = ", ".join(spec.name for _, spec in located)
        from ebbtide.operations import dropped

        for _, spec in located:
            for line in dropped(spec, root):
                click.echo(line, err=True)
        question = f"Rebuild {names} under '{root}' from the source?"
        click.confirm(question, abort=True, err=True)
    reporter = Reporter(root, as_json)

    def operate(*arguments: Any, **options: Any) -> RunSummary:
        from ebbtide.runtime import refresh as refresh_pipeline

        return refresh_pipeline(*arguments, **options, accept_loss=accept_loss)

    _run_each(located, reporter, operate)


def refuse_unwatched(followed: list[Located]) -> None:
    """Refuse to serve metrics without a continuous run.

    Raises:
        ConfigError: no run is continuous.
    """
    if not followed:
        raise ConfigError.of(
            "Only continuous runs serve metrics.",
            got="--metrics-port",
            next_step="Add --follow; for other pipelines 'ebbtide status --metrics' prints them.",
        )


@contextmanager
def _served(watched: WatchedFleet, host: str, port: int) -> Iterator[None]:
    """Serve a run's metrics, and print the address."""
    from ebbtide.cli.metrics_server import METRICS, served

    with served(watched, host, port) as open_port:
        if level() != QUIET:
            say(f"Metrics: http://{host}:{open_port}{METRICS}")
        yield


def _run_each(
    located: list[Located],
    reporter: Reporter,
    operate: Operate,
    run_idle: Callable[[Pipeline], RunSummary | None] = lambda spec: None,
) -> None:
    """Run pipelines in turn, without Spark if possible. One that fails or is paused keeps no other one from its run.

    Args:
        located: The pipelines.
        reporter: Prints each one's summary.
        operate: Runs a pipeline in a session.
        run_idle: Runs a pipeline without Spark; None if it needs Spark.
    """
    with quiet_spark(reporter.root) as spark, stop_on_signal(spark.live) as stop:

        def run_one(location: str, spec: Pipeline) -> int:
            if stop.is_set():
                return FAILED
            # A run that finds nothing to do needs no session.
            summary = run_idle(spec) or _run_in_session(operate, spark, reporter, stop, spec)
            _report(reporter, location, spec, summary, spark.live)
            if _says_all_bad(reporter, location, spec, summary, spark) or stop.is_set():
                return FAILED
            return NOTHING_MATCHED if summary.nothing_matched else 0

        reporter.each(located, run_one, spark)


def _says_all_bad(reporter: Reporter, location: str, spec: Pipeline, summary: RunSummary, spark: QuietSpark) -> bool:
    """Warn if all records were bad so far: the table would be empty."""
    from ebbtide.inspect import fault_of_all_bad

    fault = fault_of_all_bad(spec, reporter.root, summary)
    if fault is not None:
        reporter.say(fault, location, spark)
    return fault is not None


def _run_in_session(
    operate: Operate,
    spark: QuietSpark,
    reporter: Reporter,
    stop: threading.Event,
    spec: Pipeline,
) -> RunSummary:
    """Run one pipeline, its progress on the live line."""
    from ebbtide.runtime import Automatic

    view = RunView(spark.live, as_json=reporter.as_json)
    summary = operate(
        Automatic(lambda: spark.session, spark.settings),
        spec,
        reporter.root,
        on_progress=view.step,
        on_phase=view.phase,
        stop=stop,
    )
    spark.live.show("")
    return summary


def _report(reporter: Reporter, location: str, spec: Pipeline, summary: RunSummary, live: Live) -> None:
    """Print the summary of a run, and the next steps."""
    unmatched = summary.totals["unmatched"]
    if unmatched and spec.retracts and spec.format.type == "debezium":
        from ebbtide.formats import BadRecordError

        live.say(UNMATCHED.format(spec.name, amount(unmatched, "retraction"), BadRecordError.NEEDS_WHOLE_ROWS))
    reporter.result(summary, _summary_text, location)


def _summary_text(summary: RunSummary) -> str:

    totals = summary.totals
    counts = [_count_text(name, totals[name]) for name in COUNTS if totals[name]]
    found = ", ".join(counts) or "nothing new"
    lines = [
        f"{summary.pipeline}: {found}. Sink: {summary.root}/sink",
        *summary.remarks(),
    ]
    if level() == VERBOSE and summary.engine:
        lines.append(f"Steps ran {summary.engine}.")
    return "\n  ".join(lines)


def _count_text(name: str, n: int) -> str:
    """Describe a count of a summary."""
    if name in ("steps", "records"):
        return amount(n, name.removesuffix("s"))
    return f"{n:,} {name}"


def _going_on(located: Sequence[Located], *, follow: bool) -> list[Located]:
    """Return the pipelines that run continuously; none if all runs end by themselves.

    Args:
        located: The pipelines.
        follow: Run all continuously.

    Raises:
        ConfigError: some are continuous and some are not, or all continuous ones are materialized views.
    """
    views = [spec.name for _, spec in located if spec.is_view]
    if follow and len(views) == len(located):
        raise ConfigError.of(
            "A materialized view is not followed: its refresh decides when it runs.",
            got=", ".join(views),
            next_step="REFRESH MATERIALIZED VIEW and CREATE MATERIALIZED VIEW start jobs that follow it (docs/reference/views.md).",
        )
    if follow and views:
        say(f"Not followed: {', '.join(views)}. The refresh of a materialized view decides when it runs.")
    if follow:
        return [
            (location, spec.model_copy(update={"run": "continuous"})) for location, spec in located if not spec.is_view
        ]
    names = [spec.name for _, spec in located if spec.run == "continuous"]
    if names and len(names) < len(located):
        raise ConfigError.of(
            "Continuous and bounded runs cannot be started together.",
            got=f"run: continuous of {', '.join(names)}",
            next_step="Add --follow to run all continuously, or use two commands.",
        )
    return list(located) if names else []
