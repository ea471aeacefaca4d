"""`make live`: Postgres, Debezium, Kafka and runs that go on, under load and kill -9; in the end the sinks equal the database.

Three tables of the shop change for some minutes, by two sessions at once: keys change and swap, rows go and come back, a table is truncated, one gets
a column. Meanwhile a maintenance command runs each minute, and a run, one of its Python workers, the connector and the broker are
killed in turns; the harness starts again what has ended, as systemd would. It prints a table, and exits 1 if anything differs, a
maintenance command has failed, or the runs have more than 1.1 times the memory of the second minute in the last one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "tests" / "support"), str(PROJECT / "benchmarks")]

import pyarrow as pa
from connect import Connect
from harness import tree
from load import KEYS, TABLES, Load, fill
from oracles.reference import canonical_rows
from postgres import Postgres
from servers.kafka_broker import Broker

from ebbtide import UpsertPipeline
from ebbtide.delta import Snapshot
from ebbtide.inspect import Lag
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline

UPKEEP = ("compact", "cleanup", "vacuum")
MEMORY_GROWTH = 1.1
BROKER_AWAY_S = 5.0
CATCH_UP_S = 300.0
POLL_S = 0.2
SAMPLE_S = 5.0


@dataclass
class Service:
    """A process that is started again when it has ended.

    Args:
        name: Its name.
        start: Starts it.
    """

    name: str
    start: Callable[[], subprocess.Popen[bytes]]
    exits: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its id."""
        assert self.process is not None
        return self.process.pid

    def keep(self) -> None:
        """Start it, unless it is there."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return
            self.exits.append(code)
            time.sleep(1)
        self.process = self.start()

    def end(self, with_signal: int) -> int:
        """End it for good."""
        assert self.process is not None
        self.process.send_signal(with_signal)
        return self.process.wait(120)


class Live:
    """All that runs.

    Args:
        folder: Takes what is made.
        postgres: The source.
    """

    def __init__(self, folder: Path, postgres: Postgres) -> None:
        self.folder, self.root, self.postgres = folder, folder / "root", postgres
        self.broker = Broker(folder / "broker")
        self.specs = {table: self._spec(table) for table in KEYS}
        self.connect = Connect(folder / "connect", self.broker.servers, postgres, [*KEYS])
        self.connector = Service("connector", self.connect.start)
        self.runs = {table: Service(table, self._starter(table)) for table in KEYS}
        self.over = threading.Event()
        self.faults: list[tuple[str, float]] = []
        self.upkeep: list[tuple[str, int]] = []
        self.memory: list[tuple[float, dict[str, int]]] = []
        self._upkeeper = threading.Lock()

    def _spec(self, table: str) -> Pipeline:
        topic = f"shop.public.{table}"
        self.broker.create(topic, 3)
        shipped = UpsertPipeline.load(PROJECT / "pipelines" / "defs" / "shop" / table)
        given = shipped.model_dump(mode="json", by_alias=True, exclude_unset=True)
        given["source"] = {"type": "kafka", "bootstrap_servers": self.broker.servers, "topic": topic}
        given["schema_evolution_mode"] = "evolve"
        spec = UpsertPipeline(**given)
        home = self.folder / "specs" / table
        home.mkdir(parents=True)
        (home / "defs.yaml").write_text(json.dumps({"type": "ebbtide.dagster.UpsertPipeline", "attributes": given}))
        return spec

    def _starter(self, table: str) -> Callable[[], subprocess.Popen[bytes]]:
        engine = "spark" if table == "customers" else "auto"  # one of both kinds: the other needs no Spark
        spec = str(self.folder / "specs" / table)
        return lambda: self.command(f"run-{table}", "run", spec, "--follow", "--engine", engine)

    def command(self, log: str, *command: str) -> subprocess.Popen[bytes]:
        """Start one of our commands."""
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "EBBTIDE_DRIVER_MEMORY": "768m"}
        arguments = [sys.executable, "-m", "ebbtide.cli", *command, "--root", str(self.root)]
        with (self.folder / f"{log}.log").open("ab") as said:
            return subprocess.Popen(arguments, stdout=said, stderr=said, env=environment, start_new_session=True)

    def run(self, minutes: float) -> None:
        """Load the database, kill who is there, and let all catch up."""
        with contextlib.closing(self.postgres.session()) as session:
            fill(session)
        services = [self.connector, *self.runs.values()]
        threads = [threading.Thread(target=work, daemon=True) for work in (lambda: self._keep(services), self._weigh)]
        for service in services:
            service.keep()
        for thread in threads:
            thread.start()
        try:
            self._wait(self.is_equal, "the snapshot")
            say("the snapshot is in the sinks")
            self._load(minutes * 60)
            say("the load is over")
            self._wait(lambda: self.is_equal() and not any(self.waiting().values()), "what was left")
            self.left = self.waiting()
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
            self.ends = {service.name: service.end(signal.SIGTERM) for service in services}
            self.broker.stop()

    def _keep(self, services: list[Service]) -> None:
        looked = time.monotonic()
        while not self.over.wait(POLL_S):
            for service in services:
                service.keep()
            if time.monotonic() - looked > 5:
                looked = time.monotonic()
                if self.connect.has_failed():
                    say("the connector's task has failed; it is started again")
                    os.kill(self.connector.pid, signal.SIGKILL)

    def _weigh(self) -> None:
        while not self.over.wait(SAMPLE_S):
            self.memory.append((time.monotonic(), {name: resident(run.pid) for name, run in self.runs.items()}))

    def _load(self, duration_s: float) -> None:
        begun = time.monotonic()
        self.begun = begun
        end = begun + duration_s
        loads = [Load(self.postgres.session(), number) for number in (0, 1)]
        threads = [threading.Thread(target=load.go_on, args=(lambda: time.monotonic() > end,)) for load in loads]
        threads.append(threading.Thread(target=self._maintain, args=(begun, end)))
        for thread in threads:
            thread.start()
        faults = [self._kill_run, self._kill_worker, self._kill_connector, self._kill_broker]
        for number, fault in enumerate(faults):
            self._sleep_until(begun + duration_s * (number + 0.7) / (len(faults) + 1))
            if number == 1:
                self.postgres.run("ALTER TABLE customers ADD COLUMN phone text")
                for load in loads:
                    load.has_phones = True
                say("customers have phones")
            fault()
        for thread in threads:
            thread.join()
        for load in loads:
            load.close()
        self.n_transactions = sum(load.n_transactions for load in loads)

    def _maintain(self, begun: float, end: float) -> None:
        number = 0
        while begun + 60 * (number + 0.4) < end:
            self._sleep_until(begun + 60 * (number + 0.4))
            name = UPKEEP[number % len(UPKEEP)]
            number += 1
            specs = [str(self.folder / "specs" / table) for table in KEYS]
            code = self.command(f"upkeep-{number}-{name}", name, *specs).wait()
            self.upkeep.append((name, code))
            say(f"{name} has ended with {code}")

    def _sleep_until(self, at: float) -> None:
        time.sleep(max(0.0, at - time.monotonic()))

    def _kill_run(self) -> None:
        self._kill("run of orders", self.runs["orders"].pid)

    def _kill_worker(self) -> None:
        workers = [pid for pid in tree(self.runs["customers"].pid) if is_worker(pid)]
        self._kill("Python worker of customers", random.choice(workers))

    def _kill_connector(self) -> None:
        self._kill("connector", self.connector.pid)

    def _kill_broker(self) -> None:
        self.broker.stop()
        self._note("broker")
        time.sleep(BROKER_AWAY_S)
        self.broker.start()

    def _kill(self, whom: str, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        self._note(whom)

    def _note(self, whom: str) -> None:
        self.faults.append((whom, time.monotonic() - self.begun))
        say(f"killed: {whom}")

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + CATCH_UP_S
        while not until():
            if time.monotonic() > end:
                say(f"not within {CATCH_UP_S:.0f} s: {what}")
                return
            time.sleep(2)

    def is_equal(self) -> bool:
        """Whether all sinks equal the database."""
        return not any(self.differing(table) for table in KEYS)

    def differing(self, table: str) -> int:
        """Count the rows that are in one of sink and database only."""
        sink = self.rows(table)
        if sink is None:
            return -1
        of_postgres = self.postgres.rows(table, self.columns(table).names)
        want = canonical_rows(of_postgres, self.columns(table))
        found = canonical_rows(sink, self.columns(table))
        return len(set(want) ^ set(found)) + abs(len(want) - len(found))

    def rows(self, table: str) -> list[dict[str, Any]] | None:
        """Read a sink; None before it is made."""
        path = Plan.under(str(self.root), self.specs[table]).at("sink")
        for _ in range(5):  # a file may be deleted between the log and it
            with contextlib.suppress(OSError):
                snapshot = Snapshot.read(path)
                return None if snapshot is None else snapshot.rows(self.columns(table)).to_pylist()
        raise LookupError(path)

    def columns(self, table: str) -> pa.Schema:
        """Return the columns to compare: those of the database."""
        columns = self.specs[table].table.columns
        has_phones = table == "customers" and any(whom.startswith("Python") for whom, _ in self.faults)
        return columns.append(pa.field("phone", pa.string())) if has_phones else columns

    def waiting(self) -> dict[str, int]:
        """Count the records that wait in each topic."""
        now_ms = int(time.time() * 1000)
        return {
            table: Lag.of(spec, str(self.root), now_ms).backlog.total_records or 0 for table, spec in self.specs.items()
        }

    def verdict(self) -> bool:
        """Print what was found; return whether all is right."""
        end_s = self.memory[-1][0] - self.begun
        second, last = self._memory_within(60, 120), self._memory_within(end_s - 60, end_s)
        print(
            f"\n{self.n_transactions} transactions; {', '.join(f'{whom} killed after {at:.0f} s' for whom, at in self.faults)}"
        )
        print(f"maintenance: {', '.join(f'{name} ({code})' for name, code in self.upkeep)}\n")
        print(
            "| | rows in Postgres | that differ | steps | records | steps not in order | waiting | exits before the end | MiB, second minute | last |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        is_right = True
        for table, spec in self.specs.items():
            n_rows = len(self.postgres.rows(table, [KEYS[table]]))
            differing = self.differing(table)
            steps = [facts for _, facts in Plan.under(str(self.root), spec).state.steps()][::-1]
            n_records, twice = in_order(steps)
            exits = self.runs[table].exits
            is_right &= not differing and not twice and self.ends[table] == 0
            print(
                f"| {table} | {n_rows} | {differing} | {len(steps)} | {n_records} | {twice} | {self.left[table]} | "
                f"{exits} | {second[table]} | {last[table]} |"
            )
        grown = sum(last.values()) / sum(second.values())
        print(f"\nmemory of the last minute over the second's: {grown:.2f}; connector's exits: {self.connector.exits}")
        is_maintained = not any(code for _, code in self.upkeep)
        is_caught_up = not any(self.left.values())
        return is_right and is_maintained and is_caught_up and grown <= MEMORY_GROWTH

    def _memory_within(self, start_s: float, end_s: float) -> dict[str, int]:
        within = [sizes for at, sizes in self.memory if start_s <= at - self.begun <= end_s]
        return {table: round(statistics.median(sizes[table] for sizes in within) / 2**20) for table in KEYS}


def in_order(steps: list[Any]) -> tuple[int, int]:
    """Return the records that steps have read, and how many steps do not follow on the one before."""
    n_records = n_wrong = 0
    number, ends = 0, {}
    for facts in steps:
        n_wrong += facts.step != number + 1
        number = facts.step
        if facts.cause.what == "batch":
            position = facts.source.position
            n_wrong += any(ends.get(partition, at) != at for partition, at in position["from"].items())
            ends = position["to"]
            n_records += sum(ends[partition] - at for partition, at in position["from"].items())
    return n_records, n_wrong


def resident(pid: int) -> int:
    """Return the memory of a process tree, bytes."""
    return sum(proportional(process) for process in tree(pid))


def proportional(pid: int) -> int:
    """Return a process's memory, what it shares in proportion."""
    try:
        told = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+)", told, re.MULTILINE)
    return int(found[1]) << 10 if found else 0


def is_worker(pid: int) -> bool:
    """Whether a process is a Python worker of Spark's."""
    try:
        return (
            b"pyspark" in Path(f"/proc/{pid}/cmdline").read_bytes()
            and b"python" in Path(f"/proc/{pid}/comm").read_bytes()
        )
    except OSError:
        return False


def say(what: str) -> None:
    """Say what has happened."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def folder_of(given: Path | None) -> Iterator[Path]:
    """Give a folder; a temporary one is deleted."""
    if given is not None:
        given.mkdir(parents=True)
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="ebbtide-live-") as made:
        yield Path(made)


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5, help="of load")
    parser.add_argument("--folder", type=Path, help="of all that is made; else one that is deleted")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing of ours stays
    with folder_of(given.folder) as folder, Postgres() as postgres:
        postgres.run(TABLES)
        live = Live(folder, postgres)
        live.run(given.minutes)
        return int(not live.verdict())


if __name__ == "__main__":
    sys.exit(main())
