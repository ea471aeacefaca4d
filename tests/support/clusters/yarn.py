"""A YARN of one host: Hadoop's own resource manager and node manager as processes, fetched once; they listen on loopback."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from clusters.ivy import JVM, SPARK_JARS, cache_of, fetch
from clusters.page import path_of_hosts, running
from clusters.spark_cluster import free_port
from frame.waiting import until

HADOOP = "3.5.0"
"""As Spark's own client."""
DAEMONS = [f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP}"]
THEIRS = ["org.bouncycastle:bcprov-jdk18on:1.82", "org.bouncycastle:bcpkix-jdk18on:1.82"]
"""What the daemons' jar leaves to others."""


def jars() -> Path:
    """Return the folder of the daemons' jars."""
    folder = cache_of(f"yarn-{HADOOP}")
    if not (folder / "complete").exists():
        fetch(folder, DAEMONS)
        fetch(folder, THEIRS, with_theirs=True)
        (folder / "complete").touch()
    return folder


@contextmanager
def yarn(folder: Path) -> Iterator[Path]:
    """A running YARN; yields the folder of its configuration.

    Args:
        folder: Takes its configuration and its disks.
    """
    web = f"127.0.0.1:{free_port()}"
    conf = folder / "hadoop"
    conf.mkdir()
    _write(conf / "yarn-site.xml", _settings(folder, web))
    command = ["java", *JVM, "-cp", f"{conf}:{jars()}/*:{SPARK_JARS}/*"]
    environment = {**os.environ, "PATH": path_of_hosts()}
    package = "org.apache.hadoop.yarn.server"
    with (
        running([*command, f"{package}.resourcemanager.ResourceManager"], folder, environment),
        running([*command, f"{package}.nodemanager.NodeManager"], folder, environment),
    ):
        until(lambda: _has_node(web), "the node manager to register")
        yield conf


def _settings(folder: Path, web: str) -> dict[str, str]:
    scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"  # needs no file of queues
    of_manager = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
    addresses = {f"yarn.resourcemanager.{name}": f"127.0.0.1:{free_port()}" for name in of_manager}
    of_node = ("address", "localizer.address", "webapp.address")
    return {
        **addresses,
        **{f"yarn.nodemanager.{name}": "127.0.0.1:0" for name in of_node},
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.webapp.address": web,
        "yarn.resourcemanager.scheduler.class": scheduler,
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": "4096",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",  # which refuses a disk that is nearly full
        "yarn.scheduler.minimum-allocation-mb": "256",
    }


def _write(path: Path, settings: Mapping[str, str]) -> None:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    path.write_text("\n".join(["<configuration>", *lines, "</configuration>"]))


def _has_node(web: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{web}/ws/v1/cluster/nodes?states=RUNNING") as answer:
            return bool(json.load(answer)["nodes"])
    except OSError:
        return False
