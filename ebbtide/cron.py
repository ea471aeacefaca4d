"""Cron expressions, as far as every scheduler understands them alike: five fields of numbers, names, ranges and steps.

The minute may be `H`, as in Jenkins: a minute that depends on the pipeline's name, so that pipelines do not all start at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
FIELDS = ("minute 0-59", "hour 0-23", "day of the month 1-31", "month 1-12 or jan-dec", "weekday 0-7 or sun-sat")
ALLOWED = (
    f"five fields ({', '.join(FIELDS)}), each *, values and ranges with commas between, steps as in */15 or 8-18/2; as the minute, "
    "H or H/15: one that depends on the name"
)


def check_cron(text: str) -> str:
    """Return a cron expression as it is.

    Example:
        >>> check_cron("*/15 8-18 * * mon-fri")
        '*/15 8-18 * * mon-fri'

    Raises:
        ValueError: it is not one, or names only days that no month has.
    """
    # With any minute in the place of H: whether the rest is valid does not depend on it.
    resolved = Cron.of(text, "")
    fields = resolved.text.lower().split()
    if len(fields) != len(FIELDS):
        raise ValueError(f"got {text!r}; allowed: {ALLOWED}")
    minute, hour, day, month, weekday = fields
    try:
        _values(minute, 0, 59)
        _values(hour, 0, 23)
        days = _values(day, 1, 31)
        months = _values(month, 1, 12, MONTHS)
        _values(weekday, 0, 7, WEEKDAYS)
    except ValueError as error:
        raise ValueError(f"got {text!r}, where {error}; allowed: {ALLOWED}") from error
    lengths = [MONTH_DAYS[number - 1] for number in months]
    if min(days) > max(lengths):
        raise ValueError(f"got {text!r}; allowed: a day that one of the months has")
    return text


@dataclass(frozen=True)
class Cron:
    """A valid cron expression.

    Args:
        text: The expression, without `H`.
    """

    text: str

    @classmethod
    def of(cls, text: str, name: str) -> Self:
        """Return an expression with a minute that depends on a name in the place of `H`.

        Args:
            text: Its minute may be `H` (one minute of the hour) or `H/N` (one of N, then every N minutes).
            name: The pipeline's name; the same name has the same minute everywhere.

        Example:
            >>> Cron.of("H 3 * * *", "orders").text, Cron.of("H/15 * * * *", "orders").text
            ('2 3 * * *', '2-59/15 * * * *')
        """
        minute, _, rest = text.partition(" ")
        letter, slash, step = minute.partition("/")
        if letter not in ("H", "h"):
            return cls(text)
        # A checksum, not `hash`: the same name has the same minute in every process.
        place = zlib.crc32(name.encode())
        if not slash:
            return cls(f"{place % 60} {rest}")
        # A step that is not a number, or 0, is refused later with the whole expression.
        first = 0
        if _is_number(step) and int(step):
            first = place % int(step)
        return cls(f"{first}-59/{step} {rest}")

    def is_due(self, time: datetime) -> bool:
        """Return whether the expression names the minute of a time.

        Args:
            time: The time, in the expression's zone.

        Example:
            >>> mondays = Cron("5 3 * * mon")
            >>> mondays.is_due(datetime(2026, 2, 2, 3, 5)), mondays.is_due(datetime(2026, 2, 3, 3, 5))
            (True, False)
        """
        minute, hour, day, month, weekday = self.text.lower().split()
        is_minute = (
            time.minute in _values(minute, 0, 59)
            and time.hour in _values(hour, 0, 23)
            and time.month in _values(month, 1, 12, MONTHS)
        )
        if not is_minute:
            return False
        is_day = time.day in _values(day, 1, 31)
        # 0 and 7 are Sunday.
        weekdays = {number % 7 for number in _values(weekday, 0, 7, WEEKDAYS)}
        is_weekday = time.isoweekday() % 7 in weekdays
        # Of two restricted fields, either may match: so cron has it. Only an asterisk alone restricts nothing, as Dagster reads it.
        either = day != "*" and weekday != "*"
        if either:
            return is_day or is_weekday
        return is_day and is_weekday


def _values(
    field: str,
    first: int,
    last: int,
    names: Sequence[str] = (),
) -> set[int]:
    """Return the value of a field; the first of `names` is `first`."""
    values: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        step = _value(step_text, 0, ()) if slash else 1
        low, dash, high = span.partition("-")
        if span == "*":
            start = first
            end = last
        elif dash:
            start = _value(low, first, names)
            end = _value(high, first, names)
        else:
            # A single value with a step, as 5/15, starts a range up to the last value.
            start = _value(low, first, names)
            end = last if slash else start
        is_range = first <= start <= end <= last
        longest_step = last - first
        is_step = 1 <= step <= longest_step
        if not is_range or not is_step:
            raise ValueError(f"{part!r} is not a value of its field")
        values.update(range(start, end + 1, step))
    return values


def _value(text: str, first: int, names: Sequence[str]) -> int:
    if text in names:
        place = names.index(text)
        return first + place
    if not _is_number(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


CronExpression = Annotated[str, AfterValidator(check_cron)]
