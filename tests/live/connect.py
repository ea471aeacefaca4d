"""Kafka Connect in one process, with Debezium's connector for Postgres, from their published jars."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from clusters.ivy import cache_of, fetch
from postgres import USER, Postgres
from servers.kafka_broker import VERSION, free_port, jars_of_spark

DEBEZIUM = "3.7.0.Final"
MODULES = (
    f"org.apache.kafka:connect-runtime:{VERSION}",
    f"org.apache.kafka:connect-json:{VERSION}",
    f"io.debezium:debezium-connector-postgres:{DEBEZIUM}",
)
JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.apache.logging.log4j.level=WARN")
NAME = "shop"


def class_path() -> str:
    """Find the jars, resolved once for a user."""
    folder = cache_of(f"connect-{VERSION}-{DEBEZIUM}")
    is_resolved = folder / "resolved"
    if not is_resolved.exists():
        fetch(folder, MODULES, with_theirs=True)
        is_resolved.touch()
    theirs = [jar for jar in sorted(folder.glob("*.jar")) if not jar.name.startswith("slf4j-api-")]
    return os.pathsep.join(map(str, [*jars_of_spark(), *theirs]))


class Connect:
    """A worker with one connector; started by `start`, as often as it has died.

    Args:
        folder: Takes its offsets and its log.
        servers: The brokers.
        postgres: The source.
        tables: What is captured.
    """

    def __init__(self, folder: Path, servers: str, postgres: Postgres, tables: Sequence[str]) -> None:
        folder.mkdir()
        self._class_path = class_path()
        self._log = folder / "log.txt"
        self._port = free_port()
        self._worker, self._connector = folder / "worker.properties", folder / "connector.properties"
        _write(
            self._worker,
            {
                "bootstrap.servers": servers,
                "key.converter": "org.apache.kafka.connect.json.JsonConverter",
                "key.converter.schemas.enable": "false",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                "value.converter.replace.null.with.default": "false",
                "offset.storage.file.filename": folder / "offsets",
                "offset.flush.interval.ms": 5000,
                "listeners": f"http://127.0.0.1:{self._port}",
            },
        )
        _write(
            self._connector,
            {
                "name": NAME,
                "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
                "database.hostname": "127.0.0.1",
                "database.port": postgres.port,
                "database.user": USER,
                "database.password": postgres.password,
                "database.dbname": USER,
                "plugin.name": "pgoutput",
                "publication.autocreate.mode": "filtered",
                "table.include.list": ",".join(f"public.{table}" for table in tables),
                "topic.prefix": NAME,
                "decimal.handling.mode": "string",
                "skipped.operations": "none",
            },
        )

    def start(self) -> subprocess.Popen[bytes]:
        """Start it."""
        with self._log.open("ab") as log:
            main = ["org.apache.kafka.connect.cli.ConnectStandalone", str(self._worker), str(self._connector)]
            return subprocess.Popen(["java", *JVM, "-cp", self._class_path, *main], stdout=log, stderr=log)

    def has_failed(self) -> bool:
        """Whether the connector's task has ended with an error."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/connectors/{NAME}/status", timeout=5) as answer:
                status = json.load(answer)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False  # it is being started
        return any(task["state"] == "FAILED" for task in status["tasks"])


def _write(path: Path, properties: dict[str, object]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    path.chmod(0o600)  # the password is in it
