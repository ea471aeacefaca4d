"""The present state of a topic: identity and offsets, to refuse a replaced or shortened topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Self

from ebbtide.errors import EbbtideError, SourceLostError, SourceReadError, SourceUnavailableError
from ebbtide.sources._available import ACCEPT_LOSS, Available
from ebbtide.sources._kafka.client import ANSWER_S, Answer, Asking, Client, answered, library
from ebbtide.sources._span import Offsets, Span

PASSING = (
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REPLICA_NOT_AVAILABLE",
    "BROKER_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",  # a broker that has just started knows less than the client
    "FENCED_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "_NOENT",  # no partition has a leader, for example while the only broker starts
)
"""Answers while another broker is, or was just, unavailable."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The placeholder for the id of a topic that has none: 128 bits of 0, in base64."""
LEADER_POLL_S = 0.2
"""Seconds between checks for a leader of a partition."""


class Topic(Available):
    """The present state of a topic. A recreated topic has another id. Records of open transactions cannot be read."""

    @classmethod
    def of(cls, cluster_id: str, name: str, id_: str, earliest: Offsets, latest: Offsets) -> Self:
        """Name a topic.

        Args:
            cluster_id: The cluster's id.
            id_: Its id.
            earliest: See `Available`.
            latest: See `Available`.
        """
        identity = {
            "cluster_id": cluster_id,
            "topic": name,
            "topic_id": id_,
        }
        return cls(f"topic '{name}'", identity, earliest, latest)

    def refuse_other(self, read: Span) -> None:
        """Refuse a range of another topic.

        Args:
            read: The range.

        Raises:
            SourceLostError: the range is of another cluster, or of a deleted topic.
        """
        own = self.identity
        cluster_id = read.identity.get("cluster_id")
        topic_id = read.identity.get("topic_id")
        if own["cluster_id"] != cluster_id:
            raise SourceLostError.of(
                f"The Kafka cluster is not the one that {self.name} was read from.",
                got=f"cluster {own['cluster_id']}",
                allowed=f"cluster {cluster_id}",
                next_step=f"Correct source.bootstrap_servers; or, if the topic has moved permanently: {ACCEPT_LOSS}",
            )
        if own["topic_id"] != topic_id:
            raise SourceLostError.of(
                f"{self._name} was deleted and recreated; its records are not those that were read.",
                got=f"topic id {own['topic_id']}",
                allowed=f"topic id {topic_id}",
                next_step=ACCEPT_LOSS,
            )


def ask(client: Client, topic: str) -> Topic:
    """Ask the brokers about a topic.

    Args:
        client: Settings of the client.
        topic: Its name.

    Raises:
        SourceReadError: there is no such topic, the client may not read it, or it has no id.
        SourceUnavailableError: they do not answer in time.
    """
    spec = library().admin.OffsetSpec

    def asked(asking: Asking) -> Topic:
        identity, partitions = _described(asking, topic)
        earliest = _offsets(asking, topic, partitions, spec.earliest())
        latest = _offsets(asking, topic, partitions, spec.latest())
        return replace(identity, earliest=earliest, latest=latest)

    return _answered(client, topic, asked)


def ends_at(client: Client, topic: str, read: Offsets) -> bool:
    """Ask the brokers whether the partitions of a topic end where they were read up to; False if they refuse to answer.

    Args:
        client: Settings of the client.
        topic: Its name.
        read: Partition to the offset after the last record read.

    Raises:
        SourceUnavailableError: they do not answer in time.
    """
    kafka = library()
    latest = kafka.admin.OffsetSpec.latest()

    def asked(asking: Asking) -> Offsets:
        return _offsets_now(asking, topic, list(read), latest, kafka.IsolationLevel.READ_COMMITTED)

    try:
        return answered(client, asked) == dict(read)
    except kafka.KafkaException:
        return False


def offsets_at(client: Client, topic: str, time: datetime, latest: Offsets) -> Offsets:
    """Ask the brokers for each partition's offset at a time.

    Args:
        client: Settings of the client.
        topic: The topic's name.
        time: The time.
        latest: The offsets of partitions without a record of that time or a later one.
    """
    partitions = list(latest)
    time_ms = int(time.timestamp() * 1000)
    at_time = library().admin.OffsetSpec.for_timestamp(time_ms)
    found = _answered(client, topic, lambda asking: _offsets(asking, topic, partitions, at_time))
    for partition, offset in found.items():
        has_none = offset < 0
        if has_none:
            found[partition] = latest[partition]
    return found


def held(client: Client, batch: Span) -> Span:
    """Ask the brokers for records that cannot be read yet: from the start of the oldest open transaction to the end.

    Args:
        client: Settings of the client.
        batch: A span with topic and partitions.

    Raises:
        SourceReadError: the client may not read the topic, or it is gone.
        SourceUnavailableError: they do not answer in time.
    """
    kafka = library()
    topic = batch.identity["topic"]
    partitions = list(batch.start)
    latest = kafka.admin.OffsetSpec.latest()

    def ends(asking: Asking) -> tuple[Offsets, Offsets]:
        # The end first: records committed between the two answers are not held.
        written = _offsets(asking, topic, partitions, latest, kafka.IsolationLevel.READ_UNCOMMITTED)
        return written, _offsets(asking, topic, partitions, latest)

    written, readable = _answered(client, topic, ends)
    end = {}
    for partition, offset in readable.items():
        end[partition] = max(offset, written[partition])
    return replace(batch, start=readable, end=end)


def identify(client: Client, topic: str) -> Topic:
    """Ask the brokers for a topic's identity, without its offsets.

    Args:
        client: Settings of the client.
        topic: The name.

    Raises:
        SourceReadError: there is no such topic, the client may not describe it, or it has no id.
        SourceUnavailableError: they do not answer in time.
    """
    identity, _ = _answered(client, topic, lambda asking: _described(asking, topic))
    return identity


def _answered(client: Client, topic: str, question: Callable[[Asking], Answer]) -> Answer:
    """Return the brokers' answer to a request about a topic; errors name the topic."""
    try:
        return answered(client, question)
    except library().KafkaException as error:
        raise _unreadable(client, topic, error) from error


def _described(asking: Asking, topic: str) -> tuple[Topic, list[int]]:
    """Ask for a topic's identity and partitions, with both requests in parallel."""
    names = library().TopicCollection([topic])
    of_cluster = asking.admin.describe_cluster(request_timeout=ANSWER_S)
    of_topic = asking.admin.describe_topics(names, request_timeout=ANSWER_S)[topic]
    cluster = asking.answer(of_cluster)
    described = asking.answer(of_topic)
    topic_id = str(described.topic_id)
    _refuse_without_id(topic, topic_id)
    identity = Topic.of(cluster.cluster_id, topic, topic_id, {}, {})
    return identity, [partition.id for partition in described.partitions]


def _refuse_without_id(topic: str, topic_id: str) -> None:
    """Refuse a topic without an id: a recreated topic could not be distinguished from it."""
    if topic_id == NO_ID:
        raise SourceReadError.of(
            f"The Kafka brokers give no id of topic '{topic}', which distinguishes it from a recreated one.",
            got="none",
            allowed="brokers of Kafka 2.8 or newer",
            next_step="Upgrade the brokers; those with ZooKeeper give topics their ids from inter.broker.protocol.version=2.8 on.",
        )


def _offsets(
    asking: Asking,
    topic: str,
    partitions: list[int],
    spec: Any,
    isolation: Any = None,
) -> dict[int, int]:
    """Ask for an offset of each partition; ask again if one has no leader yet, as in a new topic."""
    kafka = library()
    asking.begin()
    while True:
        try:
            return _offsets_now(asking, topic, partitions, spec, isolation or kafka.IsolationLevel.READ_COMMITTED)
        except kafka.KafkaException as error:
            passes = error.args[0].name() in PASSING
            if not passes or asking.is_late or asking.is_kept:
                raise
            time.sleep(LEADER_POLL_S)


def _offsets_now(
    asking: Asking,
    topic: str,
    partitions: list[int],
    spec: Any,
    isolation: Any,
) -> dict[int, int]:
    kafka = library()
    places = {kafka.TopicPartition(topic, partition): spec for partition in partitions}
    futures = asking.admin.list_offsets(
        places,
        isolation_level=isolation,
        request_timeout=ANSWER_S,
    )
    return {place.partition: asking.answer(future).offset for place, future in futures.items()}


def _unreadable(client: Client, topic: str, error: Exception) -> EbbtideError:
    kafka_error = error.args[0]
    name = kafka_error.name()
    if name in PASSING:
        return SourceUnavailableError.of(
            f"A partition of topic '{topic}' has no leader among the Kafka brokers '{client.servers}' at the moment.",
            got=f"{name}: {kafka_error.str()}",
            next_step="Start the broker that has it; a topic with several replicas gets another leader by itself.",
        )
    if name == "UNKNOWN_TOPIC_OR_PART":
        return SourceReadError.of(
            f"There is no topic '{topic}' at the Kafka brokers '{client.servers}'.",
            next_step="Create it, or correct source.topic in the spec.",
        )
    return SourceReadError.of(
        f"Topic '{topic}' at the Kafka brokers '{client.servers}' cannot be read.",
        got=f"{name}: {kafka_error.str()}",
        next_step="Let the client describe and read the topic, and run again.",
    )
