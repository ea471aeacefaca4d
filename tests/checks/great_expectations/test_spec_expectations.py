"""Expectations that a spec names: found, made, or refused in words that say what to change."""

import pytest
from clusters.spark_support import plain_spec
from pydantic import ValidationError

from ebbtide.checks import checks_of
from ebbtide.errors import ConfigError

QTY = {"column": "qty", "min_value": 0}


def made(type_, **kwargs):
    from ebbtide.checks.great_expectations.spec_expectations import expectation_of

    return expectation_of(type_, kwargs, "warning")


def test_types_of_great_expectations_and_classes_of_the_project_are_made_with_kwargs_and_severity():
    between = made("expect_column_values_to_be_between", **QTY)
    assert (between.column, between.min_value, between.severity) == ("qty", 0, "warning")
    own = made("expectations.orders:ExpectOrdersToShipAfterPlacement")
    assert "ship_on" in own.unexpected_rows_query


@pytest.mark.parametrize(
    "named",
    [
        "expect_colum_values_to_be_between",
        "no_such_module:Rule",
        "expectations.orders:NoSuchRule",
        "expectations.orders:UnexpectedRowsExpectations",
        "ebbtide:UpsertPipeline",
    ],
)
def test_unknown_type_is_refused_by_its_name(named):
    with pytest.raises(ConfigError, match=f"is unknown.*Got: {named}. Allowed: a type of Great Expectations"):
        made(named)


@pytest.mark.parametrize("kwargs", [{}, {"column": "qty", "minimum": 0}])
def test_kwargs_that_a_type_does_not_take_are_refused(kwargs):
    with pytest.raises(ConfigError, match="'expect_column_values_to_be_between' does not take its kwargs: "):
        made("expect_column_values_to_be_between", **kwargs)


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "column_values_to_be_between"},
        {"type": "expectations.orders.ExpectOrdersToShipAfterPlacement"},
        {"type": "expect_column_values_to_be_null", "severity": "fatal"},
        {"type": "expect_column_values_to_be_null", "column": "v"},
        {},
    ],
)
def test_rule_that_cannot_be_one_is_refused_when_the_spec_is_read(tmp_path, rule):
    with pytest.raises(ValidationError, match=r"checks\.expectations\.0"):
        plain_spec(tmp_path, checks={"expectations": [rule]})


def test_only_pipelines_that_name_rules_have_the_check_and_a_critical_one_blocks(tmp_path):
    def check_of(*severities):
        rules = [{"type": "expect_column_values_to_be_between", "kwargs": QTY, "severity": s} for s in severities]
        spec = plain_spec(tmp_path, checks={"expectations": rules})
        return {check.name: check.blocking for check in checks_of(spec)}.get("expectations")

    assert [check_of(), check_of("warning"), check_of("warning", "critical")] == [None, False, True]
