"""`ebbtide migrate`, `repair`, `acknowledge` and a command for each maintenance job: what is done to stored state between runs."""

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

    from pyspark.sql import SparkSession

    from ebbtide.maintenance.repair import RepairReport


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
    """Make stored state fit a spec whose TTL or state types have changed. Only tells what it would do, unless --apply."""
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

    _repair(specs, root, as_json, repairing.repair if apply else repairing.plan)


@click.command()
@of_pipelines
@click.option("--reason", required=True, help="Why the sink shall stay as it is; kept in the ledger.")
def acknowledge(specs: tuple[str, ...], root: str, as_json: bool, reason: str) -> None:
    """Accept what others changed in a sink, and what checks have found so far: they begin anew."""
    from ebbtide.maintenance import repair as repairing

    def accept(session: SparkSession, spec: Pipeline, root: str) -> repairing.RepairReport:
        return repairing.acknowledge(session, spec, root, reason)

    _repair(specs, root, as_json, accept)


def _repair(
    specs: tuple[str, ...],
    root: str,
    as_json: bool,
    operate: Callable[[SparkSession, Pipeline, str], RepairReport],
) -> None:
    reporter = Reporter(root, as_json)
    located = load_specs(specs)
    with quiet_spark(root) as spark:
        for location, spec in located:
            with reporter.errors(location, spark):
                report = operate(spark.session, spec, reporter.root)
                reporter.result(report, type(report).text, location)
