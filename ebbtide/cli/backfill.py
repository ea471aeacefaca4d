"""`ebbtide backfill`: a pipeline's tables are built once more beside those in use, and swapped in."""

from __future__ import annotations

import click

from ebbtide.cli.live import RunView
from ebbtide.cli.on_spark import report_each
from ebbtide.cli.options import of_pipelines, rate_option
from ebbtide.cli.quiet import QuietSpark
from ebbtide.cli.reporting import Reporter, load_specs
from ebbtide.cli.stopping import stop_on_signal
from ebbtide.runtime.clock import system_clock
from ebbtide.spec.pipeline import Pipeline


@click.group()
def backfill() -> None:
    """Build tables once more, from the source's beginning or another place, beside those in use, and swap them in."""


@backfill.command()
@of_pipelines
@click.option(
    "--from",
    "begin",
    metavar="PLACE",
    help="Where to begin to read: earliest, or of a topic a time, 2026-01-31T12:00:00, or offsets, 0=12,1=40. Default: earliest.",
)
@click.option(
    "--snapshot", metavar="TOPIC", help="A topic that is read before, whole: by sequence, records of the same form."
)
@rate_option
def start(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    begin: str | None,
    snapshot: str | None,
    rate: int | None,
) -> None:
    """Build the tables up to what is there, or go on with that. The pipeline itself may run meanwhile."""
    from ebbtide.maintenance import backfill as backfilling
    from ebbtide.maintenance import backfill_asked, backfill_status

    reporter = Reporter(root, as_json)
    with reporter.errors():
        place = None if begin is None else backfill_asked.start_of(begin)

    def operate(spark: QuietSpark, spec: Pipeline) -> backfill_status.BackfillStatus:
        view = RunView(spark.live, as_json=as_json)
        with stop_on_signal(spark.live) as stop:
            return backfilling.start(
                spark.session,
                spec,
                root,
                place,
                snapshot=snapshot,
                max_records_per_second=rate,
                on_progress=view.step,
                on_phase=view.phase,
                stop=stop,
            )

    report_each(reporter, load_specs(specs), operate)


@backfill.command()
@of_pipelines
@click.option(
    "--from",
    "begin",
    metavar="PLACE",
    required=True,
    help="Where to begin to read: earliest, a time, 2026-01-31T12:00:00, or offsets, 0=12,1=40.",
)
@click.option("--reason", required=True, help="Why; kept with the steps.")
@rate_option
def into(specs: tuple[str, ...], root: str, as_json: bool, begin: str, reason: str, rate: int | None) -> None:
    """Read records of a topic, from some place up to where a paused pipeline stands, into its tables; by sequence only."""
    from ebbtide.maintenance import backfill_asked, rereading

    reporter = Reporter(root, as_json)
    with reporter.errors():
        place = backfill_asked.start_of(begin)

    def operate(spark: QuietSpark, spec: Pipeline) -> rereading.RereadReport:
        view = RunView(spark.live, as_json=as_json)
        with stop_on_signal(spark.live) as stop:
            return rereading.reread(
                spark.session,
                spec.at_rate(rate),
                root,
                place,
                reason,
                on_progress=view.step,
                on_phase=view.phase,
                stop=stop,
            )

    report_each(reporter, load_specs(specs), operate)


@backfill.command()
@of_pipelines
def status(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Tell how far backfills are. Starts no Spark."""
    from ebbtide.maintenance import backfill_status

    def operate(spec: Pipeline) -> backfill_status.BackfillStatus:
        return backfill_status.status(spec, root, system_clock())

    Reporter(root, as_json).each(load_specs(specs), operate)


@backfill.command()
@of_pipelines
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def swap(specs: tuple[str, ...], root: str, as_json: bool, apply: bool) -> None:
    """Put a backfill in the place of the pipeline's tables: the sink changes in one commit. Only tells in what rows they differ, unless --apply."""
    from ebbtide.maintenance import backfill_swap

    def operate(spark: QuietSpark, spec: Pipeline) -> backfill_swap.SwapReport:
        return backfill_swap.swap_in(spark.session, spec, root, applies=apply)

    reporter = Reporter(root, as_json)
    located = load_specs(specs)
    report_each(reporter, located, operate)


@backfill.command()
@of_pipelines
def drop(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Delete a backfill. Starts no Spark."""
    from ebbtide.maintenance import backfill as backfilling

    Reporter(root, as_json).each(load_specs(specs), lambda spec: backfilling.drop(spec, root))
