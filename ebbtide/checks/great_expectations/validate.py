"""Runs a check with Great Expectations and sums its results up."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import great_expectations as gx
import pandas as pd
from great_expectations.core.expectation_validation_result import (
    ExpectationSuiteValidationResult,
    ExpectationValidationResult,
)
from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
from great_expectations.datasource.fluent.spark_datasource import SparkDatasource
from great_expectations.expectations.metadata_types import FailureSeverity

from ebbtide.checks._engines import SAMPLE_ROWS
from ebbtide.checks._judged import Batch
from ebbtide.checks._rule import Expected
from ebbtide.checks.great_expectations.data_docs import as_shown, write_docs
from ebbtide.checks.great_expectations.expectations import batch_of, made
from ebbtide.checks.great_expectations.masking import masked_result
from ebbtide.checks.great_expectations.verdict import Finding, Verdict
from ebbtide.errors import ConfigError
from ebbtide.redaction import MASK


def validate(check: str, found: Iterable[Batch], docs: Path | None, keep: int) -> Verdict:
    """Judge a check's batches.

    Args:
        check: Its name.
        found: The batches.
        docs: Local folder for a site of Data Docs of this evaluation; None: none is written.
        keep: Sites kept there; older ones are deleted.

    Raises:
        ConfigError: an expectation could not be evaluated.
    """
    context = gx.get_context(mode="ephemeral")
    no_progress_bars: Any = {"globally": False}  # a dict is read, despite the annotation
    context.variables.progress_bars = no_progress_bars
    verdict = Verdict()
    for number, batch in enumerate(found):
        name = f"{check}_{number}"
        rows = batch.rows if batch.broken is None else batch_of(batch.expectations, batch.broken)
        expectations = [made(each) if isinstance(each, Expected) else each for each in batch.expectations]
        suite = gx.ExpectationSuite(name, expectations=expectations)
        context.suites.add(suite)
        definition = gx.ValidationDefinition(name=name, data=_definition_of(context, rows), suite=suite)
        context.validation_definitions.add(definition)
        try:
            outcome = definition.run(batch_parameters={"dataframe": rows}, result_format=batch.result_format)
        except TypeError as error:  # it stores results as JSON: a verdict of NumPy's type is none (quantiles)
            types = ", ".join(each.expectation_type for each in expectations)
            raise ConfigError.of(
                f"Great Expectations cannot store the result of a rule of: {types}.",
                got=error,
                next_step="Write the rule that it cannot store as an UnexpectedRowsExpectation.",
            ) from error
        if batch.shown is not None:
            _mask(outcome, batch.shown)
        verdict.findings += [_finding(result) for result in outcome.results]
        if docs is not None or batch.shown is not None:
            for result in outcome.results:
                result.result = as_shown(result.result)
            _store_again(context.validation_results_store, name, outcome)
    if docs is not None and verdict.findings:
        verdict.docs = write_docs(context, docs, keep)
    return verdict


def _definition_of(context: Any, rows: Any) -> Any:
    """Return the batch definition of whole data frames, pandas or Spark.

    All batches share it, and it is added at once with its source and asset, since each change of a context is written as YAML.
    """
    sources = context.data_sources
    kind = "pandas" if isinstance(rows, pd.DataFrame) else "spark"
    if kind not in sources.all():
        frames = {"type": "dataframe", "name": "rows", "batch_definitions": [{"name": "whole"}]}
        if kind == "pandas":
            sources.add_or_update_pandas(datasource=PandasDatasource(name=kind, assets=[frames]))
        else:
            sources.add_or_update_spark(datasource=SparkDatasource(name=kind, assets=[frames], persist=False))
    return sources.get(kind).get_asset("rows").get_batch_definition("whole")


def _mask(outcome: ExpectationSuiteValidationResult, shown: frozenset[str]) -> None:
    """Remove personal values from results; an expectation's error may quote a value."""
    for result in outcome.results:
        config = result.expectation_config
        if config is None:
            continue
        _refuse_raised(config.type, result.exception_info, shows_message=False)
        result.result = masked_result(config.type, config.kwargs, result.result, shown)


def _store_again(store: Any, suite: str, outcome: ExpectationSuiteValidationResult) -> None:
    """Replace the results stored by Great Expectations with masked ones: Data Docs are made from stored results."""
    for key in store.list_keys():
        if key.expectation_suite_identifier.name == suite:
            store.set(key, outcome)


def _finding(result: ExpectationValidationResult) -> Finding:
    config = result.expectation_config
    if config is None:
        raise ConfigError(f"Great Expectations does not say which expectation this is of: {result}")
    _refuse_raised(config.type, result.exception_info)
    column = config.kwargs.get("column")
    severity = FailureSeverity(config.severity).value
    if result.success:
        return Finding(config.type, column, severity, 0, [])
    broken = _broken(result.result)
    sample = _sample(result.result, column or "value")
    return Finding(config.type, column, severity, broken, sample)


def _broken(found: dict[str, Any]) -> int:
    """Count the rows that break an expectation, from the result of one that failed."""
    if "unexpected_count" in found:  # it judges value by value
        return int(found["unexpected_count"])
    details = found.get("details") or {}
    counts_rows = "sample" in details or "unexpected_rows" in details
    return int(found["observed_value"]) if counts_rows else 1


def _sample(found: dict[str, Any], column: str) -> list[dict[str, Any]]:
    """Return rows, values or other observations, from the result of a failed expectation."""
    details = found.get("details") or {}
    rows = details.get("sample") or details.get("unexpected_rows") or []
    if rows:
        return [dict(row) for row in rows[:SAMPLE_ROWS]]
    values = found.get("partial_unexpected_list")
    if values:
        return [{column: value} for value in values[:SAMPLE_ROWS]]
    return [{"observed": found.get("observed_value")}]


def _refuse_raised(expectation: str, info: dict[str, Any] | None, *, shows_message: bool = True) -> None:
    """Raise what an expectation raised; the information comes flat, or once per metric."""
    if not info:
        return
    is_flat = "raised_exception" in info
    for found in [info] if is_flat else info.values():
        if found.get("raised_exception"):
            message = found.get("exception_message") if shows_message else MASK
            raise ConfigError.of(
                f"{expectation} could not be evaluated: that says nothing about the rows.",
                got=message,
                next_step="If it is a rule of checks.expectations, correct its columns and arguments.",
            )
