"""A pipeline over files whose runs are made in this process, without Spark; see `local_run`."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from frame.circumstances import assume
from frame.limits import limits
from local.local_run import HOUR, SPARK, START, perform
from local.support import change, plain
from operating import act

import ebbtide
from ebbtide import StatefulPipeline
from ebbtide.delta import Log, Snapshot
from ebbtide.ledger import Lease, StepFacts
from ebbtide.operations import Context, Report
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Plan, RunSummary, Stepper, StepProgress, idle_run
from ebbtide.runtime._following import Following
from ebbtide.spec import Pipeline

BY_SEQ = {"order": {"sequence": ["n"]}}
TABLES = ("state", "sink", "changelog", "quarantine")
LATER = START + HOUR
EMPTY: Mapping[str, Any] = MappingProxyType({})


def up(id_: int, n: int, kind: str = "+U", **row: Any) -> str:
    """A change of a key, at a place in the sequence."""
    return change(kind, id=id_, n=n, **row)


class LocalPipeline:
    """A pipeline of its own folder, by sequence unless fields say otherwise; one file a step.

    Args:
        folder: Where its source and its tables are.
        fields: Further fields of its spec.
    """

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.source = folder / "in"
        self.source.mkdir(parents=True, exist_ok=True)
        self.root = str(folder / "root")
        self.fields = {**BY_SEQ, **fields}
        self.spec = self.with_fields()

    def with_fields(self, **more: Any) -> Pipeline:
        """The spec with some other fields: of a function's pipeline, if there is one."""
        source = {"path": str(self.source), "records": "value", "max_files_per_step": 1, **more.pop("source", {})}
        fields = {**self.fields, **more, "source": source}
        if "function" not in fields:
            return plain(**fields)
        del fields["order"]
        given = {"name": "t", "schema": "id BIGINT, n BIGINT", "key": ["id"], "format": {"type": "plain"}}
        return StatefulPipeline(**{**given, **fields})

    @property
    def plan(self) -> Plan:
        return Plan.under(self.root, self.spec)

    @property
    def home(self) -> Path:
        return Path(self.root, self.spec.name)

    def put(self, *lines: str) -> None:
        """Add a file to the source."""
        number = len(list(self.source.iterdir()))
        (self.source / f"{number:04d}.jsonl").write_text("".join(line + "\n" for line in lines))

    def read(self, *lines: str, clock_ms: int = LATER) -> list[StepProgress]:
        """Add a file and run."""
        self.put(*lines)
        return self.run(clock_ms).steps

    def run(self, clock_ms: int = LATER, **how: Any) -> RunSummary:
        """Run."""
        return ebbtide.run(SPARK, self.spec, self.root, clock=lambda: clock_ms, **how)

    def follow(
        self,
        following: Following,
        on_progress: Callable[[StepProgress], None],
        stop: threading.Event,
        clock: Callable[[], int] = lambda: LATER,
    ) -> RunSummary:
        """Run until `stop` is set."""
        how = {"on_progress": on_progress, "stop": stop, "clock": clock}
        return ebbtide.run(SPARK, self.spec, self.root, follow=following, **how)

    def do(self, work: str, clock_ms: int = LATER, **given: Any) -> Any:
        """Do what a user asks for; see `perform`."""
        return perform(work, self.spec, self.root, clock_ms, {"width": 100, **given})

    def act(
        self, name: str, action: str = "apply", clock_ms: int = LATER, means: Mapping[str, Any] = EMPTY, **asked: Any
    ) -> Report:
        """Plan or apply an operation as its command does; see `operating.act`.

        Args:
            name: Of the operation.
            action: `plan`, `apply`, or a further one of it.
            clock_ms: The time.
            means: Further ones of its context.
            asked: Values of its `Params`.
        """
        given = {"by": "ann", "clock": lambda: clock_ms, **means}
        return act(name, action, Context(self.spec, self.root, SPARK, **given), **asked)

    def is_idle(self, clock_ms: int = LATER) -> bool:
        """Whether a run would find nothing to do."""
        return idle_run(self.spec, self.root, clock_ms) is not None

    def rows(self) -> dict[int, int]:
        """What the sink shows: n by id."""
        return {row["id"]: row["n"] for row in self.table("sink", self.spec.sink_table.columns)}

    def table(self, name: str, columns: Any) -> list[dict[str, Any]]:
        """Rows of a table."""
        snapshot = Snapshot.read(self.plan.at(name))
        rows: list[dict[str, Any]] = [] if snapshot is None else snapshot.rows(columns).to_pylist()
        return rows

    @property
    def last(self) -> StepFacts:
        """Facts of the last step."""
        _, facts = self.plan.state.last()
        return facts

    def versions(self) -> dict[str, int]:
        """The newest version of each table."""
        found = {name: Log(self.plan.at(name)).versions() for name in TABLES}
        return {name: versions[-1] for name, versions in found.items() if versions}

    def repair(self, rows: pa.Table | None = None, action: str = "apply") -> Report:
        """See `repair_here`."""
        return repair_here(self.spec, self.root, rows, action)

    @contextmanager
    def stepper(self) -> Iterator[Stepper]:
        """What makes its steps, as a job has it."""
        with stepping(SPARK, self.plan) as stepper:
            yield stepper

    @contextmanager
    def taken_over(self) -> Iterator[Stepper]:
        """What makes steps of a run that slept until another one took the pipeline over."""
        with limits():
            assume("without heartbeats")
            with self.stepper() as stepper:
                stepper.lease._me = "elsewhere@0-1:1:1/x"
                stepper.lease._renew(holder=stepper.lease._me)
                with Lease(self.plan.at("ledger"), self.spec.name, 0.05):
                    yield stepper


class KeptFolder:
    """A folder that was filled once, for many tests: each gets it as it is now, in the same place, which its files name.

    Args:
        folder: It.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder.with_name(f"{folder.name}-kept")
        shutil.copytree(folder, self._aside)

    def put_back(self) -> None:
        """Have all files as they were."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._aside, self._folder)


class Kept:
    """A pipeline that was made once, for many tests: each gets it as it is now.

    Args:
        pipeline: It, with all that is in its folder.
    """

    def __init__(self, pipeline: LocalPipeline) -> None:
        self._fields = pipeline.fields
        self._type = type(pipeline)
        self._home = pipeline.source.parent
        self._folder = KeptFolder(self._home)

    def again(self) -> LocalPipeline:
        """Give the pipeline as it was."""
        self._folder.put_back()
        return self._type(self._home, **self._fields)


def repair_here(spec: Pipeline, root: str, rows: pa.Table | None = None, action: str = "apply") -> Report:
    """Repair; the sink must then have the rows that are given, or the step says that some are lost."""
    report = act("repair", action, Context(spec, root, SPARK))
    if rows is not None:
        plan = Plan.under(root, spec)
        _, last = plan.state.last()
        has_lost = any("missing ones are lost" in note for note in last.cause.notes)
        columns = plan.sink.columns
        texts = [
            sorted(map(str, table.select(columns.names).to_pylist()))
            for table in (plan.sink.snapshot().rows(columns), rows)
        ]
        assert has_lost or texts[0] == texts[1]
    return report


def killed(*_: Any, **__: Any) -> None:
    """Stand in for a call that a process does not live to make."""
    raise InterruptedError


def stop_after(n_steps: int, stop: threading.Event) -> Callable[[StepProgress], None]:
    """Return what asks a run to stop once it has made some steps."""

    def on_progress(progress: StepProgress) -> None:
        if progress.step >= n_steps:
            stop.set()

    return on_progress
