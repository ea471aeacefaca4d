"""Numbers of things, durations and long values, as messages say them."""

from __future__ import annotations

from collections.abc import Sequence

UNITS_MS = {"days": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000}


def amount(n: int, thing: str, things: str = "") -> str:
    """Say how many there are of something.

    Args:
        n: How many.
        thing: One of them.
        things: Several of them. Default: with an s behind it.

    Example:
        >>> amount(1, "record"), amount(1385, "bad record"), amount(0, "entry", "entries")
        ('1 record', '1,385 bad records', '0 entries')
    """
    name = thing if n == 1 else things or f"{thing}s"
    return f"{n:,} {name}"


def named(names: Sequence[str], most: int) -> str:
    """Name the first of several things, and say how many more there are.

    Args:
        names: All of them.
        most: How many are named.

    Example:
        >>> named(["a", "b", "c"], 2), named(["a"], 2)
        ('a, b and 1 more', 'a')
    """
    first = ", ".join(names[:most])
    n_more = len(names) - most
    return f"{first} and {n_more:,} more" if n_more > 0 else first


def shortened(text: str, most: int) -> str:
    """Return a text, cut where it is longer than a line or a cell holds.

    Args:
        text: The text.
        most: Characters that are left of it.

    Example:
        >>> shortened("abc", 3), shortened("abcd", 3)
        ('abc', 'abc...')
    """
    return text if len(text) <= most else f"{text[:most]}..."


def in_words(ms: int) -> str:
    """Say how long something lasts, by its two largest units.

    Example:
        >>> in_words(366 * 86_400_000), in_words(86_400_000 + 7_200_000), in_words(90_000), in_words(400)
        ('366 days', '1 day 2 h', '1 min 30 s', '400 ms')
    """
    if ms < 1000:
        return f"{ms} ms"
    parts = []
    for name, unit_ms in UNITS_MS.items():
        n_units, ms = divmod(ms, unit_ms)
        parts.append(amount(n_units, "day") if name == "days" else f"{n_units} {name}")
    first = next(place for place, part in enumerate(parts) if not part.startswith("0 "))
    return " ".join(part for part in parts[first : first + 2] if not part.startswith("0 "))
