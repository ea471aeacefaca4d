"""What commands share that work on several pipelines with one Spark session: each is worked on, and its report printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ebbtide.cli.quiet import QuietSpark, quiet_spark
from ebbtide.cli.reporting import Located, Reporter
from ebbtide.spec.pipeline import Pipeline


def report_each(
    reporter: Reporter,
    located: Iterable[Located],
    operate: Callable[[QuietSpark, Pipeline], Any],
) -> None:
    """Work on pipelines in turn and print what came of each; the first that fails ends the command.

    Args:
        reporter: Prints.
        located: The pipelines.
        operate: Works on one, with Spark if it asks for it; its report has `text` and `as_dict`.
    """
    with quiet_spark(reporter.root) as spark:
        for location, spec in located:
            with reporter.errors(location, spark):
                report = operate(spark, spec)
                reporter.result(report, type(report).text, location)
