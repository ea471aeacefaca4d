"""Runs a pipeline in this process, without a JVM: the same steps, and the checkpoint that Spark keeps.

A run on Spark goes on where a local one has stopped, and the other way round. It is for what one process can hold: a step is
decided in shares, one after the other.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ebbtide.delta.commit import Puts
from ebbtide.errors import ConfigError
from ebbtide.ledger.checkpoint import Checkpoint
from ebbtide.ledger.puts import puts_of
from ebbtide.runtime.batches import Query
from ebbtide.runtime.clock import Clock
from ebbtide.sources.source import BatchPlanner
from ebbtide.spec.pipeline import Pipeline
from ebbtide.tasks import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POLL_S = 1.0
"""How often a run that goes on looks for the next batch, in seconds; more often if it is to be more often on Spark."""


def local_session() -> SparkSession:
    """Return what stands for a session where there is no JVM; see `ebbtide.tasks.LocalSession`."""
    return cast("SparkSession", LocalSession())


def refuse_spark_only(spec: Pipeline) -> None:
    """Refuse a pipeline some of whose work only Spark can do.

    Raises:
        ConfigError: it is a materialized view, has a transform, or has a sink that Spark writes.
    """
    reasons = {
        "a materialized view, whose query is Spark's": spec.is_view,
        "a transform, which Spark evaluates": spec.has_transform,
        "a sink that Spark writes (sink.write: merge)": spec.spark_makes_sink,
    }
    found = [reason for reason, is_so in reasons.items() if is_so]
    if found:
        raise ConfigError.of(
            f"'{spec.name}' cannot run without Spark.",
            got=", ".join(found),
            allowed="pipelines without any of these",
            next_step="Run it with --engine spark.",
        )


def batch_time(clock: Clock, batch_id: int) -> int:
    """Return when a batch is planned, epoch ms: its step's clock, also when the batch is made again."""
    return clock()


@dataclass(frozen=True)
class _Batches:
    """The batches of a run, planned and noted in the checkpoint's files.

    Args:
        checkpoint: The checkpoint.
        puts: Puts its files.
        planner: Says where batches end.
        clock: Returns the time, epoch ms.
    """

    checkpoint: Checkpoint
    puts: Puts
    planner: BatchPlanner
    clock: Clock

    def next(self) -> int | None:
        """Return the batch to make: one that is open, or the next, which is planned first; None if nothing is left to read."""
        checkpoint = self.checkpoint
        last = checkpoint.last_planned()
        if checkpoint.is_open:
            return last
        start = self.planner.initialOffset() if last is None else checkpoint.offsets(last).source
        end = self.planner.latestOffset(start, self.planner.getDefaultReadLimit())
        is_first = last is None  # it is made whether there is anything to read or not, as Spark does
        if end == start and not is_first:
            return None
        batch_id = 0 if last is None else last + 1
        checkpoint.plan(self.puts, batch_id, batch_time(self.clock, batch_id), json.dumps(end))
        return batch_id


def drive(session: LocalSession, query: Query) -> None:
    """Drive batches as Spark does: planned, made, noted as done; one that is open is made again first.

    Args:
        session: The session that stands for Spark's.
        query: The batches.
    """
    query.begun.set()
    checkpoint = query.plan.checkpoint
    puts = puts_of(checkpoint.path)
    planner = query.plan.source.planner(query.found, query.plan.at("plan.json"))
    checkpoint.begin(puts)
    batches = _Batches(checkpoint, puts, planner, query.clock)
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
