"""`make faults`: fifty pipelines by Dagster for an hour on two cores, with faults made for real; in the end the sinks equal the truth.

Each pipeline gets a file, or records of a topic, now and then; Dagster's sensor launches their runs. Meanwhile processes are killed, a disk is
full, rights and folders go and come back, and a broker is away: all of that must heal by itself. Some pipelines get a fault that a person must
cure, early on: `ebbtide status` must name each with its command, while the others continue.

The harness starts ended services again, as systemd would; it does nothing else until the end. Then it compares every sink with a fold of what was
delivered, asks `ebbtide status` for each pipeline, and follows the advice for those that need a hand. It prints tables, and exits 1 if anything differs.

Needs root, for a separate disk and for rights that bind; Java for the broker.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "tests" / "support"), str(PROJECT / "benchmarks"), str(PROJECT)]

from click import Context
from confluent_kafka import Producer
from crashes import damages
from harness import write_kinds
from live import Service, say
from servers.kafka_broker import Broker, free_port

from ebbtide import UpsertPipeline
from ebbtide.cli import main as main_command
from ebbtide.delta import Log, Snapshot
from ebbtide.runtime import Plan

LOCATION = Path(__file__).with_name("fifty_location.py")
N_KEYS, CHANGES = 200, 40
"""Keys of a pipeline, and changes of a delivery."""
TOPICS = 5
"""Pipelines that read from Kafka."""
DISK = "1500m"
OUTAGE_S = 45.0
"""How long something is away: no more than a fortieth of the time."""
DELIVERED_EVERY_S = 900.0
"""From one delivery of a pipeline to its next."""
CATCH_UP_S = 900.0
POLL_S = 5.0
BOUND_TO_RIGHTS = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
ROUND = "ebbtide_round_fifty"
SETTINGS = """\
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "project"
code_location_name = "fifty"
"""
NAMED = re.compile(r"'\S*ebbtide ([a-z][^']*)'")
"""A command in the output of another one, ready to type."""
LOOKS = ("status", "check", "runs", "state")
"""Commands that change nothing."""
ROUNDS = 5
FIELDS: dict[str, Any] = {
    "format": {"type": "plain"},
    "schema": "id BIGINT NOT NULL, n BIGINT, text STRING",
    "key": ["id"],
    "order": {"sequence": ["n"]},
    "ttl": "30d",
    "engine": "local",
}


@dataclass
class Fed:
    """A pipeline, and the truth about it.

    Args:
        name: Its name.
        home: Folder of its spec.
        source: Folder of its files; None: its topic is read.
        spec: Its spec, as it was written.
    """

    name: str
    home: Path
    source: Path | None
    spec: UpsertPipeline
    truth: dict[int, dict[str, Any]] = field(default_factory=dict)
    n: int = 0

    def changes(self, chance: random.Random) -> list[tuple[str, dict[str, Any]]]:
        """Make changes, and keep what they come to."""
        made = []
        for _ in range(CHANGES):
            self.n += 1
            row = {"id": chance.randrange(N_KEYS), "n": self.n, "text": f"{chance.getrandbits(128):032x}"}
            if chance.random() < 0.15:
                self.truth.pop(row["id"], None)
                made.append(("-D", row))
            else:
                self.truth[row["id"]] = row
                made.append(("+U", row))
        chance.shuffle(made)
        return made

    def write(self, **fields: Any) -> None:
        """Write its spec, with some other fields."""
        attributes = {**self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True), **fields}
        body = {"type": "ebbtide.dagster.UpsertPipeline", "attributes": attributes}
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "defs.yaml").write_text(json.dumps(body))  # JSON is YAML


class Fifty:
    """All that runs.

    Args:
        folder: Takes what is made.
        n_pipelines: Pipelines.
        minutes: How long they are fed.
    """

    def __init__(self, folder: Path, n_pipelines: int, minutes: float) -> None:
        self.folder, self.minutes = folder, minutes
        self.root = folder / "root"
        self.home = folder / "dagster"
        self.chance = random.Random(7)
        self.broker = Broker(folder / "broker")
        n_topics = min(TOPICS, n_pipelines // 4)
        self.fed = [self._made(number, by_topic=number < n_topics) for number in range(n_pipelines)]
        self.producer = Producer({"bootstrap.servers": self.broker.servers, "log_level": 0})
        self.over = threading.Event()
        self.begun = time.monotonic()
        self.faults: list[tuple[str, float]] = []
        self.by_hand: dict[str, tuple[str, Callable[[Fed], Any]]] = {}
        self.ports = {name: free_port() for name in ("code", "web")}
        self.environment = os.environ | {
            "DAGSTER_HOME": str(self.home),
            "EBBTIDE_LIVE_DIR": str(folder),
            "EBBTIDE_ROOT": str(self.root),
            "EBBTIDE_CACHE": str(folder / "cache"),
            "PYTHONPATH": f"{PROJECT}:{folder}",
        }
        self.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self.services = {name: Service(name, self._starter(name)) for name in ("code", "daemon", "web")}

    def _made(self, number: int, *, by_topic: bool) -> Fed:
        """Make a pipeline; it has no record yet."""
        name = f"p{number:02}"
        source = None if by_topic else self.folder / "in" / name
        reads: dict[str, Any] = {"path": str(source), "records": "value"}
        if source is None:
            self.broker.create(name, 2)
            reads = {"type": "kafka", "bootstrap_servers": self.broker.servers, "topic": name}
        else:
            source.mkdir(parents=True)
        spec = UpsertPipeline(name=name, source=reads, group="fifty", **FIELDS)
        made = Fed(name, self.folder / "project" / "defs" / name, source, spec)
        made.write()
        return made

    # What runs.

    def _starter(self, name: str) -> Callable[[], subprocess.Popen[bytes]]:
        dagster = [*BOUND_TO_RIGHTS, sys.executable, "-W", "ignore", "-m"]
        workspace = ["-w", str(self.folder / "workspace.yaml")]

        def place(of: str) -> list[str]:
            return ["-h", "127.0.0.1", "-p", str(self.ports[of])]

        commands = {
            "code": [
                *dagster,
                "dagster",
                "api",
                "grpc",
                "-f",
                str(LOCATION),
                *place("code"),
                "--location-name",
                "fifty",
            ],
            "daemon": [*dagster, "dagster._daemon", "run", *workspace],
            "web": [*dagster, "dagster_webserver", *workspace, *place("web")],
        }

        def start() -> subprocess.Popen[bytes]:
            with (self.folder / f"{name}.log").open("ab") as log:
                return subprocess.Popen(
                    commands[name],
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                    cwd=self.folder,
                    start_new_session=True,
                )

        return start

    def command(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Call one of our commands, as a person would."""
        words = [*BOUND_TO_RIGHTS, sys.executable, "-W", "ignore", "-m", "ebbtide.cli", *command]
        return subprocess.run(
            words, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300
        )

    def run(self) -> None:
        """Feed, break and wait."""
        self._prepare()
        threads = [threading.Thread(target=work, daemon=True) for work in (self._keep, self._break)]
        try:
            for service in self.services.values():
                service.keep()
            self._switch_on()
            self.begun = time.monotonic()
            for thread in threads:
                thread.start()
            self._feed()
            threads[1].join()
            say("the load is over")
            self.caught_up_s = self._catch_up()
            self._ask()
            kept = {
                "truth": {fed.name: list(fed.truth.values()) for fed in self.fed},
                "asked": self.asked,
                "faults": self.faults,
                "by_hand": {name: what for name, (what, _) in self.by_hand.items()},
                "caught_up_s": self.caught_up_s,
            }
            (self.folder / "found.json").write_text(json.dumps(kept))
            self.cured = self.cure()
        finally:
            self.over.set()
            threads[0].join(10)
            for service in self.services.values():
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    service.end(signal.SIGINT)
            self.broker.stop()

    def _prepare(self) -> None:
        project = self.folder / "project"
        for folder in (project, project / "defs"):
            (folder / "__init__.py").touch()
        (project / "pyproject.toml").write_text(SETTINGS)
        self.home.mkdir()
        shutil.copy(PROJECT / "dagster.yaml", self.home)
        server = {"host": "127.0.0.1", "port": self.ports["code"], "location_name": "fifty"}
        (self.folder / "workspace.yaml").write_text(json.dumps({"load_from": [{"grpc_server": server}]}))
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(self.home)):
            pass  # makes its databases: processes that start together would each make them
        for fed in self.fed:
            self._deliver(fed)

    def _switch_on(self) -> None:
        start = [sys.executable, "-m", "dagster", "sensor", "start", "ebbtide_backlog"]
        workspace = ["-w", str(self.folder / "workspace.yaml"), "-l", "fifty"]
        for _ in range(60):
            done = subprocess.run(
                [*start, *workspace], env=self.environment, cwd=self.folder, capture_output=True, check=False
            )
            if done.returncode == 0:
                return
            time.sleep(2)
        raise RuntimeError(done.stderr.decode())

    def _keep(self) -> None:
        while not self.over.wait(1.0):
            for service in self.services.values():
                service.keep()

    # What is delivered.

    def _deliver(self, fed: Fed) -> None:
        changes = fed.changes(self.chance)
        if fed.source is not None:
            write_kinds(fed.source / f"{fed.n:08d}.jsonl", changes)
            return
        for kind, row in changes:
            self.producer.produce(fed.name, json.dumps({"kind": kind, "row": row}), key=str(row["id"]))
        self.producer.flush(60)

    def _feed(self) -> None:
        """Deliver to one pipeline after the other, at equal times."""
        pause_s = min(DELIVERED_EVERY_S, self.minutes * 15) / len(self.fed)
        end = self.begun + self.minutes * 60
        at = time.monotonic()
        while time.monotonic() < end:
            for fed in self.fed:
                at += pause_s
                time.sleep(max(0.0, min(at, end) - time.monotonic()))
                if time.monotonic() >= end:
                    return
                with contextlib.suppress(FileNotFoundError):  # its folder is away: it gets more later
                    self._deliver(fed)

    # What breaks.

    def _break(self) -> None:
        transient = [
            self._kill_worker,
            self._kill_daemon,
            self._move_sources,
            self._kill_code,
            self._take_rights,
            self._stop_broker,
            self._kill_all,
            self._fill_disk,
            self._kill_holder,
            self._kill_web,
            self._kill_worker,
            self._maintain,
        ]
        span_s = self.minutes * 60
        self._sleep_until(span_s * 0.08)
        self._break_for_good()
        for number, fault in enumerate(transient):
            self._sleep_until(span_s * (0.1 + 0.85 * number / len(transient)))
            fault()

    def _sleep_until(self, at_s: float) -> None:
        time.sleep(max(0.0, self.begun + at_s - time.monotonic()))

    def _note(self, what: str) -> None:
        self.faults.append((what, time.monotonic() - self.begun))
        say(what)

    def _workers(self, *, waits: bool = True) -> list[int]:
        """Return the processes of runs; wait until there is one."""
        for _ in range(600):
            found = [
                pid
                for pid, command in commands()
                if "spawn_main" in command and self._is_ours(pid) and "resource_tracker" not in command
            ]
            if found or not waits:
                return found
            time.sleep(0.2)
        return []

    def _is_ours(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            return f"EBBTIDE_LIVE_DIR={self.folder}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return False

    def _kill_worker(self) -> None:
        workers = self._workers()
        time.sleep(2.0)  # it loads its definitions
        for pid in workers[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._note(f"kill -9 of the process of a run ({len(workers)} were there)")

    def _kill_service(self, name: str) -> None:
        os.kill(self.services[name].pid, signal.SIGKILL)

    def _kill_daemon(self) -> None:
        self._kill_service("daemon")
        self._note("kill -9 of Dagster's daemon")

    def _kill_web(self) -> None:
        self._kill_service("web")
        self._note("kill -9 of the webserver")

    def _kill_code(self) -> None:
        self._workers()
        self._kill_service("code")
        self._note("kill -9 of the code server, not of its runs")

    def _kill_all(self) -> None:
        workers = self._workers()
        for name in ("code", "daemon", "web"):
            self._kill_service(name)
        for pid in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._note(f"kill -9 of all processes, {len(workers)} runs too, as by a power cut")

    def _files(self) -> list[Fed]:
        """Return the pipelines over files that no person has to look after."""
        return [fed for fed in self.fed if fed.source is not None and fed.name not in self.by_hand]

    def _move_sources(self) -> None:
        chosen = self.chance.sample(self._files(), max(1, len(self.fed) // 10))
        for fed in chosen:
            fed.source.rename(fed.source.with_name(f"{fed.name}-away"))
        self._note(f"source folders of {len(chosen)} pipelines away")
        time.sleep(min(OUTAGE_S, self.minutes * 1.5))
        for fed in chosen:
            fed.source.with_name(f"{fed.name}-away").rename(fed.source)

    def _take_rights(self) -> None:
        chosen = self.chance.sample(self._files(), max(1, len(self.fed) // 10))
        folders = [path for fed in chosen for path in (self.root / fed.name).rglob("*") if path.is_dir()]
        folders += [self.root / fed.name for fed in chosen]
        modes = {folder: folder.stat().st_mode for folder in folders if folder.exists()}
        for folder in modes:
            folder.chmod(0o555)
        for fed in chosen:
            self._deliver(fed)
        self._note(f"no right to write to the tables of {len(chosen)} pipelines")
        time.sleep(min(OUTAGE_S, self.minutes * 1.5))
        for folder, mode in modes.items():
            with contextlib.suppress(FileNotFoundError):
                folder.chmod(mode)

    def _stop_broker(self) -> None:
        self.broker.stop()
        self._note("the broker away")
        time.sleep(min(OUTAGE_S, self.minutes * 1.5))
        self.broker.start()

    def _fill_disk(self) -> None:
        assert self.root.is_mount(), "it would be the disk of this machine"
        ballast = self.root / "ballast"
        with ballast.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**20))
        self._note("the disk of all tables full")
        time.sleep(min(OUTAGE_S, self.minutes * 1.5))
        ballast.unlink()

    def _kill_holder(self) -> None:
        """Have a process of another command take a lease, and kill it."""
        fed = self.chance.choice(self._files())
        script = (
            "import os, signal, sys; from ebbtide.ledger import Lease; "
            "Lease(sys.argv[1], 't', 60).__enter__(); os.kill(os.getpid(), signal.SIGKILL)"
        )
        place = Plan.under(str(self.root), fed.spec).at("ledger")
        subprocess.run([sys.executable, "-c", script, place], env=self.environment, check=False, timeout=120)
        self._note("a lease held by a process that is dead")

    def _maintain(self) -> None:
        """Have one run maintain all pipelines; those that need a hand fail in it, and keep no other one from its turn."""
        given = json.dumps({"ops": {f"{ROUND}_op": {"config": {"run": False, "check": False}}}})
        launch = [sys.executable, "-W", "ignore", "-m", "dagster", "job", "launch", "-j", ROUND, "--config-json", given]
        workspace = ["-w", str(self.folder / "workspace.yaml"), "-l", "fifty"]
        done = subprocess.run(
            [*launch, *workspace], env=self.environment, cwd=self.folder, capture_output=True, check=False
        )
        self._note(f"one run maintains all ({done.returncode})")

    def _break_for_good(self) -> None:
        """Break pipelines, one each, by what a person must cure."""
        hands: dict[str, tuple[Callable[[Fed], Any], Callable[[Fed], Any]]] = {
            "another key in the spec": (lambda fed: fed.write(key=["id", "text"]), lambda fed: fed.write()),
            "a commit of the sink's log torn": (self._tear("sink"), self._obey),
            "a commit of the state's log torn": (self._tear("state"), self._without_state),
            "the sink dropped": (lambda fed: shutil.rmtree(self.root / fed.name / "sink"), self._obey),
            "rows of the sink changed by another client": (self._change_sink, self._obey),
            "a file that was read has grown": (self._grow, self._obey),
        }
        n_chosen = min(len(hands), len(self.fed) // 3)
        free: list[Fed] = []
        while len(free) < n_chosen:  # until they have had a run
            time.sleep(1.0)
            free = [fed for fed in self._files() if self.rows(fed) == fed.truth]
        chosen = self.chance.sample(free, n_chosen)
        for fed, (what, (make, cure)) in zip(chosen, hands.items(), strict=False):
            make(fed)
            self.by_hand[fed.name] = (what, cure)
            self._note(f"{fed.name}: {what}")

    def _tear(self, table: str) -> Callable[[Fed], Any]:
        def tear(fed: Fed) -> None:
            newest = max((self.root / fed.name / table / Log.FOLDER).glob("*.json"))
            newest.write_bytes(newest.read_bytes()[:20])

        return tear

    def _change_sink(self, fed: Fed) -> None:
        plan = Plan.under(str(self.root), fed.spec)
        next(iter(damages.FOREIGN.values()))(SinkOf(plan))

    def _grow(self, fed: Fed) -> None:
        assert fed.source is not None
        changes = fed.changes(self.chance)
        with min(fed.source.iterdir()).open("a") as file:
            file.writelines(json.dumps({"kind": kind, "row": row}) + "\n" for kind, row in changes)

    def _obey(self, fed: Fed) -> None:
        """Do what `status`, and each command after it, names; no command twice."""
        done: list[str] = []
        said = ""
        for _ in range(ROUNDS):
            said += self.command("status", str(fed.home)).stdout
            named = [line for line in NAMED.findall(said) if line not in done and line.split()[0] not in LOOKS]
            if not named:
                break
            line = named[-1] if done else named[0]
            done.append(line)
            found = self.command(*typed(line))
            said = found.stdout + found.stderr
        self.obeyed[fed.name] = done

    def _without_state(self, fed: Fed) -> None:
        """Move the state away, and do what is named then."""
        shutil.rmtree(self.root / fed.name / "state")
        self._obey(fed)

    def cure(self) -> dict[str, bool]:
        """Have a person do what is named; return for each pipeline whether it equals the truth after that."""
        self.obeyed: dict[str, list[str]] = {}
        cured = {}
        for fed in self.fed:
            if fed.name in self.by_hand:
                _, do = self.by_hand[fed.name]
                do(fed)
                self.command("run", str(fed.home))
                cured[fed.name] = self.rows(fed) == fed.truth
        return cured

    # What has come of it.

    def rows(self, fed: Fed) -> dict[int, dict[str, Any]] | None:
        """Return the rows of a sink by key; None if it cannot be read."""
        place = Plan.under(str(self.root), fed.spec).at("sink")
        for _ in range(5):
            with contextlib.suppress(Exception):
                snapshot = Snapshot.read(place)
                if snapshot is None:
                    return None
                return {row["id"]: row for row in snapshot.rows(fed.spec.table.columns).to_pylist()}
            time.sleep(0.2)
        return None

    def behind(self) -> list[str]:
        """Return the pipelines that no person has to look after, whose sinks differ from the truth."""
        return [fed.name for fed in self.fed if fed.name not in self.by_hand and self.rows(fed) != fed.truth]

    def _catch_up(self) -> float:
        begun = time.monotonic()
        while time.monotonic() - begun < CATCH_UP_S:
            if not self.behind():
                break
            time.sleep(POLL_S)
        return time.monotonic() - begun

    def _ask(self) -> None:
        """Ask `status` for each pipeline."""
        self.asked: dict[str, tuple[int, str, str]] = {}
        for fed in self.fed:
            found = self.command("status", str(fed.home), "--json")
            level = json.loads(found.stdout)["level"] if found.stdout.startswith("{") else "unreadable"
            text = self.command("status", str(fed.home))
            self.asked[fed.name] = text.returncode, level, (text.stdout + text.stderr).strip()

    def verdict(self) -> bool:
        """Print what was found; return whether all is right."""
        behind = self.behind()
        well = [fed for fed in self.fed if fed.name not in self.by_hand]
        sick = [fed.name for fed in well if self.asked[fed.name][:2] != (0, "healthy")]
        unnamed = [name for name in self.by_hand if self.asked[name][0] == 0]
        print("\n| fault | after, s |\n|---|---|")
        for what, at_s in self.faults:
            print(f"| {what} | {at_s:.0f} |")
        print(
            "\n| needs a hand | fault | status | exit code | commands that were followed | equal after that |\n|---|---|---|---|---|---|"
        )
        for name, (what, _) in self.by_hand.items():
            code, level, _ = self.asked[name]
            followed = ", ".join(f"`{line}`" for line in self.obeyed.get(name, []))
            print(f"| {name} | {what} | {level} | {code} | {followed} | {self.cured[name]} |")
        for name in self.by_hand:
            print(f"\n{name}: {self.asked[name][2]}")
        for name in sick:
            print(f"\nnot healthy: {name}: {self.asked[name]}")
        for name in behind:
            print(f"\nnot equal to the truth: {name}")
        counted = self._runs()
        exits = {name: service.exits for name, service in self.services.items()}
        n_changes = sum(fed.n for fed in self.fed)
        print(
            f"\n{len(self.fed)} pipelines, {self.minutes:g} minutes, {n_changes} changes; caught up {self.caught_up_s:.0f} s after the load; "
            f"{len(well) - len(behind)} of {len(well)} sinks equal the truth, {len(well) - len(sick)} are healthy; "
            f"{len(self.by_hand) - len(unnamed)} of {len(self.by_hand)} that need a hand are named"
        )
        print(f"runs: {dict(counted)}; services restarted: {exits}")
        return not behind and not sick and not unnamed and all(self.cured.values())

    def _runs(self) -> Counter[str]:
        from dagster import DagsterInstance

        with DagsterInstance.from_config(str(self.home)) as instance:
            records = instance.get_run_records()
            self._print_round(instance)
            took = [each.end_time - each.start_time for each in records if each.end_time and each.start_time]
            if took:
                print(f"\nseconds of a run, median: {statistics.median(took):.1f}, most: {max(took):.1f}")
            return Counter(each.dagster_run.status.value for each in records)

    def _print_round(self, instance: Any) -> None:
        """Print what became of the run that maintains all."""
        from dagster import DagsterEventType, RunsFilter

        for record in instance.get_run_records(RunsFilter(job_name=ROUND)):
            run_id = record.dagster_run.run_id
            observed = [
                entry.get_dagster_event().asset_observation_data.asset_observation
                for entry in instance.all_logs(run_id, of_type=DagsterEventType.ASSET_OBSERVATION)
            ]
            tended = {each.asset_key.to_user_string().removesuffix("_state") for each in observed}
            failed = instance.all_logs(run_id, of_type=DagsterEventType.STEP_FAILURE)
            said = [entry.get_dagster_event().step_failure_data.user_failure_data.description for entry in failed]
            print(
                f"\nthe round: {record.dagster_run.status.value}, {len(observed)} operations for {len(tended)} pipelines; {said}"
            )


def typed(line: str) -> list[str]:
    """Return the words of a command that a message names; what it would only plan it does, and it does not ask."""
    words = shlex.split(line)
    known = main_command.get_command(Context(main_command), words[0])
    assert known is not None, line
    names = {name for option in known.params for name in option.opts}
    return [*words, *(option for option in ("--apply", "--yes") if option in names and option not in words)]


@dataclass(frozen=True)
class SinkOf:
    """What a foreign writer needs to know of a pipeline.

    Args:
        plan: Its tables.
    """

    plan: Plan


def commands() -> Iterator[tuple[int, str]]:
    """Yield the processes of this machine with their command lines."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                yield int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """Make a separate disk for the tables, so that it can be full."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def main() -> int:
    """Run; return 1 if anything differs."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=60)
    options.add_argument("--pipelines", type=int, default=50)
    options.add_argument("--folder", help="keep all in this folder")
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Dagster's processes end, too
    with contextlib.ExitStack() as held:
        folder = Path(asked.folder or held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        folder.mkdir(parents=True, exist_ok=True)
        held.enter_context(disk(folder / "root"))
        fifty = Fifty(folder, asked.pipelines, asked.minutes)
        fifty.run()
        return 0 if fifty.verdict() else 1


if __name__ == "__main__":
    sys.exit(main())
