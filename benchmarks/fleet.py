"""Many topics followed by one process: what an idle pipeline costs, how late the sinks are, and what they show after kill -9.

A broker of its own, a topic and a pipeline each. First nothing comes: a fleet of one pipeline and one of all are followed for a while, and the
difference is what a pipeline costs. Then records come to all topics, and the process is killed now and then and started again at once, as a service
manager would. At the end each sink is compared with its truth.

    python benchmarks/fleet.py [--pipelines 50] [--rate 10] [--idle 60] [--minutes 3] [--kill-every 60] [--folder FOLDER] [--plot FILE.svg] [--report]

Latency is from the producer's call to the sink's commit, in s; `killed` are records that were sent within 15 s after a kill, or within 10 s before it. CPU is that of the
whole process tree, memory what the process has for itself (`Pss_Anon`) and with what it shares (`Pss`). The exit code is 1 if a sink is wrong, or if the
process ended by itself. `--report` prints and plots once more what a folder holds. An hour: `--minutes 60 --kill-every 300`.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
    tree,
    used_by,
    write_spec,
)

PROJECT = Path(__file__).resolve().parents[1]
KEYS = 1_000
"""Keys of a topic."""
DELETED = 0.05
NOTED_ALL_S = 600.0
NOTED = 7
"""Of a longer run one record in so many has its latency noted: no divisor of the number of topics."""
SAMPLE_S = 5.0
SETTLE_S = 10.0
"""Seconds after a start that are not measured."""
AFTER_KILL_S = 15.0
BEFORE_KILL_S = 10.0
FLAT = 1.1
WAIT_S = 120.0


def main() -> int:
    """Run, or report on what was run."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--pipelines", type=int, default=50)
    options.add_argument("--rate", type=float, default=10, help="records a second of each topic")
    options.add_argument("--idle", type=float, default=60, help="seconds; 0: idle cost is not measured")
    options.add_argument("--minutes", type=float, default=3, help="of load; 0: none")
    options.add_argument("--kill-every", type=float, default=60, help="seconds; 0: never")
    add_folder_options(options)
    asked = options.parse_args()

    def run(folder: Path) -> None:
        bench = Bench(folder, asked.pipelines, asked.rate)
        try:
            if asked.idle:
                bench.idle(asked.idle)
            if asked.minutes:
                bench.load(asked.minutes * 60, asked.kill_every)
        finally:
            bench.end()

    return run_or_report(asked, run, report)


@dataclass
class Load:
    """The producer of all topics.

    Args:
        servers: The broker's.
        topics: The topics.
        rate: Records a second of each.
        noted: One in so many has its latency noted.
    """

    servers: str
    topics: list[str]
    rate: float
    noted: int
    sent: list[tuple[str, int, float]] = field(default_factory=list)
    """Topic, offset, and when it was sent."""
    truth: dict[str, dict[int, int]] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Connect."""
        settings = {"bootstrap.servers": self.servers, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer(settings)
        self._chance = random.Random(11)
        self.n_sent = 0
        self.truth = {topic: {} for topic in self.topics}
        self.ends = dict.fromkeys(self.topics, 0)

    def send_for(self, duration_s: float) -> None:
        """Send at the rate, topic after topic, evenly."""
        begun_s = time.monotonic()
        for number in itertools.count():
            due_s = begun_s + number / self.rate / len(self.topics)
            if due_s - begun_s > duration_s:
                break
            time.sleep(max(0.0, due_s - time.monotonic()))
            self._send(self.topics[number % len(self.topics)])
        if self._producer.flush(60):
            raise RuntimeError("records were not delivered within 60 s")

    def _send(self, topic: str) -> None:
        self.n_sent += 1
        key = self._chance.randrange(KEYS)
        # Of a key that is there: so each record changes the sink, and is in one of its commits.
        is_deleted = key in self.truth[topic] and self._chance.random() < DELETED
        if is_deleted:
            del self.truth[topic][key]
        else:
            self.truth[topic][key] = self.n_sent
        row = {"id": key, "at": self.n_sent, "text": f"{self.n_sent:x}" * 20}
        value = json.dumps({"kind": "-D" if is_deleted else "+U", "row": row})
        sent_s, number = time.time(), self.n_sent

        def note(error: Any, message: Any) -> None:
            if error is not None:
                raise RuntimeError(str(error))
            if number % self.noted == 0:
                self.sent.append((topic, message.offset(), sent_s))
            self.ends[topic] = message.offset() + 1

        self._producer.produce(topic, value.encode(), on_delivery=note)
        self._producer.poll(0)


class Bench:
    """The broker, the specs, and the process that follows them.

    Args:
        folder: Takes all that is made.
        n_pipelines: How many.
        rate: Records a second of each.
    """

    def __init__(self, folder: Path, n_pipelines: int, rate: float) -> None:
        sys.path.insert(0, str(PROJECT / "tests" / "support"))
        from servers.kafka_broker import Broker

        self.folder = folder
        self.root = folder / "root"
        self.specs = folder / "specs"
        self.topics = [f"t{number:02d}" for number in range(n_pipelines)]
        self.rate = rate
        self.broker = Broker(folder / "broker")
        for topic in self.topics:
            self.broker.create(topic)
            write_spec(self.specs / topic, topic, topic, self.broker.servers)
        self._process: subprocess.Popen[bytes] | None = None

    def end(self) -> None:
        """End what is left."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
        self.broker.stop()

    def _follow(self, specs: Path, root: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ebbtide.cli", "run", str(specs), "--follow", "--root", str(root), "-q"]
        environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
        with (self.folder / "run.log").open("ab") as said:
            process = subprocess.Popen(command, stdout=said, stderr=said, env=environment, start_new_session=True)
        self._process = process
        return process

    def idle(self, seconds: float) -> None:
        """Measure a fleet of one, and one of all."""
        found = {}
        for name, specs, topics in (
            ("one", self.specs / self.topics[0], self.topics[:1]),
            ("all", self.specs, self.topics),
        ):
            root = self.folder / f"idle-{name}"
            process = self._follow(specs, root)
            wait_until(lambda root=root, topics=topics: all(has_begun(root, topic) for topic in topics), process)
            time.sleep(SETTLE_S)
            before = sample(process.pid)
            time.sleep(seconds)
            after = sample(process.pid)
            minutes = (after["at_s"] - before["at_s"]) / 60
            found[name] = {**after, "n": len(topics), "cpu_s_a_minute": (after["cpu_s"] - before["cpu_s"]) / minutes}
            process.send_signal(signal.SIGTERM)
            found[name]["exit"] = process.wait(WAIT_S)
        (self.folder / "idle.json").write_text(json.dumps(found))

    def load(self, seconds: float, kill_every_s: float) -> None:
        """Follow all under load, with kills between."""
        load = Load(self.broker.servers, self.topics, self.rate, noted=1 if seconds <= NOTED_ALL_S else NOTED)
        process = self._follow(self.specs, self.root)
        wait_until(lambda: all(has_begun(self.root, topic) for topic in self.topics), process)
        time.sleep(SETTLE_S)
        begun_s = time.time()
        producer = threading.Thread(target=load.send_for, args=(seconds,), daemon=True)
        producer.start()
        kills, exits = [], []
        next_kill_s = begun_s + kill_every_s if kill_every_s else float("inf")
        last_kill_s = begun_s + seconds - 2 * AFTER_KILL_S
        with (self.folder / "samples.jsonl").open("w") as samples:
            while producer.is_alive():
                ended = process.poll()
                if ended is not None:
                    exits.append(ended)
                    process = self._follow(self.specs, self.root)
                if next_kill_s < min(time.time(), last_kill_s):
                    kills.append(time.time())
                    next_kill_s += kill_every_s
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(WAIT_S)
                    process = self._follow(self.specs, self.root)
                samples.write(json.dumps({**sample(process.pid), "begun_s": begun_s, "run": len(kills)}) + "\n")
                samples.flush()
                producer.join(SAMPLE_S)
        wait_until(lambda: all(self._is_read(topic, load) for topic in self.topics), process)
        process.send_signal(signal.SIGTERM)
        exits.append(process.wait(WAIT_S))
        wrong = {topic: self._n_wrong(topic, load) for topic in self.topics}
        verdict = {
            "exits": exits,
            "kills": kills,
            "records": load.n_sent,
            "rows": sum(len(rows) for rows in load.truth.values()),
            "wrong": sum(wrong.values()),
            "steps": sum(len(list(commits_of(self.root, topic))) for topic in self.topics),
        }
        (self.folder / "verdict.json").write_text(json.dumps(verdict))
        (self.folder / "sent.json").write_text(json.dumps(load.sent))

    def _is_read(self, topic: str, load: Load) -> bool:
        _, last = next(commits_of(self.root, topic, newest_first=True), (0.0, 0))
        return last >= load.ends[topic]

    def _n_wrong(self, topic: str, load: Load) -> int:
        return n_wrong(self.specs / topic, self.root / topic / "sink", load.truth[topic])


def has_begun(root: Path, topic: str) -> bool:
    """Return whether a pipeline has made its first step, which is empty."""
    commits = (root / topic / "state" / "_delta_log").glob("*.json")
    return len(list(commits)) > 1  # the first one makes the table


def commits_of(root: Path, topic: str, *, newest_first: bool = False) -> Iterator[tuple[float, int]]:
    """Yield when each step was committed to a sink, and up to where it has read the topic."""
    for commit in sorted((root / topic / "sink" / "_delta_log").glob("*.json"), reverse=newest_first):
        facts = facts_of(commit)
        if facts is not None and facts["source"]["position"]:
            yield commit.stat().st_ctime, facts["source"]["position"]["to"]["0"]


def wait_until(is_so: Any, process: subprocess.Popen[bytes]) -> None:
    """Wait until something is so, while a process runs."""
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        if process.poll() is not None or time.monotonic() > end_s:
            raise RuntimeError(f"the run did not come so far; exit code {process.poll()}")
        time.sleep(0.5)


def sample(pid: int) -> dict[str, Any]:
    """Return what a process tree uses now."""
    used = tree(pid)
    held = used_by(pid, is_driver=True)
    return {
        **held,
        "processes": len(used),
        "cpu_s": sum(used.values()),
        "at_s": time.time(),
        "machine_load": os.getloadavg()[0],
    }


def report(folder: Path, plotted: Path | None) -> int:
    """Print what was measured; return 1 if a sink is wrong, or a process has ended by itself."""
    is_bad = False
    idle = folder / "idle.json"
    if idle.exists():
        one, every = (json.loads(idle.read_text())[name] for name in ("one", "all"))
        more = every["n"] - one["n"]
        print(f"idle, one pipeline: {said(one)}")
        print(f"idle, {every['n']} pipelines: {said(every)}")
        own, whole = ((every[name] - one[name]) / more / 2**20 for name in ("driver_own_bytes", "driver_bytes"))
        cpu_s = (every["cpu_s_a_minute"] - one["cpu_s_a_minute"]) / more
        print(f"a further idle pipeline: {own:.2f} MiB of its own, {whole:.2f} MiB in all, {cpu_s:.3f} CPU s a minute")
        is_bad |= one["exit"] != 0 or every["exit"] != 0
    verdict = folder / "verdict.json"
    if verdict.exists():
        samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
        found = json.loads(verdict.read_text())
        late = latencies(folder, found["kills"])
        for kind in ("load", "killed"):
            of_kind = [late_s for _, late_s, its in late if its == kind]
            print(
                f"{kind}: p50 {percentile(of_kind, 0.5)} s, p99 {percentile(of_kind, 0.99)} s, most {percentile(of_kind, 1)} s, {len(of_kind)} records"
            )
        print_samples(samples)
        print(json.dumps({**found, "kills": len(found["kills"])}))
        is_bad |= bool(found["wrong"]) or found["exits"] != [0]
        if plotted:
            plot(samples, late, plotted)
    return int(is_bad)


def said(used: dict[str, Any]) -> str:
    """Write what an idle process uses."""
    own, whole = used["driver_own_bytes"] / 2**20, used["driver_bytes"] / 2**20
    return (
        f"{own:.1f} MiB of its own, {whole:.1f} MiB in all, {used['cpu_s_a_minute']:.2f} CPU s a minute, "
        f"{used['driver_threads']} threads, {used['driver_handles']} handles, {used['processes']} processes, load {used['machine_load']:.1f}"
    )


def latencies(folder: Path, kills: list[float]) -> list[tuple[float, float, str]]:
    """Return for each record when it was sent, how late it was, and whether near a kill."""
    sent: dict[str, list[tuple[int, float]]] = {}
    for topic, offset, sent_s in json.loads((folder / "sent.json").read_text()):
        sent.setdefault(topic, []).append((offset, sent_s))
    found = []
    for topic, records in sent.items():
        commits = list(commits_of(folder / "root", topic))
        ends = [end for _, end in commits]
        for offset, sent_s in records:
            at_s, _ = commits[bisect.bisect_right(ends, offset)]
            is_near = any(kill_s - BEFORE_KILL_S <= sent_s <= kill_s + AFTER_KILL_S for kill_s in kills)
            found.append((sent_s, at_s - sent_s, "killed" if is_near else "load"))
    return sorted(found)


def print_samples(samples: list[dict[str, Any]]) -> None:
    """Print the CPU of the process, and of what should be flat its medians in the second and the last third of the time."""
    rates = [
        (after["cpu_s"] - before["cpu_s"]) / (after["at_s"] - before["at_s"])
        for before, after in itertools.pairwise(samples)
        if before["run"] == after["run"]
    ]
    load = statistics.mean(each["machine_load"] for each in samples)
    print(f"cores used: median {statistics.median(rates):.2f}, most {max(rates):.2f}; load of the machine {load:.1f}")
    n = len(samples)
    for name in ("driver_own_bytes", "driver_bytes", "driver_threads", "driver_handles"):
        second, last = (
            statistics.median(each[name] for each in samples[start : start + max(1, n // 3)])
            for start in (n // 3, 2 * n // 3)
        )
        verdict = "flat" if last <= FLAT * second else "GROWS"
        print(f"{name:<18} second third {second:>14,.0f}  last third {last:>14,.0f}  {verdict}")


def plot(samples: list[dict[str, Any]], late: list[tuple[float, float, str]], path: Path) -> None:
    """Draw latency, memory, CPU and handles over time."""
    drawn, (latency, memory, cpu, held) = figure(4, 11)
    begun_s = samples[0]["begun_s"]
    minutes = [(each["at_s"] - begun_s) / 60 for each in samples]
    by_slice: dict[int, list[float]] = {}
    for sent_s, late_s, _ in late:
        by_slice.setdefault(int((sent_s - begun_s) // 10), []).append(late_s)
    at = sorted(by_slice)
    for share in (0.5, 0.99):
        latency.plot(
            [each / 6 for each in at], [percentile(by_slice[each], share) for each in at], label=f"p{share * 100:.0f}"
        )
    latency.set(ylabel="s until in the sink", yscale="log")
    memory.plot(minutes, [each["driver_own_bytes"] / 2**20 for each in samples], label="own")
    memory.plot(minutes, [each["driver_bytes"] / 2**20 for each in samples], label="in all")
    memory.set(ylabel="MiB")
    pairs = [(b, a) for b, a in itertools.pairwise(samples) if b["run"] == a["run"]]
    cpu.plot(
        [(after["at_s"] - begun_s) / 60 for _, after in pairs],
        [(after["cpu_s"] - before["cpu_s"]) / (after["at_s"] - before["at_s"]) for before, after in pairs],
        label="cores",
    )
    cpu.set(ylabel="cores")
    for name in ("handles", "threads"):
        held.plot(minutes, [each[f"driver_{name}"] for each in samples], label=name)
    held.set(ylabel="handles, threads", xlabel="minutes")
    for each in (latency, memory, cpu, held):
        each.legend(fontsize=7)
    for each in (memory, cpu, held):
        each.set_ylim(bottom=0)
    save(drawn, path)


if __name__ == "__main__":
    raise SystemExit(main())
