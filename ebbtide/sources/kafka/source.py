"""A Kafka topic as a source. What is there is asked of the brokers by the driver; tasks read their ranges by themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ebbtide.paths import replace_bytes
from ebbtide.sources.kafka.client import Client
from ebbtide.sources.kafka.position import Offsets, TopicRange
from ebbtide.sources.kafka.reading import PartitionRange, Reading, first_times, ranges_of
from ebbtide.sources.kafka.registry import Registry
from ebbtide.sources.kafka.sizing import note_most, offsets_within
from ebbtide.sources.kafka.topic import Start, Topic, ask, held, identify
from ebbtide.sources.records import ReadRecords
from ebbtide.sources.source import Backlog, Discovery, Part, Position, Records, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_IN_DRIVER = 10_000
"""Offsets up to which a batch is read in the driver: a Spark job costs more."""
LEAST_PER_TASK = 20_000
"""Offsets below which a partition is not cut in two: a task has to connect first."""


@dataclass(frozen=True)
class KafkaSource:
    """A topic; each record is read once.

    Args:
        client: How the brokers are reached.
        topic: Its name.
        start: Where the first step begins.
        in_order: Records of all partitions apply in the order of their times (arrival mode).
        max_records_per_step: Offsets that one step goes on by.
        max_bytes_per_step: About how many bytes of values one step reads; None: any number.
        registry: How the registry of its schemas is reached; None: its records are not Avro.
    """

    client: Client
    topic: str
    start: Start
    in_order: bool
    max_records_per_step: int
    max_bytes_per_step: int | None = None
    registry: Registry | None = None

    def refuse_absent(self) -> None:
        """See `Source`: the brokers answer, and have the topic and the place where the first step begins; so does the registry."""
        self._beginning()
        if self.registry is not None:
            self.registry.open()

    def discover(
        self,
        read: Mapping[str, int | None],
        now_ms: int,
        since: Position | None = None,
    ) -> Discovery:
        """See `Source`."""
        if since is None:
            found = self._beginning()
        else:
            topic, _ = self._ask()
            read_before = TopicRange.from_json(since)
            found = topic.following(read_before)
        return Discovery(streams=found.size > 0, position=found.to_json())

    def discover_left(self, since: Position) -> Discovery:
        """See `Source`."""
        topic, _ = self._ask()
        read_before = TopicRange.from_json(since)
        found = topic.left_of(read_before)
        return Discovery(streams=found.size > 0, position=found.to_json())

    def gone(self, read: Mapping[str, int | None], span: Position | None) -> str | None:
        """See `Source`: records before the place where reading would begin, by retention or by another start; or the whole topic."""
        found = self._beginning()
        if span is None:
            return None
        return found.lacks(TopicRange.from_json(span))

    def _beginning(self) -> TopicRange:
        topic, at_time = self._ask()
        return topic.beginning(self.start, at_time)

    def _ask(self) -> tuple[Topic, Offsets]:
        return ask(self.client, self.topic, self.start)

    def stream(
        self,
        spark: SparkSession,
        found: Discovery,
        location: str,
    ) -> DataFrame:
        """See `Source`."""
        from ebbtide.sources.kafka.stream import KafkaDataSource

        spark.dataSource.register(KafkaDataSource)
        self.note(found, location)
        options: dict[str, str | int] = {
            "plan": location,
            "maxRecords": self.max_records_per_step,
            "limitsBytes": str(self.max_bytes_per_step is not None),
        }
        stream = spark.readStream.format(KafkaDataSource.name())
        return stream.options(**options).load()

    def backlog(self, found: Discovery) -> Backlog:
        """See `Source`; the oldest record of a partition is its first."""
        waiting = TopicRange.from_json(found.position or {})
        settings = self.client.settings()
        times_ms = first_times(settings, ranges_of(waiting))
        behind = ranges_of(held(self.client, waiting))
        held_ms = first_times(settings, behind, "read_uncommitted")
        return Backlog(
            records=waiting.sizes,
            oldest_ms=held_ms | times_ms,
            held={each.partition: each.size for each in behind},
        )

    def note(self, found: Discovery, location: str) -> None:
        """Write what there is to read, for the stream to plan batches from."""
        text = json.dumps(found.position)
        replace_bytes(location, text.encode())

    def measured(self, position: Position | None, n_bytes: int, location: str) -> None:
        """See `Source`: note how many offsets the next batch may have."""
        if self.max_bytes_per_step is None or position is None:
            return
        n_offsets = TopicRange.from_json(position).size
        if n_offsets:
            most = offsets_within(self.max_bytes_per_step, n_offsets, n_bytes)
            note_most(location, most)

    def records(self, frame: DataFrame, offset: Any, max_record_bytes: int) -> Records:
        """See `Source`: the offset names the ranges, which the tasks read by themselves; then the topic is asked for again."""
        spark = frame.sparkSession
        batch = TopicRange.from_json(offset)
        in_driver = batch.size <= RECORDS_IN_DRIVER
        n_tasks = 1 if in_driver else spark.sparkContext.defaultParallelism
        registry = None if self.registry is None else self.registry.open()
        reading = Reading(self.client.settings(), self.in_order, max_record_bytes, registry)
        records = ReadRecords(
            spark,
            dealt_out(batch, n_tasks, in_order=self.in_order),
            reading,
            in_driver=in_driver,
        )
        return TopicRecords(records, self.client, batch)

    def parts_of(self, offset: Any) -> Sequence[Part]:
        """See `Source`: a topic has none."""
        return []

    def position_of(self, offset: Any, since: Position | None) -> Position:
        """See `Source`."""
        batch = TopicRange.from_json(offset)
        if since is not None:
            last = TopicRange.from_json(since)
            batch.refuse_gap(last)
        return batch.to_json()


@dataclass(frozen=True)
class TopicRecords:
    """Records of a batch, and of no topic but the one that it names.

    Tasks read by the topic's name: whose records they got, only a later look can tell. Ids do not come back, so that the topic which
    has the batch's id once all is read had it all the while.

    Args:
        records: They.
        client: How the brokers are reached.
        batch: What is read.
    """

    records: Records
    client: Client
    batch: TopicRange

    def run(self, work: Work) -> list[str]:
        """See `Records`.

        Raises:
            SourceLostError: the topic was made anew since the batch was planned.
        """
        results = self.records.run(work)
        now = identify(self.client, self.batch.topic)
        now.refuse_other(self.batch)
        return results


def dealt_out(
    batch: TopicRange,
    n_tasks: int,
    *,
    in_order: bool,
) -> list[list[PartitionRange]]:
    """Deal a batch's ranges out to tasks, the largest first; where order does not matter large ones are cut.

    No task has two ranges of one partition: a piece as large as a task's fair share is a task's only one, and a partition has
    one smaller piece at most.

    Args:
        batch: What it reads.
        n_tasks: Tasks, at most.
        in_order: A partition is read by one task, which knows its times.

    Example:
        >>> batch = TopicRange("c", "t", "i", {0: 0, 1: 0}, {0: 50_000, 1: 30_000})
        >>> [sum(each.size for each in task) for task in dealt_out(batch, 2, in_order=False)]
        [40000, 40000]
    """
    share = -(-batch.size // n_tasks)  # rounded up
    fair = max(share, LEAST_PER_TASK)
    ranges: list[PartitionRange] = []
    for whole in ranges_of(batch):
        ranges += [whole] if in_order else _cut(whole, fair)
    largest_first = sorted(ranges, key=lambda each: -each.size)
    tasks: list[list[PartitionRange]] = [[] for _ in range(n_tasks)]
    for each in largest_first:
        least = min(tasks, key=_size)
        least.append(each)
    return [task for task in tasks if task]


def _size(task: Sequence[PartitionRange]) -> int:
    return sum(each.size for each in task)


def _cut(whole: PartitionRange, most: int) -> list[PartitionRange]:
    pieces = []
    for start in range(whole.start, whole.end, most):
        end = min(start + most, whole.end)
        piece = replace(whole, start=start, end=end)
        pieces.append(piece)
    return pieces
