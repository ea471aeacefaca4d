"""What a topic is at the moment, and whether it is still the one that was read, with all that is next to be read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ebbtide.amounts import amount
from ebbtide.errors import ConfigError, EbbtideError, SourceLostError, SourceReadError, SourceUnavailableError
from ebbtide.sources.kafka.client import ANSWER_S, Asking, Client, answered, library
from ebbtide.sources.kafka.position import Offsets, TopicRange

Start = str | datetime | Offsets
"""Where the first step begins: `earliest`, `latest`, a time or offsets."""
PASSING = (
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "REPLICA_NOT_AVAILABLE",
    "BROKER_NOT_AVAILABLE",
    "UNKNOWN_LEADER_EPOCH",  # a broker that has just started knows less than who asks it
    "FENCED_LEADER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "_NOENT",  # no partition has a leader, as while the only broker starts
)
"""Answers of brokers of which some other one is away, or was until now."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What stands for the id of a topic that has none: 128 bits of 0, in base64."""
LEADER_POLL_S = 0.2
"""From one look whether a partition has a leader to the next."""
REFRESH = (
    "Run 'ebbtide refresh --accept-loss' to rebuild the sink from what the topic has now, or 'ebbtide run --accept-loss' to go on with that: "
    "either notes the loss, which fails the check 'source_loss'."
)


@dataclass(frozen=True)
class Identity:
    """Which topic it is: another one under its name has another id.

    Args:
        cluster_id: The cluster's own id.
        name: Its name.
        id: Its id.
    """

    cluster_id: str
    name: str
    id: str

    def refuse_other(self, read: TopicRange) -> None:
        """Refuse a range of another topic.

        Args:
            read: The range.

        Raises:
            SourceLostError: it is of another cluster, or of a topic that was deleted.
        """
        if self.cluster_id != read.cluster_id:
            raise SourceLostError.of(
                f"The Kafka cluster is not the one from which topic '{self.name}' was read.",
                got=f"cluster {self.cluster_id}",
                allowed=f"cluster {read.cluster_id}",
                next_step=f"Correct source.bootstrap_servers; or, if the topic has moved for good: {REFRESH}",
            )
        if self.id != read.topic_id:
            raise SourceLostError.of(
                f"Topic '{self.name}' was deleted and made anew; its records are others than those that were read.",
                got=f"topic id {self.id}",
                allowed=f"topic id {read.topic_id}",
                next_step=REFRESH,
            )


@dataclass(frozen=True)
class Topic(Identity):
    """A topic as it is.

    Args:
        cluster_id: See `Identity`.
        name: See `Identity`.
        id: See `Identity`.
        earliest: Of each partition the offset of the first record.
        latest: The offset after the last one that can be read: of an open transaction none can.
    """

    earliest: Offsets
    latest: Offsets

    def following(self, since: TopicRange) -> TopicRange:
        """Return what there is to read behind a position. A partition that it lacks was added since, and is read from offset 0.

        Raises:
            SourceLostError: records are missing, or it is another topic.
        """
        self.refuse_other(since)
        self._refuse_fewer(since)
        from_first = dict.fromkeys(self.earliest, 0)
        start = from_first | dict(since.end)
        self._refuse_lost(start)
        return self._up_to_end(start)

    def left_of(self, since: TopicRange) -> TopicRange:
        """Return what there is to read behind a position, lost records or not; of another topic all of it."""
        is_same = (self.cluster_id, self.id) == (since.cluster_id, since.topic_id)
        read_before = since.end if is_same else {}
        start = {}
        for partition, earliest in self.earliest.items():
            place = read_before.get(partition, earliest)
            start[partition] = min(max(place, earliest), self.latest[partition])
        return self._up_to_end(start)

    def beginning(self, start: Start, at_time: Offsets) -> TopicRange:
        """Return what there is to read where nothing was read before.

        Args:
            start: Where to begin.
            at_time: Of each partition the offset where that time begins.

        Raises:
            ConfigError: the offsets are not there.
        """
        if start == "earliest":
            return self._up_to_end(self.earliest)
        if start == "latest":
            return self._up_to_end(self.latest)
        if isinstance(start, datetime):
            return self._up_to_end(at_time)
        offsets = dict(self.earliest) | dict(_mapping(start))
        self._refuse_unfit_start(offsets)
        return self._up_to_end(offsets)

    def _up_to_end(self, start: Offsets) -> TopicRange:
        return TopicRange(self.cluster_id, self.name, self.id, dict(start), dict(self.latest))

    def _refuse_fewer(self, since: TopicRange) -> None:
        gone = sorted(since.end.keys() - self.latest.keys())
        if gone:
            raise SourceLostError.of(
                f"Topic '{self.name}' has fewer partitions than were read.",
                got=f"without {_named(gone)}",
                allowed=f"{amount(len(since.end), 'partition')} or more",
                next_step=REFRESH,
            )

    def _refuse_lost(self, start: Offsets) -> None:
        below = [_place(p, offset, self.earliest[p]) for p, offset in start.items() if offset < self.earliest[p]]
        if below:
            raise SourceLostError.of(
                f"Records of topic '{self.name}' that are next to be read were deleted, by its retention perhaps.",
                got="; ".join(below),
                allowed="a topic that keeps records until they are read",
                next_step=f"{REFRESH} Let the topic keep them longer (retention.ms, retention.bytes), or run more often.",
            )
        beyond = [_place(p, offset, self.latest[p]) for p, offset in start.items() if offset > self.latest[p]]
        if beyond:
            raise SourceLostError.of(
                f"Topic '{self.name}' ends before the records that were read: it has lost some, by an unclean leader election perhaps.",
                got="; ".join(beyond),
                allowed="a topic that has what was read of it",
                next_step=REFRESH,
            )

    def _refuse_unfit_start(self, offsets: Offsets) -> None:
        unknown = sorted(offsets.keys() - self.earliest.keys())
        if unknown:
            raise ConfigError.of(
                f"The start names partitions that topic '{self.name}' has not.",
                got=_named(unknown),
                allowed=f"0 to {len(self.earliest) - 1}",
                next_step="Correct source.start in the spec, or --from of the command.",
            )
        unfit = [p for p, offset in offsets.items() if not self.earliest[p] <= offset <= self.latest[p]]
        there = [f"partition {p}: {self.earliest[p]} to {self.latest[p]}" for p in unfit]
        if unfit:
            raise ConfigError.of(
                f"The start names offsets that topic '{self.name}' has not.",
                got="; ".join(f"partition {p}: {offsets[p]}" for p in unfit),
                allowed="; ".join(there),
                next_step="Correct source.start in the spec, or --from of the command.",
            )


def ask(client: Client, topic: str, start: Start) -> tuple[Topic, Offsets]:
    """Ask the brokers about a topic.

    Args:
        client: How they are reached.
        topic: Its name.
        start: Where the first step would begin.

    Returns:
        The topic, and of each partition the offset where the time begins that `start` is; empty where it is none.

    Raises:
        SourceReadError: there is no such topic, the client may not read it, or it has no id.
        SourceUnavailableError: they do not answer in time.
    """
    kafka = library()
    try:
        return answered(client, lambda asking: _asked(asking, topic, start))
    except kafka.KafkaException as error:
        raise _unreadable(client, topic, error) from error


def _asked(asking: Asking, topic: str, start: Start) -> tuple[Topic, Offsets]:
    spec = library().admin.OffsetSpec
    identity, partitions = _described(asking, topic)
    earliest = _offsets(asking, topic, partitions, spec.earliest())
    latest = _offsets(asking, topic, partitions, spec.latest())
    at_time: Offsets = {}
    if isinstance(start, datetime):
        time_ms = int(start.timestamp() * 1000)
        found = _offsets(asking, topic, partitions, spec.for_timestamp(time_ms))
        at_time = {partition: latest[partition] if offset < 0 else offset for partition, offset in found.items()}
    return Topic(identity.cluster_id, topic, identity.id, earliest, latest), at_time


def held(client: Client, batch: TopicRange) -> TopicRange:
    """Ask the brokers what of a topic nobody can read yet: from the beginning of the oldest transaction that is open, to the end.

    Args:
        client: How they are reached.
        batch: Its topic and partitions.

    Raises:
        SourceReadError: the client may not read the topic, or it is gone.
        SourceUnavailableError: they do not answer in time.
    """
    kafka = library()
    partitions = list(batch.start)
    latest = kafka.admin.OffsetSpec.latest()

    def ends(asking: Asking) -> tuple[Offsets, Offsets]:
        # The end first: what is committed between the two answers is not held.
        written = _offsets(asking, batch.topic, partitions, latest, kafka.IsolationLevel.READ_UNCOMMITTED)
        return written, _offsets(asking, batch.topic, partitions, latest)

    try:
        written, readable = answered(client, ends)
    except kafka.KafkaException as error:
        raise _unreadable(client, batch.topic, error) from error
    end = {partition: max(offset, written[partition]) for partition, offset in readable.items()}
    return replace(batch, start=readable, end=end)


def identify(client: Client, topic: str) -> Identity:
    """Ask the brokers which topic has a name.

    Args:
        client: How they are reached.
        topic: The name.

    Raises:
        SourceReadError: there is no such topic, the client may not describe it, or it has no id.
        SourceUnavailableError: they do not answer in time.
    """
    try:
        identity, _ = answered(client, lambda asking: _described(asking, topic))
    except library().KafkaException as error:
        raise _unreadable(client, topic, error) from error
    return identity


def _described(asking: Asking, topic: str) -> tuple[Identity, list[int]]:
    """Ask which topic it is, and which partitions it has; both questions are under way at once."""
    names = library().TopicCollection([topic])
    of_cluster = asking.admin.describe_cluster(request_timeout=ANSWER_S)
    of_topic = asking.admin.describe_topics(names, request_timeout=ANSWER_S)[topic]
    cluster = asking.answer(of_cluster)
    described = asking.answer(of_topic)
    topic_id = str(described.topic_id)
    _refuse_without_id(topic, topic_id)
    identity = Identity(cluster.cluster_id, topic, topic_id)
    return identity, [partition.id for partition in described.partitions]


def _refuse_without_id(topic: str, topic_id: str) -> None:
    """Refuse a topic without an id: one that is made anew under its name would be read on as if it were the same."""
    if topic_id == NO_ID:
        raise SourceReadError.of(
            f"The Kafka brokers give no id of topic '{topic}', which distinguishes it from one that is made again.",
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
    """Ask for an offset of each partition; again where one has no leader yet, as those of a topic that was just made."""
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


def _mapping(start: Any) -> Mapping[int, int]:
    return dict(start)


def _named(partitions: list[int]) -> str:
    names = ", ".join(map(str, partitions))
    return f"partition {names}" if len(partitions) == 1 else f"partitions {names}"


def _place(partition: int, next_offset: int, bound: int) -> str:
    return f"partition {partition}: {next_offset} is next, the topic has {'only from' if bound > next_offset else 'up to'} {bound}"
