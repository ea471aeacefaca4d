"""Drives batches that Ebbtide plans by itself: of a run without a JVM, and of a materialized view. It keeps the checkpoint as Spark does.

A run on Spark goes on where a local one has stopped, and the other way round. A local run is for what one process can hold: a step
is decided in shares, one after the other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ebbtide.delta.commit import Puts
from ebbtide.ledger.checkpoint import Checkpoint
from ebbtide.ledger.puts import puts_of
from ebbtide.runtime.batches import Query
from ebbtide.sources.source import BatchPlanner
from ebbtide.tasks import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
"""The setting that Spark compares between the last two batches: it fails on one that has none (`OfflineStateRepartitionUtils`, 4.2)."""
POLL_S = 1.0
"""Seconds between two looks for the next batch, of a run that goes on; fewer where its trigger interval is shorter."""


def local_session(batch_time: Callable[[int], int] | None = None) -> SparkSession:
    """Return what stands for a session where there is no JVM; see `ebbtide.tasks.LocalSession`.

    Args:
        batch_time: Returns when a batch is planned, epoch ms, by its number: its step's clock. Default: the run's clock does; with
            one of its own a run can be repeated to the millisecond, as a test may want.
    """
    return cast("SparkSession", LocalSession(batch_time))


@dataclass(frozen=True)
class _Batches:
    """The batches of a run, planned and noted in the checkpoint's files.

    Args:
        checkpoint: The checkpoint.
        puts: Puts its files.
        planner: Says where batches end.
        batch_time: Returns when a batch is planned, by its number, epoch ms. It is the clock of the step, also when that is made again.
    """

    checkpoint: Checkpoint
    puts: Puts
    planner: BatchPlanner
    batch_time: Callable[[int], int]

    def next(self) -> int | None:
        """Return the batch to make: one that is open, or the next, which is planned first; None if nothing is left to read."""
        last = self.checkpoint.last_planned()
        if last is None:  # the first batch is made whether there is anything to read or not, as Spark does
            start = self.planner.initialOffset()
            return self._plan(0, self._end_behind(start), {PARTITIONS: str(os.cpu_count() or 1)})
        if last != self.checkpoint.last_committed():
            return last
        before = self.checkpoint.offsets(last)
        end = self._end_behind(before.source)
        return None if end == before.source else self._plan(last + 1, end, before.conf)

    def _end_behind(self, start: dict[str, Any]) -> dict[str, Any]:
        return self.planner.latestOffset(start, self.planner.getDefaultReadLimit())

    def _plan(self, batch_id: int, end: dict[str, Any], conf: Mapping[str, str]) -> int:
        """Note what a batch is made of; with the settings of the batch before, which Spark takes for the rest of the stream."""
        self.checkpoint.plan(self.puts, batch_id, self.batch_time(batch_id), json.dumps(end), conf)
        return batch_id


def drive(session: SparkSession | LocalSession, query: Query) -> None:
    """Drive batches as Spark does: planned, made, noted as done; one that is open is made again first.

    Args:
        session: The session that the steps are made with.
        query: The batches.
    """

    def at_clock(_: int) -> int:
        return query.clock()

    own_time = session.batch_time if isinstance(session, LocalSession) else None
    query.begun.set()
    checkpoint = query.plan.checkpoint
    puts = puts_of(checkpoint.path)
    planner = query.plan.source.planner(query.found, query.plan.at("plan.json"))
    checkpoint.begin(puts)
    batches = _Batches(checkpoint, puts, planner, own_time or at_clock)
    frame = cast("DataFrame", session.range(0))
    while not query.stop.is_set():
        batch_id = batches.next()
        if batch_id is not None:
            query.step(frame, batch_id)
            checkpoint.commit(puts, batch_id)
        elif query.following is None:
            return
        else:
            query.between()
            wait_s = min(POLL_S, query.following.interval_ms / 1000)
            query.stop.wait(wait_s)
