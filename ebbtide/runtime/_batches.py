"""The batches of a run, one after the other, in this process: planned, and made as steps.

Both engines make batches so: the local one by itself (`ebbtide.runtime._local`), Spark's in a streaming query
(`ebbtide.runtime._spark_stream`). A run of either continues after the last step. A plan is not stored: one that was not decided
is forgotten with its process, and the next run plans again behind the last step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

from ebbtide.runtime._following import Following
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._reading import PlannedBatch
from ebbtide.runtime._timing import Clock, InTurn, at_once
from ebbtide.sources import BatchPlanner

POLL_S = 1.0
"""Most seconds between two polls for the next batch in a continuous run."""


def nothing_between() -> None:
    """Do nothing while no batch is under way."""


@dataclass
class Query:
    """The batches of one stream.

    Args:
        plan: The pipeline.
        planner: Says where batches end.
        number: Number of the next batch, from 0.
        read: The offset up to which the source is read; None before the first batch.
        step: Makes the step of a batch.
        stop: Ends them after the batch under way.
        clock: Returns the time of planning a batch, epoch ms.
        following: With it only `stop` ends the batches.
        between: Called now and then while no batch is under way.
        hold: Called before each batch: waits until it may begin.
        wait: Waits for the next look, up to some seconds. Default: so long, or `interval_ms` if that is shorter.
        in_turn: Makes a batch, or a look between two, when it is the run's turn.
    """

    plan: Plan
    planner: BatchPlanner
    number: int
    read: dict[str, Any] | None
    step: Callable[[PlannedBatch], None]
    stop: threading.Event
    clock: Clock
    following: Following | None = None
    between: Callable[[], None] = nothing_between
    hold: Callable[[], None] = nothing_between
    in_turn: InTurn = at_once
    wait: Callable[[float], None] | None = None

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
        planned_at = batch_time or self._now
        while not self.stop.is_set():
            self.hold()
            number = self.in_turn(partial(self._turn, planned_at, within))
            if number is not None:
                yield number
            elif self.following is None:
                return
            elif self.wait is not None:
                self.wait(POLL_S)
            else:
                self.stop.wait(min(POLL_S, self.following.interval_ms / 1000))

    def _turn(self, planned_at: Callable[[int], int], within: Callable[[], AbstractContextManager[None]]) -> int | None:
        """Make the next batch; where nothing is left to read look whether anything comes. Return the batch's number."""
        if self.stop.is_set():  # while other runs had their turns
            return None
        with within():
            number = self._next(planned_at)
        if number is None and self.following is not None:
            self.between()
        return number

    def _next(self, planned_at: Callable[[int], int]) -> int | None:
        """Make the next batch; return its number, None if nothing is left to read."""
        # The first batch is made whether there is anything to read or not: its step notes where reading begins.
        end = self.planner.after(self.read)
        if end is None or end == self.read:
            return None
        number = self.number
        self.step(PlannedBatch(number, end, planned_at(number)))
        self.number, self.read = number + 1, end
        return number

    def _now(self, _: int) -> int:
        return self.clock()
