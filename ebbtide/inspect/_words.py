"""Durations in words, as a person reads them."""

from __future__ import annotations

from ebbtide.amounts import amount

UNITS_MS = {"days": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1000}


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
