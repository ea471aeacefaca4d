"""Progress of a backfill: its records, its pace, the time left. Read from its tables and the source, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ebbtide.amounts import amount
from ebbtide.inspect import Lag
from ebbtide.ledger import StepFacts
from ebbtide.operations._backfill.asked import asked_of, beside_of, has_read_snapshot, of_topic
from ebbtide.operations._operation import Report
from ebbtide.runtime import Plan
from ebbtide.sources import Backlog
from ebbtide.spec import Pipeline

LAST_STEPS = 20
"""Number of steps for measuring the rate."""


COUNTS: dict[str, float | None] = {
    "records": 0,  # records read
    "quarantined": 0,  # bad records among them
    "waiting": 0,  # records still to read; estimated for files
    "percent": 0.0,  # share of all records or files that was read
    "records_per_second": None,  # rate over the last steps
    "seconds_left": None,  # time to read the rest at that rate, if nothing new arrives
}
"""The counts of a report, with their values before the first step. None: unknown."""


def _report(pipeline: str, start: str = "", step: int = 0, **counted: float | None) -> Report:
    """Make the report of a backfill's progress.

    Args:
        pipeline: Name of the pipeline.
        start: Its start; empty: there is no backfill.
        step: Its last step; 0 before the first.
        counted: See `COUNTS`.
    """
    counts = {**COUNTS, **counted}
    details = {"start": start}
    if not start:
        begin = "To begin one: 'ebbtide backfill start'."
        return Report(pipeline, ["no backfill."], counts, details, step, begin)
    n_records = int(counts["records"] or 0)
    waiting = int(counts["waiting"] or 0)
    percent = counts["percent"]
    pace = counts["records_per_second"]
    seconds_left = counts["seconds_left"]
    parts = [
        f"step {step}",
        amount(n_records, "record"),
        f"{percent:.1f} %",
    ]
    if pace is not None:
        parts.append(f"{pace:,.0f} records/s")
    if waiting and seconds_left is not None:
        parts.append(f"about {seconds_left:,.0f} s left")
    listed = ", ".join(parts)
    line = f"backfill from {start}: {listed}"
    next_step = "To compare it: 'ebbtide backfill swap'."
    if waiting:
        left = amount(waiting, "record")
        line = f"{line}; waiting: {left}"
        next_step = "To continue: 'ebbtide backfill start'."
    return Report(pipeline, [f"{line}."], counts, details, step, next_step)


def status(spec: Pipeline, root: str, clock_ms: int) -> Report:
    """Return the progress of a backfill. Loads no Spark.

    Args:
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.
    """
    tables = Plan.under(root, spec)
    asked = asked_of(tables)
    if asked is None:
        return _report(spec.name)
    beside = beside_of(spec, asked)
    if asked.snapshot is not None and not has_read_snapshot(tables, beside):
        beside = of_topic(beside, asked.snapshot)
    plan = Plan.under(tables.backfills, beside)
    commit = plan.state.last()
    found = Lag.of(beside, tables.backfills, clock_ms)
    backlog = found.backlog
    if commit is None:
        n_waiting = backlog.total_records or backlog.files or 0
        return _report(spec.name, asked.text, waiting=n_waiting)
    _, last = commit
    records = last.frontier.total_records or 0
    done, left = _done_and_left(plan, last, backlog)
    waiting = left
    is_of_files = backlog.total_records is None
    if is_of_files and done:
        # Remaining files are assumed to have as many records each as those read.
        waiting = round(left * records / done)
    n_all = done + left
    percent = 100 * done / n_all if n_all else 100.0
    pace = _pace(plan)
    seconds_left = waiting / pace if pace else None
    return _report(
        spec.name,
        asked.text,
        last.step,
        records=records,
        quarantined=last.frontier.total_quarantined or 0,
        waiting=waiting,
        percent=round(percent, 1),
        records_per_second=pace,
        seconds_left=None if seconds_left is None else round(seconds_left, 1),
    )


def _done_and_left(plan: Plan, last: StepFacts, backlog: Backlog) -> tuple[int, int]:
    """Return the numbers of records (of a topic) or files that were read, and that remain."""
    is_of_topic = last.source.position is not None
    if is_of_topic:
        done = last.frontier.total_records or 0
        left = backlog.total_records or 0
        return done, left
    snapshot = plan.state.snapshot()
    files_read = plan.state.files(snapshot.files.values())
    return len(files_read), backlog.files or 0


def _pace(plan: Plan) -> float | None:
    """Return the records per second of the last steps; None for fewer than two."""
    steps = list(islice(_batches(plan), LAST_STEPS))
    if len(steps) < 2:
        return None
    # The newest first. A step's clock is read as it begins, so the time between two steps was spent on the earlier one.
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
