import warnings

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.model.cron import FIELDS, MONTHS, WEEKDAYS, check_cron

LIMITS = [(0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, MONTHS), (0, 7, WEEKDAYS)]


def fields(first, last, names):
    value = st.integers(first, last).map(str) | (st.sampled_from(names) if names else st.nothing())
    span = st.tuples(st.integers(first, last), st.integers(first, last)).map(lambda ends: "{}-{}".format(*sorted(ends)))
    stepped = st.tuples(st.just("*") | span | value, st.integers(1, last + 1)).map(lambda both: "{}/{}".format(*both))
    return st.lists(st.just("*") | value | span | stepped, min_size=1, max_size=3).map(",".join)


@dg.job
def nothing():
    """Does nothing."""


@given(st.tuples(*(fields(*limits) for limits in LIMITS)).map(" ".join))
def test_what_is_taken_dagster_takes_too(text):
    try:
        check_cron(text)
    except ValueError:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of what may not be meant
        assert dg.ScheduleDefinition(job=nothing, cron_schedule=text).cron_schedule == text


@pytest.mark.parametrize(
    "text", ["*/15 * * * *", "0 3 * * *", "5/15 8-18 1,15 jan-mar MON-fri", "0 0 29 2 *", "0 0 * * 7"]
)
def test_usual_expression_is_taken(text):
    assert check_cron(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "every day",
        "@daily",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "* * * mon *",
        "5-1 * * * *",
        "*/0 * * * *",
        "*/60 * * * *",
        "1,,2 * * * *",
        "-1 * * * *",
        "+1 * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "",
    ],
)
def test_what_is_none_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"got '.*allowed: ") as error:
        check_cron(text)
    assert FIELDS[0] in str(error.value) or "a day that one of the months has" in str(error.value)
