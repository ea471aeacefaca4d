"""A user's timers: one per key, clock and time, as Flink's timer service keeps them.

Stored like a map state named `@timers`, whose user key is `(clock, time)`.
"""

from __future__ import annotations

from ebbtide.model.state.context import StateContext
from ebbtide.model.state.raw import Entry, RawState
from ebbtide.model.ttl import TimeCharacteristic

TIMERS = "@timers"
Timer = tuple[int, TimeCharacteristic]
"""The time, epoch ms, and the clock that has to reach it."""


class Timers:
    """Timers of the current key.

    Args:
        raw: Where they are.
        context: The current key and the clocks.
    """

    def __init__(self, raw: RawState, context: StateContext) -> None:
        self._raw, self._context = raw, context

    def register(self, time_ms: int, clock: TimeCharacteristic = TimeCharacteristic.PROCESSING_TIME) -> None:
        """Ask for `on_timer` once the clock has reached a time; asked twice, it comes once.

        Args:
            time_ms: Epoch ms; one that is over already fires at the next tick.
            clock: The step's processing time, or the watermark.
        """
        self._raw.put(self._context.key, (str(clock), time_ms), Entry(True))

    def delete(self, time_ms: int, clock: TimeCharacteristic = TimeCharacteristic.PROCESSING_TIME) -> None:
        """Take a timer back, if it is there."""
        self._raw.remove(self._context.key, (str(clock), time_ms))

    def due(self) -> list[Timer]:
        """Return the timers of the current key that are due, the earliest first."""
        due: list[Timer] = []
        for (clock, time), _ in self._raw.entries(self._context.key):
            if time <= self._now(clock):
                due.append((time, TimeCharacteristic(clock)))
        return sorted(due)

    def _now(self, clock: str) -> int:
        return self._context.watermark_ms if clock == TimeCharacteristic.EVENT_TIME else self._context.now_ms
