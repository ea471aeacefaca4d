"""A Kafka topic as a source. The driver asks the brokers for offsets; tasks read their ranges directly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ebbtide.sources._available import Available
from ebbtide.sources._kafka.client import Client, topic_names
from ebbtide.sources._kafka.reading import Reading, first_times
from ebbtide.sources._kafka.registry import Registry
from ebbtide.sources._kafka.topic import Topic, ask, ends_at, held, identify, offsets_at
from ebbtide.sources._positioned import PositionedSource, SourceSettings
from ebbtide.sources._source import Backlog
from ebbtide.sources._span import Offsets, Span


@dataclass(frozen=True)
class KafkaSource(PositionedSource):
    """A topic; each record is read once.

    Args:
        client: Settings of the client.
        topic: Its name.
        settings: See `PositionedSource`.
        registry: The schema registry; None: the records are not Avro.
    """

    client: Client
    topic: str
    settings: SourceSettings
    registry: Registry | None = None

    def refuse_absent(self) -> None:
        """See `Source`: the brokers answer and have the topic and the start of the first step, and the registry answers."""
        super().refuse_absent()
        if self.registry is not None:
            self.registry.open()

    def available(self) -> Topic:
        """See `PositionedSource`."""
        return ask(self.client, self.topic)

    def ends_at(self, since: Span) -> bool:
        """See `Source`."""
        return ends_at(self.client, self.topic, since.end)

    def offsets_at(self, time: datetime, there: Available) -> Offsets:
        """See `PositionedSource`."""
        return offsets_at(self.client, self.topic, time, there.latest)

    def reader(self, max_record_bytes: int) -> Reading:
        """See `PositionedSource`."""
        registry = None if self.registry is None else self.registry.open()
        return Reading(self.client.settings(), self.settings.in_order, max_record_bytes, registry)

    def waiting(self, span: Span) -> Backlog:
        """See `PositionedSource`; the oldest record of a partition is its first."""
        settings = self.client.settings()
        times_ms = first_times(settings, span)
        behind = held(self.client, span)
        held_ms = first_times(settings, behind, "read_uncommitted")
        return Backlog(
            records=span.sizes,
            oldest_ms=held_ms | times_ms,
            held={partition: size for partition, size in behind.sizes.items() if size},
        )

    def refuse_replaced(self, span: Span) -> None:
        """See `PositionedSource`: tasks read by the topic's name."""
        now = identify(self.client, self.topic)
        now.refuse_other(span)

    def names(self) -> list[str]:
        """See `PositionedSource`: the cluster's topics."""
        return topic_names(self.client)
