"""Pipelines over topics of a broker, run without Spark; and the shop's records in topics."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from local.local_pipeline import LocalPipeline
from local.support import plain
from servers.kafka_broker import Broker

from ebbtide.spec import Pipeline

Record = dict[str, Any]


def records_of(lines: Iterable[str | bytes]) -> list[Record]:
    """Lines that hold Kafka records as what a producer takes, for three partitions; a key stays in its partition."""
    records = []
    for line in lines:
        given = json.loads(line)
        key = given["key"]
        partition = zlib.crc32((key or "").encode()) % 3
        value = None if given["value"] is None else given["value"].encode()
        records.append({"partition": partition, "value": value, "key": None if key is None else key.encode()})
    return records


def plainly(*values: str, partition: int = 0, **more: Any) -> list[Record]:
    """Values as records of one partition."""
    return [{"partition": partition, "value": value.encode(), **more} for value in values]


def over_topic(spec: Pipeline, broker: Broker, topic: str, **more: Any) -> Pipeline:
    """A spec with a topic for its source."""
    source = {"type": "kafka", "bootstrap_servers": broker.servers, "topic": topic, **more}
    given = spec.model_dump(by_alias=True, exclude_unset=True)
    return type(spec)(**{**given, "source": source})


class TopicPipeline(LocalPipeline):
    """A pipeline by sequence over a topic.

    Args:
        folder: Where its tables are.
        broker: Has the topic.
        topic: Its name.
        fields: Further fields of its spec.
    """

    def __init__(self, folder: Path, broker: Broker, topic: str, **fields: Any) -> None:
        self.broker, self.topic = broker, topic
        super().__init__(folder, **fields)

    def with_fields(self, **more: Any) -> Pipeline:
        source = {
            "type": "kafka",
            "bootstrap_servers": self.broker.servers,
            "topic": self.topic,
            **self.fields.get("source", {}),
            **more.pop("source", {}),
        }
        return plain(**{**self.fields, **more, "source": source})

    def put(self, *lines: str) -> None:
        """Put changes into the topic, those of a key into one partition."""
        records = []
        for line in lines:
            found = re.search(r'"id": (\d+)', line)
            partition = int(found[1]) % 2 if found else 2
            records += plainly(line, partition=partition)
        self.broker.put(self.topic, records)

    def send(self, *values: str, partition: int = 0, **config: Any) -> None:
        """Put values into the topic."""
        self.broker.put(self.topic, plainly(*values, partition=partition), **config)

    def losses(self) -> list[str]:
        """What the facts of all steps say to be lost."""
        return [facts.source.lost for _, facts in self.plan.state.steps() if facts.source.lost]

    def ranges(self) -> tuple[dict[str, int], dict[str, int]]:
        """Where the last step's batch begins and ends."""
        position = self.last.source.position
        assert position is not None
        return position["from"], position["to"]
