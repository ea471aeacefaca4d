"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ebbtide.cli.reporting import ROOT

specs_argument = click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
root_option = click.option(
    "--root",
    default=ROOT,
    show_default=True,
    envvar="EBBTIDE_ROOT",
    help="Folder of all pipelines' tables: a path or a URI.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output: one line a step, then one a pipeline."
)


def of_pipelines(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what all that work on several pipelines have: specs, root, and whether it prints JSON."""
    for decorate in (json_option, root_option, specs_argument):  # click lists the last one first
        command = decorate(command)
    return command
