"""The contract of a source.

A source that is read by position, such as a topic, derives from `ebbtide.sources._positioned.PositionedSource`, which
implements most of it. A folder of files (`_file_source`) is read in whole parts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ebbtide.sources._span import Span

if TYPE_CHECKING:
    from ebbtide.executors import Executor

MAX_SAMPLED_BYTES = 16 * 2**20
"""Longest record that is read without a spec, which may set another limit: a longer one is cut."""
Work = Callable[[Iterable[pa.RecordBatch]], str | None]
"""The work of a task on its records, batches of `ebbtide.formats._records.RECORDS`; it returns text, or None for nothing."""
Part = tuple[str, int | None]
"""A part of the source that is read as a whole, such as a file: its name and its size in bytes, None if unknown."""


@dataclass(frozen=True)
class Discovery:
    """The input that a run has found, and the parts that it leaves.

    Args:
        parts: New parts to read, in order; none for a source that is read by position.
        streams: There may be something to read.
        span: The span to read, for a source that is read by position; else None.
        young: Parts left for a later run.
        unmatched: Parts that do not match the source's pattern.
        oldest_ms: Time of the oldest new part, also of a young one, epoch ms; None: it is unknown, or there is none.
        nothing_matched: Description of other content if nothing matches and there is no good reason for that; else None.
    """

    parts: tuple[Part, ...] = ()
    streams: bool = False
    span: Span | None = None
    young: int = 0
    unmatched: int = 0
    oldest_ms: int | None = None
    nothing_matched: str | None = None


@dataclass(frozen=True)
class Backlog:
    """The part of a source that no step has read yet.

    Args:
        files: Files that wait; None for a source without files.
        bytes: Bytes of them.
        oldest_file_ms: Time of the oldest of them, epoch ms, if known.
        records: Records that wait, per partition; fewer if some were compacted or aborted. Empty for a source without
            partitions.
        oldest_ms: Time of the oldest waiting or held record, epoch ms, per partition, if known.
        held: Records behind an open transaction, which no run can read yet, per partition that has some.
        is_unknown: Only a run can find out what waits.
    """

    files: int | None = None
    bytes: int | None = None
    oldest_file_ms: int | None = None
    records: Mapping[int, int] = field(default_factory=dict)
    oldest_ms: Mapping[int, int] = field(default_factory=dict)
    held: Mapping[int, int] = field(default_factory=dict)
    is_unknown: bool = False

    @property
    def total_records(self) -> int | None:
        """Records of all partitions; None for a source without partitions."""
        if not self.records:
            return None
        return sum(self.records.values())

    def is_behind(self, partition: int) -> bool:
        """Return whether records of a partition wait, or are held."""
        n_waiting = self.records[partition]
        return n_waiting > 0 or partition in self.held

    @property
    def is_empty(self) -> bool:
        """Return whether a run would find nothing to read."""
        return not (self.files or self.total_records or self.is_unknown)


class News(Protocol):
    """Wakes a run that waits for records."""

    def wait(self, longest_s: float, stop: threading.Event) -> bool:
        """Wait for news; return whether there are some.

        Args:
            longest_s: Longest time to wait.
            stop: Ends the waiting.
        """


class BatchPlanner(Protocol):
    """Plans the batches of a run, one after the other."""

    def note(self, found: Discovery) -> None:
        """Use a later discovery: the next batches are planned from it."""

    def after(self, last: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the end offset of the next batch; `last` if nothing is left to read.

        Args:
            last: The offset of the last batch; None before the first, which is planned even if it is empty. Of a source with parts
                it is empty in a later run, which finds only parts that were not read.
        """


class Records(Protocol):
    """The records of a batch, divided among tasks."""

    def run(self, work: Work) -> list[str]:
        """Do some work in each task; return the results in any order.

        Args:
            work: Runs in Spark's workers, so it must be picklable.
        """


@dataclass(frozen=True)
class SourceBatch:
    """The input of a batch.

    Args:
        records: The records; they are read lazily.
        parts: The parts that are read, stored so that no later run reads them again; none for a source that is read by position.
        span: The span that is read, for a source that is read by position; else None.
    """

    records: Records
    parts: Sequence[Part] = ()
    span: Span | None = None


class Source(Protocol):
    """The source of a pipeline's records. Methods with a body fit a source that loses nothing and identifies parts by name."""

    def refuse_absent(self) -> None:
        """Refuse a source whose first batch cannot be read, before anything is created or dropped.

        Raises:
            SourceReadError: it does not exist.
            ConfigError: it does not have the start that the spec asks for, or required settings are missing.
        """

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: Span | None = None,
    ) -> Discovery:
        """Find new records to read. Loads no Spark.

        Args:
            read: Parts that earlier steps read, to their sizes.
            now_ms: The time, epoch ms.
            since: The span of the last step, else that of an earlier run's `Discovery`; None at first.

        Raises:
            SourceReadError: the source is not there.
            SourceLostError: records after `since` no longer exist, or the source is another one.
        """

    def look(self, read: Mapping[str, int | None], now_ms: int, since: Span | None = None) -> Discovery:
        """Find new records as `discover`, in a continuous run: a source may remember what it found before."""
        return self.discover(read, now_ms, since)

    def news(self) -> News | None:
        """Return what wakes a run that waits for records; None: it looks now and then."""
        return None

    def ends_at(self, since: Span) -> bool:
        """Return whether a source that is read by position has nothing new, if one cheap request shows it; else False.

        Args:
            since: As for `discover`. Only `discover` notices another source or new partitions.
        """
        return False

    def discover_left(self, since: Span) -> Discovery:
        """Find records to read after an accepted loss, for which `discover` refuses to continue.

        Args:
            since: As for `discover`.
        """
        return Discovery()

    def gone(self, read: Mapping[str, int | None], span: Span | None) -> str | None:
        """Name records that were read and could not be read again from the beginning; None if all could.

        Args:
            read: Parts that steps read, to their sizes.
            span: The span that steps read, for a source that is read by position; None before the first step, and for a
                source with parts.

        Raises:
            EbbtideError: like `discover` in a first run.
        """
        return None

    @property
    def stays_ms(self) -> int | None:
        """The time for which a part stays once a step has read it; None: always."""
        return None

    def leaving(self, read: Mapping[str, tuple[int | None, int]]) -> list[str]:
        """Return the parts that are still there and may leave, by the steps that read them.

        Args:
            read: Parts that may leave, to their sizes and the steps that read them.
        """
        return []

    def leave(self, parts: Sequence[str], read: Mapping[str, tuple[int | None, int]]) -> None:
        """Have parts leave; arguments as `leaving`, whose first parts they are."""
        return

    def forget_lost(self) -> None:
        """Forget what was lost: a user has accepted it, and reads what remains from the beginning."""
        return

    def backlog(self, found: Discovery) -> Backlog:
        """Measure the records that a run would read. Loads no Spark.

        Args:
            found: The result of `discover`.
        """
        return Backlog(files=len(found.parts))

    def planner(self, found: Discovery, location: str) -> BatchPlanner:
        """Return a planner of batches for a discovery.

        Args:
            found: The result of `discover`.
            location: A file in which this source may store notes.
        """

    def batch(
        self,
        executor: Executor,
        offset: Any,
        max_record_bytes: int,
    ) -> SourceBatch:
        """Return the input of a batch.

        Args:
            executor: Runs the tasks that read it.
            offset: Its end, as the planner has returned it.
            max_record_bytes: A longer record is cut after one more byte, so that a decoder recognizes it.
        """

    def measured(self, batch: SourceBatch, n_bytes: int, location: str) -> None:
        """Note the size of a batch's records, which may limit the next batch.

        Args:
            batch: The batch.
            n_bytes: Bytes of its records' values.
            location: That of `planner`.
        """
        return


ReadItem = Callable[[Any], Iterator[pa.RecordBatch]]
"""Reads a task's items as `ebbtide.formats._records.RECORDS`."""


@dataclass(frozen=True)
class ReadRecords:
    """Records that the tasks read directly: they do not pass through the JVM.

    Args:
        executor: Runs the tasks.
        items: The items that each task reads.
        read: Reads an item; runs in Spark's workers, so it must be picklable.
        is_little: Read in the driver, since there is little.
    """

    executor: Executor
    items: Sequence[Any]
    read: ReadItem
    is_little: bool

    def run(self, work: Work) -> list[str]:
        """See `Records`."""
        read = self.read
        results = self.executor.map(
            lambda item: work(read(item)),
            self.items,
            is_little=self.is_little,
        )
        return [result for result in results if result is not None]
