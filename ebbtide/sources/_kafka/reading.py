"""Reads ranges of a topic as records. It runs in the workers, without Spark. Nothing is committed to the brokers."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ebbtide.errors import SourceLostError, SourceReadError, SourceUnavailableError
from ebbtide.formats import PLACED_RECORDS, other_keys, with_schemas
from ebbtide.sources._kafka.client import is_telling, library, text_of, unreachable
from ebbtide.sources._kafka.registry import OpenRegistry
from ebbtide.sources._span import Span

MESSAGES = 10_000
"""Records requested from the client at once."""
BATCH_BYTES = 8 * 2**20
"""Bytes of values in one Arrow batch: enough to amortise its cost, little of a worker's memory."""
MOST_AHEAD = 100_000
"""Maximum records of a partition that the client prefetches: its default."""
LEAST_FETCH_BYTES = 64 * 2**10
MOST_FETCH_BYTES = 2**20
"""Minimum and maximum bytes of a partition requested at once; the maximum is the client's default."""
USUAL_BYTES = 1024
"""Assumed size of a record, for the bytes to request; larger records need more answers."""
HELD_BYTES = 64 * 2**20
"""Bytes of all partitions that a task buffers before it yields those of the largest partition."""
FIRST_BYTES = 20 * 2**10
"""Bytes of a partition requested to see its first record: a producer's default batch. With fewer bytes an answer holds only one
partition; larger batches arrive anyway."""
FIRST_S = 8.0
"""Seconds to wait for first records, as for an answer."""
FULL_MS = 2
"""Time for which the client requests no more of a partition once it has enough. Its default of a second is longer than the buffer
lasts; with a shorter time it does little but request."""
WAIT_MS = 20
"""Time that the brokers may delay an empty answer, which shows the end of a partition. Their default is half a second. A range
ends with such an answer if its last offsets hold no record, as after a transaction."""
SILENCE_S = 60.0
"""Seconds without any data, although there is more, before the read fails."""
PLACES_PER_PARTITION = 2**40
"""`line` of a record in order: its partition times this, plus its place in the range."""


@dataclass(frozen=True)
class Reading:
    """Reads ranges of partitions. It is sent to workers with the client's settings, which messages must not show.

    Args:
        settings: The client's.
        in_order: Order records over all partitions by their times (arrival mode); else by partition and offset.
        max_value_bytes: A longer value is cut after one more byte.
        registry: Has the schemas of the records; None: they are not Avro.
    """

    settings: Mapping[str, str] = field(repr=False)
    in_order: bool
    max_value_bytes: int
    registry: OpenRegistry | None = None

    def __call__(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Yield the records of a span, each partition's in their order.

        Raises:
            SourceLostError: a range begins where the topic no longer has records.
            SourceUnavailableError: the brokers, or the registry, do not answer.
            SourceReadError: the brokers, or the registry, refuse us.
        """
        batches = self._batches(span)
        return batches if self.registry is None else with_schemas(batches, self.registry.schemas)

    def _batches(self, span: Span) -> Iterator[pa.RecordBatch]:
        kafka = library()
        reported = _Reported()
        topic = span.identity["topic"]
        filled = [_Ordered(topic, part, self) for part in span.parts]
        settings = {
            **_up_to(max((each.n_left for each in filled), default=1)),
            **_consuming(self.settings),
            "error_cb": reported,
            "enable.partition.eof": True,  # the end shows that records were aborted or compacted
        }
        left = {each.partition: each for each in filled}
        consumer = kafka.Consumer(settings)
        try:
            consumer.assign(_places(kafka, span))
            yield from self._read(kafka, consumer, left, reported)
        finally:
            consumer.close()

    def _read(
        self,
        kafka: Any,
        consumer: Any,
        left: dict[int, _Ordered],
        reported: _Reported,
    ) -> Iterator[pa.RecordBatch]:
        heard = time.monotonic()
        while left:
            n_left = sum(partition.n_left for partition in left.values())
            for message in _next(consumer, min(n_left, MESSAGES)):
                partition = left.get(message.partition())
                error = message.error()
                if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                    _refuse_lost(error, message)
                    _refuse_unpermitted(error, message)
                    reported(error)
                    continue  # the client retries by itself; permanent errors end in silence
                heard = time.monotonic()
                if partition is None:
                    continue
                next_offset = message.offset()  # at the end of a partition: the next offset to be written
                if error is None:
                    partition.take(message)
                    next_offset += 1
                partition.n_left = partition.end - next_offset
                if partition.n_left <= 0:
                    del left[message.partition()]
                    consumer.incremental_unassign([kafka.TopicPartition(message.topic(), message.partition())])
                    yield from partition.batches()
                elif partition.n_bytes >= BATCH_BYTES:
                    yield from partition.batches()
            yield from _too_much(left.values())
            if reported.permanent is not None:
                raise unreachable(self.settings["bootstrap.servers"], [reported.permanent])
            if time.monotonic() - heard > SILENCE_S:
                raise _silence(left, reported)


def _next(consumer: Any, most: int) -> list[Any]:
    """Return a message, if one arrives soon, and those that arrived with it.

    A request for more would make the client wait in vain.
    """
    first: list[Any] = consumer.consume(1, timeout=0.2)
    return first + consumer.consume(most, timeout=0) if first else []


def first_times(
    settings: Mapping[str, str],
    span: Span,
    isolation: str = "read_committed",
) -> dict[int, int]:
    """Return the times of the first records of a span, epoch ms, by partition, for partitions that answer soon.

    Args:
        settings: The client's.
        span: The span. A partition may have no record in it: all were aborted or compacted.
        isolation: With `read_uncommitted` records of open transactions also count.
    """
    left = {partition for partition, size in span.sizes.items() if size}
    if not left:
        return {}
    kafka = library()
    own = {
        **_consuming(settings),
        "isolation.level": isolation,
        "queued.min.messages": 1,
        "fetch.message.max.bytes": FIRST_BYTES,
        "enable.partition.eof": True,
    }
    consumer = kafka.Consumer(own)
    times: dict[int, int] = {}
    try:
        consumer.assign(_places(kafka, span))
        end = time.monotonic() + FIRST_S
        while left and time.monotonic() < end:
            for message in consumer.consume(1, timeout=0.1):
                partition = message.partition()
                if partition not in left:
                    continue
                left.remove(partition)
                # Without this the client continues with this partition and never reads another.
                consumer.incremental_unassign([kafka.TopicPartition(message.topic(), partition)])
                if message.error() is None and message.offset() < span.end[partition]:
                    _, times[partition] = message.timestamp()
    finally:
        consumer.close()
    return {partition: time_ms for partition, time_ms in times.items() if time_ms >= 0}


def _places(kafka: Any, span: Span) -> list[Any]:
    """Return the starts of a span's non-empty partitions."""
    topic = span.identity["topic"]
    sizes = span.sizes
    return [
        kafka.TopicPartition(topic, partition, start) for partition, start in span.start.items() if sizes[partition]
    ]


def _consuming(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a client that reads ranges and leaves no trace at the brokers."""
    return {
        **settings,
        "group.id": settings["client.id"],  # the client requires one; it never joins the group
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "fetch.queue.backoff.ms": FULL_MS,
        "fetch.wait.max.ms": WAIT_MS,
    }


def _up_to(n_offsets: int) -> dict[str, Any]:
    """Return the amounts that a client requests of each partition, by the number of offsets in the largest range.

    By default it prefetches a megabyte or more of each partition, much more than a small step needs.
    """
    return {
        "queued.min.messages": min(n_offsets, MOST_AHEAD),
        "fetch.message.max.bytes": min(max(n_offsets * USUAL_BYTES, LEAST_FETCH_BYTES), MOST_FETCH_BYTES),
    }


class _Reported:
    """Keeps errors that the client reports outside of records."""

    def __init__(self) -> None:
        self.last: Any = None
        self.permanent: Any = None
        """The last error that waiting does not cure."""

    def __call__(self, error: Any) -> None:
        """Keep an error."""
        self.last = error
        if is_telling(error):
            self.permanent = error


class _Ordered:
    """Collects the records of one partition.

    Args:
        topic: Its topic.
        part: The span of it.
        reading: Settings of the reading.
    """

    def __init__(self, topic: str, part: Span, reading: Reading) -> None:
        [self.partition] = part.start
        self.topic = topic
        self.start = part.start[self.partition]
        self.end = part.end[self.partition]
        self.n_bytes = 0
        self.n_left = part.size
        self._in_order = reading.in_order
        self._limit = reading.max_value_bytes + 1
        self._newest_ms = -1
        self._messages: list[Any] = []

    def take(self, message: Any) -> None:
        """Add a record, unless it is after the span."""
        if message.offset() < self.end:
            self._messages.append(message)
            self.n_bytes += len(message)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected records."""
        messages = self._messages
        self._messages = []
        self.n_bytes = 0
        if messages:
            yield self._batch(messages)

    def _batch(self, messages: Sequence[Any]) -> pa.RecordBatch:
        n = len(messages)
        partition = self.partition
        partitions = [partition] * n
        offsets = [message.offset() for message in messages]
        keys = [message.key() for message in messages]
        headers = [message.headers() or () for message in messages]
        other = [other_keys(each) for each in headers]
        parts = partitions
        lines = offsets
        if self._in_order:
            first = partition * PLACES_PER_PARTITION - self.start
            parts = self._running_times(messages)
            lines = [first + offset for offset in offsets]
        columns = [
            pa.repeat(self.topic, n),
            pa.array(parts, pa.int64()),
            pa.array(lines, pa.int64()),
            pa.array(self._values(messages), pa.binary()),
            pa.array(keys, pa.binary()),
            pa.array([old_key for old_key, _ in other], pa.binary()),
            pa.array([new_key for _, new_key in other], pa.binary()),
            pa.array(partitions, pa.int64()),
            pa.array(offsets, pa.int64()),
        ]
        return pa.record_batch(columns, schema=PLACED_RECORDS)

    def _values(self, messages: Sequence[Any]) -> list[bytes | None]:
        values = []
        for message in messages:
            value = message.value()
            if value is not None:
                value = value[: self._limit]
            values.append(value)
        return values

    def _running_times(self, messages: Sequence[Any]) -> list[int]:
        """Return the greatest time so far at each record, epoch ms: within a partition only the offset decides."""
        times = []
        newest = self._newest_ms
        for message in messages:
            _, time_ms = message.timestamp()
            newest = max(newest, time_ms)
            times.append(newest)
        self._newest_ms = newest
        return times


def _too_much(partitions: Collection[_Ordered]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the largest partitions until the rest fits the buffer."""
    held = sum(partition.n_bytes for partition in partitions)
    while held >= HELD_BYTES:
        largest = max(partitions, key=lambda partition: partition.n_bytes)
        held -= largest.n_bytes
        yield from largest.batches()


def _refuse_lost(error: Any, message: Any) -> None:
    if error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
        raise SourceLostError.of(
            f"Records of topic '{message.topic()}' were deleted while they were to be read; nothing of the step was committed.",
            got=f"partition {message.partition()}: {error.str()}",
            allowed="a topic that keeps records until they are read",
            next_step="Run again to see which are missing.",
        )


def _refuse_unpermitted(error: Any, message: Any) -> None:
    # Errors about the group are ignored: it is never joined and needs no permission.
    if error.name() == "TOPIC_AUTHORIZATION_FAILED":
        raise SourceReadError.of(
            f"The client may not read topic '{message.topic()}'; nothing of the step was committed.",
            got=text_of(error),
            next_step="Let it read the topic (Read and Describe), and run again.",
        )


def _silence(left: Iterable[int], reported: _Reported) -> SourceUnavailableError:
    got = ", ".join(f"partition {number}" for number in left)
    if reported.last is not None:
        got = f"{got}; last error: {text_of(reported.last)}"
    return SourceUnavailableError.of(
        f"The Kafka brokers have sent nothing for {SILENCE_S:g} s; nothing of the step was committed.",
        got=got,
        next_step="Run again once they answer.",
    )
