"""A Kafka broker from its published jars: KRaft, one node, on loopback and free ports. Resolved by the Ivy that Spark brings, so that no Maven is needed."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import subprocess
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.ivy import JVM, SPARK_JARS, cache_of, fetch
from confluent_kafka import KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from frame.waiting import PATIENCE_S
from servers.certificates import Authority

VERSION = "4.3.1"
KAFKA = (
    "kafka_2.13",
    "kafka-clients",
    "kafka-coordinator-common",
    "kafka-group-coordinator",
    "kafka-group-coordinator-api",
    "kafka-metadata",
    "kafka-raft",
    "kafka-server",
    "kafka-server-common",
    "kafka-share-coordinator",
    "kafka-storage",
    "kafka-storage-api",
    "kafka-tools-api",
    "kafka-transaction-coordinator",
)
OTHERS = (
    "com.dynatrace.hash4j:hash4j:0.22.0",
    "com.github.ben-manes.caffeine:caffeine:3.2.0",
    "com.google.re2j:re2j:1.8",
    "com.yammer.metrics:metrics-core:2.2.0",
    "commons-validator:commons-validator:1.10.1",
    "net.sf.jopt-simple:jopt-simple:5.0.4",
    "net.sourceforge.argparse4j:argparse4j:0.7.0",
    "com.typesafe.scala-logging:scala-logging_2.13:3.9.6",
    "org.bitbucket.b_c:jose4j:0.9.6",
    "org.hdrhistogram:HdrHistogram:2.2.2",
    "org.pcollections:pcollections:4.0.2",
)
"""What a broker needs and Spark does not bring."""
OF_SPARK = (
    "jackson-",
    "log4j-",
    "lz4-java-",
    "scala-library-",
    "scala-reflect-",
    "slf4j-api-",
    "snappy-java-",
    "zstd-jni-",
)
USER, PASSWORD = "app", "right-password"
"""Who may come in by SASL."""


def class_path() -> str:
    """Find the broker's jars, resolved once for a user."""
    folder = cache_of(f"kafka-{VERSION}")
    modules = [f"org.apache.kafka:{name}:{VERSION}" for name in KAFKA] + list(OTHERS)
    wanted = [folder / "{1}-{2}.jar".format(*module.split(":")) for module in modules]
    if not all(jar.exists() for jar in wanted):
        fetch(folder, modules)
    return os.pathsep.join(map(str, [*wanted, *jars_of_spark()]))


def jars_of_spark() -> list[Path]:
    """Find what brokers and connectors need and Spark brings."""
    return [jar for jar in sorted(SPARK_JARS.glob("*.jar")) if jar.name.startswith(OF_SPARK)]


PORTS = range(20_000, 32_000)
"""Below those that systems give to clients: one of these might take the port of a server that is away for a while."""


def free_port() -> int:
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Broker:
    """A running broker.

    Args:
        folder: Takes its data and its log.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.sasl_port, self.controller_port, self.ssl_port, self.scram_port = (
            free_port() for _ in range(5)
        )
        self.servers = f"127.0.0.1:{self.port}"
        self.sasl_servers = f"127.0.0.1:{self.sasl_port}"
        self.ssl_servers = f"127.0.0.1:{self.ssl_port}"
        self.scram_servers = f"127.0.0.1:{self.scram_port}"
        self._class_path = class_path()
        self._settings = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        self.authority = Authority(folder, "authority")
        settings = self._server_properties()
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = urlsafe_b64encode(b"\x01" + secrets.token_bytes(15)).decode().rstrip("=")
        scram = f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]"
        command = [
            "kafka.tools.StorageTool",
            "format",
            "-t",
            cluster_id,
            "-c",
            str(self._settings),
            "--add-scram",
            scram,
        ]
        self._java(*command).wait(PATIENCE_S)
        self.start()

    def _server_properties(self) -> dict[str, Any]:
        login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        certificate = self.authority.server()
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(
                (
                    f"PLAINTEXT://{self.servers}",
                    f"SASL://{self.sasl_servers}",
                    f"SSL://{self.ssl_servers}",
                    f"SCRAM://{self.scram_servers}",
                    f"CONTROLLER://127.0.0.1:{self.controller_port}",
                )
            ),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SSL:SSL,SCRAM:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl.plain.sasl.jaas.config": login,
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": certificate,
            "listener.name.scram.ssl.keystore.type": "PEM",
            "listener.name.scram.ssl.keystore.location": certificate,
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.scram.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "allow.everyone.if.no.acl.found": "true",
            "log.dirs": self.folder / "data",
            "log.cleaner.backoff.ms": 200,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "message.max.bytes": 32 * 2**20,
            "auto.create.topics.enable": "false",
            "num.network.threads": 2,
            "num.io.threads": 2,
        }

    def _java(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / "log.txt").open("ab")
        with log:
            arguments = ["java", *JVM, "-cp", self._class_path, *command]
            return subprocess.Popen(arguments, stdout=log, stderr=log)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = self._java("kafka.Kafka", str(self._settings))
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.admin.list_topics(timeout=1)
            except KafkaException:
                if time.monotonic() > end or self._process.poll() is not None:
                    raise RuntimeError((self.folder / "log.txt").read_text()[-3000:]) from None
            else:
                return

    def stop(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()

    @contextlib.contextmanager
    def beside(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run a second broker of the cluster; whoever kills it may start it no more."""
        folder = self.folder / "beside"
        folder.mkdir()
        settings = self._server_properties() | {
            "process.roles": "broker",
            "node.id": 2,
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "log.dirs": folder / "data",
        }
        path = folder / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster_id = self.admin.list_topics(timeout=PATIENCE_S).cluster_id
        self._java("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(path)).wait(PATIENCE_S)
        process = self._java("kafka.Kafka", str(path))
        try:
            while len(self.admin.list_topics(timeout=PATIENCE_S).brokers) < 2:
                time.sleep(0.2)
            yield process
        finally:
            process.kill()
            process.wait()

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        self._create(NewTopic(topic, partitions, 1, config=named))
        self._wait_for(topic, partitions)

    def create_on(self, topic: str, *brokers: int) -> None:
        """Make a topic with a partition on each of some brokers."""
        self._create(NewTopic(topic, len(brokers), replica_assignment=[[broker] for broker in brokers]))

    def _create(self, topic: NewTopic) -> None:
        [made] = self.admin.create_topics([topic]).values()
        made.result(PATIENCE_S)

    def _wait_for(self, topic: str, n_partitions: int) -> None:
        """Wait until the broker describes a topic as it was asked for: it answers a request before all of it knows."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            with contextlib.suppress(KafkaException):
                [described] = self.admin.describe_topics(TopicCollection([topic])).values()
                partitions = described.result(PATIENCE_S).partitions
                if len(partitions) == n_partitions and all(partition.leader for partition in partitions):
                    return
            time.sleep(0.05)
        raise TimeoutError(f"topic {topic} has no {n_partitions} partitions with leaders")

    def add_partition(self, topic: str, total: int) -> None:
        [added] = self.admin.create_partitions([NewPartitions(topic, total)]).values()
        added.result(30)
        self._wait_for(topic, total)

    def delete(self, topic: str) -> None:
        [gone] = self.admin.delete_topics([topic]).values()
        gone.result(30)

    def delete_below(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Delete a topic's first records, as retention does."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for gone in self.admin.delete_records(places).values():
            gone.result(30)

    def permit(
        self,
        kind: ResourceType,
        name: str,
        operation: AclOperation,
        permission: AclPermissionType = AclPermissionType.ALLOW,
    ) -> None:
        """Say what `USER` may do: of a topic or group of which nothing is said, all."""
        given = (kind, name, ResourcePatternType.LITERAL, f"User:{USER}", "*", operation, permission)
        [made] = self.admin.create_acls([AclBinding(*given)]).values()
        made.result(PATIENCE_S)
        while not self.admin.describe_acls(AclBindingFilter(*given)).result(30):  # the controller knows of it first
            time.sleep(0.05)

    def put(self, topic: str, records: Sequence[Mapping[str, Any]], **config: Any) -> None:
        """Produce records: partition, value and, if they have them, key and timestamp."""
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,  # else what is sent again on a busy machine may change places
                "linger.ms": 5,
                "queue.buffering.max.messages": 10_000_000,
                **config,
            }
        )
        for record in records:
            producer.produce(topic, **record)
            producer.poll(0)
        assert producer.flush(60) == 0
