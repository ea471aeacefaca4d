"""`ebbtide quarantine list` and `show`: bad records of pipelines; the other commands of the group are operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ebbtide.cli.commands import NamingGroup
from ebbtide.cli.options import of_pipelines, personal_option
from ebbtide.cli.reporting import Reporter, load_specs

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline


@click.group(cls=NamingGroup)
def quarantine() -> None:
    """Bad records of pipelines: show, replay or drop them."""


@quarantine.command(name="list")
@of_pipelines
def list_(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Count the records by reason, with steps and times. Starts no Spark."""
    from ebbtide.inspect import QuarantineSummary

    reporter = Reporter(root, as_json)

    def count(location: str, spec: Pipeline) -> None:
        reporter.result(QuarantineSummary.of(spec, root), QuarantineSummary.text, location)

    reporter.each(load_specs(specs), count)


@quarantine.command()
@of_pipelines
@click.option("--reason", "reasons", multiple=True, help="Only records with this reason; repeatable.")
@click.option("--step", "steps", multiple=True, type=int, help="Only records of this step; repeatable.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Maximum number of records, the oldest first.",
)
@personal_option
def show(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    reasons: tuple[str, ...],
    steps: tuple[int, ...],
    limit: int,
    show_personal: bool,
) -> None:
    """Show the records, the oldest first. With --json each line is a whole record, as input for `replay --records`.

    Starts no Spark.
    """
    from ebbtide.inspect import QuarantinedRecord
    from ebbtide.tables import Selection

    reporter = Reporter(root, as_json)

    def show_records(location: str, spec: Pipeline) -> None:
        selection = Selection(reasons, steps, limit)
        for record in QuarantinedRecord.listed(spec, root, selection, show_personal=show_personal):
            reporter.result(record, QuarantinedRecord.text, location)

    reporter.each(load_specs(specs), show_records)
