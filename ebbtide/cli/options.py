"""Arguments and options shared by several commands; `--master` and `--conf`, as in `spark-submit`, for those that may start Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import click

from ebbtide.cli.commands import level_options
from ebbtide.cli.logs import JSON, TEXT, begin_log
from ebbtide.cli.places import root_option
from ebbtide.environment import ENGINE, LOG_FORMAT
from ebbtide.errors import ConfigError
from ebbtide.executors import EngineKind

_SPARK_SETTINGS = "ebbtide.cli.spark"
"""Key of the settings that a command was given, in its context."""
specs_argument = click.argument("specs", metavar="SPEC...", nargs=-1, required=True, type=click.Path())
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output: one line per step, then one per pipeline."
)
log_option = click.option(
    "--log-format",
    type=click.Choice((TEXT, JSON)),
    default=TEXT,
    envvar=LOG_FORMAT.name,
    expose_value=False,
    callback=begin_log,
    help="Write progress and errors as text, or as JSON, one object per line. Default: text.",
)
engine_option = click.option(
    "--engine",
    type=click.Choice(get_args(EngineKind)),
    envvar=ENGINE.name,
    show_envvar=True,
    help="Engine of the steps: Spark, this process without a JVM, or a choice by the backlog. Default: from the spec.",
)
rate_option = click.option("--rate", type=click.IntRange(1), help="Maximum records per second. Default: from the spec.")
personal_option = click.option(
    "--show-personal", is_flag=True, help="Also show the values of personal columns. Default: *** instead."
)


def seconds_of(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read a duration with its unit, as in specs."""
    from ebbtide.durations import parse_duration

    if text is None:
        return None
    try:
        duration = parse_duration(text)
        seconds: float = duration.total_seconds()
    except (ValueError, AttributeError) as error:
        raise click.BadParameter(str(error)) from error
    return seconds


def metrics_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of its metrics' endpoint."""
    port = click.option(
        "--metrics-port",
        type=click.IntRange(0, 65_535),
        help="With --follow: serve /metrics and /healthz at this port; 0: any free port.",
    )
    host = click.option("--metrics-host", help="Address of that server. Default: 127.0.0.1.")
    within = click.option(
        "--healthy-within",
        metavar="DURATION",
        callback=seconds_of,
        help="/healthz answers 503 after this time without a step, a phase or a poll of the source. Default: 10m, or ten times trigger_interval if that is longer.",
    )
    return port(host(within(command)))


def of_pipelines(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments of commands on several pipelines: specs, root, and output format."""
    for decorate in (
        log_option,
        level_options,
        json_option,
        root_option,
        specs_argument,
    ):  # click lists the last one first
        command = decorate(command)
    return command


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
    return {} if context is None else dict(context.meta.get(_SPARK_SETTINGS, {}))


def _keep_master(context: click.Context, _: click.Parameter, master: str | None) -> None:
    if master is not None:
        context.meta.setdefault(_SPARK_SETTINGS, {})["spark.master"] = master


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
    context.meta.setdefault(_SPARK_SETTINGS, {}).update(settings)
