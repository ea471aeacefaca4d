"""The expectations that a spec names under `checks.expectations`: Great Expectations' types, or a project's classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from importlib import import_module
from typing import Any

import pyarrow as pa
from great_expectations.exceptions.exceptions import ExpectationNotFoundError
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.registry import get_expectation_impl

from ebbtide.checks._judged import Batch, Judged
from ebbtide.checks.great_expectations.own_rules import answers_of, frame_of, runs_here
from ebbtide.columns import quoted
from ebbtide.errors import ConfigError


def judge(judged: Judged) -> Iterator[Batch]:
    """Judge a project's rules on the sink's rows, without Ebbtide's columns; rules that need Spark run there."""
    spec = judged.tables.spec
    given = [expectation_of(each.type, each.kwargs, each.severity) for each in spec.checks.expectations]
    columns = spec.sink_table.columns
    rows = judged.sink_rows
    is_small = judged.engines.fits({"sink_rows": rows})
    here = [each for each in given if is_small and runs_here(each, columns)]
    on_spark = [_as_spark_has_times(each, columns) for each in given if each not in here]
    engine = judged.engines.in_process
    queries, rest = _parted(here)
    if queries:
        yield judged.batch(answers_of(engine, rows, columns, queries), *queries, result_format="COMPLETE")
    if rest:
        frame = frame_of(engine, rows, columns, rest)
        yield judged.batch(frame, *rest)
    if on_spark:
        yield from _on_spark(judged, on_spark)


def _on_spark(judged: Judged, given: Sequence[BatchExpectation]) -> Iterator[Batch]:
    sink = judged.tables.sink.read(judged.spark, judged.window.sink_until)
    frame = sink.select(*map(quoted, judged.tables.spec.sink_table.columns.names))
    queries, rest = _parted(given)
    if queries:
        yield judged.batch(frame, *queries, result_format="COMPLETE")
    if rest:
        yield judged.batch(frame, *rest)


def _as_spark_has_times(rule: BatchExpectation, columns: pa.Schema) -> BatchExpectation:
    """Return a rule whose bounds of times are in the zone in which Spark gives a column's times to Python: UTC unless stated otherwise."""
    name = getattr(rule, "column", None)
    if name not in columns.names or not pa.types.is_timestamp(columns.field(name).type):
        return rule
    # Spark gives and takes a TIMESTAMP in local time; a TIMESTAMP_NTZ that it compares itself becomes a TIMESTAMP of the session's UTC.
    is_local = columns.field(name).type.tz or rule.expectation_type == "expect_column_values_to_be_between"
    bounds = {}
    for bound in ("min_value", "max_value"):
        given = getattr(rule, bound, None)
        if isinstance(given, date):
            at = given if isinstance(given, datetime) else datetime.combine(given, time())
            in_utc = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
            bounds[bound] = (in_utc.astimezone() if is_local else in_utc).replace(tzinfo=None)
    return rule.copy(update=bounds) if bounds else rule


def _parted(given: Sequence[BatchExpectation]) -> tuple[list[UnexpectedRowsExpectation], list[BatchExpectation]]:
    """Part queries from the rest: Great Expectations reports no rows of a query in a summary, and at most 200 in full."""
    queries = [each for each in given if isinstance(each, UnexpectedRowsExpectation)]
    return queries, [each for each in given if not isinstance(each, UnexpectedRowsExpectation)]


def expectation_of(type_: str, kwargs: Mapping[str, Any], severity: str) -> BatchExpectation:
    """Make an expectation as a spec names it.

    Args:
        type_: Its type.
        kwargs: Its arguments.
        severity: `critical` or `warning`.

    Raises:
        ConfigError: there is no such type, or it refuses the arguments.
    """
    expectation = expectation_class(type_)
    try:
        return expectation(**kwargs, severity=FailureSeverity(severity))
    except (TypeError, ValueError) as error:  # pydantic v1 raises a ValueError
        why = " ".join(str(error).split())
        raise ConfigError.of(
            f"The expectation '{type_}' does not take its kwargs: {why.rstrip('.')}.",
            got=kwargs,
            next_step="Correct checks.expectations in the spec.",
        ) from error


def expectation_class(named: str) -> type[BatchExpectation]:
    """Find an expectation's class.

    Args:
        named: Great Expectations' name, `expect_column_values_to_be_between`, or `module:Class`.

    Raises:
        ConfigError: there is none, or it does not judge a batch.
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
