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
from typing import TYPE_CHECKING, Any

import click

import ebbtide
from ebbtide.cli.live import Live, RunView
from ebbtide.cli.quiet import QuietSpark
from ebbtide.cli.typed import as_typed
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.inspect.status import Status
from ebbtide.runtime.clock import system_clock
from ebbtide.runtime.progress import RunSummary
from ebbtide.spec.load import load_all
from ebbtide.spec.pipeline import Pipeline

if TYPE_CHECKING:
    import pyarrow as pa

ROOT = ".ebbtide"
FAILED, USAGE, NOTHING_MATCHED = 1, 2, 3
UNMATCHED = (
    "{}: {} retractions matched no row. Where a Postgres table has no REPLICA IDENTITY FULL, its deletes tell the key "
    "alone, and the rows stay in the sink: ALTER TABLE ... REPLICA IDENTITY FULL, then a new snapshot."
)
Located = tuple[str, Pipeline]
"""Where a spec is, and the spec."""

_specs_argument = click.argument("specs", metavar="SPEC...", nargs=-1, required=True)
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
@_specs_argument
@_root_option
@_json_option
@click.option("--accept-source-path", is_flag=True, help="The source's files have moved to where the spec now says.")
def run(specs: tuple[str, ...], root: str, as_json: bool, accept_source_path: bool) -> None:
    """Read all that is there, bring the sinks up to date, expire what is due. With nothing to do, Spark is not started.

    What Spark logs and functions of yours print is in a log file, ROOT/.logs.
    """
    from ebbtide.runtime.idle import idle_run

    def operate(*arguments: Any, **more: Any) -> RunSummary:
        from ebbtide.runtime.driver import run as run_pipeline

        return run_pipeline(*arguments, **more, accept_source_path=accept_source_path)

    _each(specs, root, as_json, operate, without_spark=lambda spec: idle_run(spec, root, system_clock()))


@main.command()
@_specs_argument
@_root_option
@_json_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def refresh(specs: tuple[str, ...], root: str, as_json: bool, yes: bool) -> None:
    """Drop state, sink rows, quarantine and checkpoint, and rebuild them from the source."""
    from ebbtide.runtime.driver import refresh as refresh_pipeline

    if not yes:
        names = ", ".join(spec.name for _, spec in _loaded(specs))
        click.confirm(f"Rebuild {names} under '{root}' from the source?", abort=True, err=True)
    _each(specs, root, as_json, refresh_pipeline)


@main.command()
@_specs_argument
@_root_option
@_json_option
def status(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Tell where pipelines stand, without starting Spark."""
    for location, spec in _loaded(specs):
        with _reported(location, root):
            _print(ebbtide.status(spec, root), as_json, Status.text, location, root)


@main.command()
@_specs_argument
@_root_option
@_json_option
def cleanup(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Delete what has expired from the stored state."""
    _maintain(specs, root, as_json, "cleanup")


@main.command()
@_specs_argument
@_root_option
@_json_option
def compact(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Fold the stored state to the newest version of each entry; join the sinks' small files."""
    _maintain(specs, root, as_json, "compaction")


@main.command()
@_specs_argument
@_root_option
@_json_option
@click.option("--apply", "apply", is_flag=True, help="Do it.")
@click.option("--undo", "undo", is_flag=True, help="Undo the last step, if it was a migration.")
def migrate(specs: tuple[str, ...], root: str, as_json: bool, apply: bool, undo: bool) -> None:
    """Make stored state fit a spec whose TTL or state types have changed. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance import migration

    if apply and undo:
        raise click.UsageError("Got --apply and --undo. Allowed: one of them, or none for the plan.")

    located = _loaded(specs)
    with _quiet_spark(root) as spark:
        for location, spec in located:
            with _reported(location, root, spark):
                if apply:
                    done = migration.apply(spark.session, spec, root, system_clock())
                else:
                    done = (migration.undo if undo else migration.plan)(spark.session, spec, root)
                _print(done, as_json, migration.MigrationPlan.text, location, root)


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
    located = _loaded((spec,))
    if len(located) > 1:
        raise click.UsageError(
            f"'{spec}' holds {len(located)} specs. Allowed: one of {', '.join(location for location, _ in located)}."
        )
    [(location, loaded)] = located
    now_ms = None if now is None else int(now.replace(tzinfo=UTC).timestamp() * 1000)
    with _quiet_spark(root) as spark, _reported(location, root, spark):
        rows = ebbtide.state(spark.session, loaded, root, state=name, as_of_step=as_of_step, now_ms=now_ms)
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


def _loaded(locations: tuple[str, ...]) -> list[Located]:
    with _reported():
        return load_all(locations)


def _maintain(locations: tuple[str, ...], root: str, as_json: bool, job: str) -> None:
    from ebbtide.maintenance.job import MaintenanceReport, maintain

    located = _loaded(locations)
    with _quiet_spark(root) as spark:
        for location, spec in located:
            with _reported(location, root, spark):
                report = maintain(spark.session, spec, root, job)
                _print(report, as_json, MaintenanceReport.text, location, root)


def _each(
    locations: tuple[str, ...],
    root: str,
    as_json: bool,
    operate: Callable[..., RunSummary],
    without_spark: Callable[[Pipeline], RunSummary | None] = lambda spec: None,
) -> None:
    """Run pipelines, each without Spark if it can be."""
    located = _loaded(locations)
    summaries = []
    with _quiet_spark(root) as spark, _stop_on_signal(spark.live) as stop:
        for location, spec in located:
            with _reported(location, root, spark):
                summary = without_spark(spec) or _with_spark(spark, spec, root, as_json, operate, stop)
                _print(summary, as_json, _summary_text, location, root)
                summaries.append(summary)
            if stop.is_set():
                raise click.exceptions.Exit(FAILED)
    if any(summary.nothing_matched for summary in summaries):
        raise click.exceptions.Exit(NOTHING_MATCHED)


def _with_spark(
    spark: QuietSpark,
    spec: Pipeline,
    root: str,
    as_json: bool,
    operate: Callable[..., RunSummary],
    stop: threading.Event,
) -> RunSummary:
    view, session = RunView(spark.live, as_json=as_json), spark.session
    summary = operate(session, spec, root, on_progress=view.step, on_phase=view.phase, stop=stop)
    spark.live.show("")
    unmatched = summary.totals["unmatched"]
    if unmatched and spec.retracts and spec.format.type == "debezium":
        spark.live.say(UNMATCHED.format(spec.name, unmatched))
    return summary


@contextmanager
def _quiet_spark(root: str) -> Iterator[QuietSpark]:
    with Live(sys.stderr) as live, QuietSpark(root, live) as spark:
        yield spark


@contextmanager
def _reported(location: str | None = None, root: str = ROOT, spark: QuietSpark | None = None) -> Iterator[None]:
    """Print errors as one sentence and exit with their code; what Spark logged stands under those that are not ours.

    Args:
        location: Of the spec that is worked on.
        root: Folder of all pipelines' tables.
        spark: What the work runs on.
    """

    def say(kind: str, message: str) -> None:
        if spark is not None:
            spark.live.show("")
        click.echo(f"Error: {kind}{_typed(message, location, root)}", err=True)

    try:
        yield
    except ConfigError as error:
        say("", str(error))
        raise click.exceptions.Exit(USAGE) from error
    except EbbtideError as error:
        say(f"{type(error).__name__}: ", str(error))
        raise click.exceptions.Exit(FAILED) from error
    except Exception as error:
        is_sparks = type(error).__module__.partition(".")[0] in ("pyspark", "py4j")
        if is_sparks:
            say(f"{type(error).__name__}: ", str(error))
        if spark is not None and spark.tail():
            click.echo(spark.tail(), err=True)
        if is_sparks:
            raise click.exceptions.Exit(FAILED) from error
        raise


def _typed(message: str, location: str | None, root: str) -> str:
    """Complete the commands that a message names with spec and root."""
    return as_typed(message, *([location] if location else []), *(["--root", root] if root != ROOT else []))


@contextmanager
def _stop_on_signal(live: Live) -> Iterator[threading.Event]:
    """Turn the first SIGINT or SIGTERM into a stop after the step under way; the second ends at once."""
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            sys.exit(128 + number)
        live.say("Stopping after this step; once more to stop at once.")
        stop.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(result: Any, as_json: bool, text: Callable[[Any], str], location: str, root: str) -> None:
    click.echo(json.dumps(result.as_dict(), default=str) if as_json else _typed(text(result), location, root))


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
