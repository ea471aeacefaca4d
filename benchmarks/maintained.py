"""State that shrinks: steps with a time to live under a real `dagster dev`, with maintenance by its schedules, and beside it without.

Both pipelines read the same files, one a step: new rows, updates and deletes, of which nearly all expire after three minutes, in the sink,
too. Runs start by the sensor on backlogs. Cleanup starts by what it would win; compaction and VACUUM by their schedules. Deleted files and
log entries are kept for two minutes, so that what is bounded by them shows its bound.

    python benchmarks/maintained.py [--steps 300] [--every 2.2] [--plot benchmarks/maintained.svg] [--folder FOLDER] [--report]

Printed by tenths of the time. The bounds, which decide the exit code:

- after each compaction the newest version of the state names at most a tenth more bytes than its live entries take;
- on disk there is nothing but what the newest versions of state and sink name, and what they named within the retained window: since the
  start of the last VACUUM that has ended, and for the retention before that;
- data files of a version, and commits of a log, stay bounded;
- the median CPU of the last 30 steps is at most 1.3 times that of the first 30;
- no run of Dagster has failed, and no check has found anything.

`--report` prints and plots once more what a folder holds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from harness import add_folder_options, figure, run_or_report, save, shorten_retention, write_kinds

from ebbtide.errors import EbbtideError

PROJECT = Path(__file__).resolve().parents[1]
LOCATION = Path(__file__).with_name("maintained_location.py")
NAMES = ("maintained", "unmaintained")
TABLES = ("state", "sink")
RETENTION_S = 120
SAMPLE_S = 10.0
STARTS_S = 120.0
ENDS_S = 120.0
PARTS = 10
NEW, CHANGED, DELETED = 400, 120, 40
"""Changes a step."""
YOUNG = 8_000
"""Newest rows, of which some are changed or deleted: so young that they have not expired."""
MOST_BYTES = 1.1
MOST_FILES = 40
MOST_CPU = 1.3
COMPARED = 30


def main() -> int:
    """Run, or report on what was run."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--every", type=float, default=2.2, help="s from one file to the next")
    add_folder_options(options)
    asked = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that Dagster's processes end, too

    def run(folder: Path) -> None:
        os.environ["EBBTIDE_SOAK_DIR"] = str(folder)
        Soak(folder, asked.steps, asked.every).run()

    return run_or_report(asked, run, report)


class Soak:
    """One run.

    Args:
        folder: Takes all that is made.
        n_steps: Files to read, one a step.
        every_s: From one file to the next.
    """

    def __init__(self, folder: Path, n_steps: int, every_s: float) -> None:
        self.folder = folder
        self.n_steps, self.every_s = n_steps, every_s
        self._missed: list[str] = []
        self.home = folder / "dagster"
        self.environment = os.environ | {
            "DAGSTER_HOME": str(self.home),
            "EBBTIDE_CACHE": str(folder / "cache"),
            "PYTHONPATH": str(PROJECT),
        }
        os.environ["EBBTIDE_CACHE"] = str(folder / "cache")

    def run(self) -> None:
        """Run to the end; what was found is in the folder."""
        sys.path.insert(0, str(PROJECT / "data" / "shop"))
        from dagster import DagsterInstance
        from dagster_process import dagster_process
        from maintained_location import SPECS

        from ebbtide import InProcess, run

        feed = Feed(self.folder / "in")
        feed.put()
        for name, spec in SPECS.items():  # makes the tables
            run(InProcess(), spec, str(self.folder / "root"))
            for table in TABLES:
                shorten_retention(self.folder / "root" / name / table, f"interval {RETENTION_S} seconds")
        self.home.mkdir(exist_ok=True)
        shutil.copy(PROJECT / "dagster.yaml", self.home)
        workspace = self.folder / "workspace.yaml"
        place = {"relative_path": str(LOCATION), "location_name": "soak", "working_directory": str(LOCATION.parent)}
        workspace.write_text(json.dumps({"load_from": [{"python_file": place}]}))  # JSON is YAML
        with DagsterInstance.from_config(str(self.home)):
            pass  # makes its databases: processes that start together would each make them
        dagster = [sys.executable, "-m", "dagster"]
        served = [*dagster, "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(free_port())]
        with dagster_process(served, self.folder / "dagster.log", PROJECT, self.environment):
            for start in (["sensor", "start", "ebbtide_backlog"], ["schedule", "start", "--start-all"]):
                command = [*dagster, *start, "-w", str(workspace), "-l", "soak"]
                subprocess.run(command, env=self.environment, cwd=PROJECT, check=True, timeout=STARTS_S)
            self._go_on(feed, Samples(self.folder))
            self._note_runs()

    def _go_on(self, feed: Feed, samples: Samples) -> None:
        fed = threading.Thread(target=feed.go_on, args=(self.n_steps, self.every_s), daemon=True)
        fed.start()
        end: float | None = None
        while end is None or time.monotonic() < end:
            try:
                samples.take()
            except (OSError, EbbtideError) as error:  # a file went between its listing and its reading
                self._missed.append(str(error))
            if end is None and not fed.is_alive() and self._is_read():
                end = time.monotonic() + ENDS_S  # the last maintenance comes
            fed.join(SAMPLE_S)
            if not fed.is_alive():
                time.sleep(SAMPLE_S / 2)

    def _is_read(self) -> bool:
        return all(len(batches(self.folder, name)) >= self.n_steps - 1 for name in NAMES)

    def _note_runs(self) -> None:
        from dagster import AssetCheckEvaluation, DagsterEventType, DagsterInstance, EventRecordsFilter

        with DagsterInstance.from_config(str(self.home)) as instance:
            records = instance.get_run_records()
            runs = Counter(f"{each.dagster_run.job_name}: {each.dagster_run.status.value}" for each in records)
            vacuums = [
                (each.start_time, each.end_time)
                for each in records
                if each.dagster_run.job_name == "ebbtide_vacuum" and each.start_time
            ]
            judged = EventRecordsFilter(DagsterEventType.ASSET_CHECK_EVALUATION)
            failed: Counter[str] = Counter()
            for record in instance.get_event_records(judged, limit=10_000):
                event = record.event_log_entry.get_dagster_event().event_specific_data
                if isinstance(event, AssetCheckEvaluation) and not event.passed:
                    failed[f"{event.asset_key.to_user_string()}: {event.check_name}: {event.severity.value}"] += 1
        noted = {"runs": runs, "failed_checks": failed, "missed_samples": self._missed, "vacuums": sorted(vacuums)}
        (self.folder / "runs.json").write_text(json.dumps(noted, indent=1))


class Feed:
    """The source.

    Args:
        folder: Takes its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chance = random.Random(7)
        self._young: list[dict[str, Any]] = []
        self._n_files = self._n_rows = 0

    def go_on(self, n_files: int, every_s: float) -> None:
        """Add files at equal times until there are so many."""
        due_s = time.monotonic()
        while self._n_files < n_files:
            due_s += every_s
            time.sleep(max(0.0, due_s - time.monotonic()))
            self.put()

    def put(self) -> None:
        """Add a file."""
        chance = self._chance
        changes: list[tuple[str, dict[str, Any]]] = []
        for _ in range(CHANGED if self._young else 0):
            number = chance.randrange(len(self._young))
            old = self._young[number]
            self._young[number] = self._row(old["id"])
            changes += [("-U", old), ("+U", self._young[number])]
        for _ in range(DELETED if self._young else 0):
            changes.append(("-D", self._young.pop(chance.randrange(len(self._young)))))
        for _ in range(NEW):
            self._n_rows += 1
            self._young.append(self._row(self._n_rows))
            changes.append(("+I", self._young[-1]))
        del self._young[:-YOUNG]
        write_kinds(self._folder / f"{self._n_files:06d}.jsonl", changes)
        self._n_files += 1

    def _row(self, number: int) -> dict[str, Any]:
        return {"id": number, "at": self._chance.randrange(2**40), "text": f"{self._chance.getrandbits(256):064x}"}


class Samples:
    """Looks at the tables now and then.

    Args:
        folder: Takes the samples.
    """

    def __init__(self, folder: Path) -> None:
        from maintained_location import SPECS

        from ebbtide.runtime import Plan

        self._folder = folder
        self._plans = {name: Plan.under(str(folder / "root"), spec) for name, spec in SPECS.items()}
        self._named_s: dict[str, float] = {}
        """When a version that was seen to name a file was the newest."""
        self._seen = dict.fromkeys(NAMES, -1)

    def take(self) -> None:
        """Write a line."""
        sample: dict[str, Any] = {"at_s": time.time()}
        for name in NAMES:
            found: dict[str, Any] = {"steps": len(batches(self._folder, name))}
            for table in TABLES:
                found |= {f"{table}_{what}": n for what, n in self._table(name, table).items()}
            plan = self._plans[name]
            found["live_bytes"], found["live_entries"] = live(plan, None)
            found["compacted"] = [*self._compacted(name)]
            sample[name] = found
        with (self._folder / "samples.jsonl").open("a") as samples:
            samples.write(json.dumps(sample) + "\n")

    def _table(self, name: str, table: str) -> dict[str, Any]:
        """Return what a table holds; of what no newest version names any more, bytes by when one was last seen to."""
        from ebbtide.delta import Snapshot

        place = self._folder / "root" / name / table
        now_s = time.time()
        on_disk = {path: found for path in place.rglob("*") if (found := stat_of(path))}
        snapshot = Snapshot.read(str(place))
        if snapshot is None:
            raise LookupError(f"no Delta table at {place}")
        named = {str(place / file.path) for file in snapshot.files.values()}
        for file in snapshot.files.values():
            at = file.vector_location(str(place))
            named |= {at} if at else set()
        self._named_s |= dict.fromkeys(named, now_s)
        log = {path for path in on_disk if path.parent.name == "_delta_log"}
        unnamed: Counter[int] = Counter()
        for path in on_disk.keys() - log:
            if str(path) not in named:
                last_s = max(on_disk[path].st_mtime, self._named_s.get(str(path), 0.0))
                unnamed[round(last_s)] += on_disk[path].st_size
        return {
            "files": len(snapshot.files),
            "vectors": sum(file.vector is not None for file in snapshot.files.values()),
            "bytes": sum(file.size for file in snapshot.files.values()),
            "unnamed_bytes": sorted(unnamed.items()),
            "disk_bytes": sum(found.st_size for path, found in on_disk.items() if path not in log),
            "log_files": len(log),
            "log_bytes": sum(on_disk[path].st_size for path in log),
            "oldest_commit_s": round(
                now_s - min((on_disk[p].st_mtime for p in log if p.suffix == ".json"), default=now_s)
            ),
            "version": snapshot.version,
        }

    def _compacted(self, name: str) -> Iterator[dict[str, int]]:
        """Yield what each compaction since the last look has left."""
        plan = self._plans[name]
        newest = plan.state.snapshot().version
        for version, facts in plan.state.steps():
            if version <= self._seen[name]:
                break
            if facts.cause.what == "compaction":
                snapshot = plan.state.snapshot(version)
                n_bytes, n_entries = live(plan, version)
                left = {"version": version, "live_bytes": n_bytes, "live_entries": n_entries}
                yield left | {"bytes": sum(file.size for file in snapshot.files.values())}
        self._seen[name] = newest


def live(plan: Any, version: int | None) -> tuple[int, int]:
    """Return the bytes that the live entries of a state would take by themselves, in files as Ebbtide writes them, and their number."""
    from ebbtide.columns import flags
    from ebbtide.delta import KeyIndex, write_files
    from ebbtide.tables import HashRange, StoredEntries
    from ebbtide.user_code import packed

    snapshot = plan.state.snapshot(version)
    last = next(facts for at, facts in plan.state.steps() if at <= snapshot.version)
    at = plan.rules.next_frontier(last.frontier, last.frontier.clock).operator_step(last.step + 1)
    operator = plan.operator
    pieces = StoredEntries(plan.state.stored(snapshot), packed(operator)).newest(HashRange(0, 1))
    entries = pa.concat_tables(pieces)
    lives = ~flags(entries, "_removed") & ~operator.expiry.expired(entries, at)
    rows = plan.state.writer().entry_rows(KeyIndex.in_hash_order(entries.filter(lives), operator.key)[0])
    with tempfile.TemporaryDirectory() as folder:
        adds = write_files(folder, rows, plan.state.bounded, data_change=False)
    return sum(action["add"]["size"] for action in adds), len(rows)


def stat_of(path: Path) -> os.stat_result | None:
    """Return what a file is; None of a folder, or of one that is gone meanwhile."""
    try:
        return path.stat() if path.is_file() else None
    except OSError:
        return None


def free_port() -> int:
    """Return a port that nothing listens on."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def batches(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the steps that have read a file; `used_s` is the CPU time of each but the first of a process."""
    noted = folder / f"{name}.jsonl"
    steps = [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []
    before: dict[str, Any] = {}
    for step in steps:
        if before.get("process") == step["process"]:
            step["used_s"] = step["cpu_s"] - before["cpu_s"]
        before = step
    return [step for step in steps if step["kind"] != "tick"]


def report(folder: Path, plotted: Path | None) -> int:
    """Print the tenths and the bounds; plot them; return 1 if a bound does not hold."""
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    steps = {name: batches(folder, name) for name in NAMES}
    runs = json.loads((folder / "runs.json").read_text())
    divide(samples, runs["vacuums"])
    for part in parted(samples, steps):
        print(json.dumps(part))
    print(json.dumps(runs))
    holds = True
    for text, value, most in bounds(samples, steps, runs):
        holds &= value <= most
        print(f"{'holds ' if value <= most else 'BROKEN'}  {text}: {value:,.3f}, at most {most:,.3f}")
    if plotted:
        plot(samples, steps, plotted)
    return int(not holds)


def divide(samples: list[dict[str, Any]], vacuums: list[tuple[float, float | None]]) -> None:
    """Divide what no newest version names into what is kept for the retention or the next VACUUM, and what a VACUUM has left.

    Args:
        samples: Get `kept_bytes` and `lost_bytes` of each table.
        vacuums: Start and end of each VACUUM, s; None: it has not ended.
    """
    at_s = [sample["at_s"] for sample in samples]
    # The last version that names a file may come as late as the next sample.
    gap_s = max((after - before for before, after in itertools.pairwise(at_s)), default=0.0)
    for sample in samples:
        ended = [start_s for start_s, end_s in vacuums if end_s is not None and end_s <= sample["at_s"]]
        # A file that was named until then had to be kept by the last one.
        until_s = max(ended, default=0.0) - RETENTION_S - gap_s
        for name, table in itertools.product(NAMES, TABLES):
            unnamed = sample[name].pop(f"{table}_unnamed_bytes")
            is_lost = name == "maintained"
            lost = sum(size for last_s, size in unnamed if is_lost and last_s < until_s)
            sample[name][f"{table}_lost_bytes"] = lost
            sample[name][f"{table}_kept_bytes"] = sum(size for _, size in unnamed) - lost


def bounds(
    samples: list[dict[str, Any]], steps: dict[str, list[dict[str, Any]]], runs: dict[str, Any]
) -> Iterator[tuple[str, float, float]]:
    """Yield what is bounded, its greatest value, and its bound."""
    own = [sample["maintained"] for sample in samples]
    compacted = [each for sample in own for each in sample["compacted"]]
    ratios = [each["bytes"] / each["live_bytes"] for each in compacted if each["live_bytes"]]
    yield "state's bytes over its live entries' after a compaction", max(ratios, default=9.9), MOST_BYTES
    for table in TABLES:
        yield f"{table}: bytes on disk past the window", max(each[f"{table}_lost_bytes"] for each in own), 0
        yield f"{table}: data files", max(each[f"{table}_files"] for each in own), MOST_FILES
        half = len(own) // 2
        first, second = (max(each[f"{table}_log_files"] for each in some) for some in (own[:half], own[half:]))
        yield f"{table}: files of the log in the second half over the first", second / first, 1.5
    used = [step["used_s"] for step in steps["maintained"] if "used_s" in step]
    first_s, last_s = statistics.median(used[:COMPARED]), statistics.median(used[-COMPARED:])
    yield f"median CPU of the last {COMPARED} steps over the first ({first_s:.3f} s)", last_s / first_s, MOST_CPU
    failed = sum(n for run, n in runs["runs"].items() if run.endswith(("FAILURE", "CANCELED")))
    yield "runs that failed", failed, 0
    # A warning is no failure: rows that live for three minutes expire while they are judged.
    found = sum(n for check, n in runs["failed_checks"].items() if check.endswith("ERROR"))
    yield "checks that failed", found, 0


def parted(samples: list[dict[str, Any]], steps: dict[str, list[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Sum up each tenth of the time."""
    start_s, end_s = samples[0]["at_s"], samples[-1]["at_s"] + 1
    for number in range(PARTS):
        first_s = start_s + (end_s - start_s) * number / PARTS
        last_s = start_s + (end_s - start_s) * (number + 1) / PARTS
        part: dict[str, Any] = {"minutes": f"{(first_s - start_s) / 60:.1f}-{(last_s - start_s) / 60:.1f}"}
        within = [sample for sample in samples if first_s <= sample["at_s"] < last_s]
        for name in NAMES:
            own = [sample[name] for sample in within]
            used = [step["used_s"] for step in steps[name] if "used_s" in step and first_s <= step["at_s"] < last_s]
            if not own:
                continue
            part[name] = {
                "steps": own[-1]["steps"],
                "cpu_s_median": round(statistics.median(used), 3) if used else None,
                "live_entries": own[-1]["live_entries"],
                "live_kb": own[-1]["live_bytes"] // 1000,
                "state_kb": own[-1]["state_bytes"] // 1000,
                "disk_kb": sum(own[-1][f"{table}_disk_bytes"] for table in TABLES) // 1000,
                "window_kb": sum(own[-1][f"{table}_kept_bytes"] for table in TABLES) // 1000,
                "lost_kb": sum(own[-1][f"{table}_lost_bytes"] for table in TABLES) // 1000,
                **{f"{table}_files_most": max(each[f"{table}_files"] for each in own) for table in TABLES},
                **{f"{table}_log_files_most": max(each[f"{table}_log_files"] for each in own) for table in TABLES},
                "log_kb": sum(own[-1][f"{table}_log_bytes"] for table in TABLES) // 1000,
                "compacted": [
                    round(each["bytes"] / each["live_bytes"], 3)
                    for sample in own
                    for each in sample["compacted"]
                    if each["live_bytes"]
                ],
            }
        yield part


def plot(samples: list[dict[str, Any]], steps: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw bytes, disk, files and CPU over time."""
    drawn, (state, disk, files, cost) = figure(4, 11)
    start_s = samples[0]["at_s"]
    minutes = [(sample["at_s"] - start_s) / 60 for sample in samples]

    def megabytes(name: str, *what: str) -> list[float]:
        return [sum(sample[name][each] for each in what) / 1e6 for sample in samples]

    state.plot(minutes, megabytes("unmaintained", "state_bytes"), label="without maintenance")
    state.plot(minutes, megabytes("maintained", "state_bytes"), label="with maintenance")
    state.plot(minutes, megabytes("maintained", "live_bytes"), label="live entries")
    state.set(ylabel="MB of the newest state")
    data = [f"{table}_disk_bytes" for table in TABLES]
    disk.plot(minutes, megabytes("unmaintained", *data), label="without maintenance")
    disk.plot(minutes, megabytes("maintained", *data), label="with maintenance")
    named = [f"{table}_bytes" for table in TABLES]
    disk.plot(minutes, megabytes("maintained", *named), label="named by the newest versions")
    disk.set(ylabel="MB of state and sink on disk")
    for name in NAMES:
        for table in TABLES:
            files.plot(
                minutes, [each[name][f"{table}_files"] for each in samples], label=f"{table}, {name}: data files"
            )
            files.plot(
                minutes, [each[name][f"{table}_log_files"] for each in samples], ":", label=f"{table}, {name}: log"
            )
        used = [step for step in steps[name] if "used_s" in step]
        cost.plot([(step["at_s"] - start_s) / 60 for step in used], [step["used_s"] for step in used], ".", label=name)
    files.set(ylabel="files", yscale="log")
    cost.set(ylabel="CPU s a step", xlabel="minutes")
    for each in (state, disk, files, cost):
        each.legend(fontsize=7, ncol=2)
    for each in (state, disk, cost):
        each.set_ylim(bottom=0)
    save(drawn, path)


if __name__ == "__main__":
    sys.exit(main())
