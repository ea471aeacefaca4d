"""The command line: `ebbtide run`, `status`, `refresh`.

Exit codes: 0 done, 1 failed, 2 wrong usage or a spec that is not usable.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pyspark.errors import PySparkException

from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.streaming.load import load
from ebbtide.streaming.progress import RunSummary, StepProgress
from ebbtide.streaming.spec import Pipeline
from ebbtide.streaming.status import Status, status_of

ROOT = ".ebbtide"
FAILED, USAGE = 1, 2


def _specs(locations: tuple[str, ...]) -> list[Pipeline]:
    """Load the specs named; a folder without a defs.yaml of its own stands for those in its folders."""
    specs = []
    for location in locations:
        path = Path(location)
        inner = (
            sorted(p.parent for p in path.glob("*/defs.yaml"))
            if path.is_dir() and not (path / "defs.yaml").exists()
            else []
        )
        specs += [load(p) for p in inner or [path]]
    return specs


_spec_argument = click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
_root_option = click.option(
    "--root",
    default=ROOT,
    show_default=True,
    envvar="EBBTIDE_ROOT",
    help="Folder of all pipelines' tables: a path or a URI.",
)
_json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON on standard output: one line a step, then one a pipeline."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ebbtide")
def main() -> None:
    """Upsert sinks and expiring state for Spark.

    SPEC is a defs.yaml, the folder that holds one, or a folder of such folders.
    """


@main.command()
@_spec_argument
@_root_option
@_json_option
def run(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Read all that is there, bring the sinks up to date, expire what is due."""
    from ebbtide.streaming.runner import run as run_pipeline

    _each(specs, root, as_json, run_pipeline)


@main.command()
@_spec_argument
@_root_option
@_json_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def refresh(specs: tuple[str, ...], root: str, as_json: bool, yes: bool) -> None:
    """Drop state, sink rows, quarantine and checkpoint, and rebuild them from the source."""
    from ebbtide.streaming.runner import refresh as refresh_pipeline

    if not yes:
        names = ", ".join(spec.name for spec in _loaded(specs))
        click.confirm(f"Rebuild {names} under '{root}' from the source?", abort=True, err=True)
    _each(specs, root, as_json, refresh_pipeline)


@main.command()
@_spec_argument
@_root_option
@_json_option
def status(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Tell where pipelines stand, without starting Spark."""
    with _reported():
        for spec in _loaded(specs):
            _print(status_of(spec, root), as_json, Status.text)


def _loaded(locations: tuple[str, ...]) -> list[Pipeline]:
    with _reported():
        return _specs(locations)


def _each(locations: tuple[str, ...], root: str, as_json: bool, operate: Callable[..., RunSummary]) -> None:
    specs = _loaded(locations)
    with _reported():
        from ebbtide.streaming.session import build_session

        spark = build_session()
        try:
            with _stop_on_signal() as stop:
                for spec in specs:
                    summary = operate(spark, spec, root, on_progress=lambda step: _progress(step, as_json), stop=stop)
                    _print(summary, as_json, _summary_text)
                    if stop.is_set():
                        raise click.exceptions.Exit(FAILED)
        finally:
            spark.stop()


@contextmanager
def _reported() -> Iterator[None]:
    """Print errors as one sentence and exit with their code."""
    try:
        yield
    except ConfigError as error:
        click.echo(f"Error: {error}", err=True)
        raise click.exceptions.Exit(USAGE) from error
    except (EbbtideError, PySparkException) as error:
        click.echo(f"Error: {type(error).__name__}: {error}", err=True)
        raise click.exceptions.Exit(FAILED) from error


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into a stop after the step under way; the second ends at once."""
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        click.echo("Stopping after this step; once more to stop at once.", err=True)
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _progress(step: StepProgress, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(step.as_dict()))
    else:
        click.echo(step.line(), err=True)


def _print(result: Any, as_json: bool, text: Callable[[Any], str]) -> None:
    click.echo(json.dumps(result.as_dict(), default=str) if as_json else text(result))


def _summary_text(summary: RunSummary) -> str:
    totals = summary.totals
    counts = ", ".join(
        f"{totals[name]} {name.replace('_', ' ')}"
        for name in ("steps", "records", "inserted", "updated", "deleted", "quarantined", "unmatched", "expired")
        if totals[name]
    )
    return f"{summary.pipeline}: {counts or 'nothing new'}. Sink: {summary.root}/sink"
