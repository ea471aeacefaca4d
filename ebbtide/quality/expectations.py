"""The expectations: each asks that a rule of `ebbtide.rules` finds no row that breaks it.

A metric per rule gives `{"count": broken rows, "sample": the first of them, as JSON values}`. The models are pydantic v1, as
all of Great Expectations is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import new_class
from typing import Any, ClassVar

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ebbtide.rules import (
    changelog,
    completeness,
    event_time,
    expiry,
    keys,
    ordering,
    quarantine,
    schema_drift,
    source_loss,
    writes,
)

SAMPLE_ROWS = 20


class _Broken(TableMetricProvider):
    """The rows of a batch that break a rule. Subclasses (see `_counts`) name the metric, its arguments and the rule."""

    @staticmethod
    def rule(frame: DataFrame, **arguments: Any) -> DataFrame:
        """Pick the rows that break the rule."""
        raise NotImplementedError

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: SparkDFExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> dict[str, Any]:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        arguments = {name: metric_value_kwargs[name] for name in cls.value_keys}
        broken = cls.rule(frame, **arguments)
        as_json = F.to_json(F.struct("*")).alias("row")
        first = broken.select(as_json).take(SAMPLE_ROWS + 1)
        found = [json.loads(row["row"]) for row in first]
        # One query where nothing, or little, is wrong; a second one only counts what did not fit.
        is_all = len(found) <= SAMPLE_ROWS
        count = len(found) if is_all else broken.count()
        return {"count": count, "sample": found[:SAMPLE_ROWS]}


def _counts(rule: Callable[..., DataFrame], *arguments: str) -> tuple[tuple[str], tuple[str, ...]]:
    """Register the metric of a rule; return `metric_dependencies` and `success_keys` of the expectation that asks for it."""
    name = rule.__name__
    metric = f"table.ebbtide_{name}"
    members = {"metric_name": metric, "value_keys": arguments, "rule": staticmethod(rule)}
    # Great Expectations registers a metric's class as it is made.
    new_class(f"_Broken_{name}", (_Broken,), exec_body=lambda body: body.update(members))
    return (metric,), arguments


class _ExpectNone(BatchExpectation):
    """Asks that its metric, the first of `metric_dependencies`, counts nothing."""

    domain_keys: ClassVar[tuple[str, ...]] = ()
    template: ClassVar[str]

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        broken = metrics[self.metric_dependencies[0]]
        count = broken["count"]
        details = {"sample": broken["sample"]}
        return {
            "success": count == 0,
            "result": {"observed_value": count, "details": details},
        }

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    def _prescriptive_renderer(
        cls, configuration: Any = None, result: Any = None, runtime_configuration: Any = None
    ) -> list[RenderedStringTemplateContent]:
        config = configuration or result.expectation_config
        params = {name: str(value) for name, value in config.kwargs.items()}
        text = {"template": cls.template, "params": params}
        return [RenderedStringTemplateContent(content_block_type="string_template", string_template=text)]


class ExpectChangesToRisePerKey(_ExpectNone):
    """Expect `_changed_by` to rise per key through a change feed (batch: `ordering.sink_changes`)."""

    key: list[str]
    metric_dependencies, success_keys = _counts(ordering.disordered, "key")
    template = "Per $key, _changed_by must rise from change to change."


class ExpectSinkToShowDecisions(_ExpectNone):
    """Expect the sink to show what the state decided (batch: `ordering.decisions`)."""

    metric_dependencies, success_keys = _counts(ordering.unlike)
    template = "The sink must show, per key, what the state decided last."


class ExpectSinkToBeComplete(_ExpectNone):
    """Expect the sink to have the rows that the state shows, and no others (batch: `completeness.compared`)."""

    metric_dependencies, success_keys = _counts(completeness.incomplete)
    template = "The sink must have the rows that the state shows, and no others."


class ExpectSequencesToDecide(_ExpectNone):
    """Expect the sequence to tell which content is a key's row, and whether one is (batch: `ordering.sequenced`)."""

    metric_dependencies, success_keys = _counts(ordering.undecided)
    template = "A key's sequence must tell which of its changes came last; add a column to order.sequence that does."


class ExpectValuesToArrive(_ExpectNone):
    """Expect no row that waits for a value that was not sent (batch: `ordering.sequenced`)."""

    metric_dependencies, success_keys = _counts(ordering.waiting)
    template = "A value that an update left out must be known from an earlier change."


class ExpectEmittedToFollow(_ExpectNone):
    """Expect each record of a changelog to be one that can follow the one before (batch: `changelog.emitted`)."""

    key: list[str]
    orphans: bool
    metric_dependencies, success_keys = _counts(changelog.misplaced, "key", "orphans")
    template = "Per $key, +I must come only where the key is absent, +U and -D only where it is present."


class ExpectEntriesToExpire(_ExpectNone):
    """Expect no live entry whose time is over for `grace_ms` (batch: `expiry.entries`)."""

    grace_ms: int
    metric_dependencies, success_keys = _counts(expiry.overdue, "grace_ms")
    template = "No entry may live $grace_ms ms or more past its time."


class ExpectExpiredEntriesToBeDeleted(_ExpectNone):
    """Expect no entry whose time is over for `grace_ms` to be stored at all (batch: `expiry.entries`)."""

    grace_ms: int
    metric_dependencies, success_keys = _counts(expiry.leftover, "grace_ms")
    template = "No entry may be stored $grace_ms ms or more past its time; run the cleanup job."


class ExpectKeysToBeUnique(_ExpectNone):
    """Expect one row per key and no null in a key (batch: `keys.sink_keys`)."""

    key: list[str]
    metric_dependencies, success_keys = _counts(keys.repeated, "key")
    template = "$key must be unique and not null."


class ExpectQuarantineRateToStayBelow(_ExpectNone):
    """Expect the share of bad records to be at most `max_rate` (batch: `quarantine.steps`)."""

    max_rate: float
    metric_dependencies, success_keys = _counts(quarantine.too_many, "max_rate")
    template = "At most $max_rate of the records may be bad."


class ExpectNewestEventToBeRecent(_ExpectNone):
    """Expect the newest event to lie back at most `max_delay_ms` (batch: `event_time.newest_event`)."""

    max_delay_ms: int
    metric_dependencies, success_keys = _counts(event_time.too_old, "max_delay_ms")
    template = "The newest event must not lie back more than $max_delay_ms ms."


class ExpectCommitsToBeOurs(_ExpectNone):
    """Expect every commit that changed data to be the pipeline's (batch: `writes.commits`)."""

    metric_dependencies, success_keys = _counts(writes.foreign)
    template = "Every change of the tables must be the pipeline's own."


class ExpectRecordsToBeRead(_ExpectNone):
    """Expect no records of the source that are lost (batch: `source_loss.noted`)."""

    metric_dependencies, success_keys = _counts(source_loss.records_lost)
    template = "No records of the source may be lost before they are read."


class ExpectColumnsToBeKnown(_ExpectNone):
    """Expect no column of the source that the schema lacks (batch: `schema_drift.columns`)."""

    metric_dependencies, success_keys = _counts(schema_drift.unknown)
    template = "The source must have no columns that the schema lacks, but those under ignored_columns."
