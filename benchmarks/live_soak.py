"""A run that goes on for hours beside a topic that is idle and loaded by turns: what it holds, and how late the sink is.

A broker of its own, one `ebbtide run --follow` in a process tree of its own, compaction, cleanup and VACUUM now and then by the command line. A turn
without load has a record every 3 s; one with load begins with 25,000 records at once, and goes on with 500 a second. The log's and the deleted
files' retention is 20 minutes, so that what is bounded by them shows its bound.

    python benchmarks/live_soak.py [--minutes 120] [--turn 5] [--upkeep 20] [--plot benchmarks/live-soak.svg] [--folder FOLDER] [--report]

Latency is from the producer's call to the sink's commit, in s, apart by what was going on when the record was sent: nothing, load, or a maintenance
command. Memory is proportional to who shares it; of the driver also without the files that it has mapped, which the system takes back where it
needs room. At the end the sink is compared with the truth: that and a
run that ended by itself decide the exit code. Whether something is
flat (its median in the last third of the time within 1.1 of that in the second) is said.
`--report` prints and plots once more what a folder holds.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from harness import (
    add_folder_options,
    facts_of,
    figure,
    n_wrong,
    percentile,
    run_or_report,
    save,
    shorten_retention,
    tree,
    used_by,
    write_spec,
)

PROJECT = Path(__file__).resolve().parents[1]
TOPIC = "soak"
PARTITIONS = 3
KEYS = 50_000
PROBE_S = 3.0
RATE = 500
"""Records a second, under load."""
BURST = 25_000
"""Records at once where load begins: more than the driver reads alone."""
NOTED = 20
"""One in so many records under load has its latency noted."""
SAMPLE_S = 15.0
WINDOW_S = 600.0
RETENTION = "interval 20 minutes"
FLAT = 1.1
STARTS_S = 120.0
DELETED = 0.05
HEAP = re.compile(r"->(\d+)M\(")
KINDS = ("idle", "load", "upkeep")


def main() -> int:
    """Run, or report on what was run."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--minutes", type=float, default=120)
    options.add_argument("--turn", type=float, default=5, help="minutes")
    options.add_argument("--upkeep", type=float, default=20, help="minutes from one maintenance to the next")
    add_folder_options(options)
    asked = options.parse_args()

    def run(folder: Path) -> None:
        Soak(folder, asked.minutes * 60, asked.turn * 60, asked.upkeep * 60).run()

    return run_or_report(asked, run, report)


class Soak:
    """One run, beside a producer.

    Args:
        folder: Takes all that is made.
        duration_s: How long.
        turn_s: How long it is idle, or loaded, at a time.
        upkeep_s: From one maintenance to the next.
    """

    def __init__(self, folder: Path, duration_s: float, turn_s: float, upkeep_s: float) -> None:
        sys.path.insert(0, str(PROJECT / "tests" / "support"))
        from servers.kafka_broker import Broker

        self.folder = folder
        self.root = folder / "root"
        self.home = self.root / "soak"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        self.duration_s, self.turn_s, self.upkeep_s = duration_s, turn_s, upkeep_s
        self.broker = Broker(folder / "broker")
        self.broker.create(TOPIC, PARTITIONS, retention_ms="-1")
        self.load = Load(self.broker.servers)
        self.commits = Commits(self.home / "sink", folder / "commits.jsonl")
        self.exits: list[int] = []
        self.spec = folder / "spec"
        write_spec(self.spec, "soak", TOPIC, self.broker.servers)

    def run(self) -> None:
        """Run to the end; what was found is in the folder."""
        self.load.probe()
        self._command("run").wait()  # makes the tables
        for name in ("state", "sink", "ledger"):
            shorten_retention(self.home / name, RETENTION)
        self._start()
        try:
            self._wait_for_steps()
            self._go_on()
        finally:
            self.follower.send_signal(signal.SIGTERM)
            self.exits.append(self.follower.wait(120))
            self.broker.stop()
        verdict = {
            "exits": self.exits,
            "rows": len(self.load.truth),
            "wrong": n_wrong(self.spec, self.home / "sink", self.load.truth),
            "steps": self.commits.last_step,
        }
        (self.folder / "verdict.json").write_text(json.dumps(verdict))

    def _start(self) -> None:
        self.follower = self._command("run", "--follow")

    def _start_again(self) -> None:
        """Start the run again, as systemd would, if it has ended."""
        ended = self.follower.poll()
        if ended is not None:
            self.exits.append(ended)
            self._start()

    def _command(self, *command: str) -> subprocess.Popen[bytes]:
        name, *options = command
        java = (
            f"-Xlog:gc:file={self.folder}/gc-{'follow' if options else name}-%p.log -Djava.io.tmpdir={self.temporary}"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "TMPDIR": str(self.temporary),
            "SPARK_LOCAL_DIRS": str(self.temporary),
            "EBBTIDE_DRIVER_MEMORY": "1g",
            "JDK_JAVA_OPTIONS": java,
        }
        arguments = [sys.executable, "-m", "ebbtide.cli", name, str(self.spec), "--root", str(self.root), "--json"]
        with (self.folder / f"{name}.log").open("ab") as said:
            return subprocess.Popen(
                [*arguments, *options], stdout=said, stderr=said, env=environment, start_new_session=True
            )

    def _wait_for_steps(self) -> None:
        seen, end = self.commits.look(), time.monotonic() + STARTS_S
        while self.commits.look() == seen:
            self.load.probe()
            time.sleep(1)
            if self.follower.poll() is not None or time.monotonic() > end:
                raise RuntimeError((self.folder / "run.log").read_text()[-2000:])

    def _go_on(self) -> None:
        begun_s = time.time()
        turns = threading.Thread(target=self.load.turns, args=(self.turn_s, self.duration_s), daemon=True)
        turns.start()
        upkeep = threading.Thread(target=self._maintain, args=(begun_s,), daemon=True)
        upkeep.start()
        with (self.folder / "samples.jsonl").open("w") as samples:
            while turns.is_alive():
                self._start_again()
                sample = self._sample(self.follower.pid, begun_s)
                samples.write(json.dumps(sample) + "\n")
                samples.flush()
                turns.join(SAMPLE_S)
        upkeep.join()
        self.load.flush()
        ends = self.load.ends
        while not self.commits.covers(ends):
            self._start_again()
            time.sleep(0.5)
        with (self.folder / "records.jsonl").open("w") as noted:
            for record in self.load.noted:
                noted.write(json.dumps(record) + "\n")

    def _maintain(self, begun_s: float) -> None:
        end_s = begun_s + self.duration_s
        due_s = begun_s + self.upkeep_s
        while due_s + 60 < end_s:
            time.sleep(max(0.0, due_s - time.time()))
            due_s += self.upkeep_s
            self.load.in_upkeep = True
            for command in ("compact", "cleanup", "vacuum"):
                if self._command(command).wait():
                    raise RuntimeError((self.folder / f"{command}.log").read_text()[-2000:])
            self.load.in_upkeep = False

    def _sample(self, pid: int, begun_s: float) -> dict[str, Any]:
        sample: Counter[str] = Counter()
        for process, cpu_s in tree(pid).items():
            try:
                sample.update(used_by(process, is_driver=process == pid))
            except OSError:
                continue  # ended meanwhile
            sample["cpu_s"] += cpu_s
        self.commits.look()
        for name, where in {
            "spark_log": self.root / ".logs",
            "temporary": self.temporary,
            "state_log": self.home / "state" / "_delta_log",
            "sink_log": self.home / "sink" / "_delta_log",
            "ledger_log": self.home / "ledger" / "_delta_log",
            "state": self.home / "state",
            "sink": self.home / "sink",
        }.items():
            sizes = [*sizes_under(where)]
            sample[f"{name}_files"], sample[f"{name}_bytes"] = len(sizes), sum(sizes)
        logs = sorted(self.folder.glob("gc-follow-*.log"), key=lambda path: path.stat().st_size)
        heaps = HEAP.findall(logs[-1].read_text()[-4000:]) if logs else []
        if heaps:
            sample["heap_bytes"] = min(map(int, heaps[-3:])) << 20
        at = {"at_s": round(time.time() - begun_s, 1), "begun_s": begun_s, "machine_load": os.getloadavg()[0]}
        return at | {"kind": self.load.kind, "step": self.commits.last_step, **sample}


class Load:
    """The producer.

    Args:
        servers: The broker's.
    """

    def __init__(self, servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )
        self._chance = random.Random(7)
        self._n_sent = 0
        self.kind = "idle"
        self.in_upkeep = False
        self.truth: dict[int, int] = {}
        self.noted: list[tuple[int, int, float, str]] = []
        """Partition, offset, when it was sent, and under what."""
        self.ends: dict[int, int] = {}

    def turns(self, turn_s: float, duration_s: float) -> None:
        """Be idle and load the topic by turns."""
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            turn_end = min(end, time.monotonic() + turn_s)
            self.kind = "idle"
            while time.monotonic() < turn_end:
                self.probe()
                time.sleep(PROBE_S)
            turn_end = min(end, time.monotonic() + turn_s)
            if turn_end > time.monotonic():
                self.kind = "load"
                self.send(BURST)
            while time.monotonic() < turn_end:
                self.send(RATE // 10)
                time.sleep(0.1)

    def probe(self) -> None:
        """Send one record."""
        self.send(1, noted=1)
        self.flush()

    def send(self, n_records: int, noted: int = NOTED) -> None:
        """Send changes of random keys, some of them deletes."""
        for _ in range(n_records):
            self._n_sent += 1
            key = self._chance.randrange(KEYS)
            is_deleted = self._chance.random() < DELETED
            if is_deleted:
                self.truth.pop(key, None)
            else:
                self.truth[key] = self._n_sent
            row = {"id": key, "at": self._n_sent, "text": f"{self._n_sent:x}" * 20}
            value = json.dumps({"kind": "-D" if is_deleted else "+U", "row": row})
            note = self._note() if self._n_sent % noted == 0 else self._note_end
            self._producer.produce(TOPIC, value.encode(), partition=key % PARTITIONS, on_delivery=note)
            if self._n_sent % 1000 == 0:
                self._producer.poll(0)
        self._producer.poll(0)

    def _note(self) -> Any:
        sent_s, kind = time.time(), "upkeep" if self.in_upkeep else self.kind

        def note(error: Any, message: Any) -> None:
            self._note_end(error, message)
            self.noted.append((message.partition(), message.offset(), sent_s, kind))

        return note

    def _note_end(self, error: Any, message: Any) -> None:
        if error is not None:
            raise RuntimeError(str(error))
        self.ends[message.partition()] = message.offset() + 1

    def flush(self) -> None:
        """Wait until all is delivered."""
        if self._producer.flush(60):
            raise RuntimeError("records were not delivered within 60 s")


class Commits:
    """The sink's commits: when each came, and up to where it has read the topic.

    Args:
        sink: The table.
        kept: Takes a line for each.
    """

    def __init__(self, sink: Path, kept: Path) -> None:
        self._log = sink / "_delta_log"
        self._kept = kept
        self._next = 0
        self._ends: dict[int, int] = {}
        self.last_step = 0

    def look(self) -> int:
        """Read what has come; return the step of the last one."""
        found = []
        while (commit := self._log / f"{self._next:020d}.json").exists():
            self._next += 1
            facts = facts_of(commit)
            if facts is None:
                continue
            position = facts["source"]["position"]
            if position:
                self._ends = {int(name): end for name, end in position["to"].items()}
                self.last_step = facts["step"]
                found.append({"at_s": commit.stat().st_ctime, "step": facts["step"], "to": self._ends})
        if found:
            with self._kept.open("a") as kept:
                kept.writelines(json.dumps(each) + "\n" for each in found)
        return self.last_step

    def covers(self, ends: dict[int, int]) -> bool:
        """Whether all is in the sink."""
        self.look()
        return all(self._ends.get(partition, 0) >= end for partition, end in ends.items())


def sizes_under(folder: Path) -> Iterator[int]:
    """Yield the bytes of each file."""
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                yield path.stat().st_size
        except OSError:
            continue  # deleted meanwhile


def report(folder: Path, plotted: Path | None) -> int:
    """Print the windows and what is flat; plot them; return 1 if the sink is wrong."""
    samples, latencies = read_samples(folder), read_latencies(folder)
    for window in windows(samples, latencies):
        print(json.dumps(window))
    for name, second, last in thirds(samples, latencies):
        verdict = "flat" if last <= FLAT * second else "GROWS"
        print(f"{name:<24} second third {second:>14,.3f}  last third {last:>14,.3f}  {verdict}")
    verdict = json.loads((folder / "verdict.json").read_text())
    print(json.dumps(verdict))
    if plotted:
        plot(samples, latencies, plotted)
    return int(bool(verdict["wrong"]) or verdict["exits"] != [0])


def read_samples(folder: Path) -> list[dict[str, Any]]:
    """Read the samples; each has its CPU a second since the one before."""
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for before, after in itertools.pairwise(samples):
        passed_s = after["at_s"] - before["at_s"]
        after["cores"] = (after["cpu_s"] - before["cpu_s"]) / passed_s
        after["steps_a_s"] = (after["step"] - before["step"]) / passed_s
    return samples[1:]


Latency = tuple[float, float, str]
"""When a record was sent, s since the beginning; how late it was; under what."""


def read_latencies(folder: Path) -> list[Latency]:
    """Work out each noted record's latency."""
    begun_s = json.loads((folder / "samples.jsonl").read_text().splitlines()[0])["begun_s"]
    commits = [json.loads(line) for line in (folder / "commits.jsonl").read_text().splitlines()]
    ends = {p: [commit["to"].get(str(p), 0) for commit in commits] for p in range(PARTITIONS)}
    latencies = []
    for line in (folder / "records.jsonl").read_text().splitlines():
        partition, offset, sent_s, kind = json.loads(line)
        if sent_s >= begun_s:
            first = bisect.bisect_right(ends[partition], offset)
            latencies.append((sent_s - begun_s, commits[first]["at_s"] - sent_s, kind))
    return sorted(latencies)


def windows(samples: list[dict[str, Any]], latencies: list[Latency]) -> Iterator[dict[str, Any]]:
    """Sum up each 10 minutes."""
    end_s = samples[-1]["at_s"]
    start_s = 0.0
    while start_s < end_s:
        within = [each for each in samples if start_s <= each["at_s"] < start_s + WINDOW_S]
        window: dict[str, Any] = {"minutes": f"{start_s / 60:.0f}-{min(end_s, start_s + WINDOW_S) / 60:.0f}"}
        for kind in KINDS:
            late = [late_s for sent_s, late_s, k in latencies if k == kind and start_s <= sent_s < start_s + WINDOW_S]
            window[f"{kind}_s"] = [percentile(late, 0.5), percentile(late, 0.99), len(late)]
        for name in ("driver_bytes", "driver_own_bytes", "jvm_bytes", "heap_bytes", "workers_bytes"):
            window[name.replace("bytes", "mib")] = round(
                statistics.median(each.get(name, 0) for each in within) / 2**20
            )
        for name in ("handles", "threads"):
            window[name] = statistics.median(total(each, name) for each in within)
        for name in ("checkpoint_files", "state_log_files", "sink_log_files", "temporary_files", "step"):
            window[name] = max(each.get(name, 0) for each in within)
        for kind in KINDS[:2]:
            used = [each["cores"] for each in within if each["kind"] == kind]
            window[f"cores_{kind}"] = round(statistics.mean(used), 3) if used else None
        window["machine_load"] = round(statistics.mean(each["machine_load"] for each in within), 1)
        yield window
        start_s += WINDOW_S


def total(sample: dict[str, Any], name: str) -> int:
    """Add up what driver, JVM and workers hold."""
    return sum(sample.get(f"{role}_{name}", 0) for role in ("driver", "jvm", "workers"))


def thirds(samples: list[dict[str, Any]], latencies: list[Latency]) -> Iterator[tuple[str, float, float]]:
    """Yield what is to be flat, its median in the second and in the last third of the time; of latencies p50 and p99."""
    end_s = samples[-1]["at_s"]
    names = sorted(
        {name for each in samples for name in each if name.endswith(("_bytes", "_files", "_handles", "_threads"))}
    )
    for name in (*names, "processes"):
        of_thirds = [
            statistics.median(
                [each.get(name, 0) for each in samples if start <= each["at_s"] / end_s < start + 1 / 3] or [0]
            )
            for start in (1 / 3, 2 / 3 - 1e-9)
        ]
        yield name, of_thirds[0], of_thirds[1]
    for kind in KINDS[:2]:
        for share in (0.5, 0.99):
            of_thirds = [
                percentile(
                    [late for sent, late, k in latencies if k == kind and start <= sent / end_s < start + 1 / 3], share
                )
                or 0.0
                for start in (1 / 3, 2 / 3)
            ]
            yield f"{kind}_p{share * 100:.0f}_s", of_thirds[0], of_thirds[1]


def plot(samples: list[dict[str, Any]], latencies: list[Latency], path: Path) -> None:
    """Draw latency, memory, handles and files over time."""
    drawn, axes = figure(4, 11)
    late, memory, held, files = axes
    minutes = [each["at_s"] / 60 for each in samples]
    for kind in KINDS:
        by_minute: dict[int, list[float]] = {}
        for sent_s, late_s, k in latencies:
            if k == kind:
                by_minute.setdefault(int(sent_s // 60), []).append(late_s)
        for share, mark in ((0.5, "."), (0.99, "+")):
            at = sorted(by_minute)
            late.plot(
                at,
                [percentile(by_minute[m], share) for m in at],
                mark,
                markersize=4,
                label=f"{kind}, p{share * 100:.0f}",
            )
    late.set(ylabel="s until in the sink", yscale="log")
    late.legend(fontsize=7, ncol=3)
    for name in ("driver", "driver_own", "jvm", "workers", "heap"):
        memory.plot(minutes, [each.get(f"{name}_bytes", 0) / 2**20 for each in samples], label=name.replace("_", "'s "))
    memory.set(ylabel="MiB")
    for name in ("handles", "threads"):
        for role in ("driver", "jvm", "workers"):
            held.plot(minutes, [each.get(f"{role}_{name}", 0) for each in samples], label=f"{role}, {name}")
    held.set(ylabel="handles, threads")
    for name in ("ledger_log", "state_log", "sink_log", "temporary"):
        files.plot(minutes, [each[f"{name}_files"] for each in samples], label=name.replace("_", "'s "))
    files.set(ylabel="files", xlabel="minutes")
    for each in (memory, held, files):
        each.legend(fontsize=7, ncol=3)
        each.set_ylim(bottom=0)
    save(drawn, path)


if __name__ == "__main__":
    sys.exit(main())
