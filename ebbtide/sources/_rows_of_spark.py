"""Rows that a query of Spark hands over, a micro-batch at a time: a source whose only partition has the numbers of micro-batches as offsets.

The position in a step's facts is the query's id and the number of the next micro-batch. So each is applied once, also one that is handed over again.
The query is a program's, which makes a run for each micro-batch, or one that a run starts for the pipeline's function.
Importing this loads no Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import pyarrow as pa

from ebbtide.errors import SourceLostError
from ebbtide.formats import PLACED_RECORDS
from ebbtide.sources._available import Available
from ebbtide.sources._positioned import PositionedSource, ReadSpan, SourceSettings
from ebbtide.sources._source import Backlog, BatchPlanner, Discovery, SourceBatch, Work
from ebbtide.sources._span import Span

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ebbtide.executors import Executor

PARTITION = 0
"""The source's only partition."""
BATCH_BITS = 32
"""Bits of a row's offset that are its number within its task; those above are the number of the micro-batch."""
AS_JSON = {"ignoreNullFields": "false", "timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
"""Options of rows that Spark writes as JSON: exact to the microsecond, with the fields that are null."""


Result = TypeVar("Result")
Perform = Callable[[Callable[[], Result]], Result]


def in_this_thread(job: Callable[[], Result]) -> Result:
    """Do a job on a micro-batch's rows, where Spark has called."""
    return job()


class MicroBatches(ABC):
    """The micro-batches of a query, one after the other."""

    @abstractmethod
    def after(self, since: Span | None) -> HandedRows | None:
        """Return the micro-batch that is handed over now, once those up to a place are applied; None: there is none.

        Args:
            since: The place; None: nothing was read.

        Raises:
            SourceLostError: the query cannot be continued.
            SourceReadError: the query has failed.
        """

    @staticmethod
    def source(batches: MicroBatches | None, settings: SourceSettings, *, begins_query: bool) -> PositionedSource:
        """Return the source that reads micro-batches; arguments as `RowsOfSpark`."""
        return RowsOfSpark(batches, settings, begins_query=begins_query)


@dataclass(frozen=True)
class HandedRows(MicroBatches):
    """The rows of a micro-batch.

    Args:
        frame: The rows.
        query: Id of the query.
        batch: Number of the micro-batch, from 0.
        is_new_query: The query may be another one than before.
        perform: Does a job of Spark on the rows, in the thread of the query: it counts as the query's.
    """

    frame: DataFrame
    query: str
    batch: int
    is_new_query: bool = False
    perform: Perform[list[str]] = in_this_thread

    @property
    def span(self) -> Span:
        """Its place."""
        return Span({"query": self.query}, {PARTITION: self.batch}, {PARTITION: self.batch + 1})

    def after(self, since: Span | None) -> Self:
        """See `MicroBatches`: a program hands over one at a time."""
        return self


class RowsOfSpark(PositionedSource):
    """Reads the rows of micro-batches.

    Args:
        batches: The micro-batches; None: the pipeline is only looked at.
        settings: The common settings.
        begins_query: A run starts the query.
    """

    def __init__(self, batches: MicroBatches | None, settings: SourceSettings, *, begins_query: bool) -> None:
        self._batches = batches
        self._begins_query = begins_query
        self.settings = settings

    def available(self) -> Available:
        """See `PositionedSource`: the micro-batch that is handed over."""
        rows = self._batches.after(None) if self._batches else None
        if rows is None:
            return Available("a query without rows", {}, {}, {})
        return Available(f"query '{rows.query}'", rows.span.identity, rows.span.start, rows.span.end)

    def refuse_absent(self) -> None:
        """See `Source`: what a query has is known once it runs."""

    def reader(self, max_record_bytes: int) -> ReadSpan:
        """See `PositionedSource`: rows are read by the tasks of their query, not by their place."""
        raise NotImplementedError("rows of Spark are read by their query")

    def discover(self, read: Mapping[str, int | None], now_ms: int, since: Span | None = None) -> Discovery:
        """See `Source`.

        Raises:
            SourceLostError: the query is another one, or a micro-batch was left out.
        """
        if self._batches is None:
            return Discovery(streams=True)  # only the query knows
        rows = self._batches.after(since)
        if rows is None:
            return Discovery(span=_nothing_after(since))
        if since is None:
            return Discovery(streams=True, span=rows.span)
        if since.identity != rows.span.identity:
            if not rows.is_new_query:
                raise _other_query(self.settings.pipeline, rows, since)
            return Discovery(streams=True, span=rows.span)
        expected = since.end[PARTITION]
        if rows.batch > expected:
            raise _left_out(self.settings.pipeline, rows, expected, begins_query=self._begins_query)
        is_new = rows.batch == expected
        # A micro-batch that was handed over before has nothing to read; a step that died behind its decision is finished.
        return Discovery(streams=is_new, span=rows.span if is_new else _nothing_after(since))

    def gone(self, read: Mapping[str, int | None], span: Span | None) -> str | None:
        """See `Source`: a query hands over no micro-batch twice once it was applied; that of a function begins again."""
        if self._begins_query or span is None or span.size == 0:
            return None
        return f"{span.size} micro-batches of {span.source_text}"

    def planner(self, found: Discovery, location: str) -> BatchPlanner:
        """See `Source`."""
        return _Planner(self)

    def backlog(self, found: Discovery) -> Backlog:
        """See `Source`."""
        return Backlog(is_unknown=self._begins_query and found.streams)

    def batch(self, executor: Executor, offset: Any, max_record_bytes: int) -> SourceBatch:
        """See `Source`."""
        span = Span.from_json(offset)
        batches = cast("MicroBatches", self._batches)  # a run has them, and the planner has seen this one
        rows = batches.after(Span(span.identity, span.start, span.start))
        return SourceBatch(_Rows(cast("HandedRows", rows)), span=span)


@dataclass(frozen=True)
class _Planner:
    """Plans a batch for each micro-batch, until the query has no more."""

    source: RowsOfSpark

    def note(self, found: Discovery) -> None:
        """See `BatchPlanner`: the query is asked for each batch."""

    def after(self, last: dict[str, Any] | None) -> dict[str, Any] | None:
        """See `BatchPlanner`."""
        found = self.source.discover({}, 0, Span.from_stored(last))
        if found.span is None or not found.streams:
            return last
        return found.span.to_json()


@dataclass(frozen=True)
class _Rows:
    """The rows as records, divided as the query's tasks have them."""

    rows: HandedRows

    def run(self, work: Work) -> list[str]:
        """See `Records`."""
        from pyspark.sql import functions as F

        frame, query, batch = self.rows.frame, self.rows.query, self.rows.batch

        def staged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            task = TaskContext.get()
            partition = 0 if task is None else task.partitionId()
            result = work(_placed(batches, query, partition, batch))
            if result is not None:
                yield pa.record_batch({"result": [result]})

        record = F.to_json(F.struct("*"), AS_JSON)
        results = frame.select(record.alias("value")).mapInArrow(staged, "result string")
        return self.rows.perform(lambda: [row["result"] for row in results.collect()])


def _nothing_after(since: Span | None) -> Span | None:
    return None if since is None else Span(since.identity, since.end, since.end)


def _placed(batches: Iterable[pa.RecordBatch], query: str, partition: int, batch: int) -> Iterator[pa.RecordBatch]:
    """Yield rows, as JSON, as records with their places.

    Args:
        batches: Rows of a task: `value`.
        query: Id of the query.
        partition: Number of the task.
        batch: Number of the micro-batch.
    """
    line = 0
    first_offset = batch << BATCH_BITS
    for rows in batches:
        n = len(rows)
        if not n:
            continue
        lines = pa.array(range(line, line + n), pa.int64())
        columns = {
            "file": pa.repeat(query, n),
            "part": pa.repeat(partition, n),
            "line": lines,
            "value": rows.column("value").cast(pa.binary()),
            "partition": pa.repeat(partition, n),
            "offset": pa.array(range(first_offset + line, first_offset + line + n), pa.int64()),
        }
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(n, field.type)
            for field in PLACED_RECORDS
        ]
        yield pa.record_batch(arrays, schema=PLACED_RECORDS)
        line += n


def _other_query(pipeline: str, rows: HandedRows, since: Span) -> SourceLostError:
    return SourceLostError.of(
        f"'{pipeline}' was given the rows of another query: this one may repeat rows of that, or lack some.",
        got=f"query '{rows.query}'",
        allowed=since.source_text,
        next_step="Start the query with the checkpoint that it had. If its rows may be applied again, as with an order by sequence, hand them over "
        "with ebbtide.spark.into(spec, root, new_query=True) once. By arrival, begin again under another name or root.",
    )


def _left_out(pipeline: str, rows: HandedRows, expected: int, *, begins_query: bool) -> SourceLostError:
    by_hand = "Start the query with the checkpoint that it had; or hand all rows over again with a new one, and new_query=True once."
    by_run = "'ebbtide refresh' rebuilds the sink from a new query; 'ebbtide run --accept-loss' continues without them."
    return SourceLostError.of(
        f"'{pipeline}' was not given some micro-batches of the query '{rows.query}'.",
        got=f"micro-batch {rows.batch}",
        allowed=f"micro-batch {expected}, or an earlier one again",
        next_step=by_run if begins_query else by_hand,
    )
