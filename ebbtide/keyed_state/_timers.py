"""A user's timers: one per key, clock and time, as Flink's timer service keeps them.

Stored like a map state named `@timers`, whose user key is `(clock, time)`.
"""

from __future__ import annotations

from ebbtide.keyed_state._context import StateContext
from ebbtide.keyed_state._raw import Entry, RawState
from ebbtide.keyed_state._ttl import TimeCharacteristic

Timer = tuple[int, TimeCharacteristic]
"""The time, epoch ms, and the clock that must reach it."""


class Timers:
    """Timers of the current key.

    Args:
        raw: Holds the timers.
        context: The current key and the clocks.
    """

    def __init__(self, raw: RawState, context: StateContext) -> None:
        self._raw = raw
        self._context = context

    def register(
        self,
        time_ms: int,
        clock: TimeCharacteristic = TimeCharacteristic.PROCESSING_TIME,
    ) -> None:
        """Request a call of `on_timer` when the clock reaches a time; duplicate requests result in one call.

        Args:
            time_ms: Epoch ms; a time in the past fires at the next tick.
            clock: The step's processing time, or the watermark.
        """
        user_key = (str(clock), time_ms)
        self._raw.put(
            self._context.key,
            user_key,
            Entry(True),
        )

    def delete(
        self,
        time_ms: int,
        clock: TimeCharacteristic = TimeCharacteristic.PROCESSING_TIME,
    ) -> None:
        """Remove a timer, if it exists."""
        user_key = (str(clock), time_ms)
        self._raw.remove(self._context.key, user_key)

    def due(self) -> list[Timer]:
        """Return the timers of the current key that are due, the earliest first."""
        due: list[Timer] = []
        entries = self._raw.entries(self._context.key)
        for (clock, time), _ in entries:
            is_due = time <= self._now(clock)
            if is_due:
                timer = (time, TimeCharacteristic(clock))
                due.append(timer)
        return sorted(due)

    def _now(self, clock: str) -> int:
        if clock == TimeCharacteristic.EVENT_TIME:
            return self._context.watermark_ms
        return self._context.now_ms
