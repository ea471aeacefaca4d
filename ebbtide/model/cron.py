"""Cron expressions, as far as every scheduler understands them alike: five fields of numbers, names, ranges and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
FIELDS = ("minute 0-59", "hour 0-23", "day of the month 1-31", "month 1-12 or jan-dec", "weekday 0-7 or sun-sat")
ALLOWED = (
    f"five fields ({', '.join(FIELDS)}), each *, values and ranges with commas between, steps as in */15 or 8-18/2"
)


def check_cron(text: str) -> str:
    """Return a cron expression as it is.

    Example:
        >>> check_cron("*/15 8-18 * * mon-fri")
        '*/15 8-18 * * mon-fri'

    Raises:
        ValueError: it is none, or names only days that no month has.
    """
    fields = text.lower().split()
    if len(fields) != len(FIELDS):
        raise ValueError(f"got {text!r}; allowed: {ALLOWED}")
    try:
        _values(fields[0], 0, 59)
        _values(fields[1], 0, 23)
        days, months = _values(fields[2], 1, 31), _values(fields[3], 1, 12, MONTHS)
        _values(fields[4], 0, 7, WEEKDAYS)
    except ValueError as error:
        raise ValueError(f"got {text!r}, where {error}; allowed: {ALLOWED}") from error
    if min(days) > max(MONTH_DAYS[month - 1] for month in months):
        raise ValueError(f"got {text!r}; allowed: a day that one of the months has")
    return text


def _values(field: str, first: int, last: int, names: Sequence[str] = ()) -> set[int]:
    """Return what a field stands for; the first of `names` is `first`."""
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        low, dash, high = (str(first), "-", str(last)) if span == "*" else span.partition("-")
        start = _value(low, first, names)
        end = _value(high, first, names) if dash else last if slash else start
        width = _value(step, 0, ()) if slash else 1
        if not first <= start <= end <= last or not 1 <= width <= last - first:
            raise ValueError(f"{part!r} is none of its field")
        found |= set(range(start, end + 1, width))
    return found


def _value(text: str, first: int, names: Sequence[str]) -> int:
    if text in names:
        return first + names.index(text)
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is no number")
    return int(text)


CronExpression = Annotated[str, AfterValidator(check_cron)]
