"""How far a backfill is: its records, its pace, the time left. Read from its tables and the source, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from ebbtide.amounts import amount
from ebbtide.inspect.backlog import lag
from ebbtide.ledger.facts import StepFacts
from ebbtide.maintenance.backfill_asked import asked_of, beside_of, has_read_snapshot, of_topic
from ebbtide.runtime.plan import Plan
from ebbtide.spec.pipeline import Pipeline

LAST_STEPS = 20
"""Steps that the pace is measured by."""


@dataclass(frozen=True)
class BackfillStatus:
    """How far a backfill is.

    Args:
        pipeline: Name of the pipeline.
        start: Where it began to read; empty: there is none.
        step: Its last step; 0 before the first.
        records: Records that it has read.
        quarantined: Bad ones among them.
        waiting: Records that it has still to read, of files about.
        percent: How much it has read of what is there.
        records_per_second: Its pace over its last steps; None if that is not known.
        seconds_left: How long it will take at that pace if nothing new comes; None if that is not known.
    """

    pipeline: str
    start: str = ""
    step: int = 0
    records: int = 0
    quarantined: int = 0
    waiting: int = 0
    percent: float = 0.0
    records_per_second: float | None = None
    seconds_left: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        if not self.start:
            return f"{self.pipeline}: no backfill. To begin one: 'ebbtide backfill start'."
        parts = [f"step {self.step}", amount(self.records, "record"), f"{self.percent:.1f} %"]
        if self.records_per_second is not None:
            parts.append(f"{self.records_per_second:,.0f} records/s")
        if self.waiting and self.seconds_left is not None:
            parts.append(f"about {self.seconds_left:,.0f} s left")
        progress = ", ".join(parts)
        if self.waiting:
            return f"{self.pipeline}: backfill from {self.start}: {progress}; waiting: {amount(self.waiting, 'record')}; 'ebbtide backfill start' goes on."
        return f"{self.pipeline}: backfill from {self.start}: {progress}. To compare it: 'ebbtide backfill swap'."


def status(spec: Pipeline, root: str, clock_ms: int) -> BackfillStatus:
    """Tell how far a backfill is. Loads no Spark.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
    """
    tables = Plan.under(root, spec)
    asked = asked_of(tables)
    if asked is None:
        return BackfillStatus(spec.name)
    beside = beside_of(spec, asked)
    if asked.snapshot is not None and not has_read_snapshot(tables, beside):
        beside = of_topic(beside, asked.snapshot)
    plan = Plan.under(tables.backfills, beside)
    commit = plan.state.last()
    waits = lag(beside, tables.backfills, clock_ms).backlog
    if commit is None:
        return BackfillStatus(spec.name, asked.text, waiting=waits.total_records or waits.files or 0)
    _, last = commit
    records = last.frontier.total_records or 0
    done, left = _done_and_left(plan, last, waits.total_records, waits.files)
    # Of files the records that are left are taken to be as many a file as those read.
    waiting = left if waits.total_records is not None or not done else round(left * records / done)
    pace = _pace(plan)
    return BackfillStatus(
        pipeline=spec.name,
        start=asked.text,
        step=last.step,
        records=records,
        quarantined=last.frontier.total_quarantined or 0,
        waiting=waiting,
        percent=round(100 * done / (done + left), 1) if done + left else 100.0,
        records_per_second=pace,
        seconds_left=round(waiting / pace, 1) if pace else None,
    )


def _done_and_left(plan: Plan, last: StepFacts, waiting: int | None, files: int | None) -> tuple[int, int]:
    """Return how many records of a topic, or files, were read, and how many were not."""
    if last.source.position is not None:
        return last.frontier.total_records or 0, waiting or 0
    snapshot = plan.state.snapshot()
    files_read = plan.state.files(snapshot.files.values())
    return len(files_read), files or 0


def _pace(plan: Plan) -> float | None:
    """Return how many records a second the last steps have read; None of fewer than two."""
    steps = list(islice(_batches(plan), LAST_STEPS))
    if len(steps) < 2:
        return None
    newest, *earlier = steps
    took_ms = newest.frontier.clock.wall_ms - earlier[-1].frontier.clock.wall_ms
    if took_ms <= 0:
        return None
    n_records = sum(facts.read.records for facts in earlier)  # a step's time is that of its beginning
    return round(n_records * 1000 / took_ms, 1)


def _batches(plan: Plan) -> Iterator[StepFacts]:
    """Yield the facts of the steps that have read records, the newest first."""
    for _, facts in plan.state.steps():
        if facts.decision.reads_source:
            yield facts
