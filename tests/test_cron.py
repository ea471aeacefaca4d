import warnings

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.cron import FIELDS, MONTHS, WEEKDAYS, Cron, _values, check_cron

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
    "text",
    [
        "*/15 * * * *",
        "0 3 * * *",
        "5/15 8-18 1,15 jan-mar MON-fri",
        "0 0 29 2 *",
        "0 0 * * 7",
        "H 3 * * *",
        "H/15 * * * *",
    ],
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
        "H",
        "H/0 * * * *",
        "H/60 * * * *",
        "H/x * * * *",
        "0 H * * *",
        "H-3 * * * *",
    ],
)
def test_what_is_none_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"got '.*allowed: ") as error:
        check_cron(text)
    assert FIELDS[0] in str(error.value) or "a day that one of the months has" in str(error.value)


@pytest.mark.parametrize(
    ("field", "limits", "values"),
    [
        ("*", (1, 4, ()), {1, 2, 3, 4}),
        ("3", (0, 59, ()), {3}),
        ("0,59", (0, 59, ()), {0, 59}),
        ("2-4,9", (0, 59, ()), {2, 3, 4, 9}),
        ("*/3", (1, 12, ()), {1, 4, 7, 10}),
        ("8-12/2", (0, 23, ()), {8, 10, 12}),
        ("20/2", (0, 23, ()), {20, 22}),
        ("*/59", (0, 59, ()), {0, 59}),
        ("jan-mar,dec", (1, 12, MONTHS), {1, 2, 3, 12}),
        ("sun,sat", (0, 7, WEEKDAYS), {0, 6}),
        ("5-5", (0, 59, ()), {5}),
        ("*/30", (1, 31, ()), {1, 31}),
    ],
)
def test_field_stands_for_its_values(field, limits, values):
    assert _values(field, *limits) == values


@pytest.mark.parametrize("text", ["0 0 32 * *", "0 0 0 * *", "0 24 * * *", "0 0 * 13 *", "0 0 * * 8", "0 0 */31 * *"])
def test_value_beyond_its_field_is_refused(text):
    with pytest.raises(ValueError, match="is not a value of its field; allowed: "):
        check_cron(text)


def test_sunday_is_0_and_7():
    assert [check_cron(f"0 0 * * {day}")[-1] for day in (0, 7)] == ["0", "7"]


@pytest.mark.parametrize("field", ["60", "5-4", "*/60", "*/0", "1/", "-3", "\u0663", "jan", "", "1-", "1,,2", "0-60"])
def test_part_that_is_none_of_its_field_is_named(field):
    with pytest.raises(ValueError, match=r"^'.*' is (not a value of its field|not a number)$"):
        _values(field, 0, 59)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("* * * *", r"^got '\* \* \* \*'; allowed: five fields \(minute 0-59, "),
        ("60 * * * *", r"^got '60 .*', where '60' is not a value of its field; allowed: five fields "),
        ("0 0 30 FEB *", r"^got '0 0 30 FEB \*'; allowed: a day that one of the months has$"),
    ],
)
def test_refusal_says_what_was_got_and_what_is_allowed(text, said):
    with pytest.raises(ValueError, match=said):
        check_cron(text)


@pytest.mark.parametrize("text", ["0 0 31 apr,may *", "0 0 30 4 *", "0 0 29 feb *", "0 0 1,31 2 *", "59 23 * 12 7"])
def test_day_that_one_of_the_months_has_is_taken(text):
    assert check_cron(text) == text


def test_minutes_of_many_pipelines_are_spread_over_the_hour_and_stay():
    names = [f"pipeline_{number}" for number in range(200)]
    resolved = [Cron.of("H 3 * * *", name).text for name in names]
    assert len(set(resolved)) > 50
    assert resolved == [Cron.of("H 3 * * *", name).text for name in names]


def test_interval_begins_within_its_first_step():
    first_minutes = {int(Cron.of("H/15 * * * *", f"p{number}").text.partition("-")[0]) for number in range(200)}
    assert first_minutes == set(range(15))


def test_expression_without_h_stays_as_it_is():
    assert Cron.of("*/15 8-18 * * mon-fri", "orders").text == "*/15 8-18 * * mon-fri"
