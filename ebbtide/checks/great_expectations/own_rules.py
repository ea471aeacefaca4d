"""A project's rules that can run in this process with the same result as on Spark: Great Expectations' for pandas, and queries.

The list has expectation types and column types for which both engines of Great Expectations agree; all else runs on Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import pandas as pd
import pyarrow as pa
from great_expectations.constants import MAX_RESULT_RECORDS
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.core.unexpected_rows_expectation import UnexpectedRowsExpectation
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.query_metric_provider import QueryMetricProvider

from ebbtide.checks._engines import InProcess
from ebbtide.checks._inputs import TableRows
from ebbtide.checks._queries import BATCH, for_duckdb

EXACT = 2**53
"""Whole numbers below this are exact as doubles."""
EXACT_DIGITS = 15
"""Two different decimals of at most this many digits are also different as doubles."""
Fits = Callable[[pa.DataType, Mapping[str, Any]], bool]
"""Returns whether an expectation with some arguments means the same on a column of a type."""


def _has_plain_nulls(type_: pa.DataType, arguments: Mapping[str, Any]) -> bool:
    """Return whether only null is null in pandas: for floats NaN is too."""
    return not pa.types.is_floating(type_) and not pa.types.is_nested(type_)


def _are_listed(type_: pa.DataType, arguments: Mapping[str, Any]) -> bool:
    """Return whether all values of a set are of the column's type, texts or integers."""
    values = arguments.get("value_set")
    if not isinstance(values, list):
        return False
    types = {type(value) for value in values}
    if pa.types.is_string(type_):
        return types <= {str}
    is_integer: bool = pa.types.is_integer(type_)
    return is_integer and types <= {int}


def _are_bounded(type_: pa.DataType, arguments: Mapping[str, Any]) -> bool:
    """Return whether both engines compare alike with these bounds: whole numbers that a double holds exactly, or infinite.

    Spark compares as doubles, and a long decimal near a bound may be rounded to the bound. Near 0 this cannot happen.
    """
    bounds = []
    for name in ("min_value", "max_value"):
        bound = arguments.get(name)
        if bound is None or bound in (-math.inf, math.inf):
            continue
        is_whole = isinstance(bound, int) or (isinstance(bound, float) and bound.is_integer())
        if not is_whole or abs(bound) >= EXACT:
            return False
        bounds.append(bound)
    if pa.types.is_decimal(type_):
        is_exact = type_.precision <= EXACT_DIGITS
        return is_exact or not any(bounds)
    is_integer: bool = pa.types.is_integer(type_)
    return is_integer


OF_COLUMNS: Mapping[str, Fits] = {
    "expect_column_values_to_be_null": _has_plain_nulls,
    "expect_column_values_to_not_be_null": _has_plain_nulls,
    "expect_column_values_to_be_in_set": _are_listed,
    "expect_column_values_to_not_be_in_set": _are_listed,
    "expect_column_values_to_be_between": _are_bounded,
}
OF_TABLES = frozenset(
    {
        "expect_table_row_count_to_be_between",
        "expect_table_row_count_to_equal",
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_table_columns_to_match_set",
        "expect_column_to_exist",
    }
)


def runs_here(rule: BatchExpectation, columns: pa.Schema) -> bool:
    """Return whether a project's rule gives Spark's answer in this process.

    Args:
        rule: The rule.
        columns: Those of the rows.
    """
    if getattr(rule, "row_condition", None):
        return False
    if isinstance(rule, UnexpectedRowsExpectation):
        return for_duckdb(str(rule.unexpected_rows_query), columns) is not None
    is_of_great_expectations = type(rule).__module__.startswith("great_expectations.")
    if not is_of_great_expectations:
        return False
    type_ = rule.expectation_type
    if type_ in OF_TABLES:
        return True
    arguments = rule.configuration.kwargs
    name = arguments.get("column")
    if type_ not in OF_COLUMNS or name not in columns.names:
        return False
    return OF_COLUMNS[type_](columns.field(name).type, arguments)


def frame_of(engine: InProcess, rows: TableRows, columns: pa.Schema, rules: Sequence[BatchExpectation]) -> pd.DataFrame:
    """Return the rows in pandas, with Python values, in the columns that rules use."""
    asked = {getattr(rule, "column", None) for rule in rules}
    table = engine.rows(rows)
    series = {}
    for name in columns.names:
        values = table[name].to_pylist() if name in asked else [None] * len(table)
        series[name] = pd.Series(values, dtype=object)
    return pd.DataFrame(series)


def answers_of(
    engine: InProcess, rows: TableRows, columns: pa.Schema, rules: Sequence[UnexpectedRowsExpectation]
) -> pd.DataFrame:
    """Run a project's queries; return a frame with one row for each: its text, the rows that it selects, and their number."""
    given = [str(rule.unexpected_rows_query) for rule in rules]
    queries = [for_duckdb(query, columns) for query in given]
    found = engine.run({BATCH: rows}, (query for query in queries if query is not None), columns.names)
    answers = []
    for query, selected in zip(given, found, strict=True):
        shown = [_as_spark_has_it(row) for row in selected.slice(0, MAX_RESULT_RECORDS).to_pylist()]
        answers.append({"query": query, "rows": shown, "count": len(selected)})
    return pd.DataFrame(answers)


def _as_spark_has_it(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its times as Spark collects them: in local time, without a time zone."""
    return {name: _local(value) if isinstance(value, datetime) else value for name, value in row.items()}


def _local(value: datetime) -> datetime:
    return value if value.tzinfo is None else value.astimezone().replace(tzinfo=None)


class _Answer(QueryMetricProvider):
    """The answer to a query in a batch of `answers_of`."""

    value_keys = ("unexpected_rows_query",)
    part: str

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> Any:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        answer = frame[frame["query"] == metric_value_kwargs["unexpected_rows_query"]].iloc[0]
        found = answer[cls.part]
        return found if isinstance(found, list) else int(found)


class AnswerRows(_Answer):
    """The rows that a query selects."""

    metric_name = "unexpected_rows_query.table"
    part = "rows"


class AnswerCount(_Answer):
    """The number of rows that a query selects."""

    metric_name = "unexpected_rows_query.row_count"
    part = "count"
