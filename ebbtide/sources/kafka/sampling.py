"""The first records of a topic, to look at."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.formats.records import MAX_RECORD_BYTES, stored_form
from ebbtide.sources.kafka.client import Client
from ebbtide.sources.kafka.reading import Reading, ranges_of
from ebbtide.sources.kafka.registry import Registry
from ebbtide.sources.kafka.topic import ask


def first_lines(
    client: Client,
    topic: str,
    n: int,
    registry: Registry | None = None,
) -> Iterator[bytes]:
    """Yield the first records of all partitions of a topic, as lines that hold Kafka records.

    It goes on behind places without a value, however many there are: a topic may begin with compacted or aborted records, or tombstones.

    Args:
        client: How the brokers are reached.
        topic: Its name.
        n: Records with a value to read, of each partition by its share of what is there.
        registry: How the registry of its schemas is reached; None: its records are not Avro.

    Raises:
        SourceReadError: there is no such topic, or the client may not read it.
        SourceUnavailableError: the brokers do not answer.
    """
    found, at_time = ask(client, topic, "earliest")
    left = found.beginning("earliest", at_time)
    reading = Reading(
        client.settings(),
        in_order=False,
        max_value_bytes=MAX_RECORD_BYTES,
        registry=None if registry is None else registry.open(),
    )
    n_left = most = n
    while n_left > 0 and left.size:
        first = left.first(most)
        for batch in reading(ranges_of(first)):
            lines = stored_form(batch)
            yield from lines.to_pylist()
            n_left -= len(batch) - batch["value"].null_count
        left = left.after(first.end)
        most *= 2
