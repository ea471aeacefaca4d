"""The clock of ticks and checks."""

from __future__ import annotations

import time
from typing import Literal

import dagster as dg
from pydantic import Field


class ClockResource(dg.ConfigurableResource["ClockResource"]):
    """The wall clock, or one that stands still: a run can be repeated, a test can move it."""

    fixed_ms: int | Literal["wall"] = Field(
        default="wall", description="'wall', or the time at which it stands, epoch ms. Default: wall."
    )

    def now_ms(self) -> int:
        """Return the time, epoch ms."""
        return time.time_ns() // 1_000_000 if self.fixed_ms == "wall" else self.fixed_ms
