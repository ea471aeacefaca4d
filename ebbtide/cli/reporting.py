"""Output of commands: results on standard output, errors as one sentence on standard error, then the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import format_exception
from typing import TYPE_CHECKING, Any

import click

from ebbtide.cli.commands import VERBOSE, level
from ebbtide.cli.errors import FAILED, ROOT, error_text, exit_code, exit_with, typed
from ebbtide.cli.logs import json_log
from ebbtide.cli.quiet import QuietSpark
from ebbtide.errors import EbbtideError
from ebbtide.redaction import shown

if TYPE_CHECKING:
    from ebbtide.spec import Pipeline

Located = tuple[str, "Pipeline"]
"""Location of a spec, and the spec."""


def load_specs(locations: tuple[str, ...]) -> list[Located]:
    """Load the specs given to a command; an unusable one ends it."""
    from ebbtide.definitions import load_all

    with Reporter().errors():
        return load_all(locations)


def say(line: str) -> None:
    """Write a remark to standard error, or to the log of the command."""
    log = json_log()
    if log is None:
        click.echo(line, err=True)
    else:
        log.say(line)


@dataclass(frozen=True)
class Reporter:
    """Prints the results of a command.

    Args:
        root: Folder of all pipelines' tables.
        as_json: Print results as JSON, one per line.
    """

    root: str = ROOT
    as_json: bool = False

    def result(self, result: Any, text: Callable[[Any], str], location: str) -> None:
        """Print the result for one pipeline.

        Args:
            result: A report with `as_dict`.
            text: Writes it for people.
            location: Location of the spec.
        """
        if self.as_json:
            click.echo(json.dumps(result.as_dict(), default=str))
        else:
            click.echo(shown(typed(text(result), self.root, location)))

    def each(
        self, located: Iterable[Located], work: Callable[[str, Pipeline], int | None], spark: QuietSpark | None = None
    ) -> None:
        """Work on pipelines in turn. The error of one is printed and keeps no other one from its turn; it ends the command behind the last.

        Args:
            located: The pipelines.
            work: Works on one and prints what came of it; returns the exit code of that, 0 or None if all is well.
            spark: The session of the work.
        """
        codes: set[int] = set()
        for location, spec in located:
            try:
                with self.errors(location, spark):
                    codes.add(work(location, spec) or 0)
            except click.exceptions.Exit as failed:
                codes.add(failed.exit_code)
        exit_with(codes)

    @contextmanager
    def errors(self, location: str | None = None, spark: QuietSpark | None = None) -> Iterator[None]:
        """Print errors as one sentence and exit with their code; add Spark's log to unexpected errors.

        Args:
            location: Location of the spec.
            spark: The session of the work.
        """
        try:
            yield
        except EbbtideError as error:
            self.say(error, location, spark)
            raise click.exceptions.Exit(exit_code(error)) from error
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            is_from_spark = library in ("pyspark", "py4j")
            if is_from_spark:
                self.say(error, location, spark)
            if spark is not None and spark.tail():
                say(shown(spark.tail()))
            if is_from_spark:
                raise click.exceptions.Exit(FAILED) from error
            raise

    def say(self, error: Exception, location: str | None, spark: QuietSpark | None) -> None:
        """Print an error as one sentence."""
        if spark is not None:
            spark.live.show("")
        text = error_text(error, self.root, location)
        log = json_log()
        if log is not None:
            log.error(text, error, has_traceback=level() == VERBOSE)
            return
        if level() == VERBOSE:
            click.echo(shown("".join(format_exception(error))), err=True)
        click.echo(shown(f"Error: {text}"), err=True)
