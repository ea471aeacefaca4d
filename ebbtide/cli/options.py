"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from ebbtide.cli.commands import level_options
from ebbtide.cli.places import root_option
from ebbtide.tasks import EngineKind

specs_argument = click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path())
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output: one line a step, then one a pipeline."
)


engine_option = click.option(
    "--engine",
    type=click.Choice(get_args(EngineKind)),
    envvar="EBBTIDE_ENGINE",
    show_envvar=True,
    help="Where steps run: on Spark, in this process without a JVM, or wherever the backlog fits. Default: as the spec says.",
)
rate_option = click.option(
    "--rate", type=click.IntRange(1), help="Records a second at most. Default: as the spec says."
)
personal_option = click.option(
    "--show-personal", is_flag=True, help="Show the values of personal columns, too. Default: *** in their place."
)


def of_pipelines(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what all that work on several pipelines have: specs, root, and how it prints."""
    for decorate in (level_options, json_option, root_option, specs_argument):  # click lists the last one first
        command = decorate(command)
    return command
