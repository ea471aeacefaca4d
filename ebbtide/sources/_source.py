"""The contract of a source.

A source that is read by position, as a topic, derives from `ebbtide.sources._positioned.PositionedSource`, which has most of it. A folder of
files (`file_source`) is read in parts, each as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ebbtide.sources._span import Span

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Work = Callable[[Iterable[pa.RecordBatch]], str | None]
"""The work of a task on its records, batches of `ebbtide.formats._records.RECORDS`; it returns text, or None for nothing."""
Part = tuple[str, int | None]
"""A part of the source that is read as a whole, a file: its name and its size in bytes, None if that is not known."""


@dataclass(frozen=True)
class Discovery:
    """The input that a run has found, and what it leaves.

    Args:
        parts: New parts to read, in order; none of a source that is read by position.
        streams: There may be something to read.
        span: Of a source that is read by position, what there is to read; else None.
        young: Parts left for a later run.
        unmatched: Parts that are not the source's, by its pattern.
        nothing_matched: What was found instead, where there is nothing to read at all and no good reason for it; else None.
    """

    parts: tuple[Part, ...] = ()
    streams: bool = False
    span: Span | None = None
    young: int = 0
    unmatched: int = 0
    nothing_matched: str | None = None


@dataclass(frozen=True)
class Backlog:
    """The part of a source that no step has read yet.

    Args:
        files: Files that wait; None of a source that has none.
        bytes: Bytes of them.
        records: Records that wait, per partition; where some were compacted or aborted there are fewer. Empty of a source without
            partitions.
        oldest_ms: Time of the oldest record that waits or is held, epoch ms, per partition, as far as that is known.
        held: Records that no run can read yet, since a transaction before them is open, per partition that has some.
    """

    files: int | None = None
    bytes: int | None = None
    records: Mapping[int, int] = field(default_factory=dict)
    oldest_ms: Mapping[int, int] = field(default_factory=dict)
    held: Mapping[int, int] = field(default_factory=dict)

    @property
    def total_records(self) -> int | None:
        """Records of all partitions; None of a source without any."""
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
        return not self.files and not self.total_records


class BatchPlanner(Protocol):
    """Plans the batches of a run, one after the other."""

    def note(self, found: Discovery) -> None:
        """Take what a later look at the source has found: the next batch comes from there."""

    def after(self, last: dict[str, Any] | None) -> dict[str, Any]:
        """Return the offset that ends the next batch; `last`, if nothing is left to read.

        Args:
            last: The offset of the last batch; None before the first, which is made even if it is empty.
        """


class Records(Protocol):
    """The records of a batch, dealt out to tasks."""

    def run(self, work: Work) -> list[str]:
        """Do some work in each task; return what it returned, in no particular order.

        Args:
            work: Runs in Spark's workers, so it must be picklable.
        """


@dataclass(frozen=True)
class SourceBatch:
    """The input of a batch.

    Args:
        records: The records; nothing is read before they are asked for.
        parts: The parts that are read, to be remembered, so that no later run reads them again; none of a source that is read by position.
        span: Of a source that is read by position, what is read; else None.
    """

    records: Records
    parts: Sequence[Part] = ()
    span: Span | None = None


class Source(Protocol):
    """The source of a pipeline's records. A method with a body here fits a source that loses nothing, and remembers parts by their names."""

    def refuse_absent(self) -> None:
        """Refuse a source whose first batch cannot be read, before anything is made or thrown away: later that is refused, too.

        Raises:
            SourceReadError: it is not there.
            ConfigError: it has no place to begin as the spec asks for, or what it takes to read it is not set.
        """

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: Span | None = None,
    ) -> Discovery:
        """Find what there is to read. Loads no Spark.

        Args:
            read: Parts that earlier steps read, to their sizes.
            now_ms: The time, epoch ms.
            since: The span of the last step, or that of an earlier run's `Discovery` where there is none; None at first.

        Raises:
            SourceReadError: the source is not there.
            SourceLostError: what follows on `since` is not there any more, or the source is another one.
        """

    def ends_at(self, since: Span) -> bool:
        """Return whether a source that is read by position ends where it was read up to, if one cheap question says so; else False.

        Args:
            since: As for `discover`, which alone notices another source, or another part of it.
        """
        return False

    def discover_left(self, since: Span) -> Discovery:
        """Find what there is to read where `discover` refuses to go on, as records are lost and that is accepted.

        Args:
            since: As for `discover`.
        """
        return Discovery()

    def gone(self, read: Mapping[str, int | None], span: Span | None) -> str | None:
        """Name what was read and could not be read again from the beginning; None if all could.

        Args:
            read: Parts that steps read, to their sizes.
            span: From where to where steps read, of a source that is read by position; None before the first step, and of a source with parts.

        Raises:
            EbbtideError: as `discover` of a first run.
        """
        return None

    def backlog(self, found: Discovery) -> Backlog:
        """Measure what a run would read. Loads no Spark.

        Args:
            found: What `discover` returned.
        """
        return Backlog(files=len(found.parts))

    def planner(self, found: Discovery, location: str) -> BatchPlanner:
        """Return what plans the batches of what was found.

        Args:
            found: What `discover` returned.
            location: A file of this source's own, to note what it needs.
        """

    def batch(
        self,
        spark: SparkSession,
        offset: Any,
        max_record_bytes: int,
        since: Span | None,
    ) -> SourceBatch:
        """Return what a batch reads.

        Args:
            spark: The session whose tasks read it.
            offset: Its end, as it stands in the checkpoint.
            max_record_bytes: Of a longer record one byte more than that is given, by which a decoder knows it.
            since: The span of the last step, which the batch has to follow on; None: it need not.

        Raises:
            CheckpointMismatchError: it does not.
        """

    def measured(self, batch: SourceBatch, n_bytes: int, location: str) -> None:
        """Take how large the records of a batch were, by which the next one may be limited.

        Args:
            batch: The batch.
            n_bytes: Of its records' values.
            location: That of `planner`.
        """
        return
