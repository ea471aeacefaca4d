"""What the two forms of the ordered multiset share."""

from __future__ import annotations

from typing import Any, NamedTuple

from ebbtide.model.ttl import LONG_MAX

Row = tuple[Any, ...]


class Element(NamedTuple):
    """A row of a history.

    Args:
        row: Its values.
        stamp_ms: When it was written, epoch ms.
    """

    row: Row
    stamp_ms: int


class Removed(NamedTuple):
    """What a retraction did.

    Args:
        was_last: The row removed was the newest.
        last: The row that is newest now; None if none is left.
    """

    was_last: bool
    last: Row | None


def lives(stamp_ms: int, ttl_ms: int | None, now_ms: int) -> bool:
    """Tell whether an element may still be seen: `stamp + ttl > now`, the sum capped at the largest long."""
    return ttl_ms is None or min(stamp_ms + ttl_ms, LONG_MAX) > now_ms
