"""Lives of a pipeline: runs and operations one after the other, each in a process of its own, with power cuts at their system calls.

A life without a cut is made first. One with cuts must show the same rows after each of its works, and have the same tables in the end.
After each cut all that the logs and the facts name must be there, whole.
"""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from crashes.calls import AFTER as KILL
from crashes.calls import CUT, NONE, Call, Disk, files_below, read_calls
from crashes.machines import MENDED, NotHeldError
from crashes.power import NAMES, NOTHING
from deltalake import DeltaTable
from killing import AFTER, Killer
from local.local_run import HOUR, START
from victims import ALTERED_SCHEMA, FILES, changes_of, expected, lines_of, refuse_fed_twice, shown, spec_of, tables

from ebbtide.delta import Log, Snapshot
from ebbtide.delta._commit import named_files
from ebbtide.inspect import status
from ebbtide.ledger import ErasureLedger
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline
from ebbtide.storage import ParquetFile

OPERATIONS = (
    "run", "cleanup", "compaction", "merge", "vacuum", "migrate", "alter", "replay", "drop", "rewind", "undo", "restore", "repair",
    "refresh", "swap", "erase", "clock",
)  # fmt: skip
NEUTRAL = {"run", "cleanup", "compaction", "merge", "vacuum", "rewind", "undo", "restore", "refresh", "clock"}
"""After these the sink shows what the records alone give."""
WITHOUT_FEED = ("vacuum", "erase", "repair", "swap", "adopt")
"""After these the change feed is not whole, or other clients have changed rows without one."""
BEFORE = {"adopt": ("table",), "repair": ("spoil",), "swap": ("spoil", "backfill")}
"""What is done right before an operation; a run was made earlier in the life."""
ERASED = [3, 7]
"""Keys that `erase` erases."""
KILLED = 0.3
"""Share of the cuts that come behind a process that was killed: what it has not synced may still be lost."""
BEHIND = 0.2
"""Share of the cuts that come right behind the end of a work."""
GIVEN = {"mended": MENDED, "keys": ERASED, "checkpoints": 3}
_CHANGED: dict[str, dict[str, Any]] = {
    "migrate": {"ttl": "1d"},
    "alter": {"schema": ALTERED_SCHEMA, "columns": {"text": {"renamed_from": "v"}}},
}
"""What is other in the spec from a work on."""
OF_STEPS = re.compile(r"'(_?step|_number|position|_position)': [^,}]+")
"""Numbers of steps, of which an operation that is asked for again makes one more."""


@dataclass(frozen=True)
class Work:
    """What is done between two cuts.

    Args:
        name: Of the job that may be cut, as `perform` knows it.
        spec: The pipeline as it is for this.
        feeds: Number of the file that comes before it; None: none.
    """

    name: str
    spec: Pipeline
    feeds: int | None = None

    @property
    def before(self) -> tuple[str, ...]:
        """What comes before it, without a cut."""
        return BEFORE.get(self.name, ())

    @property
    def after(self) -> tuple[str, ...]:
        """What comes after it."""
        return AFTER.get(self.name, ())


@dataclass(frozen=True)
class Done:
    """A work of a life without a cut.

    Args:
        work: It.
        calls: Its system calls.
        rows: What the sink shows after it.
    """

    work: Work
    calls: list[Call]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Cut:
    """A power cut.

    Args:
        text: The work, the call, what was left.
        is_made: It came; False: the work was over before.
        is_over: The work had ended: it must hold, and is not asked for again.
    """

    text: str
    is_made: bool
    is_over: bool


class Life:
    """A life, made without a cut.

    Args:
        killer: Does its works; its processes load the library of `calls.c`.
        kind: Of the pipeline.
        seed: What its works and its records are drawn by.
        home: Folder of all.
        n_works: How many works are tried; those that are refused are left out.

    Raises:
        NotHeldError: its tables are wrong.
    """

    def __init__(self, killer: Killer, kind: str, seed: int, home: Path, n_works: int) -> None:
        self.killer, self.kind, self.seed, self.home = killer, kind, seed, home
        self.source = home / "in"
        self.root = home / "root"
        self.done: list[Done] = []
        self._n_journals = 0
        self._begin()
        given: dict[str, Any] = {"ttl": "2h"}
        for name, feeds in self._drawn(n_works):
            changed = given | _CHANGED.get(name, {})
            work = Work(name, spec_of(kind, self.source, **changed), feeds)
            done = self._try(work)
            if done is not None:
                given = changed
                self.done.append(done)
        names = {done.work.name for done in self.done}
        if names <= NEUTRAL:
            want = expected(kind, changes_of(kind, seed))
            if self.done[-1].rows != want:
                raise NotHeldError(f"{self.done[-1].rows} is not {want}")
        self.tables = self._tables()

    def _drawn(self, n_works: int) -> list[tuple[str, int | None]]:
        """Draw names of works, each with the file that comes before it; a file is read by a run."""
        rng = random.Random(f"{self.kind}{self.seed}")
        has_columns = self.kind != "stateful"
        first = "adopt" if has_columns and rng.random() < 0.25 else "run"
        possible = [name for name in OPERATIONS if has_columns or name not in ("alter", "restore")]
        drawn = rng.sample(possible, n_works - FILES)
        runs = sorted(rng.sample(range(n_works - 1), FILES - 1))
        rest = [("run", runs.index(at) + 1) if at in runs else (drawn.pop(), None) for at in range(n_works - 1)]
        return [(first, 0), *rest]

    def _try(self, work: Work) -> Done | None:
        """Do a work; None if it is refused, or has changed nothing."""
        kept = self.home / "kept"
        shutil.copytree(self.root, kept)
        try:
            calls = self._whole(work)
        except NotHeldError:
            if work.feeds is not None:
                raise
            shutil.rmtree(self.root)
            kept.rename(self.root)
            return None
        shutil.rmtree(kept)
        return Done(work, calls, shown(work.spec, self.root)) if calls else None

    def _whole(self, work: Work) -> list[Call]:
        self._prepare(work)
        disk = Disk(self.root)
        calls, done = self._armed(work, -1, NONE)
        if done["code"] != 0:
            raise NotHeldError(f"{work.name}: {done['said']}")
        disk.play(calls)
        if disk.files() != files_below(self.root):
            raise NotHeldError(f"the journal of {work.name} does not say all that it did")
        self._do(work, *work.after)
        return calls

    def live_with_cuts(self, seed: int) -> list[str]:
        """Live it again with a cut in each work or right behind it, and perhaps in what goes on after it.

        Args:
            seed: What the cuts are drawn by.

        Returns:
            What each cut was: the work, the call, what was left.

        Raises:
            NotHeldError: something is wrong after a cut.
        """
        rng = random.Random(f"{self.kind}{self.seed}{seed}")
        cuts: list[str] = []
        self._begin()
        keeps_feed = True
        for done in self.done:
            keeps_feed &= done.work.name != "vacuum"
            before = self._last_step(done.work)
            self._prepare(done.work)
            is_over = False
            for _ in range(1 + rng.choice([0, 0, 1])):
                cut = self._cut(done, rng)
                cuts += [cut.text] if cut.is_made else []
                self._judged(
                    cut, lambda work=done.work, feed=keeps_feed: refuse_false_claims(work.spec, self.root, feed)
                )
                is_over = cut.is_over
                if is_over:
                    break
            self._judged(cut, lambda d=done, over=is_over, b=before: self._go_on(d, is_over=over, before=b))
        self._judged(cut, self._compare)
        return cuts

    def _judged(self, cut: Cut, judge: Callable[[], None]) -> None:
        try:
            judge()
        except Exception as error:
            raise NotHeldError(f"after {cut.text}: {type(error).__name__}: {error}") from error

    def _cut(self, done: Done, rng: random.Random) -> Cut:
        """Cut the power at a call of a work, or behind it; perhaps after a process that was only killed."""
        work = done.work
        disk = Disk(self.root)
        text = f"{self.kind} {self.seed}, {work.name}"
        if rng.random() < KILLED:
            killed_at = _draw(done.calls, rng)
            text += f", killed at {killed_at.number} {killed_at.name}"
            self._strike(work, killed_at.number, KILL, disk)
        is_behind = rng.random() < BEHIND
        call = _draw(done.calls, rng)
        how = rng.choice([NOTHING, NAMES, *(f"drawn by {rng.random()}" for _ in range(4))])
        text += (
            f", cut behind it, {how}" if is_behind else f", cut at {call.number} {call.name} {call.path.name}, {how}"
        )
        is_struck = self._strike(work, -1 if is_behind else call.number, CUT, disk)
        if is_struck or is_behind:
            disk.cut(how)
            shutil.rmtree(self.killer.folder / "cache", ignore_errors=True)  # no boot takes it over
        return Cut(text, is_made=is_struck or is_behind, is_over=not is_struck)

    def _strike(self, work: Work, at: int, fault: str, disk: Disk) -> bool:
        """Have a process die at a call of a work; return whether it got there."""
        calls, done = self._armed(work, at, fault)
        if done["code"] not in (0, -signal.SIGKILL):
            raise NotHeldError(f"{work.name} ended with {done['code']}: {done['said']}")
        disk.play(calls)
        return bool(done["code"] != 0)

    def _go_on(self, done: Done, *, is_over: bool, before: int) -> None:
        work = done.work
        # A refresh or a rewind that was decided is finished by any run.
        if not is_over and not self._has_gone_back(work, before):
            self._do(work, work.name)
        self._do(work, *work.after)
        rows = shown(work.spec, self.root)
        if rows != done.rows:
            raise NotHeldError(f"{rows} is not {done.rows}")
        so_far = [each.work.name for each in self.done[: self.done.index(done) + 1]]
        if "erase" in so_far and ErasureLedger(str(self.root / self.kind)).unfinished() is None:
            refuse_erased(self.root)

    def _compare(self) -> None:
        """Compare all tables with those of the life without a cut."""
        found = self._tables()
        for name, want in self.tables.items():
            if found[name] != want:
                raise NotHeldError(f"{name}: {found[name]} is not {want}")

    def _tables(self) -> dict[str, list[str]]:
        spec = self.done[-1].work.spec
        has_feed = not any(done.work.name in WITHOUT_FEED for done in self.done)
        if has_feed:
            refuse_fed_twice(Plan.under(str(self.root), spec))
        found = tables(spec, self.root, with_feed=False)  # what was done twice may have fed the same rows once more
        return {name: sorted(OF_STEPS.sub("", row) for row in rows) for name, rows in found.items()}

    def _begin(self) -> None:
        for folder in (self.source, self.root):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)

    def _prepare(self, work: Work) -> None:
        if work.feeds is not None:
            lines = lines_of(self.kind, self.seed)[work.feeds]
            (self.source / f"{work.feeds:04d}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        self._do(work, *work.before)

    def _last_step(self, work: Work) -> int:
        last = Plan.under(str(self.root), work.spec).state.last(older=True)
        return 0 if last is None else last[1].step

    def _has_gone_back(self, work: Work, before: int) -> bool:
        steps = Plan.under(str(self.root), work.spec).state.steps()
        return any(facts.step > before and facts.cause.what in ("reset", "rewind") for _, facts in steps)

    def _do(self, work: Work, *names: str) -> None:
        for name in names:
            done = self._order(work, name)
            if done["code"] != 0:
                raise NotHeldError(f"{name} did not go on: {done['said']}")

    def _armed(self, work: Work, at: int, fault: str) -> tuple[list[Call], dict[str, Any]]:
        self._n_journals += 1
        journal = self.home / f"journal-{self._n_journals}"
        done = self._order(work, work.name, call=[at, fault], journal=str(journal))
        return read_calls(journal), done

    def _order(self, work: Work, name: str, **more: Any) -> dict[str, Any]:
        spec = work.spec.model_dump_json(by_alias=True)
        asked = [[self.kind, name, spec, START + HOUR, GIVEN]]
        return self.killer.order(root=str(self.root), works=asked, **more)


def _draw(calls: list[Call], rng: random.Random) -> Call:
    """Draw a call: its name first, for most calls are writes."""
    name = rng.choice(sorted({call.name for call in calls}))
    return rng.choice([call for call in calls if call.name == name])


def refuse_false_claims(spec: Pipeline, root: Path, keeps_feed: bool) -> None:
    """Refuse tables of which a log or the facts name what is not there, or is not whole.

    Args:
        spec: The pipeline.
        root: Folder of its tables.
        keeps_feed: No vacuum without a retention has come: the newest commit has its change files.

    Raises:
        EbbtideError: there is such a claim.
    """
    plan = Plan.under(str(root), spec)
    for name in ("ledger", "state", "sink", "changelog", "quarantine"):
        table = Snapshot.read(plan.at(name))
        if table is None:
            continue
        if DeltaTable(table.table).version() != table.version:
            raise NotHeldError(f"another client reads another version of {name}")
        for file in table.files.values():
            ParquetFile(file.location(table.table)).read(footer=file.footer)
            if file.vector is not None:
                file.deleted_rows(table.table)
        newest = Log(table.table).commit(table.version)
        for location in named_files(table.table, [action for action in newest if keeps_feed or "cdc" not in action]):
            Path(location).stat()
    status(spec, str(root))


def refuse_erased(root: Path) -> None:
    """Refuse data files that hold a row of an erased key; torn ones, which no log names, are passed by.

    Raises:
        NotHeldError: there is one.
    """
    for path in root.rglob("*.parquet"):
        ids: set[int] = set()
        with contextlib.suppress(pa.ArrowException, OSError):
            file = pq.ParquetFile(path)
            if "id" in file.schema_arrow.names:
                ids.update(file.read(["id"])["id"].to_pylist())
        if ids & set(ERASED):
            raise NotHeldError(f"{path} holds {ids}")
