"""The expectations: one is made from each rule of `ebbtide.checks`, and asks that the rule finds no row that breaks it.

A metric per rule gives `{"count": broken rows, "sample": the first of them, as JSON values}`. The models are pydantic v1, as
all of Great Expectations is.
"""

from __future__ import annotations

import json
from functools import cache
from types import new_class
from typing import Any, ClassVar, get_type_hints

from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ebbtide.checks.rule import Expected, Rule

SAMPLE_ROWS = 20


class _Broken(TableMetricProvider):
    """The rows of a batch that break a rule. Subclasses (see `_metric`) name the metric, its arguments and the rule."""

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


def made(expected: Expected) -> BatchExpectation:
    """Make the expectation of a rule with its arguments.

    Args:
        expected: The rule, the arguments, the severity.
    """
    severity = FailureSeverity(expected.severity)
    return _class_of(expected.rule)(**expected.arguments, severity=severity)


@cache
def _class_of(rule: Rule) -> type[BatchExpectation]:
    """Make the class of a rule's expectation, once: Great Expectations registers it, as its metric, as it is made."""
    hints = get_type_hints(rule.broken)
    arguments = {name: hints[name] for name in list(hints)[1:] if name != "return"}
    metric = f"table.ebbtide_{rule.expectation}"
    provider = {"metric_name": metric, "value_keys": tuple(arguments), "rule": staticmethod(rule.broken)}
    new_class(f"_Broken_{rule.expectation}", (_Broken,), exec_body=lambda body: body.update(provider))
    members = {
        "__module__": __name__,
        "__doc__": rule.template,
        "__annotations__": arguments,
        "metric_dependencies": (metric,),
        "success_keys": tuple(arguments),
        "template": rule.template,
    }
    # Great Expectations makes the expectation's name from that of its class.
    words = rule.expectation.split("_")
    class_name = "".join(map(str.capitalize, words))
    made_class: type[BatchExpectation] = new_class(
        class_name, (_ExpectNone,), exec_body=lambda body: body.update(members)
    )
    return made_class
