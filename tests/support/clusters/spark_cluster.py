"""A standalone cluster of Spark: workers as processes, each a host with disks of its own; the root is all that they share with the driver.

Hosts are addresses of loopback: 127.0.0.2 is the first worker's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyspark
from clusters.ivy import LEAST
from frame.users import User
from frame.waiting import PATIENCE_S

from ebbtide.spec import Pipeline

SPARK = Path(pyspark.__file__).parent
SUPPORT = Path(__file__).parents[1]
Event = dict[str, Any]
"""What a driver says, see `cluster_driver.py`."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def end_with_parent() -> None:
    """Have the process that is about to start killed when the tests' process ends, however it does."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass
class Worker:
    """A worker, and the executors that it started: one process group.

    Args:
        host: Its address.
        folder: Its disks: `work`, `local`, `tmp` and `cache`.
        process: Its process.
    """

    host: str
    folder: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill it with its executors, as a power cut does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def decommission(self) -> None:
        """Have it take no new tasks and finish those it has."""
        self.process.send_signal(signal.SIGPWR)

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self.process.poll() is not None

    def copies(self) -> list[Path]:
        """The local copies of keys on it."""
        return list((self.folder / "cache").glob("*.arrow"))


@dataclass
class Cluster:
    """A master and its workers.

    Args:
        folder: Has the log, and the disks of each worker.
        cores: Cores of each.
        users: Whose the workers are, in turns; none: all are of the tests' user.
    """

    folder: Path
    cores: int = 1
    users: Sequence[User] = ()
    workers: list[Worker] = field(default_factory=list)
    _n_hosts: int = 1

    def __post_init__(self) -> None:
        port = free_port()
        self.address = f"spark://127.0.0.1:{port}"
        options = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        self._master = self._start("org.apache.spark.deploy.master.Master", options, {})

    def add(self) -> Worker:
        """Start a worker."""
        self._n_hosts += 1
        host = f"127.0.0.{self._n_hosts}"
        user = self.users[self._n_hosts % len(self.users)] if self.users else None
        own = (user.home if user else self.folder) / host
        (own / "tmp").mkdir(parents=True)
        if user:
            user.give(own)
        options = ["--host", host, "--cores", str(self.cores), "--memory", "1g", "--work-dir", str(own / "work")]
        options += ["--webui-port", "0", self.address]
        disks = {
            "SPARK_LOCAL_DIRS": str(own / "local"),
            "EBBTIDE_CACHE": str(own / "cache"),
            "TMPDIR": str(own / "tmp"),
        }
        process = self._start("org.apache.spark.deploy.worker.Worker", options, {"SPARK_LOCAL_IP": host, **disks}, user)
        worker = Worker(host, own, process)
        self.workers.append(worker)
        return worker

    def replace_dead(self) -> None:
        """Start a new host in place of each that died: its disks are empty."""
        dead = [worker for worker in self.workers if worker.is_dead]
        for worker in dead:
            self.workers.remove(worker)
            self.add()

    def said(self) -> str:
        """Return what master and workers have logged."""
        return (self.folder / "cluster.log").read_text(errors="replace")

    def stop(self) -> None:
        """Kill all that is left."""
        for worker in self.workers:
            worker.kill()
        self._master.kill()
        self._master.wait()

    def _start(
        self, name: str, options: list[str], more: Mapping[str, str], user: User | None = None
    ) -> subprocess.Popen[bytes]:
        options_of_jvm = " ".join([*LEAST, "-Dspark.decommission.enabled=true"])
        env = os.environ | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(SUPPORT)}
        env |= {"SPARK_DAEMON_JAVA_OPTS": options_of_jvm, "SPARK_DAEMON_MEMORY": "192m"}
        command = [str(SPARK / "bin" / "spark-class"), name, *options]
        if user:
            command = user.command(*command)
        with (self.folder / "cluster.log").open("ab") as log:
            return subprocess.Popen(
                command,
                env=env | more,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - one thread starts all
            )


@contextmanager
def cluster(folder: Path, n_workers: int, cores: int = 1, users: Sequence[User] = ()) -> Iterator[Cluster]:
    """A running cluster."""
    running = Cluster(folder, cores, users)
    try:
        for _ in range(n_workers):
            running.add()
        yield running
    finally:
        running.stop()


class Driver:
    """A process that has a Spark session, and does as its lines ask; see `cluster_driver.py`.

    Args:
        folder: Has its log and its own local copies.
        master: Address of Spark's master.
        whom: What dies under the tasks of each step: `host` or `executor`.
        conf: Further settings.
        env: Further variables.
        user: Whose it is; None: the tests' user's.
    """

    def __init__(
        self,
        folder: Path,
        master: str,
        whom: str,
        conf: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        user: User | None = None,
    ) -> None:
        self._log = folder / "driver.log"
        paths = {"PYTHONPATH": str(SUPPORT), "EBBTIDE_CACHE": str(folder / "cache of the driver")}
        loopback = {"SPARK_LOCAL_IP": "127.0.0.1"}
        orders = user.home.with_name(f"deaths-{user.name}") if user else folder / "deaths"
        orders.mkdir()
        orders.chmod(0o777)
        if user:
            paths |= user.environment
        given = json.dumps(dict(conf or {}))
        command = [sys.executable, str(SUPPORT / "cluster_driver.py"), master, str(orders), whom, given]
        if user:
            command = user.command(*command)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=os.environ | paths | loopback | dict(env or {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.pid = self._process.pid

    def do(
        self, what: str, spec: Path, root: Path, *more: str, seen: Callable[[Event], None] = lambda _: None
    ) -> Event:
        """Have it do something with a pipeline; return what came of it.

        Args:
            what: A name in `cluster_driver.DOES`.
            spec: Folder of the pipeline's spec.
            root: Folder of all tables.
            more: Further arguments.
            seen: Called for each event on the way.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, str(spec), str(root), *more]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            event: Event = json.loads(line)
            assert "failed" not in event, event["failed"]
            if "done" in event:
                return event
            seen(event)
        raise AssertionError(f"the driver has ended: {self._log.read_text()[-3000:]}")

    def close(self) -> None:
        """End it, and wait for its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=PATIENCE_S)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


def home_of_spark(folder: Path) -> Path:
    """Make a home of Spark whose executors work in a folder of the test, by `local-cluster`; return it."""
    folder.mkdir()
    for each in SPARK.iterdir():
        (folder / each.name).symlink_to(each)
    return folder


def written_spec(folder: Path, spec: Pipeline) -> Path:
    """Write a spec as a user's project has it; return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    attributes = json.loads(spec.model_dump_json(by_alias=True, exclude_unset=True))
    document = {"type": f"ebbtide.dagster.{type(spec).__name__}", "attributes": attributes}
    (folder / "defs.yaml").write_text(json.dumps(document), encoding="utf-8")
    return folder
