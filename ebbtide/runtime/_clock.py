"""The wall clock, and its replacements."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns the time, epoch ms."""


def system_clock() -> int:
    """Return the wall clock, epoch ms."""
    return time.time_ns() // 1_000_000
