"""A disk with one pipeline, whose work is done in processes of their own: one job meets a fault, the next process goes on."""

from __future__ import annotations

import random
import re
import shutil
import signal
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from crashes.calls import CUT, DEADLY, NONE, WRITES, Call, Disk, files_below, read_calls
from killing import AFTER, Killer
from local.local_run import HOUR, START, StreamError
from victims import changes_of, expected, mended_line, refuse_fed_twice, shown, spec_for, tables, write_source

from ebbtide import errors
from ebbtide.inspect import status
from ebbtide.operations._maintenance.vacuum import delete_all_unfinished
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

BEFORE: dict[str, tuple[str, ...]] = {
    "run": (),
    "adopt": ("table",),
    "repair": ("run", "spoil"),
    "swap": ("run", "spoil", "backfill"),
}
"""What is done before a job, where it is not a run."""
MENDED = [mended_line(number) for number in range(3)]
JSON = r"\d{20}\.(json|checkpoint\.parquet)"
KNOWN = (
    rf"(state|sink|changelog|quarantine|ledger)/_delta_log/({JSON}|_last_checkpoint)",
    r"(state|sink|changelog|quarantine)/[^_.][^/]*",
    r"sink/_change_data/[^_.][^/]*",
    r"plan\.json",
)
"""What may be there in the end: commits, and what a vacuum of Delta deletes once no version names it."""


class NotHeldError(AssertionError):
    """Raised when tables are not what they must be."""


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
        self.killer, self.kind, self.job, self.home, self.number = killer, kind, job, home, number
        self.given = {"mended": MENDED, **given}
        self.source = write_source(home / "in", kind, number)

    def order(self, root: str, *works: str, **more: Any) -> dict[str, Any]:
        """Have work done below a folder; return how it ended."""
        asked = [self._work(work) for work in works]
        return self.killer.order(root=str(self.home / root), works=asked, **more)

    def _work(self, work: str) -> list[Any]:
        spec = spec_for(work, self.kind, self.source)
        return [self.kind, work, spec.model_dump_json(by_alias=True), START + HOUR, self.given]

    def do(self, root: str, *works: str) -> None:
        """Have work done that meets no fault."""
        for work in works:
            done = self.order(root, work)
            if done["code"] != 0:
                raise NotHeldError(f"{work} did not go on: {done['said']}")

    def plan(self, root: str) -> Plan:
        """Return where the tables are in the end."""
        return Plan.under(str(self.home / root), self._last_spec)

    @property
    def _last_spec(self) -> Pipeline:
        *_, last = (self.job, *self.after)
        return spec_for(last, self.kind, self.source)

    def tables(self, root: str) -> dict[str, list[str]]:
        """Return what the tables mean."""
        refuse_fed_twice(self.plan(root))
        return tables(self._last_spec, self.home / root)

    def has_gone_back(self, root: str) -> bool:
        """Return whether a refresh or a rewind has begun: a run goes on with it."""
        plan = Plan.under(str(self.home / root), spec_for(self.job, self.kind, self.source))
        return any(facts.cause.what in ("reset", "rewind") for _, facts in plan.state.steps())

    @property
    def before(self) -> tuple[str, ...]:
        """What comes before the job."""
        return BEFORE.get(self.job, ("run",))

    @property
    def after(self) -> tuple[str, ...]:
        """What comes after it."""
        return AFTER.get(self.job, ())

    def make_begun(self) -> None:
        """Do what comes before the job."""
        (self.home / "begun").mkdir()
        self.do("begun", *self.before)

    def copy(self, root: str) -> Path:
        """Return a folder of its own, as it is before the job."""
        path = self.home / root
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.home / "begun", path)
        return path

    def go_on(self, root: str) -> None:
        """Ask for the job again, and for what comes after it."""
        if not self.has_gone_back(root):
            self.do(root, self.job)
        self.do(root, *self.after)


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
        self.machine = machine
        machine.make_begun()

    @cached_property
    def whole(self) -> tuple[list[Call], dict[str, list[str]]]:
        """The calls of the job where none fails, and the tables in the end.

        Raises:
            NotHeldError: the tables are wrong, or the journal does not say all that happened.
        """
        disk, calls, done = self._armed("whole", -1, NONE)
        if done["code"] != 0:
            raise NotHeldError(done["said"])
        disk.play(calls)
        there = files_below(disk.top)
        if disk.files() != there:
            raise NotHeldError(f"the journal gives {disk.files()}, there is {there}")
        self.machine.do("whole", *self.machine.after)
        self._refuse_wrong_rows("whole")
        return calls, self.machine.tables("whole")

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
        disk, calls, done = self._armed("struck", at, fault)
        code, said = done["code"], done["said"]
        may_be = (0, -signal.SIGKILL) if fault in DEADLY else (0, 1)
        if code not in may_be:
            raise NotHeldError(f"it ended with {code}: {said}")
        if code == 1:
            refuse_unclear(said)
        if fault == CUT and code != 0:
            disk.play(calls)
            disk.cut(how)
            shutil.rmtree(self.machine.killer.folder / "cache", ignore_errors=True)
        self.machine.go_on("struck")
        self._refuse_wrong_rows("struck")
        if self.machine.tables("struck") != want:
            raise NotHeldError("other tables than without the fault")
        self._refuse_twice()
        self._refuse_leftovers()
        is_struck = code != 0 or (fault not in DEADLY and max((call.number for call in calls), default=-1) >= at)
        return Outcome(is_struck, said)

    @property
    def _journal(self) -> Path:
        return self.machine.home / "journal"

    def _armed(self, root: str, at: int, fault: str) -> tuple[Disk, list[Call], dict[str, Any]]:
        top = self.machine.copy(root)
        self._journal.unlink(missing_ok=True)
        disk = Disk(top)
        done = self.machine.order(root, self.machine.job, call=[at, fault], journal=str(self._journal))
        return disk, read_calls(self._journal), done

    def _refuse_wrong_rows(self, root: str) -> None:
        """Compare the sink with what the records alone give."""
        machine = self.machine
        if machine.job not in ("run", "compaction", "cleanup", "refresh"):
            return
        want = expected(machine.kind, changes_of(machine.kind, machine.number))
        spec = spec_for("run", machine.kind, machine.source)
        if shown(spec, machine.home / root) != want:
            raise NotHeldError(f"{shown(spec, machine.home / root)} is not {want}")

    def _refuse_twice(self) -> None:
        """Refuse two steps of one number in the state's log, and a status that does not know the last one."""
        plan = self.machine.plan("struck")
        numbers = [facts.step for _, facts in plan.state.steps()]
        if len(set(numbers)) != len(numbers):
            raise NotHeldError(f"steps {sorted(numbers)}")
        found = status(plan.spec, str(self.machine.home / "struck"))
        if found.last.step != max(numbers):
            raise NotHeldError(f"status says step {found.last.step} of {sorted(numbers)}")

    def _refuse_leftovers(self) -> None:
        """Refuse files that no vacuum would delete. What it deletes of the tables themselves, Delta does."""
        plan = self.machine.plan("struck")
        delete_all_unfinished(plan, older_than_s=0)
        Location(plan.at("staged")).delete()
        Location(plan.rehearsal).delete()
        home = Path(plan.root)
        for path, size in files_below(home).items():
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
