"""`--master` and `--conf`, as in `spark-submit`, for commands that may start Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ebbtide.errors import ConfigError

_GIVEN = "ebbtide.cli.spark"


def spark_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--master` and `--conf` to a command; `spark_settings` returns their values."""
    master = click.option(
        "--master",
        metavar="URL",
        expose_value=False,
        callback=_keep_master,
        help="Spark's master, such as spark://HOST:7077. Default: EBBTIDE_MASTER, else local[*].",
    )
    conf = click.option(
        "--conf",
        metavar="NAME=VALUE",
        multiple=True,
        expose_value=False,
        callback=_keep_settings,
        help="A Spark setting, overriding spark-defaults.conf; a credential as ${NAME}.",
    )
    return master(conf(command))


def spark_settings() -> dict[str, str]:
    """Return the settings given to the current command."""
    context = click.get_current_context(silent=True)
    return {} if context is None else dict(context.meta.get(_GIVEN, {}))


def _keep_master(context: click.Context, _: click.Parameter, master: str | None) -> None:
    if master is not None:
        context.meta.setdefault(_GIVEN, {})["spark.master"] = master


def _keep_settings(context: click.Context, _: click.Parameter, given: tuple[str, ...]) -> None:
    from ebbtide.sessions import refuse_literal_credentials

    settings = {}
    for setting in given:
        name, separator, value = setting.partition("=")
        if not (separator and name.startswith("spark.")):
            raise click.BadParameter(f"Got '{setting}'. Allowed: NAME=VALUE, where NAME begins with 'spark.'.")
        settings[name] = value
    try:
        refuse_literal_credentials(settings)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    context.meta.setdefault(_GIVEN, {}).update(settings)
