"""Durations as people write them: `7d`, `1h30m`, ISO 8601, timedelta."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_duration(value: Any) -> Any:
    """Read `7d`, `90s`, `1h30m` as a timedelta; leave all else (ISO 8601, timedelta) to pydantic.

    Example:
        >>> parse_duration("1h30m")
        datetime.timedelta(seconds=5400)

    Raises:
        ValueError: a bare number, whose unit is unknown, or an unknown unit.
    """
    if isinstance(value, timedelta):
        return value
    text = value.strip().lower() if isinstance(value, str) else ""
    if text.startswith(("p", "-p")):
        return value
    if re.fullmatch(r"([0-9]{1,18}\s*(ms|s|m|h|d|w)\s*)+", text):
        parts = re.findall(r"([0-9]+)\s*(ms|s|m|h|d|w)", text)
        ms = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
        if ms <= to_ms(timedelta.max):
            return timedelta(milliseconds=ms)
        raise ValueError(f"got {value!r}; allowed: up to {timedelta.max.days}d")
    raise ValueError(
        f"got {value!r}; allowed: a number with its unit (ms, s, m, h, d, w) such as '7d', ISO 8601 such as 'P7D', or a timedelta"
    )


def format_duration(value: timedelta) -> str:
    """Write a timedelta as the largest unit that divides it.

    Example:
        >>> format_duration(timedelta(days=30)), format_duration(timedelta(milliseconds=1500))
        ('30d', '1500ms')
    """
    ms = to_ms(value)
    for unit in ("d", "h", "m", "s"):
        if ms % _UNITS_MS[unit] == 0:
            return f"{ms // _UNITS_MS[unit]}{unit}"
    return f"{ms}ms"


def from_ms(ms: int) -> timedelta:
    """Return milliseconds as a timedelta; what is longer than any becomes the longest."""
    return timedelta.max if ms > to_ms(timedelta.max) else timedelta(milliseconds=ms)


def to_ms(value: timedelta) -> int:
    """Return whole milliseconds."""
    return value // timedelta(milliseconds=1)


def _from(least: timedelta) -> Callable[[timedelta], timedelta]:
    def check(value: timedelta) -> timedelta:
        if value < least:
            raise ValueError(f"got {value}; allowed: greater than or equal to {to_ms(least)}ms")
        return value

    return check


Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration, json_schema_input_type=str),
    PlainSerializer(format_duration, when_used="json"),
]
NaturalDuration = Annotated[Duration, AfterValidator(_from(timedelta(0)))]
PositiveDuration = Annotated[Duration, AfterValidator(_from(timedelta(milliseconds=1)))]
