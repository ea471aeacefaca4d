"""`ebbtide report`: a page on pipelines as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ebbtide.cli.options import of_pipelines
from ebbtide.cli.reporting import Reporter, load_specs, say
from ebbtide.errors import EbbtideError
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline

JOBS = ("compact", "cleanup", "vacuum")
"""Maintenance whose plans the page shows."""


@click.command()
@of_pipelines
@click.option("--html", "to", metavar="FILE", required=True, help="File to write, replaced if it is there.")
def report(specs: tuple[str, ...], root: str, as_json: bool, to: str) -> None:
    """Write a page on pipelines: status, lag, steps and runs over time, checks, bad records, maintenance due. Starts no Spark."""
    from ebbtide.inspect import page

    located = load_specs(specs)
    with Reporter(root, as_json).errors():
        html = page([spec for _, spec in located], root, lambda spec: due(spec, root))
        Location(Path(to).absolute()).replace_bytes(html.encode())
    say(f"Written: {to}")


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
