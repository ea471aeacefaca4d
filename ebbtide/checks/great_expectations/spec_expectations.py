"""The expectations that a spec names under `checks.expectations`: Great Expectations' own, or a project's classes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from great_expectations.exceptions.exceptions import ExpectationNotFoundError
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl

from ebbtide.checks.rule import Batch, Judged
from ebbtide.errors import ConfigError
from ebbtide.spec.parts import ExpectationConfig
from ebbtide.tables.spark_columns import columns


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge the rules of a project's own on the sink's rows, without Ebbtide's own columns."""
    spec = judged.tables.spec
    given = [expectation_of(each) for each in spec.checks.expectations]
    sink = judged.tables.sink.read(judged.spark, judged.window.sink_until)
    names = spec.sink_table.columns.names
    rows = sink.select(*columns(names))
    # Of a query's rows Great Expectations reports none in a summary, and at most 200 in full.
    queries = [each for each in given if isinstance(each, UnexpectedRowsExpectation)]
    others = [each for each in given if not isinstance(each, UnexpectedRowsExpectation)]
    if queries:
        yield judged.batch(rows, *queries, result_format="COMPLETE")
    if others:
        yield judged.batch(rows, *others)


def expectation_of(given: ExpectationConfig) -> BatchExpectation:
    """Make an expectation as a spec names it.

    Args:
        given: Its type, arguments and severity.

    Raises:
        ConfigError: there is no such type, or it does not take the arguments.
    """
    expectation = expectation_class(given.type)
    try:
        return expectation(**given.kwargs, severity=FailureSeverity(given.severity))
    except (TypeError, ValueError) as error:  # pydantic v1 raises a ValueError
        why = " ".join(str(error).split())
        raise ConfigError.of(
            f"The expectation '{given.type}' does not take its kwargs: {why.rstrip('.')}.",
            got=given.kwargs,
            next_step="Correct checks.expectations in the spec.",
        ) from error


def expectation_class(named: str) -> type[BatchExpectation]:
    """Find an expectation's class.

    Args:
        named: Great Expectations' name, `expect_column_values_to_be_between`, or `module:Class`.

    Raises:
        ConfigError: there is none, or it judges no batch.
    """
    module, _, name = named.rpartition(":")
    found: Any
    try:
        found = getattr(import_module(module), name) if module else get_expectation_impl(name)
    except (ImportError, AttributeError, ExpectationNotFoundError) as error:
        raise _unknown(named, f" ({error})") from error
    if isinstance(found, type) and issubclass(found, BatchExpectation):
        return found
    raise _unknown(named, "")


def _unknown(named: str, why: str) -> ConfigError:
    return ConfigError.of(
        f"The expectation of a spec is unknown{why}.",
        got=named,
        allowed="a type of Great Expectations (expect_column_values_to_be_between), or 'module:Class', a subclass of BatchExpectation",
        next_step="Correct checks.expectations in the spec; a module must be importable where the check runs.",
    )
