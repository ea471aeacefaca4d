"""Rows that a query of Spark hands over, a micro-batch at a time: a source whose only partition has the numbers of micro-batches as offsets.

The position in a step's facts is the query's id and the number of the next micro-batch. So each is applied once, also one that is handed over again.
Importing this loads no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ebbtide.errors import ConfigError, SourceLostError
from ebbtide.formats import PLACED_RECORDS
from ebbtide.sources._available import Available
from ebbtide.sources._positioned import PositionedSource, ReadSpan, SourceSettings
from ebbtide.sources._source import Discovery, SourceBatch, Work
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


@dataclass(frozen=True)
class HandedRows:
    """The rows of a micro-batch.

    Args:
        frame: The rows.
        query: Id of the query.
        batch: Number of the micro-batch, from 0.
        is_new_query: The query may be another one than before.
    """

    frame: DataFrame
    query: str
    batch: int
    is_new_query: bool = False

    @staticmethod
    def source(rows: HandedRows | None, settings: SourceSettings) -> PositionedSource:
        """Return the source that reads rows; arguments as `RowsOfSpark`."""
        return RowsOfSpark(rows, settings)


class RowsOfSpark(PositionedSource):
    """Reads the rows of one micro-batch.

    Args:
        rows: The rows; None: there are none, as in a run by command.
        settings: The common settings.
    """

    def __init__(self, rows: HandedRows | None, settings: SourceSettings) -> None:
        self._rows = rows
        self.settings = settings

    @property
    def rows(self) -> HandedRows:
        """The rows.

        Raises:
            ConfigError: there are none.
        """
        if self._rows is None:
            raise ConfigError.of(
                f"'{self.settings.pipeline}' gets its rows from a query of Spark, and reads none by itself.",
                got="no rows",
                next_step="Hand them over in the program that has the query: writeStream.foreachBatch(ebbtide.spark.into(spec, root)).",
            )
        return self._rows

    def available(self) -> Available:
        """See `PositionedSource`: the micro-batch."""
        rows = self.rows
        first = {PARTITION: rows.batch}
        return Available(f"query '{rows.query}'", {"query": rows.query}, first, {PARTITION: rows.batch + 1})

    def reader(self, max_record_bytes: int) -> ReadSpan:
        """See `PositionedSource`: rows are read by the tasks of their query, not by their place."""
        raise NotImplementedError("rows of Spark are read by their query")

    def discover(self, read: Mapping[str, int | None], now_ms: int, since: Span | None = None) -> Discovery:
        """See `Source`.

        Raises:
            SourceLostError: the query is another one, or a micro-batch was left out.
        """
        rows = self.rows
        there = self.available()
        span = there.beginning("earliest", lambda _: {})
        if since is None:
            return Discovery(streams=True, span=span)
        if since.identity != there.identity:
            if not rows.is_new_query:
                raise _other_query(self.settings.pipeline, rows, since)
            return Discovery(streams=True, span=span)
        expected = since.end[PARTITION]
        if rows.batch > expected:
            raise _left_out(self.settings.pipeline, rows, expected)
        is_new = rows.batch == expected
        # A micro-batch that was handed over before has nothing to read; a step that died behind its decision is finished.
        return Discovery(streams=is_new, span=span if is_new else Span(since.identity, since.end, since.end))

    def gone(self, read: Mapping[str, int | None], span: Span | None) -> str | None:
        """See `Source`: a query hands over no micro-batch twice once it was applied."""
        if span is None or span.size == 0:
            return None
        return f"{span.size} micro-batches of {span.source_text}"

    def batch(self, executor: Executor, offset: Any, max_record_bytes: int) -> SourceBatch:
        """See `Source`."""
        return SourceBatch(_Rows(self.rows), span=Span.from_json(offset))


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
        results = frame.select(record.alias("value")).mapInArrow(staged, "result string").collect()
        return [row["result"] for row in results]


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


def _left_out(pipeline: str, rows: HandedRows, expected: int) -> SourceLostError:
    return SourceLostError.of(
        f"'{pipeline}' was not given some micro-batches of the query '{rows.query}'.",
        got=f"micro-batch {rows.batch}",
        allowed=f"micro-batch {expected}, or an earlier one again",
        next_step="Start the query with the checkpoint that it had; or hand all rows over again with a new one, and new_query=True once.",
    )
