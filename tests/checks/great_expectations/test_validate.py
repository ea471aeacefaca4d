"""What is read from Great Expectations' results, each kind of which reports in its own way."""

import pandas as pd
import pytest
from oracles.judging import validate

from ebbtide.checks._judged import Batch
from ebbtide.errors import ConfigError

ROW = {"order_id": 2}


@pytest.mark.parametrize(
    ("result", "broken", "sample"),
    [
        ({"observed_value": 30, "details": {"sample": [ROW]}}, 30, [ROW]),
        ({"observed_value": 1, "details": {"unexpected_rows": [ROW]}}, 1, [ROW]),
        ({"unexpected_count": 2, "partial_unexpected_list": [-1, -2]}, 2, [{"qty": -1}, {"qty": -2}]),
        ({"observed_value": 4}, 1, [{"observed": 4}]),
        ({"observed_value": ["a"], "details": {"mismatched": {"missing": ["b"]}}}, 1, [{"observed": ["a"]}]),
    ],
    ids=["ours", "query", "values", "table", "columns"],
)
def test_rows_that_break_are_counted_and_shown_and_a_table_counts_once(result, broken, sample):
    from ebbtide.checks.great_expectations.validate import _broken, _sample

    assert (_broken(result), _sample(result, "qty")) == (broken, sample)


def test_rule_whose_result_great_expectations_cannot_store_is_refused_by_name():
    import great_expectations as gx

    ranges = {"quantiles": [0.5], "value_ranges": [[1, 3]]}
    rule = gx.expectations.ExpectColumnQuantileValuesToBeBetween(column="n", quantile_ranges=ranges)
    with pytest.raises(ConfigError, match="expect_column_quantile_values_to_be_between"):
        validate("expectations", [Batch(pd.DataFrame({"n": [1, 2, 3]}), [rule])], None, 1)
