"""The expectations: one is made from each rule of `ebbtide.checks`, and asks that nothing breaks it.

An engine has run the rules by then, here or on Spark: Great Expectations judges a pandas batch with a row for each of them,
`{"count": rows that break it, "sample": the first of them, as JSON values}`. The models are pydantic v1, as all of Great Expectations is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from types import new_class
from typing import Any, ClassVar, get_type_hints

import pandas as pd
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.components import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer

from ebbtide.checks._engines import Broken
from ebbtide.checks._rule import Expected, Rule

Arguments = Mapping[str, Any]


def batch_of(expected: Sequence[Expected], broken: Sequence[Broken]) -> pd.DataFrame:
    """Return the batch that Great Expectations judges: what breaks each of some rules."""
    judged = [
        {
            "rule": _identity(each.rule.expectation, each.arguments),
            "count": found.count,
            "sample": json.dumps(found.sample),
        }
        for each, found in zip(expected, broken, strict=True)
    ]
    return pd.DataFrame(judged)


def _identity(expectation: str, arguments: Arguments) -> str:
    """Return what distinguishes a rule with its arguments from all rules of a batch."""
    return json.dumps([expectation, dict(sorted(arguments.items()))])


class _Broken(TableMetricProvider):
    """The rows that break a rule. Subclasses (see `_class_of`) name the metric, its arguments and the rule."""

    expectation: ClassVar[str]

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - the decorator makes it a class method
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> dict[str, Any]:
        frame, _, _ = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        arguments = {name: metric_value_kwargs[name] for name in cls.value_keys}
        of_rule = frame[frame["rule"] == _identity(cls.expectation, arguments)].iloc[0]
        return {"count": int(of_rule["count"]), "sample": json.loads(of_rule["sample"])}


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
    hints = get_type_hints(rule.condition)
    arguments = {name: hints[name] for name in list(hints)[1:] if name != "return"}
    metric = f"table.ebbtide_{rule.expectation}"
    provider = {"metric_name": metric, "value_keys": tuple(arguments), "expectation": rule.expectation}
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
