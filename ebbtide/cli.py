"""The command line: `ebbtide --help` lists its commands.

Exit codes: 0 done, 1 failed, 2 wrong usage or a spec that is not usable, 3 a source without a file that matches.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from pyspark.errors import PySparkException

from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.streaming.load import load
from ebbtide.streaming.progress import RunSummary, StepProgress
from ebbtide.streaming.spec import Pipeline
from ebbtide.streaming.status import Status, status_of

ROOT = ".ebbtide"
FAILED, USAGE, NOTHING_MATCHED = 1, 2, 3


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

    Exit codes: 0 done, also if nothing is new; 1 failed; 2 wrong usage or spec; 3 no file in a source's folder matches.
    """


@main.command()
@_spec_argument
@_root_option
@_json_option
@click.option("--accept-source-path", is_flag=True, help="The source's files have moved to where the spec now says.")
def run(specs: tuple[str, ...], root: str, as_json: bool, accept_source_path: bool) -> None:
    """Read all that is there, bring the sinks up to date, expire what is due."""
    from ebbtide.streaming.runner import run as run_pipeline

    _each(specs, root, as_json, partial(run_pipeline, accept_source_path=accept_source_path))


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


@main.command()
@_spec_argument
@_root_option
@_json_option
def cleanup(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Delete what has expired from the stored state."""
    _maintain(specs, root, as_json, "cleanup")


@main.command()
@_spec_argument
@_root_option
@_json_option
def compact(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Fold the stored state to the newest version of each entry; join the sinks' small files."""
    _maintain(specs, root, as_json, "compaction")


@main.command()
@_spec_argument
@_root_option
@_json_option
@click.option("--apply", "do", flag_value="apply", help="Do it.")
@click.option("--undo", "do", flag_value="undo", help="Undo the last step, if it was a migration.")
def migrate(specs: tuple[str, ...], root: str, as_json: bool, do: str | None) -> None:
    """Make stored state fit a spec whose TTL or state types have changed. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance import migration
    from ebbtide.streaming.runner import system_clock

    loaded = _loaded(specs)
    with _session() as spark:
        for spec in loaded:
            if do == "apply":
                done = migration.apply(spark, spec, root, system_clock())
            else:
                done = (migration.undo if do == "undo" else migration.plan)(spark, spec, root)
            _print(done, as_json, migration.MigrationPlan.text)


@main.command()
@click.argument("spec")
@click.argument("name", metavar="[STATE]", required=False)
@_root_option
@_json_option
@click.option("--as-of-step", type=int, help="The state after a step that is still stored. Default: the last.")
@click.option("--where", help="A SQL condition on the columns shown.")
@click.option(
    "--now", type=click.DateTime(), help="The time, in UTC, that `live` goes by. Default: the clock of the step."
)
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Most rows to show.")
def state(
    spec: str,
    name: str | None,
    root: str,
    as_json: bool,
    as_of_step: int | None,
    where: str | None,
    now: datetime | None,
    limit: int,
) -> None:
    """Show the stored state of a pipeline, one STATE of it or all; entries whose time is over too."""
    from ebbtide.streaming.query import state_of

    [loaded] = _loaded((spec,))
    now_ms = None if now is None else int(now.replace(tzinfo=UTC).timestamp() * 1000)
    with _session() as spark:
        rows = state_of(spark, loaded, root, state=name, as_of_step=as_of_step, now_ms=now_ms)
        rows = rows.where(where) if where else rows
        found = rows.limit(limit).toArrow()
        for line in map(_json_line, found.to_pylist(maps_as_pydicts="strict")) if as_json else _table(found):
            click.echo(line)


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str)


def _table(found: pa.Table) -> Iterator[str]:
    """Write rows in columns, a line each."""
    cells = [[name, *("" if v is None else str(v) for v in found[name].to_pylist())] for name in found.column_names]
    widths = [max(map(len, column)) for column in cells]
    for row in zip(*cells, strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


@main.group()
def replay() -> None:
    """Play cases; print each with its `output`. Exit code 1 if one has another `expected`."""


_cases_option = click.option(
    "--cases",
    type=click.File(encoding="utf-8"),
    default="-",
    help="A file of cases, a JSON object a line. Default: standard input.",
)


@replay.command("ttl")
@_cases_option
@click.option(
    "--store",
    type=click.Choice(["heap", "rocksdb", "delta"]),
    default="heap",
    show_default=True,
    help="Where states are.",
)
def replay_states(cases: Any, store: str) -> None:
    """Play scripts of state operations."""
    from ebbtide.replay.ttl import replay_ttl

    _replay(cases, lambda parsed: replay_ttl(parsed, store), lambda case: True)


@replay.command("materializer")
@_cases_option
@click.option(
    "--strategy",
    type=click.Choice(["LEGACY", "VALUE", "MAP", "ADAPTIVE", "COLUMNAR"]),
    default="ADAPTIVE",
    show_default=True,
    help="How histories are kept; COLUMNAR is what pipelines do.",
)
@click.option(
    "--store", type=click.Choice(["heap", "rocksdb"]), default="heap", show_default=True, help="Where they are."
)
@click.option(
    "--upsert-key", type=click.Choice(["none", "col"]), help="Rows match as a whole, or on `uk`. Default: the case's."
)
@click.option("--ttl-ms", type=click.IntRange(0), help="Time to live, ms; 0: for ever. Default: the case's.")
@click.option(
    "--high",
    type=click.IntRange(1),
    help="ADAPTIVE: rows from which on nodes are linked. Default: the case's, else the store's.",
)
@click.option(
    "--low",
    type=click.IntRange(0),
    help="ADAPTIVE: rows down to which they stay so. Default: the case's, else the store's.",
)
def replay_changelogs(cases: Any, strategy: str, store: str, **settings: Any) -> None:
    """Play changelogs through the upsert materializer."""
    from ebbtide.replay.materializer import applies, replay_materializer

    _replay(
        cases,
        lambda parsed: replay_materializer(parsed, strategy, store, **settings),
        lambda case: applies(case, strategy),
    )


def _replay(cases: Any, play: Callable[[list[Any]], Iterator[Any]], counts: Callable[[Any], bool]) -> None:
    from ebbtide.replay.cases import differs

    wrong = 0
    with _reported():
        try:
            parsed = [json.loads(line) for line in cases if line.strip()]
        except ValueError as error:
            raise ConfigError.of(f"The cases cannot be read: {error}.", allowed="a JSON object a line") from error
        for case in play(parsed):
            click.echo(json.dumps(case))
            wrong += counts(case) and differs(case)
    if wrong:
        click.echo(f"{wrong} of {len(parsed)} cases differ.", err=True)
        raise click.exceptions.Exit(FAILED)


def _loaded(locations: tuple[str, ...]) -> list[Pipeline]:
    with _reported():
        return _specs(locations)


def _maintain(locations: tuple[str, ...], root: str, as_json: bool, job: str) -> None:
    from ebbtide.maintenance.job import MaintenanceReport, maintain

    specs = _loaded(locations)
    with _session() as spark:
        for spec in specs:
            _print(maintain(spark, spec, root, job), as_json, MaintenanceReport.text)


@contextmanager
def _session() -> Iterator[Any]:
    """Give a session of Spark; print errors as one sentence."""
    with _reported():
        from ebbtide.streaming.session import build_session

        spark = build_session()
        try:
            yield spark
        finally:
            spark.stop()


def _each(locations: tuple[str, ...], root: str, as_json: bool, operate: Callable[..., RunSummary]) -> None:
    specs = _loaded(locations)
    summaries = []
    with _session() as spark, _stop_on_signal() as stop:
        for spec in specs:
            summary = operate(spark, spec, root, on_progress=lambda step: _progress(step, as_json), stop=stop)
            _print(summary, as_json, _summary_text)
            summaries.append(summary)
            if stop.is_set():
                raise click.exceptions.Exit(FAILED)
    if any(summary.nothing_matched for summary in summaries):
        raise click.exceptions.Exit(NOTHING_MATCHED)


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
    left = [f"younger than source.min_age and left: {summary.files_young}"] if summary.files_young else []
    left += [f"files that do not match source.pattern: {summary.files_unmatched}"] if summary.files_unmatched else []
    said = summary.nothing_matched or f"{'; '.join([counts or 'nothing new', *left])}."
    return f"{summary.pipeline}: {said} Sink: {summary.root}/sink"
