"""`make torture`: real processes with Spark are killed at every place and at random times, then run again, and their tables compared.

Each run is noted in `.torture/runs.jsonl` as soon as it is over, and not made again; `tests/torture/README.md` is written from the notes.
Those without Spark come first: they take a second each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from crashes.calls import AFTER as KILL_AFTER
from crashes.calls import BEFORE as KILL_BEFORE
from crashes.calls import CUT, EIO, FULL, SHORT, TORN, NoCompilerError, library, preloading
from crashes.machines import CallTrials, Machine, NotHeldError, Works, before
from crashes.power import NAMES, NOTHING
from killing import AFTER, PLACES, SINK, STATE, UPKEEP, Killer, Place
from operating import act
from victims import KINDS, changes_of, expected, feed, kinds_for, refuse_fed_twice, shown, spec_of, tables, write_source

from ebbtide import run
from ebbtide.operations import Context
from ebbtide.runtime import Plan
from ebbtide.sessions import executor_of
from ebbtide.spec import Pipeline

PROJECT = Path(__file__).resolve().parents[2]
REPAIRS: dict[str, dict[str, Place]] = {
    "repair": {
        "the step is not committed": (STATE, "perform", "before", 1),
        "the step is committed": (STATE, "perform", "after", 1),
        "the sink's rows are written": ("ebbtide.tables._upsert:Upserter", "apply_pieces", "before", 1),
        "the sink is committed": (SINK, "restore_and_apply", "after", 1),
    },
    "acknowledge": {
        "the step is not committed": (STATE, "perform", "before", 1),
        "the step is committed": (STATE, "perform", "after", 1),
    },
}
RANDOM = ("driver", "JVM", "Python worker", "group")
"""Who gets a signal at a random time: SIGKILL, the whole process group SIGTERM."""
MOST_S = 180
CALL_FAULTS = {
    EIO: "one fails with EIO",
    FULL: "the disk is full from one on (ENOSPC)",
    SHORT: "a write is cut short",
    TORN: "a write is torn, then SIGKILL",
    KILL_BEFORE: "SIGKILL before one",
    KILL_AFTER: "SIGKILL after one",
    CUT: "SIGKILL after one, unsynced data is lost",
}
"""What happens at a system call, in words."""
CALL_JOBS = ("run", "run", "cleanup", "compaction", "migrate", "alter", "replay", "rewind", "refresh", "adopt", "swap")
CALL_RUNS = 16
"""Runs of a fault at system calls for one of the others: a place is one of thousands."""
SAME_PIPELINE = 12
"""Runs that have their three pipelines in common."""


class Torture:
    """Makes runs and notes them.

    Args:
        folder: Where the notes and the tables are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "runs.jsonl"
        self._spark: Any = None
        folder.mkdir(exist_ok=True)

    @property
    def spark(self) -> Any:
        """A session of this process, for what follows a kill and for looking at tables."""
        if self._spark is None:
            from victim import SETTINGS, small

            from ebbtide.sessions import build_session

            small()
            self._spark = build_session("torture", SETTINGS)
        return self._spark

    @cached_property
    def known(self) -> dict[str, dict[int, dict[str, Any]]]:
        """The notes, by fault and number."""
        found: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
        for line in self.notes.read_text(encoding="utf-8").splitlines() if self.notes.exists() else []:
            note = json.loads(line)
            found[note["fault"]][note["number"]] = note
        return found

    def attempt(self, fault: str, number: int, kinds: tuple[str, ...], do: Callable[[Path, str, int], bool]) -> None:
        """Make a run of the next kind, and note whether its tables held."""
        home = self.folder / "now"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        kind = kinds[number % len(kinds)]
        began = time.monotonic()
        why = ""
        try:
            struck = do(home, kind, number)
        except Exception:  # noqa: BLE001 - noted, and the next run is made
            struck, why = True, traceback.format_exc()[-2_000:]
        note = {"fault": fault, "number": number, "kind": kind, "struck": struck, "held": not why, "why": why}
        note["seconds"] = round(time.monotonic() - began, 1)
        with self.notes.open("a", encoding="utf-8") as notes:
            print(json.dumps(note), file=notes)
        self.known[fault][number] = note
        print(f"{fault} {number} {kind}: {'held' if not why else 'NOT HELD'}, {note['seconds']} s", flush=True)  # noqa: T201
        if why:
            shutil.copytree(home, self.folder / f"failed-{int(time.time())}", ignore_dangling_symlinks=True)


@lru_cache(maxsize=1)  # the places of a job follow one another
def tables_of_twin(killer: Killer, home: Path, job: str, kind: str, number: int) -> dict[str, list[str]]:
    """Return the tables of a pipeline that does a job, and is not killed."""
    works = Works(killer, kind, write_source(home / "in", kind, number))
    works.do(home / "twin", *before(job), job, *AFTER.get(job, ()))
    return works.tables(home / "twin", job)


def without_spark(killer: Killer, job: str, place: Place) -> Callable[[Path, str, int], bool]:
    """Kill a driver without a JVM at a place, ask again, compare with one that was not killed."""

    def do(home: Path, kind: str, number: int) -> bool:
        want = tables_of_twin(killer, home, job, kind, number)
        works = Works(killer, kind, write_source(home / "in", kind, number))
        root = home / "killed"
        if before(job):
            works.do(root, *before(job))
        died = works.order(root, job, place=place)
        if died["code"] not in (0, -signal.SIGKILL):
            raise NotHeldError(f"it ended with {died}")
        works.go_on(root, job)
        if works.tables(root, job) != want:
            raise NotHeldError("other tables than those of the twin")
        return bool(died["code"] == -signal.SIGKILL)

    return do


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """Yield the processes that a process has started, in turn, with their command lines."""
    parents = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (OSError, IndexError):
                continue
            parents[int(stat[1])].append((int(entry.name), command))
    waiting = [pid]
    while waiting:
        for child, command in parents[waiting.pop()]:
            yield child, command
            waiting.append(child)


class Victim:
    """A process with Spark in a group of its own."""

    def __init__(self, home: Path, kind: str, spec: Pipeline, work: str = "run", **more: Any) -> None:
        self.ready = home / "ready"
        self.ready.unlink(missing_ok=True)
        fields = {"kind": kind, "spec": spec.model_dump_json(by_alias=True), "root": str(home), "work": work, **more}
        order = home / "order.json"
        order.write_text(json.dumps(fields | {"ready": str(self.ready)}), encoding="utf-8")
        self._said = (home / "said").open("wb")
        environment = os.environ | {"PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests' / 'support'}"}
        command = [sys.executable, str(Path(__file__).with_name("victim.py")), str(order)]
        self.process = subprocess.Popen(
            command, env=environment, stdout=self._said, stderr=self._said, start_new_session=True
        )

    def wait_until_ready(self) -> None:
        """Wait until its session is there."""
        end = time.monotonic() + MOST_S
        while not self.ready.exists() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)

    def strike(self, whom: str) -> bool:
        """Send the signal; return whether there was somebody to get it."""
        pid = self.process.pid
        try:
            if whom == "driver":
                os.kill(pid, signal.SIGKILL)
            elif whom == "group":
                os.killpg(pid, signal.SIGTERM)
            else:
                word = "java" if whom == "JVM" else "pyspark.daemon"
                found = [child for child, command in descendants(pid) if word in command]
                os.kill(found[-1], signal.SIGKILL)
        except (ProcessLookupError, IndexError):
            return False
        return True

    def end(self) -> int:
        """Wait for it, and leave nothing of its group."""
        try:
            code = self.process.wait(MOST_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._said.close()
        return code


def look_at(torture: Torture, home: Path, kind: str, number: int, spec: Pipeline) -> None:
    """Compare a pipeline's tables with the reference, and its change feed, as Spark reads it, with what Delta's protocol makes of the log."""
    want = expected(kind, changes_of(kind, number))
    plan = Plan.under(str(home), spec)
    is_acknowledged = any(facts.cause.what == "acknowledge" for _, facts in plan.state.steps())
    if is_acknowledged:  # what was deleted stays away
        want = [row for row in want if row["id"] % 2]
    if shown(spec, home) != want:
        raise NotHeldError(f"{shown(spec, home)} is not {want}")
    refuse_fed_twice(plan)
    reader = torture.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    fed = reader.load(plan.sink.path).groupBy("_commit_version", "_change_type").count().collect()
    of_spark = sorted((row["_commit_version"], row["_change_type"], row["count"]) for row in fed)
    of_log: defaultdict[tuple[int, str], int] = defaultdict(int)
    for version, change, _ in feed(plan):
        of_log[version, change] += 1
    if of_spark != sorted((*at, count) for at, count in of_log.items()):
        raise NotHeldError(f"Spark reads another feed: {of_spark}, {dict(of_log)}")
    bad = tables(spec, home)["quarantine"]
    if len(bad) != 3:  # one in each file
        raise NotHeldError(f"{len(bad)} bad records")


def with_spark(torture: Torture, work: str, place: Place | None, whom: str = "") -> Callable[[Path, str, int], bool]:
    """Kill a run with Spark at a place or, None, somebody at a random time; run it again here, and look at its tables."""

    def do(home: Path, kind: str, number: int) -> bool:
        spec = spec_of(kind, write_source(home / "in", kind, number), ttl="2d", lease_ttl="2s")
        if work != "run":
            run(torture.spark, spec, str(home))
        if work in REPAIRS:
            path = Plan.under(str(home), spec).sink.path
            torture.spark.sql(f"DELETE FROM delta.`{path}` WHERE id % 2 = 0")
        more = {} if place is None else {"place": place}
        victim = Victim(home, kind, spec, work, **more)
        struck = True
        if place is None:
            victim.wait_until_ready()
            time.sleep(random.Random(f"{whom}{number}").uniform(0, 9))
            struck = victim.process.poll() is None and victim.strike(whom)
        code = victim.end()
        if place is not None:
            struck = code == -signal.SIGKILL
        if work in REPAIRS:
            run(torture.spark, spec, str(home))
            act("repair", "apply", Context(spec, str(home), executor_of(torture.spark)))
        run(torture.spark, spec, str(home))
        look_at(torture, home, kind, number, spec)
        return struck

    return do


Fault = tuple[str, tuple[str, ...], Callable[[Path, str, int], bool]]
"""Its name, the kinds of pipelines that can meet it, and what makes a run with it."""


def faults(torture: Torture, killer: Killer) -> Iterator[Fault]:
    """Yield all faults, the quick ones first."""
    for place, at in PLACES.items():
        yield f"driver without Spark, run: {place}", KINDS, without_spark(killer, "run", at)
    for job, places in UPKEEP.items():
        for place, at in places.items():
            yield f"driver without Spark, {job}: {place}", kinds_for(job), without_spark(killer, job, at)
    for whom in RANDOM:
        yield f"{whom} at a random time", KINDS, with_spark(torture, "run", None, whom)
    for job, places in REPAIRS.items():
        for place, at in places.items():
            yield f"driver with Spark, {job}: {place}", ("sequence",), with_spark(torture, job, at)
    for place, at in PLACES.items():
        yield f"driver with Spark, run: {place}", KINDS, with_spark(torture, "run", at)


@lru_cache(maxsize=3)  # one of each kind
def call_trials(killer: Killer, home: Path, kind: str, block: int) -> CallTrials:
    """Make the trials of a job at its system calls; the job is drawn."""
    shutil.rmtree(home, ignore_errors=True)
    rng = random.Random(f"{kind}{block}")
    job = rng.choice([job for job in CALL_JOBS if kind in kinds_for(job)])
    given = {"checkpoints": 3} if rng.random() < 0.5 else {}
    return CallTrials(Machine(killer, kind, job, home, block, **given))


def at_a_call(torture: Torture, killer: Killer, fault: str) -> Callable[[Path, str, int], bool]:
    """Have a system call meet a fault, ask again, compare with a pipeline that met none."""

    def do(_: Path, kind: str, number: int) -> bool:
        trials = call_trials(killer, torture.folder / "calls" / kind, kind, number // SAME_PIPELINE)
        rng = random.Random(f"{fault}{number}")
        at = trials.draw(fault, rng)
        how = rng.choice([NOTHING, NAMES, f"drawn by {number}"])
        try:
            return trials.attempt(at, fault, how).is_struck
        except AssertionError as error:
            raise NotHeldError(f"{trials.machine.job}, {fault} at {at}, {how}") from error

    return do


def call_faults(torture: Torture, killer: Killer) -> Iterator[Fault]:
    """Yield the faults at system calls."""
    for fault, words in CALL_FAULTS.items():
        yield f"system calls without Spark: {words}", KINDS, at_a_call(torture, killer, fault)


def report(torture: Torture, path: Path) -> None:
    """Write the table of what was run."""
    lines = [
        "# Torture",
        "",
        "Written by `make torture`. Each run draws its records anew, in turn of the kinds arrival (emission: every), sequence and stateful;",
        "a process is killed with SIGKILL (a group gets SIGTERM), the same is asked again, and the tables are compared: without Spark",
        "with those of a pipeline that was not killed, row by row of all tables and of the change feed; with Spark with the reference model,",
        "and the change feed as Spark reads it with what the log says. `Struck` are the runs in which the signal found somebody at that",
        "place; `held` those whose tables were right. At system calls the call and the job are drawn, of all calls that change what is below the root",
        "(the name of the call first, for most are writes): the next process must end with the tables of the pipeline that met no fault, with no step",
        "twice and no file left that no vacuum deletes; the error of the first must be one of Ebbtide's. Without Spark an adoption reads the table, and gives it columns, by stand-ins of the tests.",
        "Power cuts in lives of many works are simulated by `tests/runtime/test_power.py` and `tests/spark/test_power.py`.",
        "",
        "| fault | runs | struck | held |",
        "|---|---|---|---|",
    ]
    known = torture.known
    for fault, by_number in known.items():
        notes = by_number.values()
        struck, held = sum(note["struck"] for note in notes), sum(note["held"] for note in notes)
        lines.append(f"| {fault} | {len(notes)} | {struck} | {held} |")
    n_runs = sum(len(by_number) for by_number in known.values())
    n_held = sum(note["held"] for by_number in known.values() for note in by_number.values())
    lines += ["", f"{n_runs} runs of {len(known)} faults; {n_held} held."]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    """Make runs until all are made or the time is up; return 1 if some did not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=25, help="of each fault")
    parser.add_argument("--minutes", type=float, default=600, help="after which no run is begun")
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".torture", help="of notes and tables")
    given = parser.parse_args()
    end = time.monotonic() + 60 * given.minutes
    torture = Torture(given.folder)
    scratch = given.folder / "killer"
    scratch.mkdir(exist_ok=True)
    try:
        preload = preloading(library(scratch))
    except NoCompilerError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1

    def make_runs(faults: Iterable[Fault], number: int) -> None:
        for fault, kinds, do in faults:
            is_wanted = given.only in fault and number not in torture.known[fault]
            if is_wanted and time.monotonic() < end:
                torture.attempt(fault, number, kinds, do)

    with Killer(scratch) as killer, Killer(scratch, preload) as at_calls:
        for number in range(given.runs):
            for call_number in range(number * CALL_RUNS, (number + 1) * CALL_RUNS):
                make_runs(call_faults(torture, at_calls), call_number)
            make_runs(faults(torture, killer), number)
    report(torture, PROJECT / "tests" / "torture" / "README.md")
    notes = [note for by_number in torture.known.values() for note in by_number.values()]
    return int(not all(note["held"] for note in notes))


if __name__ == "__main__":
    sys.exit(main())
