"""How much a call does, whatever the machine and its load."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def lines_run(room: str, work: Callable[[], object]) -> int:
    """Return how many lines a call runs of a room's modules, `ebbtide/operators/`."""
    n_lines = 0

    def count(frame: FrameType, what: str, value: object) -> Any:
        nonlocal n_lines
        n_lines += what == "line"
        return count

    def enter(frame: FrameType, what: str, value: object) -> Any:
        return count if room in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    return n_lines
