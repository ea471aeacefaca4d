"""The topics of a cluster, by a pattern."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

from ebbtide.sources.kafka.client import ANSWER_S, Asking, Client, library, unreachable


def topics_like(client: Client, pattern: str) -> list[str]:
    """Return the topics that a pattern matches, by name; Kafka's own (`__...`) only if it begins as they do.

    Args:
        client: How the brokers are reached.
        pattern: With `*`, `?` and `[...]`.

    Raises:
        SourceReadError: the brokers refuse the client.
        SourceUnavailableError: they do not answer.
    """
    asking = Asking(client)
    try:
        found = asking.admin.list_topics(timeout=ANSWER_S).topics
    except library().KafkaException as error:
        asking.admin.poll(0.1)  # what the client has to report beside
        raise unreachable(client.servers, [*asking.telling(), error.args[0]]) from error
    return sorted(matching(found, pattern))


def matching(topics: Iterable[str], pattern: str) -> list[str]:
    """Return the topics that a pattern matches; see `topics_like`.

    Example:
        >>> matching(["shop.orders", "__consumer_offsets"], "*")
        ['shop.orders']
    """
    found = [topic for topic in topics if fnmatchcase(topic, pattern)]
    if pattern.startswith("_"):
        return found
    return [topic for topic in found if not topic.startswith("__")]


def unread(topics: Iterable[str], read: Collection[str], ignored: Iterable[str]) -> list[str]:
    """Return the topics that nothing reads, without those that nothing is to read.

    Args:
        topics: Those that there are.
        read: Those that are read.
        ignored: Patterns of those that are not to be.
    """
    left = set(topics).difference(read)
    for pattern in ignored:
        left.difference_update(matching(left, pattern))
    return sorted(left)
