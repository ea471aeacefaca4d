"""Stateful functions that come with Ebbtide. A spec names them: `function: ebbtide.functions:LastSeen`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from ebbtide.columns import equality_key
from ebbtide.keyed_state import (
    Change,
    FunctionContext,
    MapStateDescriptor,
    StatefulFunction,
    StateTtlConfig,
    TimeCharacteristic,
    UpdateType,
    ValueStateDescriptor,
)
from ebbtide.materializer import OrderedMultiset, Row, Strategy
from ebbtide.stores import HeapStore

Rows = dict[int, Mapping[str, Any]]
"""A key's rows, by the number of their insertion."""


class LastSeen(StatefulFunction):
    """Gives per key when it was seen last, and how often since it was seen first.

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
        """Use the newest event time of the rows; a time that has already passed changes nothing."""
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
    """Keeps the first row of each key; later ones count as repeats until the first has expired.

    It is for inserts: retractions are only counted (`retractions`). `DeduplicateChangelog` takes them.
    """

    output = "*"
    first = ValueStateDescriptor("BOOLEAN", StateTtlConfig(ttl=timedelta(days=7), update_type=UpdateType.ON_CREATE))

    def process(
        self, key: tuple[Any, ...], rows: Iterator[Change], ctx: FunctionContext
    ) -> Iterable[Mapping[str, Any]]:
        """Let the first row through; a retraction is not a row."""
        for change in rows:
            if not change.kind.adds:
                ctx.count("retractions")
            elif self.first.get() is None:
                self.first.update(True)
                yield change.row


class DeduplicateChangelog(StatefulFunction):
    """Keeps the first row of each key that is not retracted. When it is retracted, the next one takes its place.

    All rows of a key are kept until the time to live of `first` has passed since the first of them; then the next row is a first
    one again. Give both states the same time. Retractions of rows that are not there are counted (`unmatched`).

    Source: FLIP-544, "Retraction-aware deduplication and similar use cases".

    Example:
        >>> from ebbtide import StatefulPipeline
        >>> from ebbtide.testing import MemoryPipeline
        >>> spec = StatefulPipeline(
        ...     name="t", source={"path": "in", "records": "value"}, format={"type": "plain"}, key=["user"],
        ...     schema="user STRING, day INT", function="ebbtide.functions:DeduplicateChangelog",
        ... )
        >>> pipeline = MemoryPipeline(spec)
        >>> pipeline.step([f'{{"kind": "+I", "row": {{"user": "ann", "day": {day}}}}}' for day in (7, 3, 5)])
        >>> pipeline.rows()
        [{'user': 'ann', 'day': 7}]
        >>> pipeline.step(['{"kind": "-D", "row": {"user": "ann", "day": 7}}'])
        >>> pipeline.rows()
        [{'user': 'ann', 'day': 3}]
    """

    output = "*"
    first = ValueStateDescriptor("BOOLEAN", StateTtlConfig(ttl=timedelta(days=7), update_type=UpdateType.ON_CREATE))
    rows = MapStateDescriptor(
        "*", StateTtlConfig(ttl=timedelta(days=7), update_type=UpdateType.ON_CREATE), key_type="BIGINT"
    )
    """By the number of its insertion."""

    def process(
        self, key: tuple[Any, ...], rows: Iterator[Change], ctx: FunctionContext
    ) -> Iterable[Mapping[str, Any]]:
        """Apply the key's changes to its rows; yield the first one if it is another now."""
        before: Rows = {}
        if self.first.get() is None:
            self.rows.clear()
        else:
            before = dict(sorted(self.rows.entries()))
        after = _applied(key, before, rows, ctx)
        _store(self, before, after)
        if not after:
            self.first.clear()
        elif self.first.get() is None:
            self.first.update(True)

        was_first = next(iter(before.items()), None)
        is_first = next(iter(after.items()), None)
        if is_first == was_first:
            return
        if is_first is not None:
            _, row = is_first
            yield row
        elif was_first is not None:
            _, row = was_first
            yield ctx.delete(row)


class LagLead(StatefulFunction):
    """Gives each row the rows before and after it among those of its key; retractions take rows out again.

    `output_key` must distinguish a key's rows. Retractions of rows that are not there are counted (`unmatched`). Rows that have
    expired stay in the sink; a row shows them as neighbours until new ones come.

    Args:
        lag: `lag` is the row so many places before; null if there is none.
        lead: `lead` is the row so many places after; null if there is none.
        order_by: Columns that order a key's rows, nulls first; rows equal in them are in order of insertion. Default: all are.

    Source: FLIP-544, "Retraction-aware deduplication and similar use cases".

    Example:
        >>> from ebbtide import StatefulPipeline
        >>> from ebbtide.testing import MemoryPipeline
        >>> spec = StatefulPipeline(
        ...     name="t", source={"path": "in", "records": "value"}, format={"type": "plain"}, key=["user"],
        ...     schema="user STRING, day INT", function="ebbtide.functions:LagLead", output_key=["user", "day"],
        ...     options={"order_by": ["day"]},
        ... )
        >>> pipeline = MemoryPipeline(spec)
        >>> pipeline.step([f'{{"kind": "+I", "row": {{"user": "ann", "day": {day}}}}}' for day in (7, 3, 5)])
        >>> [(row["day"], row["lag"] and row["lag"]["day"]) for row in pipeline.rows()]
        [(3, None), (5, 3), (7, 5)]
        >>> pipeline.step(['{"kind": "-D", "row": {"user": "ann", "day": 5}}'])
        >>> [(row["day"], row["lag"] and row["lag"]["day"]) for row in pipeline.rows()]
        [(3, None), (7, 3)]
    """

    output = "*, lag *, lead *"
    rows = MapStateDescriptor("*", key_type="BIGINT")
    """By the number of its insertion."""

    def __init__(self, *, lag: int = 1, lead: int = 1, order_by: Sequence[str] = ()) -> None:
        if min(lag, lead) < 0:
            raise ValueError(f"lag and lead count places; got {lag}, {lead}; allowed: 0 and more")
        self.lag = lag
        self.lead = lead
        self.order_by = tuple(order_by)

    def process(
        self, key: tuple[Any, ...], rows: Iterator[Change], ctx: FunctionContext
    ) -> Iterable[Mapping[str, Any]]:
        """Apply the key's changes to its rows; yield the rows that have other neighbours now, or are gone.

        Rows are numbered in the order of their insertion. All of a key are placed twice, before and after the changes,
        so that a step costs O(n log n) for n rows of the key, for any number of changes.
        """
        before: Rows = dict(sorted(self.rows.entries()))
        after = _applied(key, before, rows, ctx)
        _store(self, before, after)

        gone = [before[number] for number in before.keys() - after.keys()]
        yield from map(ctx.delete, gone)

        # A row is given if it or its neighbours are new, or if a row under its own output key was deleted just now.
        deleted_keys = {_output_key(row, ctx) for row in gone}
        placed_before = self._placed(before)
        for number, row in self._placed(after).items():
            if placed_before.get(number) != row or _output_key(row, ctx) in deleted_keys:
                yield row

    def _placed(self, rows: Rows) -> Rows:
        """Return rows with their neighbours, in order."""

        def position(number: int) -> list[tuple[bool, Any]]:
            row = rows[number]
            return [(row[name] is not None, row[name]) for name in self.order_by]

        ordered = sorted(rows, key=position)
        lags = [*[None] * self.lag, *ordered]
        leads = [*ordered[self.lead :], *[None] * self.lead]
        placed: Rows = {}
        for number, lag, lead in zip(ordered, lags, leads, strict=False):
            neighbours = {
                "lag": None if lag is None else rows[lag],
                "lead": None if lead is None else rows[lead],
            }
            placed[number] = {**rows[number], **neighbours}
        return placed


def _store(function: DeduplicateChangelog | LagLead, before: Rows, after: Rows) -> None:
    """Store the rows that a key has now: rows come and go, and none changes under its number."""
    for number in before.keys() - after.keys():
        function.rows.remove(number)
    for number in after.keys() - before.keys():
        function.rows.put(number, after[number])


def _applied(key: tuple[Any, ...], before: Rows, changes: Iterable[Change], ctx: FunctionContext) -> Rows:
    """Return a key's rows after its changes; a retraction takes out an equal row."""
    live = OrderedMultiset(HeapStore(), Strategy.MAP, identify=_without_number)
    for number, row in before.items():
        live.add(key, (number, *row.values()))
    known = dict(before)
    next_number = max(before, default=-1) + 1
    for number, change in enumerate(changes, start=next_number):
        numbered: Row = (number, *change.row.values())
        if change.kind.adds:
            live.add(key, numbered)
            known[number] = change.row
        elif live.remove(key, numbered) is None:
            ctx.count("unmatched")
    live_numbers = [element.row[0] for element in live.elements(key)]
    return {number: known[number] for number in live_numbers}


def _output_key(row: Mapping[str, Any], ctx: FunctionContext) -> Any:
    return equality_key(row[name] for name in ctx.output_key)


def _without_number(row: Row) -> Row:
    return equality_key(row[1:])
