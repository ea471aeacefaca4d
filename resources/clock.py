"""The clock of ticks and checks."""

from __future__ import annotations

import time

import dagster as dg
from pydantic import Field


class ClockResource(dg.ConfigurableResource["ClockResource"]):
    """The wall clock, or one that stands still: a run can be repeated, a test can move it."""

    fixed_ms: int | None = Field(
        default=None, description="The time at which it stands, epoch ms. Default: none, the wall clock."
    )

    def now_ms(self) -> int:
        """Return the time, epoch ms."""
        return time.time_ns() // 1_000_000 if self.fixed_ms is None else self.fixed_ms
