"""Processing time of a pipeline's steps: wall time less downtime. Jumps ahead are capped, and it never goes back."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict

CATCH_UP_MS = 24 * 60 * 60 * 1000
"""Largest advance of processing time beyond the time since the last step: one day.

A capped jump is caught up by at most this much per step, so that a wrong clock cannot expire all entries within a few steps."""


@dataclass(frozen=True)
class Reading:
    """The clock at a step.

    Args:
        now_ms: Processing time, epoch ms.
        wall_ms: Wall time of the step, epoch ms.
        downtime_ms: Downtime left out of `now_ms`, since the first step.
        held_ms: How far the wall clock was ahead of the allowed maximum.
        paused_ms: Total time of requested pauses; all of it is downtime.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    now_ms: int
    wall_ms: int
    downtime_ms: int = 0
    held_ms: int = 0
    paused_ms: int = 0


def next_clock(
    last: Reading | None,
    wall_ms: int,
    *,
    started_ms: int,
    ignore_over_ms: int | None,
    max_jump_ms: int,
    paused_ms: int = 0,
) -> Reading:
    """Read the clock for the next step.

    Downtime is the time from the last step to this one, if an earlier run made the last step and it is long enough.
    It is computed from stored facts, so a failed run or a cleanup in between does not lose it. A pause that a user requested is
    always downtime: entries do not age while their changes cannot be read.

    Args:
        last: The clock of the last step; None before the first step.
        wall_ms: The wall clock, epoch ms; of a batch when it was planned.
        started_ms: When this run began: a step planned before belongs to an earlier run.
        ignore_over_ms: A longer pause between two runs is downtime; None: none is.
        max_jump_ms: Largest advance of processing time in one step. The time since the last step plus `CATCH_UP_MS` caps it too.
        paused_ms: Total time of pauses up to now.

    Example:
        >>> first = next_clock(None, 1000, started_ms=0, ignore_over_ms=60, max_jump_ms=10**6)
        >>> next_clock(first, 5000, started_ms=4990, ignore_over_ms=60, max_jump_ms=10**6)
        Reading(now_ms=1000, wall_ms=5000, downtime_ms=4000, held_ms=0, paused_ms=0)
    """
    if last is None:
        return Reading(wall_ms, wall_ms, paused_ms=paused_ms)
    pause_ms = wall_ms - last.wall_ms
    is_between_runs = last.wall_ms < started_ms
    is_too_long = ignore_over_ms is not None and pause_ms > ignore_over_ms
    downtime_ms = last.downtime_ms
    if is_between_runs and is_too_long:
        downtime_ms += pause_ms
    else:
        # A requested pause is downtime, but never more than the time that has passed since the last step.
        paused_since_ms = max(paused_ms - last.paused_ms, 0)
        downtime_ms += min(paused_since_ms, max(pause_ms, 0))
    # Two caps on the advance: the configured one, and real time plus one day of catching up. The excess is reported as `held_ms`,
    # and later steps catch up. `max` below keeps the clock monotonic if the wall clock was set back.
    counted_ms = wall_ms - downtime_ms
    may_go_on_ms = min(max_jump_ms, max(pause_ms, 0) + CATCH_UP_MS)
    limit_ms = last.now_ms + may_go_on_ms
    limited_ms = min(counted_ms, limit_ms)
    return Reading(
        now_ms=max(last.now_ms, limited_ms),
        wall_ms=wall_ms,
        downtime_ms=downtime_ms,
        held_ms=max(0, counted_ms - limit_ms),
        paused_ms=max(paused_ms, last.paused_ms),
    )
