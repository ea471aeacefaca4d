"""`ebbtide check`: runs the same checks of pipelines' tables as Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ebbtide.amounts import amount
from ebbtide.cli.errors import FAILED
from ebbtide.cli.options import of_pipelines, spark_options
from ebbtide.cli.quiet import quiet_spark
from ebbtide.cli.reporting import Reporter, load_specs, say
from ebbtide.errors import ConfigError
from ebbtide.runtime import system_clock

if TYPE_CHECKING:
    from ebbtide.checks import Check, Finding, Verdict, VersionRange
    from ebbtide.spec import Pipeline


@click.command()
@of_pipelines
@click.option("--only", metavar="CHECK", multiple=True, help="Run only this check; repeatable. Default: all.")
@spark_options
def check(specs: tuple[str, ...], root: str, as_json: bool, only: tuple[str, ...]) -> None:
    """Run the checks on everything since the last refresh, repair or acknowledge.

    Small tables are checked in this process; Spark is started for large ones. Exit code 1: a check has failed; warnings
    do not count. 5: there is no step to check, and the first run is refused.
    """
    from ebbtide.checks import Engines, Newest, VersionRange, checks_of
    from ebbtide.runtime import AtRest, Plan

    reporter = Reporter(root, as_json)
    located = load_specs(specs)
    with quiet_spark(root) as spark:

        def judge(location: str, spec: Pipeline) -> int:
            tables = Plan.under(root, spec)
            newest = Newest.between_steps(tables)
            asked = _asked(checks_of(spec), only)
            if newest is None:
                # There are no rows to judge, but the first run may be refused all the same.
                first = AtRest.of(spec, root)
                first.refuse()
                first.discovered(system_clock())
                say(f"{spec.name}: the pipeline has made no step yet.")
                return 0
            window = VersionRange.after(tables, newest=newest)
            engines = Engines(lambda: spark.session)
            verdicts = [each.verdict(tables, window, engines, system_clock()) for each in asked]
            for each, verdict in zip(asked, verdicts, strict=True):
                report = CheckReport(spec.name, each, verdict, window)
                reporter.result(report, CheckReport.text, location)
            return FAILED if any(verdict.is_error for verdict in verdicts) else 0

        reporter.each(located, judge, spark)


def _asked(known: tuple[Check, ...], only: tuple[str, ...]) -> list[Check]:
    """Return the requested checks.

    Raises:
        ConfigError: there is no check of a given name.
    """
    names = [each.name for each in known]
    unknown = [name for name in only if name not in names]
    if unknown:
        unknown_names = ", ".join(unknown)
        known_names = ", ".join(names)
        raise ConfigError.of("The pipeline has no such check.", got=unknown_names, allowed=known_names)
    wanted = only or names
    return [each for each in known if each.name in wanted]


def _finding_text(finding: Finding) -> str:
    count = amount(finding.broken, "row")
    return f"{finding.rule} ({finding.severity}): {count}, as {finding.sample[:1]}"


@dataclass(frozen=True)
class CheckReport:
    """The verdict of one check of one pipeline.

    Args:
        pipeline: Its name.
        check: The check.
        verdict: The result.
        window: The range of steps that was checked.
    """

    pipeline: str
    check: Check
    verdict: Verdict
    window: VersionRange

    def text(self) -> str:
        """Write it for people."""
        broken = [finding for finding in self.verdict.findings if finding.broken]
        lines = [f"{self.pipeline}: {self.check.name} {self.verdict.outcome}"]
        lines += [_finding_text(finding) for finding in broken]
        if broken:
            lines.append(self.check.way_out(self.verdict))
        if self.window.unreadable:
            lines.append(f"not judged: {self.window.unreadable}")
        return "\n  ".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        findings = [
            {"rule": each.rule, "severity": each.severity, "broken": each.broken, "sample": each.sample}
            for each in self.verdict.findings
        ]
        return {
            "pipeline": self.pipeline,
            "check": self.check.name,
            "outcome": self.verdict.outcome,
            "findings": findings,
            "judged": self.window.until,
            "unreadable": self.window.unreadable,
            "repair": self.check.way_out(self.verdict),
        }
