"""Types that the two forms of the ordered multiset share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from ebbtide.columns import Long

Row = tuple[Any, ...]
Identify = Callable[[Row], Hashable]


class Element(NamedTuple):
    """A row of a history.

    Args:
        row: Its values.
        stamp_ms: When it was written, epoch ms.
    """

    row: Row
    stamp_ms: int


class Removed(NamedTuple):
    """The effect of a retraction.

    Args:
        was_last: The row removed was the newest.
        last: The row that is newest now; None if none is left.
    """

    was_last: bool
    last: Row | None


def lives(stamp_ms: int, ttl_ms: int | None, now_ms: int) -> bool:
    """Return whether an element has not expired."""
    if ttl_ms is None:
        return True
    end_ms = min(stamp_ms + ttl_ms, Long.MAX)
    return end_ms > now_ms
