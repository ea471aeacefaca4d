"""Arguments and options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from ebbtide.cli.errors import ROOT
from ebbtide.errors import ConfigError
from ebbtide.tasks import EngineKind


def _usable_root(context: click.Context, option: click.Parameter, root: str) -> str:
    from ebbtide.storage.paths import refuse_unusable

    try:
        refuse_unusable("--root", root)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return root


specs_argument = click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
root_option = click.option(
    "--root",
    default=ROOT,
    show_default=True,
    envvar="EBBTIDE_ROOT",
    callback=_usable_root,
    help="Folder of all pipelines' tables: a path or a URI.",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output: one line a step, then one a pipeline."
)


engine_option = click.option(
    "--engine",
    type=click.Choice(get_args(EngineKind)),
    envvar="EBBTIDE_ENGINE",
    help="Where steps run: on Spark, in this process without a JVM, or wherever the backlog fits. Default: as the spec says.",
)
rate_option = click.option(
    "--rate", type=click.IntRange(1), help="Records a second at most. Default: as the spec says."
)


def of_pipelines(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what all that work on several pipelines have: specs, root, and whether it prints JSON."""
    for decorate in (json_option, root_option, specs_argument):  # click lists the last one first
        command = decorate(command)
    return command
