"""`ebbtide report`: a page on pipelines as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from ebbtide.cli.options import of_pipelines
from ebbtide.cli.reporting import Reporter, load_specs, say
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline

MOST_ROWS = 10
"""Rows of a finding that the page shows."""
JOBS = ("compact", "cleanup", "vacuum")
"""Maintenance whose plans the page shows."""


@click.command()
@of_pipelines
@click.option("--html", "to", metavar="FILE", required=True, help="File to write, replaced if it is there.")
def report(specs: tuple[str, ...], root: str, as_json: bool, to: str) -> None:
    """Write a page on pipelines: status, lag, cost, steps and runs over time, checks, bad records, maintenance due.

    A check that failed last is run again, to show some of the rows that it finds. Starts no Spark.
    """
    from ebbtide.inspect import page

    located = load_specs(specs)
    with Reporter(root, as_json).errors():
        specs_of = [spec for _, spec in located]
        html = page(specs_of, root, partial(due, root=root), differing=partial(differing, root))
        Location(Path(to).absolute()).replace_bytes(html.encode())
    say(f"Written: {to}")


def differing(root: str, spec: Pipeline, name: str) -> Iterator[tuple[str, str]]:
    """Yield some rows that a check of a pipeline finds, each with the rule that it breaks; personal values are masked.

    Raises:
        EbbtideError: the check cannot be run here.
    """
    from ebbtide.checks import Engines, Newest, VersionRange, Wording, checks_of
    from ebbtide.runtime import Plan, system_clock

    tables = Plan.under(root, spec)
    newest = Newest.between_steps(tables)
    if newest is None:
        return
    window = VersionRange.after(tables, newest=newest)
    for check in checks_of(spec):
        if check.name != name:
            continue
        verdict = check.verdict(tables, window, Engines(partial(_no_session, name)), system_clock())
        for finding in verdict.findings:
            for row in finding.sample[:MOST_ROWS] if finding.broken else ():
                cells = [f"{column}: {value}" for column, value in Wording.narrow(row).items()]
                yield finding.rule, ", ".join(cells)


def _no_session(check: str) -> NoReturn:
    raise ConfigError.of(
        "The page shows rows of tables that are judged without Spark.",
        got="larger ones",
        next_step=f"Run 'ebbtide check --only {check}'.",
    )


def due(spec: Pipeline, root: str) -> Iterator[str]:
    """Yield the maintenance of a pipeline that would do something, with the reason for a plan that cannot be made."""
    from ebbtide.executors import InProcess
    from ebbtide.operations import Context, operations

    context = Context(spec, root, InProcess())
    for name in JOBS:
        [operation] = operations(name)
        try:
            found = operation.act("dry_run", context, operation.asked({}))
        except EbbtideError as error:
            yield f"{name}: {error}"
            continue
        if found.counts:
            yield f"ebbtide {name}: {' '.join(found.lines)}"
