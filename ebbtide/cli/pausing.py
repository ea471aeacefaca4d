"""`ebbtide pause` and `ebbtide resume`: whether pipelines read what is new."""

from __future__ import annotations

import socket

import click

from ebbtide.cli.options import of_pipelines
from ebbtide.cli.reporting import Reporter, load_specs
from ebbtide.maintenance import pausing
from ebbtide.runtime.clock import system_clock
from ebbtide.spec.pipeline import Pipeline
from ebbtide.users import user_name


@click.command()
@of_pipelines
@click.option("--reason", required=True, help="Why; runs, schedules and `ebbtide status` tell it.")
def pause(specs: tuple[str, ...], root: str, as_json: bool, reason: str) -> None:
    """Let pipelines read nothing new until they are resumed. Runs end after their step; those that go on wait. Spark is not started."""
    user = user_name()
    host = socket.gethostname()
    by = f"{user}@{host}"

    def operate(spec: Pipeline) -> pausing.PauseReport:
        return pausing.pause(spec, root, by, reason, system_clock())

    Reporter(root, as_json).each(load_specs(specs), operate)


@click.command()
@of_pipelines
def resume(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Let paused pipelines read again. Their processing time has stood still: nothing has expired meanwhile. Spark is not started."""

    def operate(spec: Pipeline) -> pausing.PauseReport:
        return pausing.resume(spec, root, system_clock())

    Reporter(root, as_json).each(load_specs(specs), operate)
