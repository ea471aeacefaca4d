"""Durations as people write them: `7d`, `1h30m`, ISO 8601, timedelta."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_TEXT = re.compile(r"([0-9]{1,18}\s*(ms|s|m|h|d|w)\s*)+")
_PART = re.compile(r"([0-9]+)\s*(ms|s|m|h|d|w)")


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
    # ISO 8601 is left to pydantic, which reads all of it.
    is_iso = text.startswith(("p", "-p"))
    if is_iso:
        return value
    if not _TEXT.fullmatch(text):
        raise ValueError(
            f"got {value!r}; allowed: a number with its unit (ms, s, m, h, d, w) such as '7d', ISO 8601 such as 'P7D', or a timedelta"
        )
    ms = 0
    for number, unit in _PART.findall(text):
        ms += int(number) * _UNITS_MS[unit]
    if ms > to_ms(timedelta.max):
        raise ValueError(f"got {value!r}; allowed: up to {timedelta.max.days}d")
    return timedelta(milliseconds=ms)


def format_duration(value: timedelta) -> str:
    """Write a timedelta as the largest unit that divides it.

    Example:
        >>> format_duration(timedelta(days=30)), format_duration(timedelta(milliseconds=1500))
        ('30d', '1500ms')
    """
    ms = to_ms(value)
    # Weeks are read, but never written: days are the largest unit.
    for unit in ("d", "h", "m", "s"):
        unit_ms = _UNITS_MS[unit]
        if ms % unit_ms == 0:
            return f"{ms // unit_ms}{unit}"
    return f"{ms}ms"


def from_ms(ms: int) -> timedelta:
    """Return milliseconds as a timedelta; too long durations become the longest."""
    longest_ms = to_ms(timedelta.max)
    if ms > longest_ms:
        return timedelta.max
    return timedelta(milliseconds=ms)


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
