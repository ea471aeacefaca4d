"""Drives Spark's micro-batches: each is a step, and between two of them the run may look around, or be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.errors import EbbtideError
from ebbtide.runtime.callbacks import CallbackConnection
from ebbtide.runtime.clock import Clock
from ebbtide.runtime.following import Following
from ebbtide.runtime.plan import Plan
from ebbtide.sources.source import Discovery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def nothing_between() -> None:
    """Do nothing while no batch is under way."""


def _refuse_step(frame: DataFrame, batch_id: int) -> None:
    """Refuse a batch of a query that has ended."""
    raise InterruptedError("the query has ended")


@dataclass(frozen=True)
class Query:
    """The batches of one stream, for a driver: Spark's, or the local one (`ebbtide.runtime.local`).

    Args:
        plan: The pipeline.
        found: What there is to read.
        step: Makes the step of a batch.
        begun: Set with the first batch.
        stop: Ends it after the batch under way.
        clock: Returns the time, epoch ms.
        following: With it only `stop` ends the batches.
        between: Called now and then while no batch is under way.
    """

    plan: Plan
    found: Discovery
    step: Callable[[DataFrame, int], None]
    begun: threading.Event
    stop: threading.Event
    clock: Clock
    following: Following | None = None
    between: Callable[[], None] = nothing_between


def drive(spark: SparkSession, query: Query) -> None:
    """Drive Spark's micro-batches until the source is read up, or the run is stopped.

    Args:
        spark: The session.
        query: The batches.
    """
    plan = query.plan
    batches = Batches(query.step, query.between, query.stop, query.begun)
    frame = plan.source.stream(spark, query.found, plan.at("plan.json"))
    connection = CallbackConnection(spark)
    writer = frame.writeStream.foreachBatch(connection.noted(batches.on_batch))
    writer = writer.queryName(plan.spec.name)
    writer = writer.option("checkpointLocation", plan.checkpoint.path)
    if query.following is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{query.following.interval_ms} milliseconds")
    streaming_query = writer.start()
    try:
        batches.drive(streaming_query, plan.spec.name)
    finally:
        connection.close()


class Batches:
    """The micro-batches of one query.

    Args:
        step: Makes the step of a batch.
        between: Called now and then while no batch is under way.
        stop: Set it to end the query after the batch under way.
        begun: Set with the first batch.
    """

    def __init__(
        self,
        step: Callable[[DataFrame, int], None],
        between: Callable[[], None],
        stop: threading.Event,
        begun: threading.Event,
    ) -> None:
        self._step = step
        self._between = between
        self._stop = stop
        self._begun = begun
        self._failure: list[BaseException] = []
        self._reported: list[BaseException] = []
        self._idle = threading.Event()
        self._idle.set()
        self._turn = threading.Lock()

    @property
    def _is_over(self) -> bool:
        return self._stop.is_set() or bool(self._failure)

    def on_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Make a batch's step; Spark calls it.

        Raises:
            InterruptedError: the step failed, or the query is to end. What failed is raised by `drive`.
        """
        self._begun.set()
        self._idle.clear()  # before `stop` is looked at: a thread that sees it set and us idle knows that no step will begin
        is_made = False
        try:
            with self._turn:
                self._step_unless_over(frame, batch_id)
            is_made = True
        except BaseException as error:  # noqa: BLE001 - raised by `drive`
            self._failure.append(error)
        finally:
            # Free memory that Arrow keeps for this thread would stay with it: the query's thread may sleep long after the query has ended.
            pa.default_memory_pool().release_unused()
            self._idle.set()
        if not is_made:
            self._end_query()

    def _end_query(self) -> None:
        """Raise for Spark. It keeps what is raised, which is not the failure: that one has the run's tables in the frames of its traceback."""
        failure = self._failure[0]
        reported = InterruptedError(f"{type(failure).__name__}: {failure}")
        self._reported.append(reported)
        raise reported

    def _step_unless_over(self, frame: DataFrame, batch_id: int) -> None:
        if self._is_over:
            raise InterruptedError("stopped between steps")
        self._step(frame, batch_id)

    def drive(self, query: StreamingQuery, name: str) -> None:
        """Wait for the end of the query; raise what ended it.

        Another thread waits for it, so that an interrupt of this one never cuts a call into the JVM in two.
        """
        done = threading.Event()

        def wait() -> None:
            try:
                query.awaitTermination()
            except Exception as error:  # noqa: BLE001 - raised again below, on the thread that waits
                self._failure.append(error)
            finally:
                done.set()

        waiter = threading.Thread(target=wait, daemon=True, name=f"query-{name}")
        waiter.start()
        while not done.wait(0.1):
            if not self._is_over:
                self._look()
            elif self._idle.is_set():
                query.stop()
        first = self._failure[0] if self._failure else None
        self._let_go()
        is_stop = self._stop.is_set() and isinstance(first, InterruptedError)
        if first is not None and not is_stop:
            raise EbbtideError.within(first) or first

    def _let_go(self) -> None:
        """Hold nothing of the run any more: the JVM holds this object for as long as it likes, a run's tables with it."""
        self._step = _refuse_step
        self._between = lambda: None
        self._failure = []
        # Spark's frame in the traceback has the batch, by which the JVM and this process would hold each other forever.
        for reported in self._reported:
            reported.__traceback__ = None

    def _look(self) -> None:
        """Look around, unless a batch is under way."""
        if not self._turn.acquire(blocking=False):
            return
        try:
            self._between()
        except Exception as error:  # noqa: BLE001 - raised again once the query has ended
            self._failure.append(error)
        finally:
            self._turn.release()
