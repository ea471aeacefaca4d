"""Stateful functions that come with Ebbtide. A spec names them: `function: ebbtide.functions:LastSeen`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ebbtide.model.changelog import RowKind
from ebbtide.model.state.function import SOURCE_COLUMNS, Change, FunctionContext, StatefulFunction, ValueStateDescriptor
from ebbtide.model.ttl import StateTtlConfig, TimeCharacteristic, UpdateType


class LastSeen(StatefulFunction):
    """Tells per key when it was seen last, and how often since it was seen first.

    A key that is not seen for the time to live of `seen` is forgotten, and its row deleted.

    Example:
        >>> from ebbtide import StatefulPipeline
        >>> from ebbtide.testing import MemoryPipeline
        >>> spec = StatefulPipeline(
        ...     name="t", source={"path": "in", "records": "value"}, format={"type": "plain"}, key=["user"],
        ...     schema="user STRING, at TIMESTAMP", event_time="at", function="ebbtide.functions:LastSeen",
        ... )
        >>> pipeline = MemoryPipeline(spec)
        >>> pipeline.step(['{"kind": "+I", "row": {"user": "ann", "at": 1000000}}'])
        >>> [(row["user"], row["changes"]) for row in pipeline.rows()]
        [('ann', 1)]
    """

    output = "last_seen TIMESTAMP, changes BIGINT"
    seen = ValueStateDescriptor(
        "BIGINT", StateTtlConfig(ttl=timedelta(days=30), time_characteristic=TimeCharacteristic.EVENT_TIME)
    )
    count = ValueStateDescriptor("BIGINT")

    def process(
        self, key: tuple[Any, ...], rows: Iterator[Change], ctx: FunctionContext
    ) -> Iterable[Mapping[str, Any]]:
        """Take the newest event time of the rows; what is past its time already changes nothing."""
        last = self.seen.get()
        count = 0 if last is None else self.count.get() or 0
        for change in rows:
            count += 1
            if change.event_ms is not None and (last is None or change.event_ms > last):
                last = change.event_ms
                self.seen.update(last)
        if self.seen.get() is None:
            return
        self.count.update(count)
        if self.seen.ttl is not None:
            ctx.timers.register(last + self.seen.ttl.ttl_ms, TimeCharacteristic.EVENT_TIME)
        yield {"last_seen": datetime.fromtimestamp(last / 1000, UTC), "changes": count}

    def on_timer(self, key: tuple[Any, ...], time_ms: int, ctx: FunctionContext) -> Iterable[Mapping[str, Any]]:
        """Delete the row of a key whose state has expired."""
        if self.seen.get() is None:
            self.count.clear()
            yield ctx.delete({})


class Deduplicate(StatefulFunction):
    """Keeps the first row of each key; later ones count as repeats until its time to live, from the first, is over."""

    output = SOURCE_COLUMNS
    first = ValueStateDescriptor("BOOLEAN", StateTtlConfig(ttl=timedelta(days=7), update_type=UpdateType.ON_CREATE))

    def process(
        self, key: tuple[Any, ...], rows: Iterator[Change], ctx: FunctionContext
    ) -> Iterable[Mapping[str, Any]]:
        """Let the first row through; retractions are none."""
        for change in rows:
            if change.kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) and self.first.get() is None:
                self.first.update(True)
                yield change.row
