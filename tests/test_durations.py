from datetime import timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from ebbtide.columns import Long
from ebbtide.durations import Duration, format_duration, from_ms, parse_duration, to_ms

READ = TypeAdapter(Duration)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("0s", timedelta(0)),
        ("1500ms", timedelta(milliseconds=1500)),
        ("90s", timedelta(seconds=90)),
        ("5m", timedelta(minutes=5)),
        ("36h", timedelta(hours=36)),
        ("999999999999999ms", timedelta(milliseconds=999_999_999_999_999)),
        ("999999999d", timedelta(days=999_999_999)),
        ("7d", timedelta(days=7)),
        ("2w", timedelta(weeks=2)),
        ("1h30m", timedelta(minutes=90)),
        (" 1 H 30 M ", timedelta(minutes=90)),
        ("P1DT1H", timedelta(hours=25)),
        ("-P1D", timedelta(days=-1)),
        (timedelta(seconds=1), timedelta(seconds=1)),
    ],
)
def test_duration_with_its_unit_is_read(text, want):
    assert READ.validate_python(text) == want


@pytest.mark.parametrize(
    "value",
    [
        30,
        1.5,
        True,
        None,
        "",
        "30",
        "d",
        "1y",
        "1.5h",
        "-1d",
        "1d x",
        "pt",
        [1],
        "1000000000d",
        "9" * 18 + "w",
        "9" * 5000 + "d",
        "\u0661d",
    ],
)
def test_duration_without_a_known_unit_is_refused(value):
    with pytest.raises(ValidationError):
        READ.validate_python(value)


def test_duration_that_is_refused_is_told_with_what_is_allowed():
    with pytest.raises(ValueError, match=r"got 30; allowed: a number with its unit \(ms, s, m, h, d, w\)"):
        parse_duration(30)


@pytest.mark.parametrize("text", ["30d", "1500ms", "1ms", "36h", "90m", "61s", "0d"])
def test_duration_that_was_written_is_read_again(text):
    assert format_duration(parse_duration(text)) == text
    assert READ.dump_json(parse_duration(text)) == f'"{text}"'.encode()


@pytest.mark.parametrize(("micros", "ms"), [(0, 0), (999, 0), (1000, 1), (1999, 1)])
def test_duration_in_milliseconds_is_whole(micros, ms):
    assert to_ms(timedelta(microseconds=micros)) == ms


LONGEST_MS = to_ms(timedelta.max)


def test_longest_duration_is_read_and_a_longer_one_is_not():
    assert parse_duration(f"{LONGEST_MS}ms") == timedelta(milliseconds=LONGEST_MS)
    with pytest.raises(ValueError, match="allowed: up to 999999999d"):
        parse_duration(f"{LONGEST_MS + 1}ms")


def test_milliseconds_beyond_the_longest_duration_become_it():
    assert from_ms(LONGEST_MS) == timedelta(milliseconds=LONGEST_MS) < timedelta.max
    assert from_ms(LONGEST_MS + 1) == from_ms(Long.MAX) == timedelta.max
