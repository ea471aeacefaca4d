"""Numbers of things, as messages say them."""

from __future__ import annotations


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
