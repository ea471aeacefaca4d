"""The query of a pipeline whose rows a function of the project makes: it hands its micro-batches over to a run, one after the other.

Spark calls with each micro-batch, in a thread of the query. That thread does the jobs on its rows, and returns once the run asks for what
comes after it: Spark notes a micro-batch as done only behind the step that has applied it. The query's checkpoint is in the pipeline's folder, and is found
again by the query's id, which is stored with each step.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from importlib import import_module
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from pyspark.errors import PySparkException

from ebbtide.errors import ConfigError, EbbtideError, SourceLostError, SourceReadError
from ebbtide.redaction import printable
from ebbtide.sessions import CallbackConnection
from ebbtide.sources import HandedRows, MicroBatches, Span
from ebbtide.storage import Location

if TYPE_CHECKING:
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

CHECKPOINTS = "query"
"""Folder of checkpoints in that of a pipeline."""
LOOK_S = 0.2
"""Seconds between two looks whether the query still runs."""
ENDS_WITHIN_S = 600
"""Seconds within which a stopped query has to end."""


class _AbandonedError(Exception):
    """Ends a query whose micro-batch was not applied: the next run gets it again."""


class FunctionQuery(MicroBatches):
    """The micro-batches of the query, which starts when the first one is asked for. In a `with` block, which ends the query.

    Args:
        pipeline: Name of the pipeline.
        function: `module:name` of the function.
        home: Folder of the pipeline's tables.
        session: Returns Spark's session.
        every_ms: Least time from one micro-batch to the next; None: the query ends once it has read all that was there.
        reads_twice: A step may read its rows twice, which must be the same ones.
    """

    def __init__(
        self,
        pipeline: str,
        function: str,
        home: str,
        session: Callable[[], SparkSession],
        *,
        every_ms: int | None,
        reads_twice: bool,
    ) -> None:
        self._pipeline = pipeline
        self._function = function
        self._checkpoints = Location(home) / CHECKPOINTS
        self._session = session
        self._every_ms = every_ms
        self._reads_twice = reads_twice
        self._running: _Running | None = None
        self._owner: int | None = None

    def __enter__(self) -> Self:
        """Have this thread, that of the run, ask for micro-batches; nothing starts yet."""
        self._owner = threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        """End the query."""
        self._owner = None
        self._end()

    def after(self, since: Span | None) -> HandedRows | None:
        """See `MicroBatches`. Waits for a micro-batch, unless the query is one that never ends.

        Another thread, as that of a server of metrics, gets none: asking lets go of what was applied, and may start the query.
        """
        if threading.get_ident() != self._owner:
            return None
        running = self._running_from(since)
        n_applied = 0 if since is None else max(since.end.values(), default=0)
        while True:
            rows = running.handed_over()
            if rows is not None and rows.batch >= n_applied:
                return rows
            if rows is not None:
                running.let_go()
            elif running.has_ended() or self._every_ms is not None:
                return None

    def _running_from(self, since: Span | None) -> _Running:
        """Return the query, as it continues behind a place; it starts if it does not run."""
        query = None if since is None else since.identity.get("query")
        running = self._running
        if running is None or query not in (None, running.id):
            self._end()
            running = self._running = self._started(query)
        return running

    def _started(self, query: str | None) -> _Running:
        """Start the query with its checkpoint; without one a new query, and drop the checkpoints of those before."""
        checkpoint = self._checkpoint_of(query) if query else None
        if query and checkpoint is None:
            raise self._without_checkpoint(query)
        if checkpoint is None:
            self._checkpoints.delete()
            checkpoint = self._checkpoints / uuid.uuid4().hex
        frame = self._made_by_function()
        if checkpoint.is_local:
            checkpoint = Location(f"file://{checkpoint}")  # Spark's default file system may be another one
        return _Running(self._pipeline, frame, checkpoint, self._every_ms, reads_twice=self._reads_twice)

    def _checkpoint_of(self, query: str) -> Location | None:
        for name in self._checkpoints.subfolders():
            checkpoint = self._checkpoints / name
            metadata = (checkpoint / "metadata").read_bytes()
            if metadata and json.loads(metadata)["id"] == query:
                return checkpoint
        return None

    def _made_by_function(self) -> DataFrame:
        """Call the function.

        Raises:
            ConfigError: it cannot be called, or makes no stream.
        """
        spark = self._session()
        module, _, name = self._function.partition(":")
        try:
            frame = getattr(import_module(module), name)(spark)
        except EbbtideError:
            raise
        except Exception as error:  # code of a user may raise anything
            raise self._no_stream(f"{type(error).__name__}: {printable(str(error))}") from error
        if not getattr(frame, "isStreaming", False):
            raise self._no_stream(f"{type(frame).__name__} that is no stream")
        return frame  # type: ignore[no-any-return]

    def _end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def _no_stream(self, got: str) -> ConfigError:
        return ConfigError.of(
            f"The function '{self._function}' of '{self._pipeline}' gives no rows.",
            got=got,
            allowed="def name(spark) that returns a streaming DataFrame, as of spark.readStream",
            next_step="Correct the function, or source.function in the spec.",
        )

    def _without_checkpoint(self, query: str) -> SourceLostError:
        return SourceLostError.of(
            f"The query of '{self._pipeline}' cannot be continued: its checkpoint is not there.",
            got=f"no checkpoint of query '{query}' in '{self._checkpoints}'",
            allowed="the checkpoint that the last step was read with",
            next_step="Restore the folder. Else 'ebbtide run --accept-loss' begins a new query, whose rows may repeat earlier ones, "
            "and 'ebbtide refresh' rebuilds the sink from one.",
        )


class _Running:
    """The query while it runs; arguments as `FunctionQuery`.

    Args:
        frame: The stream.
        checkpoint: Folder of its checkpoint.
    """

    def __init__(
        self, pipeline: str, frame: DataFrame, checkpoint: str, every_ms: int | None, *, reads_twice: bool
    ) -> None:
        self.pipeline = pipeline
        self._ends = every_ms is None
        self._reads_twice = reads_twice
        self._handed: _Handed | None = None
        self._came = threading.Event()
        self._is_over = False
        self._connection = CallbackConnection(frame.sparkSession)
        writer = frame.writeStream.foreachBatch(self._connection.noted(self._hand_over)).queryName(pipeline)
        writer = writer.option("checkpointLocation", checkpoint)
        trigger: dict[str, Any] = (
            {"availableNow": True} if self._ends else {"processingTime": f"{every_ms} milliseconds"}
        )
        self._query = writer.trigger(**trigger).start()

    @property
    def id(self) -> str:
        """Its id, which stays the same with its checkpoint."""
        return str(self._query.id)

    def handed_over(self) -> HandedRows | None:
        """Return the micro-batch that is handed over; None if there is none after a short wait."""
        if not self._came.wait(LOOK_S) or self._handed is None:
            return None
        return HandedRows(self._handed.frame, self.id, self._handed.number, perform=self._handed.perform)

    def let_go(self) -> None:
        """Have Spark note the micro-batch as done, and make the next one."""
        handed, self._handed = self._handed, None
        self._came.clear()
        if handed is not None:
            handed.let_go()

    def has_ended(self) -> bool:
        """Return whether the query has read all that was there.

        Raises:
            SourceReadError: it has failed.
        """
        if self._query.isActive or self._came.is_set():
            return False
        failure = self._query.exception()
        if failure is not None or not self._ends:
            raise _failed(self.pipeline, failure or "it was stopped")
        return True

    def end(self) -> None:
        """End the query; a micro-batch that was not let go is made again by the next run."""
        self._is_over = True
        if self._handed is not None:
            self._handed.abandon()
        self._query.stop()
        with suppress(PySparkException):  # a failure was raised before, or is that of an abandoned micro-batch
            self._query.awaitTermination(ENDS_WITHIN_S)
        self._connection.close()

    def _hand_over(self, frame: DataFrame, number: int) -> None:
        """Hand a micro-batch over, and do the jobs on it; Spark calls it."""
        if self._is_over:
            raise _AbandonedError
        handed = _Handed(self.pipeline, frame, number)
        if self._reads_twice:
            frame.persist()
        try:
            self._handed = handed
            self._came.set()
            handed.serve()
        finally:
            if self._reads_twice:
                frame.unpersist()


Job = Callable[[], None]


@dataclass
class _Handed:
    """A micro-batch that waits for its step.

    Args:
        pipeline: Name of the pipeline.
        frame: Its rows.
        number: Its number.
    """

    pipeline: str
    frame: DataFrame
    number: int
    _jobs: SimpleQueue[Job | None] = field(default_factory=SimpleQueue)
    _was_read: bool = False
    _is_abandoned: bool = False

    def perform(self, job: Callable[[], list[str]]) -> list[str]:
        """Have a job done in the thread of the query; return its result.

        Raises:
            SourceReadError: the rows cannot be made.
        """
        result: Future[list[str]] = Future()
        context = copy_context()

        def done() -> None:
            try:
                result.set_result(context.run(job))
            except PySparkException as error:
                result.set_exception(EbbtideError.within(error) or _failed(self.pipeline, error))
            except BaseException as error:  # noqa: BLE001 - raised where the result is awaited
                result.set_exception(error)

        self._jobs.put(done)
        rows = result.result()
        self._was_read = True
        return rows

    def serve(self) -> None:
        """Do jobs until the micro-batch is let go.

        Raises:
            _AbandonedError: it is not applied.
        """
        while (job := self._jobs.get()) is not None:
            job()
        if self._is_abandoned:
            raise _AbandonedError
        if not self._was_read:
            # Applied by an earlier run: but the query's own state, as of a join, advances only by rows that are computed.
            self.frame.write.format("noop").mode("overwrite").save()

    def let_go(self) -> None:
        """End the jobs: the micro-batch is applied."""
        self._jobs.put(None)

    def abandon(self) -> None:
        """End the jobs, and the query with them."""
        self._is_abandoned = True
        self._jobs.put(None)


def _failed(pipeline: str, failure: PySparkException | str) -> SourceReadError:
    return SourceReadError.of(
        f"The query of '{pipeline}' has failed.",
        got=printable(str(failure)),
        next_step="Correct its function or what it reads; the next run goes on with the micro-batch that failed.",
    )
