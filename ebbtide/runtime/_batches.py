"""The batches of a run, one after the other, in this process: planned, made as steps, and noted in the checkpoint.

Both engines make batches so: the local one by itself (`ebbtide.runtime._local`), Spark's in a streaming query
(`ebbtide.runtime._spark_stream`). A run of either goes on where one of the other has stopped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ebbtide.delta import Writer
from ebbtide.ledger import Checkpoint, writer_of
from ebbtide.runtime._clock import Clock
from ebbtide.runtime._following import Following
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._slots import InTurn, at_once
from ebbtide.sources import BatchPlanner

POLL_S = 1.0
"""Seconds between two looks for the next batch, of a run that goes on; fewer where its trigger interval is shorter."""


def nothing_between() -> None:
    """Do nothing while no batch is under way."""


@dataclass(frozen=True)
class Query:
    """The batches of one stream.

    Args:
        plan: The pipeline.
        planner: Says where batches end.
        step: Makes the step of a batch.
        stop: Ends them after the batch under way.
        clock: Returns the time, epoch ms: of a batch as it is planned.
        following: With it only `stop` ends the batches.
        between: Called now and then while no batch is under way.
        ahead: Called before a batch is noted as planned: begins what its step asks first.
        hold: Called before each batch: waits until it may begin.
        in_turn: Makes a batch, or a look between two, when it is the run's turn.
    """

    plan: Plan
    planner: BatchPlanner
    step: Callable[[int], None]
    stop: threading.Event
    clock: Clock
    following: Following | None = None
    between: Callable[[], None] = nothing_between
    ahead: Callable[[], None] = nothing_between
    hold: Callable[[], None] = nothing_between
    in_turn: InTurn = at_once

    def made(
        self,
        batch_time: Callable[[int], int] | None = None,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[int]:
        """Make the batches; yield the number of each once it is finished.

        Args:
            batch_time: Returns when a batch is planned, by its number, epoch ms. Default: `clock` does.
            within: Each batch is planned and made within it.
        """
        checkpoint = self.plan.checkpoint
        puts = writer_of(checkpoint.path)
        checkpoint.begin(puts)
        batches = _Batches(checkpoint, puts, self.planner, batch_time or self._now, self.ahead)
        while not self.stop.is_set():
            self.hold()
            batch_id = self.in_turn(partial(self._turn, batches, within))
            if batch_id is not None:
                yield batch_id
            elif self.following is None:
                return
            else:
                wait_s = min(POLL_S, self.following.interval_ms / 1000)
                self.stop.wait(wait_s)

    def _turn(self, batches: _Batches, within: Callable[[], AbstractContextManager[None]]) -> int | None:
        """Make the next batch; where nothing is left to read look whether anything comes. Return the batch's number."""
        if self.stop.is_set():  # while other runs had their turns
            return None
        with within():
            batch_id = self._next(batches)
        if batch_id is None and self.following is not None:
            self.between()
        return batch_id

    def _next(self, batches: _Batches) -> int | None:
        """Make the next batch; return its number, None if nothing is left to read."""
        batch_id = batches.next()
        if batch_id is not None:
            self.step(batch_id)
            batches.finish(batch_id)
        return batch_id

    def _now(self, _: int) -> int:
        return self.clock()


@dataclass
class _Batches:
    """The batches of a run, planned and noted in the checkpoint's files.

    Args:
        checkpoint: The checkpoint.
        puts: Puts its files.
        planner: Says where batches end.
        batch_time: Returns when a batch is planned, by its number, epoch ms. It is the clock of the step, also when that is made again.
        ahead: See `Query`.
    """

    checkpoint: Checkpoint
    puts: Writer
    planner: BatchPlanner
    batch_time: Callable[[int], int]
    ahead: Callable[[], None]
    _finished: tuple[int, dict[str, Any]] | None = field(default=None, init=False)
    """The last finished batch and the offsets at its end, while nothing further is planned."""
    _planned: tuple[int, dict[str, Any]] | None = field(default=None, init=False)
    """The batch under way and the offsets at its end, where this run has planned it."""

    def next(self) -> int | None:
        """Return the batch to make: one that is open, or the next, which is planned first; None if nothing is left to read."""
        # The folder is listed once, before the first batch. That is enough: only the holder of the lease adds to it, a step begins
        # with a check of the lease, and it reads its offsets from the file, whichever process has planned them.
        if self._finished is None:
            last = self.checkpoint.last_planned()
            if last is None:
                # The first batch is made whether there is anything to read or not: its step notes where reading begins.
                return self._plan(0, self.planner.after(None))
            if last != self.checkpoint.last_committed():
                return last
            self._finished = last, self.checkpoint.offsets(last).source
        last, before = self._finished
        end = self.planner.after(before)
        return None if end == before else self._plan(last + 1, end)

    def finish(self, batch_id: int) -> None:
        """Note that a batch is finished."""
        self.checkpoint.commit(self.puts, batch_id)
        self._finished, self._planned = self._planned, None

    def _plan(self, batch_id: int, end: dict[str, Any]) -> int:
        """Note what a batch is made of."""
        text = json.dumps(end)
        self.ahead()
        is_ours = self.checkpoint.plan(self.puts, batch_id, self.batch_time(batch_id), text)
        # What another process has planned is read from its file.
        self._planned = (batch_id, json.loads(text)) if is_ours else None
        return batch_id
