"""`ebbtide quarantine`: look at bad records, replay them, drop them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.on_spark import report_each
from ebbtide.cli.options import of_pipelines
from ebbtide.cli.quiet import QuietSpark
from ebbtide.cli.reporting import Reporter, load_specs
from ebbtide.runtime.clock import system_clock

if TYPE_CHECKING:
    from ebbtide.sinks.quarantine import Selection
    from ebbtide.spec.pipeline import Pipeline

SHOWN = 100
"""Records that `show` shows by default."""


@click.group()
def quarantine() -> None:
    """Bad records of pipelines: look at them, replay them once they can be read, drop them."""


def selecting(limit: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options that say which records it means.

    Args:
        limit: The most records where the option is not given; None: all.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        options = (
            click.option("--reason", "reasons", multiple=True, help="Only records bad for this reason; several times."),
            click.option("--step", "steps", multiple=True, type=int, help="Only those of this step; several times."),
            click.option(
                "--limit",
                type=click.IntRange(1),
                default=limit,
                show_default=limit is not None,
                help="The oldest of them, no more than this.",
            ),
        )
        for option in reversed(options):  # click lists the last one first
            command = option(command)
        return command

    return decorate


@quarantine.command(name="list")
@of_pipelines
def list_(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Count the records by reason, with steps and times. Starts no Spark."""
    from ebbtide.inspect.quarantine import summary

    Reporter(root, as_json).each(load_specs(specs), lambda spec: summary(spec, root))


@quarantine.command()
@of_pipelines
@selecting(limit=SHOWN)
def show(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    **selected: Any,
) -> None:
    """Show the records, the oldest first. With --json a line has all of one, as `replay --records` takes it. Starts no Spark."""
    from ebbtide.inspect.quarantine import QuarantinedRecord, records

    reporter = Reporter(root, as_json)
    for location, spec in load_specs(specs):
        with reporter.errors(location):
            for record in records(spec, root, _selection(**selected)):
                reporter.result(record, QuarantinedRecord.text, location)


@quarantine.command()
@of_pipelines
@selecting(limit=None)
@click.option(
    "--records",
    "records_file",
    metavar="FILE",
    help="Replay mended records: JSON lines with `origin` and `raw`, as `show --json` prints them. Default: as they are.",
)
@click.option("--apply", "apply", is_flag=True, help="Do it.")
@click.option(
    "--accept-late", is_flag=True, help="With order: arrival, apply late records now, after all that came since."
)
def replay(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    records_file: str | None,
    apply: bool,
    accept_late: bool,
    **selected: Any,
) -> None:
    """Decode records again with the spec as it is now, and apply those that are good. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance.quarantine_replay import Replay, ReplayReport

    reporter = Reporter(root, as_json)
    located = load_specs(specs)
    if records_file is not None and len(located) > 1:
        raise click.UsageError(f"Got --records and {len(located)} specs. Allowed: one spec.")
    selection = _selection(**selected)
    asked = Replay(selection, records_file, accept_late, applies=apply)

    def operate(spark: QuietSpark, spec: Pipeline) -> ReplayReport:
        return asked.run(lambda: spark.session, spec, root, system_clock())

    report_each(reporter, located, operate)


@quarantine.command()
@of_pipelines
@selecting(limit=None)
@click.option("--apply", "apply", is_flag=True, help="Do it.")
@click.option("--note", help="Why, kept with the step; needed with --apply.")
def drop(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    apply: bool,
    note: str | None,
    **selected: Any,
) -> None:
    """Give records up. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance import quarantine_drop

    if apply and not note:
        raise click.UsageError("Got --apply without --note. Allowed: --apply --note 'why they are dropped'.")
    selection = _selection(**selected)

    def operate(spark: QuietSpark, spec: Pipeline) -> quarantine_drop.DropReport:
        if apply and note:
            return quarantine_drop.apply(spark.session, spec, root, selection, note)
        return quarantine_drop.plan(spec, root, selection)

    report_each(Reporter(root, as_json), load_specs(specs), operate)


def _selection(reasons: tuple[str, ...], steps: tuple[int, ...], limit: int | None) -> Selection:
    from ebbtide.sinks.quarantine import Selection

    return Selection(reasons, steps, limit)
