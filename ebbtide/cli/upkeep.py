"""`ebbtide migrate`, `repair`, `acknowledge`, `rewind`, `adopt`: what is done to stored state between runs."""

from __future__ import annotations

import click

from ebbtide.cli.on_spark import report_each
from ebbtide.cli.options import of_pipelines
from ebbtide.cli.quiet import QuietSpark
from ebbtide.cli.reporting import Reporter, load_specs
from ebbtide.runtime.clock import system_clock
from ebbtide.spec.pipeline import Pipeline


@click.command()
@of_pipelines
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def repair(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    apply: bool,
) -> None:
    """Bring a damaged, dropped or restored sink to what the state shows. Only tells what differs, unless --apply."""
    from ebbtide.maintenance import repair as repairing

    go = repairing.repair if apply else repairing.plan

    def operate(spark: QuietSpark, spec: Pipeline) -> repairing.RepairReport:
        return go(spark.session, spec, root)

    report_each(Reporter(root, as_json), load_specs(specs), operate)


@click.command()
@of_pipelines
@click.option("--reason", required=True, help="Why the sink shall stay as it is; kept in the ledger.")
def acknowledge(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    reason: str,
) -> None:
    """Accept what others changed in a sink, and what checks have found so far: they begin anew."""
    from ebbtide.maintenance import repair as repairing

    def operate(spark: QuietSpark, spec: Pipeline) -> repairing.RepairReport:
        return repairing.acknowledge(spark.session, spec, root, reason)

    report_each(Reporter(root, as_json), load_specs(specs), operate)


@click.command()
@of_pipelines
@click.option("--to-step", type=click.IntRange(1), required=True, help="The step to go back to.")
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def rewind(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    to_step: int,
    apply: bool,
) -> None:
    """Bring all tables back to what they were after an earlier step. Only tells what it would undo, unless --apply."""
    from ebbtide.maintenance import rewind as rewinding

    go = rewinding.apply if apply else rewinding.plan

    def operate(spark: QuietSpark, spec: Pipeline) -> rewinding.RewindReport:
        return go(spark.session, spec, root, to_step)

    report_each(Reporter(root, as_json), load_specs(specs), operate)


@click.command()
@of_pipelines
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def adopt(specs: tuple[str, ...], root: str, as_json: bool, apply: bool) -> None:
    """Make a table that is at DIR/NAME/sink already the sink, with its rows. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance import adopt as adopting

    def operate(spark: QuietSpark, spec: Pipeline) -> adopting.AdoptReport:
        if apply:
            return adopting.apply(spark.session, spec, root, system_clock())
        return adopting.plan(spark.session, spec, root)

    report_each(Reporter(root, as_json), load_specs(specs), operate)
