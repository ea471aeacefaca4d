"""The wall clock, what may stand in its place, and the clock of steps that goes by it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ebbtide.ledger.facts import StepFacts
from ebbtide.model.clock import Reading, next_clock
from ebbtide.model.durations import to_ms
from ebbtide.spec.pipeline import Pipeline

Clock = Callable[[], int]
"""Returns the time, epoch ms."""


def system_clock() -> int:
    """Return the wall clock, epoch ms."""
    return time.time_ns() // 1_000_000


def clock_after(last: StepFacts | None, spec: Pipeline, wall_ms: int, started_ms: int) -> Reading:
    """Read the clock of a step that follows the last one.

    Args:
        last: The last step's facts; None before the first.
        spec: The pipeline.
        wall_ms: The wall clock, epoch ms.
        started_ms: When the run of that step began, epoch ms.
    """
    ignored = spec.downtime_over
    return next_clock(
        clock_of(last) if last else None,
        wall_ms,
        started_ms=started_ms,
        ignore_over_ms=None if ignored is None else to_ms(ignored),
        max_jump_ms=to_ms(spec.max_clock_jump),
    )


def clock_of(facts: StepFacts) -> Reading:
    """Return the clock of a step that was made."""
    wall_ms = facts.now_ms if facts.wall_ms is None else facts.wall_ms
    return Reading(facts.now_ms, wall_ms, facts.downtime_ms, facts.held_ms)
