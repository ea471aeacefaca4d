"""Makes the batches of a run in a streaming query of Spark: each of its micro-batches makes one.

The query's source is Spark's own `rate-micro-batch`, whose rows no step reads: it begins the next micro-batch once the last has ended. What a
batch reads is planned by this process (`ebbtide.runtime`); Spark's checkpoint is thrown away with the query. So Spark starts no Python process to plan a source, and a run waits for none.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

import pyarrow as pa

from ebbtide.errors import EbbtideError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ENDS_WITHIN_S = 600
"""Seconds within which a stopped query has to end; `stop` raises an error behind that (`spark.sql.streaming.stopTimeout`)."""
LOOK_S = 1.0
"""Seconds between two looks whether another part of the program has stopped the query."""
PAUSE_S = 0.05
"""Seconds of a micro-batch that has nothing to do."""


def drive(spark: SparkSession, name: str, made: Iterable[int], stop: threading.Event) -> None:
    """Make batches until nothing is left to read, or the run is stopped; arguments as `Executor.drive`."""
    batches = MicroBatches(iter(made), stop)
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    from ebbtide.sessions._callbacks import CallbackConnection  # loads PySpark

    connection = CallbackConnection(spark)
    with tempfile.TemporaryDirectory(prefix="ebbtide-stream-", ignore_cleanup_errors=True) as thrown_away:
        writer = ticks.writeStream.foreachBatch(connection.noted(batches.on_batch)).queryName(name)
        writer = writer.option("checkpointLocation", f"file://{thrown_away}")
        streaming_query = writer.trigger(processingTime="0 seconds").start()
        try:
            batches.wait(streaming_query, name)
        finally:
            connection.close()


class MicroBatches:
    """The micro-batches of one query.

    Args:
        made: Makes a batch of the run each time that it is asked for the next.
        stop: Ends the run after the batch under way.
    """

    def __init__(self, made: Iterator[int], stop: threading.Event) -> None:
        self._made = made
        self._stop = stop
        self._context = copy_context()  # Spark calls from another thread: the run's context applies there too
        self._turn = threading.Lock()
        self._is_over = threading.Event()
        self._failure: BaseException | None = None

    def on_batch(self, frame: DataFrame, micro_batch: int) -> None:
        """Make the next batch of the run; Spark calls it. A failure is kept for `wait`, which ends the query."""
        if self._is_over.is_set():
            time.sleep(PAUSE_S)  # the query is about to be stopped
            return
        batch_id = None
        try:
            with self._turn:
                batch_id = self._context.run(next, self._made, None)
        except BaseException as error:  # noqa: BLE001 - raised by `wait`
            self._failure = error
        finally:
            # Free memory that Arrow keeps for this thread would stay with it: the query's thread may sleep long after the query has ended.
            pa.default_memory_pool().release_unused()
        if batch_id is None:
            self._is_over.set()

    def wait(self, query: StreamingQuery, name: str) -> None:
        """Wait until the run is over, and end the query; raise what failed.

        Another thread waits for the query, so that an interrupt of this one never cuts a call into the JVM in two.

        Args:
            query: The query.
            name: The pipeline's.
        """
        ended = threading.Event()

        def end() -> None:
            try:
                self._end(query)
            except Exception as error:  # noqa: BLE001 - raised again below, on the thread that waits
                self._failure = self._failure or error
            finally:
                ended.set()

        threading.Thread(target=end, daemon=True, name=f"query-{name}").start()
        try:
            ended.wait()
        except BaseException:
            self._stop.set()
            raise
        failure = self._failure
        self._let_go()
        if failure is not None:
            raise EbbtideError.within(failure) or failure

    def _end(self, query: StreamingQuery) -> None:
        """Stop the query once the run is over. A query that failed, or that another part of the program has stopped, ends the run."""
        try:
            while not self._is_over.wait(LOOK_S):
                if not query.isActive:
                    break
        finally:
            if not self._is_over.is_set():
                self._stop.set()
                with self._turn:  # no step continues after the run has ended
                    self._is_over.set()
        query.stop()
        query.awaitTermination(ENDS_WITHIN_S)

    def _let_go(self) -> None:
        """Release the run: the JVM may hold this object, and with it a run's tables, for any time."""
        self._made = iter(())
        self._context = Context()
        self._failure = None
