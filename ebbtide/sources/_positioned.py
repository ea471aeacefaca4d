"""A source that is read by position: it says which span there is and reads one; all else that a run asks of a source follows from that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel

from ebbtide.errors import ConfigError
from ebbtide.formats import MAX_RECORD_BYTES
from ebbtide.formats._records import stored_form
from ebbtide.model import NoOptions
from ebbtide.sources._available import Available, Start
from ebbtide.sources._records import ReadRecords
from ebbtide.sources._sizing import note_most, offsets_within
from ebbtide.sources._source import Backlog, BatchPlanner, Discovery, Source, SourceBatch, Work
from ebbtide.sources._span import Offsets, Span
from ebbtide.sources._span_planner import SpanPlanner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS_IN_DRIVER = 10_000
"""Offsets up to which a batch is read in the driver: a Spark job costs more."""
LEAST_PER_TASK = 20_000
"""Offsets below which a partition is not cut in two: a task has to connect first."""
ReadSpan = Callable[[Span], Iterator[pa.RecordBatch]]
"""Reads a span as batches of `ebbtide.formats._records.PLACED_RECORDS`, each partition by its offsets."""


@dataclass(frozen=True)
class SourceSettings:
    """Settings that a spec has for any source that is read by position.

    Args:
        pipeline: Name of the pipeline.
        start: Where the first step begins.
        in_order: Records of all partitions apply in the order of `part` and `line` (arrival mode), so that one task reads a partition.
        max_records_per_step: Offsets that one step goes on by.
        max_bytes_per_step: About how many bytes of values one step reads; None: any number.
    """

    pipeline: str
    start: Start = "earliest"
    in_order: bool = False
    max_records_per_step: int = 500_000
    max_bytes_per_step: int | None = None


class PositionedSource(Source, ABC):
    """A source whose records stand at offsets of partitions.

    A project's own derives from this, and is made as `Class(options, settings)`. Its package names it by an entry point of the group
    `ebbtide.sources`; the entry point's name is the `type` in a spec's `source`.

    Attributes:
        Options: Model of what stands in a spec's `source` beside the fields that all such sources have.
        settings: What the spec says of any such source.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions
    settings: SourceSettings

    @abstractmethod
    def available(self) -> Available:
        """Return what the source has now: what follows on the last step, and what is lost, is found out from that.

        Raises:
            SourceReadError: the source is not there.
            SourceUnavailableError: it does not answer.
        """

    @abstractmethod
    def reader(self, max_record_bytes: int) -> ReadSpan:
        """Return what reads a span. It runs in Spark's workers: picklable, and the same records each time it is asked.

        Args:
            max_record_bytes: Of a longer value one byte more than that is given, by which a decoder knows it.
        """

    def offsets_at(self, time: datetime, there: Available) -> Offsets:
        """Return of each partition the offset where a time begins, its latest if none does.

        Args:
            time: The time.
            there: What `available` returned.

        Raises:
            ConfigError: records are not found by time.
        """
        raise ConfigError.of(
            f"Records of {there.name} are not found by their time.",
            got=time.isoformat(),
            allowed="earliest, latest or offsets",
            next_step="Correct source.start in the spec, or --from of the command.",
        )

    def waiting(self, span: Span) -> Backlog:
        """Measure what waits in a span."""
        return Backlog(records=span.sizes)

    def refuse_replaced(self, span: Span) -> None:
        """Refuse records that have just been read by the source's address, if that leads to another source by now.

        Raises:
            SourceLostError: it does.
        """

    def names(self) -> list[str]:
        """Return the names of all sources that are found where this one is, as the topics of a cluster.

        Raises:
            ConfigError: sources of this kind are not listed.
        """
        raise ConfigError.of("Sources of this kind cannot be listed.", next_step="Name each one in a spec of its own.")

    def sample(self, n: int) -> Iterator[bytes]:
        """Yield the first records of all partitions, as lines that hold records with their places.

        It goes on behind places without a value, however many there are: compacted or aborted records, or tombstones.

        Args:
            n: Records with a value to read, of each partition by its share of what is there.
        """
        # The range doubles with each turn: behind a long stretch without values few turns are needed, and the first ones stay small.
        left = self.beginning()
        read = self.reader(MAX_RECORD_BYTES)
        n_left = most = n
        while n_left > 0 and left.size:
            first = left.first(most)
            for batch in read(first):
                lines = stored_form(batch)
                yield from lines.to_pylist()
                n_left -= len(batch) - batch["value"].null_count
            left = left.after(first.end)
            most *= 2

    def beginning(self) -> Span:
        """Return what there is to read where nothing was read before.

        Raises:
            ConfigError: the source has no place to begin as the spec asks for.
        """
        there = self.available()
        return there.beginning(self.settings.start, lambda time: self.offsets_at(time, there))

    def refuse_absent(self) -> None:
        """See `Source`."""
        self.beginning()

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: Span | None = None,
    ) -> Discovery:
        """See `Source`."""
        if since is None:
            return _discovery(self.beginning())
        there = self.available()
        return _discovery(there.following(since))

    def discover_left(self, since: Span) -> Discovery:
        """See `Source`."""
        there = self.available()
        return _discovery(there.left_of(since))

    def gone(self, read: Mapping[str, int | None], span: Span | None) -> str | None:
        """See `Source`: records before the place where reading would begin, by retention or by another start; or the whole source."""
        found = self.beginning()
        if span is None:
            return None
        return found.lacks(span)

    def planner(self, found: Discovery, location: str) -> BatchPlanner:
        """See `Source`."""
        limits_bytes = self.settings.max_bytes_per_step is not None
        noted = location if limits_bytes else None
        return SpanPlanner(found, self.settings.max_records_per_step, noted)

    def backlog(self, found: Discovery) -> Backlog:
        """See `Source`."""
        return Backlog() if found.span is None else self.waiting(found.span)

    def measured(self, batch: SourceBatch, n_bytes: int, location: str) -> None:
        """See `Source`: note how many offsets the next batch may have."""
        max_bytes = self.settings.max_bytes_per_step
        n_offsets = batch.span.size if batch.span else 0
        if max_bytes is not None and n_offsets:
            most = offsets_within(max_bytes, n_offsets, n_bytes)
            note_most(location, most)

    def batch(
        self,
        spark: SparkSession,
        offset: Any,
        max_record_bytes: int,
        since: Span | None,
    ) -> SourceBatch:
        """See `Source`: the offset names the span."""
        span = Span.from_json(offset)
        if since is not None:
            span.refuse_gap(since)
        records = _RecordsOfSpan(spark, self, span, max_record_bytes)
        return SourceBatch(records, span=span)


@dataclass(frozen=True)
class _RecordsOfSpan:
    """The records of a batch, which tasks read by themselves, and of no source but the one that the batch names.

    Args:
        spark: The batch's own session.
        source: The source.
        span: What is read.
        max_record_bytes: Of a longer record one byte more than that is given.
    """

    spark: SparkSession
    source: PositionedSource
    span: Span
    max_record_bytes: int

    def run(self, work: Work) -> list[str]:
        """See `Records`.

        Raises:
            SourceLostError: the source was replaced since the batch was planned.
        """
        in_driver = self.span.size <= RECORDS_IN_DRIVER
        n_tasks = 1 if in_driver else self.spark.sparkContext.defaultParallelism
        spans = dealt_out(self.span, n_tasks, in_order=self.source.settings.in_order)
        read = self.source.reader(self.max_record_bytes)
        results = ReadRecords(self.spark, spans, read, in_driver=in_driver).run(work)
        # Tasks read by the source's address: only a later look shows whose records they got. Identities do not come back, so that
        # a source which has the batch's once all is read had it all the while.
        self.source.refuse_replaced(self.span)
        return results


def matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that a pattern with `*`, `?` and `[...]` matches; a system's own (`__...`) only if it begins as they do.

    Example:
        >>> matching(["shop.orders", "__consumer_offsets"], "*")
        ['shop.orders']
    """
    asks_system = pattern.startswith("_")
    found = []
    for name in names:
        is_system = name.startswith("__")
        if fnmatchcase(name, pattern) and (asks_system or not is_system):
            found.append(name)
    return sorted(found)


def _discovery(span: Span) -> Discovery:
    return Discovery(streams=span.size > 0, span=span)


def dealt_out(batch: Span, n_tasks: int, *, in_order: bool) -> list[Span]:
    """Deal a batch out to tasks, the largest ranges first; where order does not matter large ones are cut.

    No task has two ranges of one partition: a piece as large as a task's fair share is a task's only one, and a partition has
    one smaller piece at most.

    Args:
        batch: What it reads.
        n_tasks: Tasks, at most.
        in_order: A partition is read by one task, which knows its times.

    Example:
        >>> batch = Span({"topic": "t"}, {0: 0, 1: 0}, {0: 50_000, 1: 30_000})
        >>> [task.size for task in dealt_out(batch, 2, in_order=False)]
        [40000, 40000]
    """
    share = -(-batch.size // n_tasks)  # rounded up
    fair = max(share, LEAST_PER_TASK)
    ranges: list[Span] = []
    for whole in batch.parts:
        if in_order:
            ranges.append(whole)
        else:
            ranges += _cut(whole, fair)
    # Longest processing time first: each range goes to the task with the least so far, which is within a third of the best deal.
    largest_first = sorted(ranges, key=_size, reverse=True)
    tasks = [Span(batch.identity, {}, {})] * n_tasks
    for each in largest_first:
        smallest = min(tasks, key=_size)
        number = tasks.index(smallest)
        tasks[number] = smallest.with_span(each)
    return [task for task in tasks if task.size]


def _size(span: Span) -> int:
    return span.size


def _cut(whole: Span, most: int) -> Iterator[Span]:
    [partition] = whole.start
    first = whole.start[partition]
    last = whole.end[partition]
    for start in range(first, last, most):
        end = min(start + most, last)
        yield whole.of(partition, start, end)
