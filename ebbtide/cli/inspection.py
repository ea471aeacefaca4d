"""`ebbtide status`, `ebbtide lag` and `ebbtide state`: status and state of pipelines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ebbtide.cli.commands import level_options
from ebbtide.cli.errors import FAILED, PAUSED, REFUSED
from ebbtide.cli.options import json_option, of_pipelines, personal_option, spark_options
from ebbtide.cli.places import root_option
from ebbtide.cli.quiet import quiet_spark
from ebbtide.cli.reporting import Located, Reporter, load_specs
from ebbtide.redaction import printable
from ebbtide.runtime import system_clock

if TYPE_CHECKING:
    import pyarrow as pa

    from ebbtide.spec import Pipeline


EXIT_CODES: Mapping[str, int] = {"healthy": 0, "attention": FAILED, "paused": PAUSED, "refused": REFUSED}

"""Level of a status to the exit code of `ebbtide status`."""


@click.command()
@of_pipelines
@click.option(
    "--metrics", "as_metrics", is_flag=True, help="Print metrics as OpenMetrics text, with the backlogs of the sources."
)
def status(specs: tuple[str, ...], root: str, as_json: bool, as_metrics: bool) -> None:
    """Show the status of pipelines, and what their next runs would meet, without starting Spark.

    Exit codes: 0 healthy, 1 one needs a look, 4 one is paused, 5 the next run of one is refused; of several the highest.
    """
    from ebbtide.inspect import status as status_of

    if as_metrics and as_json:
        raise click.UsageError("Got --json and --metrics. Allowed: one of them.")
    reporter = Reporter(root, as_json)
    if as_metrics:
        _print_metrics(load_specs(specs), reporter)
    else:
        codes = {0}

        def show(location: str, spec: Pipeline) -> None:
            report = status_of(spec, root)
            reporter.result(report, type(report).text, location)
            codes.add(EXIT_CODES[report.level])

        try:
            reporter.each(load_specs(specs), show)
        except click.exceptions.Exit as unreadable:
            codes.add(unreadable.exit_code)
        # A person reads it: the worst goes first.
        if max(codes):
            raise click.exceptions.Exit(max(codes))


@click.command()
@of_pipelines
def runs(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """List the ends of pipelines' last hundred runs, the newest first: outcome, error, host, steps."""
    from ebbtide.ledger import KeptRun
    from ebbtide.runtime import Plan

    reporter = Reporter(root, as_json)

    def show(location: str, spec: Pipeline) -> None:
        plan = Plan.under(root, spec)
        for kept in KeptRun.all_of(plan.root, plan.ledger.turn):
            reporter.result(kept, KeptRun.line, location)

    reporter.each(load_specs(specs), show)


def _print_metrics(located: list[Located], reporter: Reporter) -> None:
    """Print the metrics of pipelines. Errors that hide values go to standard error and into a metric."""
    from ebbtide.inspect import MetricsAtRest

    found = MetricsAtRest.of([spec for _, spec in located], reporter.root, system_clock())
    for number, error in found.errors:
        location, _ = located[number]
        reporter.say(error, location, None)
    click.echo(found.text, nl=False)


@click.command()
@of_pipelines
def lag(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Show the backlog of pipelines' sources, without starting Spark. A refused source does not hide the rest."""
    from ebbtide.definitions import all_several
    from ebbtide.inspect import Lag, UnreadTopics

    reporter = Reporter(root, as_json)
    refused = False
    for location, spec in load_specs(specs):
        try:
            with reporter.errors(location):
                reporter.result(Lag.of(spec, root, system_clock()), Lag.line, location)
        except click.exceptions.Exit as ended:
            if ended.exit_code != REFUSED:
                raise  # unavailable brokers would be waited for repeatedly
            refused = True
    for location in specs:
        with reporter.errors(location):
            for several in all_several(location):
                found = UnreadTopics.of(several)
                if found is not None:
                    reporter.result(found, UnreadTopics.line, location)
    if refused:
        raise click.exceptions.Exit(REFUSED)


@click.command()
@click.argument("spec", type=click.Path())
@click.argument("name", metavar="[STATE]", required=False)
@root_option
@json_option
@level_options
@click.option("--as-of-step", type=int, help="The state after a step, if still stored. Default: the last.")
@click.option("--where", help="A SQL condition on the columns shown.")
@click.option(
    "--now", type=click.DateTime(), help="The time, in UTC, for column `live`. Default: the clock of the step."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Maximum rows to show.")
@personal_option
@spark_options
def state(
    spec: str,
    name: str | None,
    root: str,
    as_json: bool,
    as_of_step: int | None,
    where: str | None,
    now: datetime | None,
    limit: int,
    show_personal: bool,
) -> None:
    """Show the stored state of a pipeline, all of it or one STATE, including expired entries."""
    from ebbtide.inspect import state as state_of
    from ebbtide.inspect import without_personal

    location, pipeline = _only_spec(spec)
    now_ms = None if now is None else int(now.replace(tzinfo=UTC).timestamp() * 1000)
    with quiet_spark(root) as spark, Reporter(root).errors(location, spark):
        rows = state_of(
            spark.executor,
            pipeline,
            root,
            state=name,
            where=where,
            limit=limit,
            as_of_step=as_of_step,
            now_ms=now_ms,
        )
        shown = rows if show_personal else without_personal(rows, pipeline)
        lines = _json_lines(shown) if as_json else _text_lines(shown)
        for line in lines:
            click.echo(line)


def _only_spec(location: str) -> Located:
    located = load_specs((location,))
    if len(located) > 1:
        allowed = ", ".join(one for one, _ in located)
        raise click.UsageError(f"'{location}' holds {len(located)} specs. Allowed: one of {allowed}.")
    return located[0]


def _json_lines(table: pa.Table) -> Iterator[str]:
    for row in table.to_pylist(maps_as_pydicts="strict"):
        yield json.dumps(row, default=str)


def _text_lines(table: pa.Table) -> Iterator[str]:
    """Write rows in columns, a line each, under their names."""
    columns = []
    for name in table.column_names:
        cells = [name, *map(_cell, table[name].to_pylist())]
        columns.append(_padded(cells))
    for row in zip(*columns, strict=True):
        yield "  ".join(row).rstrip()


def _cell(value: object) -> str:
    return "" if value is None else printable(str(value))


def _padded(cells: Iterable[str]) -> list[str]:
    cells = list(cells)
    width = max(map(len, cells))
    return [cell.ljust(width) for cell in cells]
