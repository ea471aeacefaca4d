"""A disk with one pipeline, whose work is done in processes of their own: one job meets a fault, the next process goes on."""

from __future__ import annotations

import random
import re
import shutil
import signal
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from crashes.calls import CUT, DEADLY, NONE, WRITES, Call, Disk, files_below, read_calls
from killing import AFTER, Killer, Place
from local.local_run import HOUR, START, StreamError
from victims import changes_of, expected, mended_line, refuse_fed_twice, shown, spec_for, tables, write_source

from ebbtide import errors
from ebbtide.inspect import status
from ebbtide.operations._maintenance.vacuum import delete_all_unfinished
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

CHANGED = ("run", "change")
BEFORE: dict[str, tuple[str, ...]] = {
    "run": (),
    "cleanup": ("run unfolded", "replay unfolded later"),
    "merge": ("run unfolded",),
    "adopt": ("table",),
    "undo": CHANGED,
    "restore": CHANGED,
    "repair": ("run", "spoil"),
    "swap": ("run", "spoil", "backfill"),
}
"""What is done before a job, where it is not a run; see `Works` for words behind its name."""
LATER = START + HOUR
EXPIRED = START + 2 * HOUR + 1_500
"""When what the first two of three steps wrote has expired."""
MENDED = [mended_line(number) for number in range(3)]
JSON = r"\d{20}\.(json|checkpoint\.parquet)"
PARTITION = r"([^/_.][^/]*=[^/]*/)?"
KNOWN = (
    rf"(state|sink|changelog|quarantine|ledger)/_delta_log/({JSON}|_last_checkpoint)",
    rf"(state|sink|changelog|quarantine)/{PARTITION}[^_.][^/]*",
    rf"sink/_change_data/{PARTITION}[^_.][^/]*",
    r"plan\.json",
    r"runs/(\d\d|idle|refused)\.json",
)
"""What may be there in the end: commits, and what a vacuum of Delta deletes once no version names it."""


class NotHeldError(AssertionError):
    """Raised when tables are not what they must be."""


@dataclass(frozen=True)
class Works:
    """What is asked of a pipeline, done in processes of their own.

    A work is the name of a job, as `perform` knows it; `unfolded`: small files stay as they are, `later`: once rows have expired.

    Args:
        killer: Has it done.
        kind: Of the pipeline.
        source: Folder of its records.
        given: What the jobs are given beside the clock.
    """

    killer: Killer
    kind: str
    source: Path
    given: dict[str, Any] = field(default_factory=dict)

    def spec(self, job: str) -> Pipeline:
        """Return the spec that a job is asked for with."""
        return spec_for(job, self.kind, self.source)

    def order(self, root: Path, *works: str, **more: Any) -> dict[str, Any]:
        """Have works done below a folder, by one process; return how it ended."""
        asked = [self._asked(work) for work in works]
        return self.killer.order(root=str(root), works=asked, **more)

    def _asked(self, work: str) -> list[Any]:
        job, *how = work.split()
        given = {"mended": MENDED, **self.given}
        if "unfolded" in how:
            given["width"] = 100
        clock_ms = EXPIRED if "later" in how else LATER
        return [self.kind, job, self.spec(job).model_dump_json(by_alias=True), clock_ms, given]

    def do(self, root: Path, *works: str) -> None:
        """Have works done that meet no fault."""
        done = self.order(root, *works)
        if done["code"] != 0:
            raise NotHeldError(f"{works} did not go on: {done['said']}")

    def die(self, root: Path, work: str, place: Place, which: int | None = None) -> None:
        """Have a work killed at a place, at its usual call or another one.

        Raises:
            NotHeldError: the place was not reached.
        """
        owner, name, when, usual = place
        died = self.order(root, work, place=(owner, name, when, which or usual))
        if died["code"] != -signal.SIGKILL:
            raise NotHeldError(f"{place} was not reached: {died['said']}")

    def go_on(self, root: Path, job: str) -> None:
        """Ask for a job that met a fault again, and for what shows more of what was done."""
        again = () if self.has_gone_back(root, job) else (job,)
        works = (*again, *AFTER.get(job, ()))
        if works:
            self.do(root, *works)

    def has_gone_back(self, root: Path, job: str) -> bool:
        """Return whether a refresh or a rewind has begun: a run goes on with it."""
        plan = Plan.under(str(root), self.spec(job))
        return any(facts.cause.what in ("reset", "rewind") for _, facts in plan.state.steps())

    def tables(self, root: Path, job: str) -> dict[str, list[str]]:
        """Return what the tables mean after a job and what comes after it."""
        *_, last = (job, *AFTER.get(job, ()))
        refuse_fed_twice(Plan.under(str(root), self.spec(last)))
        return tables(self.spec(last), root)


def before(job: str) -> tuple[str, ...]:
    """Return what is done before a job."""
    return BEFORE.get(job, ("run",))


class Machine:
    """One pipeline, and a job.

    Args:
        killer: Has it done.
        kind: Of the pipeline.
        job: The job's name, as `perform` knows it.
        home: Folder of all.
        number: What the records are drawn by.
        given: What the jobs are given beside the clock.
    """

    def __init__(self, killer: Killer, kind: str, job: str, home: Path, number: int = 0, **given: Any) -> None:
        self.job, self.home, self.number = job, home, number
        self.works = Works(killer, kind, write_source(home / "in", kind, number), given)

    def begin(self) -> None:
        """Do what comes before the job."""
        begun = self.home / "begun"
        begun.mkdir()
        if before(self.job):
            self.works.do(begun, *before(self.job))

    def copy(self, root: Path) -> None:
        """Have a folder as it is before the job."""
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.home / "begun", root)


@dataclass(frozen=True)
class Outcome:
    """What came of a job that was to meet a fault.

    Args:
        is_struck: It met it.
        said: The error that it ended with; empty if it ended well or was killed.
    """

    is_struck: bool
    said: str = ""


class CallTrials:
    """Trials of a job that meets faults at its system calls.

    Args:
        machine: Its process loads the library of `calls.c`.
    """

    def __init__(self, machine: Machine) -> None:
        self.machine, self.works = machine, machine.works
        self._struck = machine.home / "struck"
        self._journal = machine.home / "journal"
        machine.begin()

    @cached_property
    def whole(self) -> tuple[list[Call], dict[str, list[str]]]:
        """The calls of the job where none fails, and the tables in the end.

        Raises:
            NotHeldError: the tables are wrong, or the journal does not say all that happened.
        """
        root, job = self.machine.home / "whole", self.machine.job
        disk, calls, done = self._armed(root, -1, NONE)
        if done["code"] != 0:
            raise NotHeldError(done["said"])
        disk.play(calls)
        there = files_below(disk.top)
        if disk.files() != there:
            raise NotHeldError(f"the journal gives {disk.files()}, there is {there}")
        if AFTER.get(job):
            self.works.do(root, *AFTER[job])
        self._refuse_wrong_rows(root)
        return calls, self.works.tables(root, job)

    def draw(self, fault: str, rng: random.Random) -> int:
        """Draw the number of a call that can meet a fault: its name first, for most calls are writes."""
        calls, _ = self.whole
        names = ["write"] if fault in WRITES else sorted({call.name for call in calls})
        name = rng.choice(names)
        return rng.choice([call.number for call in calls if call.name == name])

    def attempt(self, at: int, fault: str, how: str) -> Outcome:
        """Have a call of the job meet a fault, go on, and look at all.

        Args:
            at: Number of the call.
            fault: One of `calls.FAULTS`.
            how: What a power cut leaves; see `power.left`.

        Raises:
            NotHeldError: something is wrong in the end.
        """
        _, want = self.whole
        job = self.machine.job
        disk, calls, done = self._armed(self._struck, at, fault)
        code, said = done["code"], done["said"]
        may_be = (0, -signal.SIGKILL) if fault in DEADLY else (0, 1)
        if code not in may_be:
            raise NotHeldError(f"it ended with {code}: {said}")
        if code == 1:
            refuse_unclear(said)
        if fault == CUT and code != 0:
            disk.play(calls)
            disk.cut(how)
            shutil.rmtree(self.works.killer.folder / "cache", ignore_errors=True)
        self.works.go_on(self._struck, job)
        self._refuse_wrong_rows(self._struck)
        if self.works.tables(self._struck, job) != want:
            raise NotHeldError("other tables than without the fault")
        plan = Plan.under(str(self._struck), self.works.spec((job, *AFTER.get(job, ()))[-1]))
        self._refuse_twice(plan)
        _refuse_leftovers(plan)
        is_struck = code != 0 or (fault not in DEADLY and max((call.number for call in calls), default=-1) >= at)
        return Outcome(is_struck, said)

    def _armed(self, root: Path, at: int, fault: str) -> tuple[Disk, list[Call], dict[str, Any]]:
        self.machine.copy(root)
        self._journal.unlink(missing_ok=True)
        disk = Disk(root)
        done = self.works.order(root, self.machine.job, call=[at, fault], journal=str(self._journal))
        return disk, read_calls(self._journal), done

    def _refuse_wrong_rows(self, root: Path) -> None:
        """Compare the sink with what the records alone give."""
        machine, kind = self.machine, self.works.kind
        if machine.job not in ("run", "compaction", "refresh"):
            return
        want = expected(kind, changes_of(kind, machine.number))
        found = shown(self.works.spec("run"), root)
        if found != want:
            raise NotHeldError(f"{found} is not {want}")

    def _refuse_twice(self, plan: Plan) -> None:
        """Refuse two steps of one number in the state's log, and a status that does not know the last one."""
        numbers = [facts.step for _, facts in plan.state.steps()]
        if len(set(numbers)) != len(numbers):
            raise NotHeldError(f"steps {sorted(numbers)}")
        found = status(plan.spec, str(self._struck))
        if found.last.step != max(numbers):
            raise NotHeldError(f"status says step {found.last.step} of {sorted(numbers)}")


def _refuse_leftovers(plan: Plan) -> None:
    """Refuse files that no vacuum would delete. What it deletes of the tables themselves, Delta does."""
    delete_all_unfinished(plan, older_than_s=0)
    Location(plan.at("staged")).delete()
    Location(plan.rehearsal).delete()
    for path, size in files_below(Path(plan.root)).items():
        is_known = size is None or any(re.fullmatch(known, path.as_posix()) for known in KNOWN)
        if not is_known:
            raise NotHeldError(f"{path} was left over")


def refuse_unclear(said: str) -> None:
    """Refuse an error that is none of ours."""
    kind, _, text = said.partition(":")
    is_ours = isinstance(getattr(errors, kind, None), type)
    is_of_spark = kind == StreamError.__name__
    if not (is_ours or is_of_spark) or not text.strip():
        raise NotHeldError(f"an unclear error: {said}")
