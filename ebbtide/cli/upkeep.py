"""`ebbtide cleanup`, `compact` and `migrate`: what is done to stored state between runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ebbtide.cli.options import of_pipelines
from ebbtide.cli.quiet import quiet_spark
from ebbtide.cli.reporting import Reporter, load_specs
from ebbtide.runtime.clock import system_clock
from ebbtide.spec.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command()
@of_pipelines
def cleanup(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Delete what has expired from the stored state."""
    _maintain(specs, Reporter(root, as_json), "cleanup")


@click.command()
@of_pipelines
def compact(specs: tuple[str, ...], root: str, as_json: bool) -> None:
    """Fold the stored state to the newest version of each entry; join the sinks' small files."""
    _maintain(specs, Reporter(root, as_json), "compaction")


def _maintain(specs: tuple[str, ...], reporter: Reporter, job: str) -> None:
    from ebbtide.maintenance.job import MaintenanceReport, maintain

    located = load_specs(specs)
    with quiet_spark(reporter.root) as spark:
        for location, spec in located:
            with reporter.errors(location, spark):
                report = maintain(spark.session, spec, reporter.root, job)
                reporter.result(report, MaintenanceReport.text, location)


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
