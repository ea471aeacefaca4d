"""A source that is read by position. It returns the available span and reads spans; everything else follows from that."""

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
from ebbtide.formats import stored_form
from ebbtide.model import NoOptions
from ebbtide.sources._available import Available, Start
from ebbtide.sources._sizing import note_most, offsets_within
from ebbtide.sources._source import (
    MAX_SAMPLED_BYTES,
    Backlog,
    BatchPlanner,
    Discovery,
    ReadRecords,
    Source,
    SourceBatch,
    Work,
)
from ebbtide.sources._span import Offsets, Span
from ebbtide.sources._span_planner import SpanPlanner

if TYPE_CHECKING:
    from ebbtide.executors import Executor

RECORDS_IN_DRIVER = 10_000
"""Maximum offsets of a batch that the driver reads itself: a Spark job costs more."""
LEAST_PER_TASK = 20_000
"""Minimum offsets for splitting a partition: each task must connect first."""
ReadSpan = Callable[[Span], Iterator[pa.RecordBatch]]
"""Reads a span as batches of `ebbtide.formats._records.PLACED_RECORDS`, each partition by its offsets."""


@dataclass(frozen=True)
class SourceSettings:
    """Common settings of sources that are read by position.

    Args:
        pipeline: Name of the pipeline.
        start: Where the first step begins.
        in_order: Records of all partitions apply in the order of `part` and `line` (arrival mode), so one task reads a partition.
        max_records_per_step: Offsets per step.
        max_bytes_per_step: Approximate bytes of values per step; None: no limit.
    """

    pipeline: str
    start: Start = "earliest"
    in_order: bool = False
    max_records_per_step: int = 500_000
    max_bytes_per_step: int | None = None


class PositionedSource(Source, ABC):
    """A source whose records have offsets in partitions.

    A project's source derives from this class, and is created as `Class(options, settings)`. Its package registers it as an entry
    point of the group `ebbtide.sources`; the entry point's name is the `type` in a spec's `source`.

    Attributes:
        Options: Model of the fields in a spec's `source` other than the common ones.
        settings: Common settings from the spec.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions
    settings: SourceSettings

    @abstractmethod
    def available(self) -> Available:
        """Return the offsets that the source has now. New and lost records are derived from them.

        Raises:
            SourceReadError: the source does not exist.
            SourceUnavailableError: it does not answer.
        """

    @abstractmethod
    def reader(self, max_record_bytes: int) -> ReadSpan:
        """Return a function that reads a span.

        It runs in Spark's workers: it must be picklable and return the same records each time.

        Args:
            max_record_bytes: A longer value is cut after one more byte, so that a decoder recognizes it.
        """

    def offsets_at(self, time: datetime, there: Available) -> Offsets:
        """Return each partition's offset at a time; its latest if there is no later record.

        Args:
            time: The time.
            there: The result of `available`.

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
        """Measure how long records of a span have waited."""
        return Backlog(records=span.sizes)

    def refuse_replaced(self, span: Span) -> None:
        """Refuse records just read from the source's address, if the address now leads to another source.

        Raises:
            SourceLostError: it leads to another source.
        """

    def names(self) -> list[str]:
        """Return the names of all sources at the same address, such as a cluster's topics.

        Raises:
            ConfigError: sources of this kind are not listed.
        """
        raise ConfigError.of("Sources of this kind cannot be listed.", next_step="Name each one in a separate spec.")

    def names_like(self, pattern: str) -> list[str]:
        """Return those of `names` that a pattern with `*`, `?` and `[...]` matches; internal ones (`__...`) only for a pattern like them.

        Raises:
            ConfigError: see `names`.
        """
        return _matching(self.names(), pattern)

    def sample(self, n: int) -> Iterator[bytes]:
        """Yield the first records of all partitions, as lines that hold records with their places.

        It skips any number of offsets without a value: compacted or aborted records, or tombstones.

        Args:
            n: Records with a value to read, from each partition in proportion to its size.
        """
        # The range doubles with each pass: long stretches without values need few passes, and the first passes stay small.
        left = self.beginning()
        read = self.reader(MAX_SAMPLED_BYTES)
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
        """Return the span to read if nothing was read before.

        Raises:
            ConfigError: the source does not have the start that the spec asks for.
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
        """See `Source`: records before the start of reading, by retention or by another start; or the whole source."""
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
        executor: Executor,
        offset: Any,
        max_record_bytes: int,
    ) -> SourceBatch:
        """See `Source`: the offset names the span."""
        span = Span.from_json(offset)
        records = _RecordsOfSpan(executor, self, span, max_record_bytes)
        return SourceBatch(records, span=span)


@dataclass(frozen=True)
class _RecordsOfSpan:
    """The records of a batch, read by tasks, and only from the source that the batch names.

    Args:
        executor: Runs the tasks that read it.
        source: The source.
        span: The span to read.
        max_record_bytes: A longer record is cut after one more byte.
    """

    executor: Executor
    source: PositionedSource
    span: Span
    max_record_bytes: int

    def run(self, work: Work) -> list[str]:
        """See `Records`.

        Raises:
            SourceLostError: the source was replaced since the batch was planned.
        """
        is_little = self.span.size <= RECORDS_IN_DRIVER
        n_tasks = 1 if is_little else self.executor.parallelism
        spans = dealt_out(self.span, n_tasks, in_order=self.source.settings.in_order)
        read = self.source.reader(self.max_record_bytes)
        results = ReadRecords(self.executor, spans, read, is_little=is_little).run(work)
        # Tasks read by the source's address, so the source's identity must be checked afterwards. Identities are never reused: a
        # source with the batch's identity after reading had it the whole time.
        self.source.refuse_replaced(self.span)
        return results


def _discovery(span: Span) -> Discovery:
    return Discovery(streams=span.size > 0, span=span)


def dealt_out(batch: Span, n_tasks: int, *, in_order: bool) -> list[Span]:
    """Deal a batch out to tasks, the largest ranges first. If order does not matter, large ranges are split.

    No task has two ranges of one partition: a piece of a task's fair share is its only one, and a partition has at most one
    smaller piece.

    Args:
        batch: The span of the batch.
        n_tasks: Maximum number of tasks.
        in_order: One task reads a whole partition, since it needs the times in order.

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
    # Longest processing time first: each range goes to the task with the least so far. The result is within a third of
    # the optimum.
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


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    """Return the names that a pattern with `*`, `?` and `[...]` matches; internal names (`__...`) only for a pattern like them.

    Example:
        >>> _matching(["shop.orders", "__consumer_offsets"], "*")
        ['shop.orders']
    """
    asks_system = pattern.startswith("_")
    found = []
    for name in names:
        is_system = name.startswith("__")
        if fnmatchcase(name, pattern) and (asks_system or not is_system):
            found.append(name)
    return sorted(found)
