"""`ebbtide migrate`, `repair`, `acknowledge`, `rewind` and a command for each maintenance job: what is done to stored state between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ebbtide.cli.options import of_pipelines
from ebbtide.cli.quiet import quiet_spark
from ebbtide.cli.reporting import Reporter, load_specs
from ebbtide.maintenance.jobs import MaintenanceJob
from ebbtide.runtime.clock import system_clock
from ebbtide.spec.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark.sql import SparkSession


def maintenance_command(job: MaintenanceJob) -> click.Command:
    """Make the command of a maintenance job."""

    @click.command(name=job.command, help=job.description)
    @of_pipelines
    def command(specs: tuple[str, ...], root: str, as_json: bool) -> None:
        from ebbtide.maintenance.job import MaintenanceReport, maintain

        reporter = Reporter(root, as_json)
        located = load_specs(specs)
        with quiet_spark(reporter.root) as spark:
            for location, spec in located:
                with reporter.errors(location, spark):
                    report = maintain(spark.session, spec, reporter.root, job.name)
                    reporter.result(report, MaintenanceReport.text, location)

    return command


@click.command()
@of_pipelines
@click.option("--apply", "apply", is_flag=True, help="Do it.")
@click.option("--undo", "undo", is_flag=True, help="Undo the last step, if it was a migration.")
def migrate(specs: tuple[str, ...], root: str, as_json: bool, apply: bool, undo: bool) -> None:
    """Make what is stored fit a spec whose columns, TTL or state types have changed. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance import migration

    if apply and undo:
        raise click.UsageError("Got --apply and --undo. Allowed: one of them, or none for the plan.")

    def operate(session: SparkSession, spec: Pipeline) -> migration.MigrationPlan:
        if apply:
            return migration.apply(session, spec, root, system_clock())
        if undo:
            return migration.undo(session, spec, root)
        return migration.plan(session, spec, root)

    reporter = Reporter(root, as_json)
    located = load_specs(specs)
    with quiet_spark(root) as spark:
        for location, spec in located:
            with reporter.errors(location, spark):
                report = operate(spark.session, spec)
                reporter.result(report, migration.MigrationPlan.text, location)


@click.command()
@of_pipelines
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def repair(specs: tuple[str, ...], root: str, as_json: bool, apply: bool) -> None:
    """Bring a damaged, dropped or restored sink to what the state shows. Only tells what differs, unless --apply."""
    from ebbtide.maintenance import repair as repairing

    _report(specs, root, as_json, repairing.repair if apply else repairing.plan)


@click.command()
@of_pipelines
@click.option("--reason", required=True, help="Why the sink shall stay as it is; kept in the ledger.")
def acknowledge(specs: tuple[str, ...], root: str, as_json: bool, reason: str) -> None:
    """Accept what others changed in a sink, and what checks have found so far: they begin anew."""
    from ebbtide.maintenance import repair as repairing

    def accept(session: SparkSession, spec: Pipeline, root: str) -> repairing.RepairReport:
        return repairing.acknowledge(session, spec, root, reason)

    _report(specs, root, as_json, accept)


@click.command()
@of_pipelines
@click.option("--to-step", type=click.IntRange(1), required=True, help="The step to go back to.")
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def rewind(specs: tuple[str, ...], root: str, as_json: bool, to_step: int, apply: bool) -> None:
    """Bring all tables back to what they were after an earlier step. Only tells what it would undo, unless --apply."""
    from ebbtide.maintenance import rewind as rewinding

    def operate(session: SparkSession, spec: Pipeline, root: str) -> rewinding.RewindReport:
        go = rewinding.apply if apply else rewinding.plan
        return go(session, spec, root, to_step)

    _report(specs, root, as_json, operate)


@click.command()
@of_pipelines
@click.option("--apply", "apply", is_flag=True, help="Do it.")
def adopt(specs: tuple[str, ...], root: str, as_json: bool, apply: bool) -> None:
    """Make a table that is at DIR/NAME/sink already the sink, with its rows. Only tells what it would do, unless --apply."""
    from ebbtide.maintenance import adopt as adopting

    def operate(session: SparkSession, spec: Pipeline, root: str) -> adopting.AdoptReport:
        if apply:
            return adopting.apply(session, spec, root, system_clock())
        return adopting.plan(session, spec, root)

    _report(specs, root, as_json, operate)


def _report(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    operate: Callable[[SparkSession, Pipeline, str], Any],
) -> None:
    reporter = Reporter(root, as_json)
    located = load_specs(specs)
    with quiet_spark(root) as spark:
        for location, spec in located:
            with reporter.errors(location, spark):
                report = operate(spark.session, spec, reporter.root)
                reporter.result(report, type(report).text, location)
