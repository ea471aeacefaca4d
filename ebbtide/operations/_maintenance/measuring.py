"""The frame of a maintenance job: it makes one step and measures the tables before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ebbtide.amounts import amount
from ebbtide.delta import Snapshot
from ebbtide.operations._maintenance.doomed import Found, find
from ebbtide.operations._operation import Context, Report
from ebbtide.operations._stepping import has_state, stepping
from ebbtide.runtime import Phase, Plan, Stepper
from ebbtide.storage import Location
from ebbtide.user_code import packed

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.ledger import StepFacts

MEASURED: dict[str, int | None] = {
    "entries": 0,  # entries kept
    "entries_deleted": 0,  # entries that cleanup deleted, expired or dropped
    "entries_transformed": 0,  # entries that a snapshot transformer changed
    "entries_filtered": 0,  # entries that a snapshot transformer dropped
    "rows_removed": 0,  # stored rows removed: expired and dropped entries, superseded versions
    "files_before": 0,  # data files of the state
    "files_after": 0,
    "bytes_before": 0,
    "bytes_after": 0,
    "oldest_ms": None,  # stamp of the oldest entry kept, epoch ms
    "stored_files_before": 0,  # files of all tables on disk, including logs and unreferenced files
    "stored_files_after": 0,
    "stored_bytes_before": 0,
    "stored_bytes_after": 0,
    "reclaimed_bytes": 0,  # on disk; below 0: more was written than deleted, until VACUUM
    "quarantine_max_age": 0,  # records of the quarantine removed because of their age
    "quarantine_max_bytes": 0,  # records removed because of the size limit
}
"""The counts of a maintenance job, with their default values."""
ON_DISK = (
    "on disk: files {stored_files_before} -> {stored_files_after}, bytes {stored_bytes_before} -> {stored_bytes_after}"
)


class Done(NamedTuple):
    """The outcome of a job's work.

    Args:
        is_step: It made a step.
        counted: The remaining entries, if counted.
        left: Minimum number of files that a bounded run has left to later ones.
        transformed: The step in which entries were handed to snapshot transformers; None: none was.
    """

    is_step: bool
    counted: Found | None = None
    left: int = 0
    transformed: StepFacts | None = None


def maintained(
    ctx: Context,
    job: str,
    step: Callable[[Executor, Stepper], Done],
) -> Report:
    """Do one step of maintenance, and measure the tables before and after.

    Args:
        ctx: The pipeline, and a session with Delta.
        job: Name of the job.
        step: Does the work, with the lease held and the last step finished.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    spec, executor = ctx.spec, ctx.executor
    plan = Plan.under(ctx.root, spec)

    def phase(name: str) -> None:
        ctx.on_phase(Phase(spec.name, name))

    phase("opening the tables")
    if not has_state(plan):
        return _report(spec.name, job)
    with stepping(executor, plan) as stepper:
        if not stepper.number:
            return _report(spec.name, job)
        stepper.diagnosis.refuse("spec")
        # An open step of a dead run is finished before anything is measured.
        stepper.publish(executor)
        phase(f"{job}, step {stepper.number + 1}")
        before = stepper.newest()
        stored_before = Location(plan.root).usage()
        done = step(executor, stepper)
        phase("counting the entries")
        after = stepper.newest()
        counted = done.counted
        if counted is None:
            state = plan.state.stored(after)
            counted = find(executor, state, packed(plan.operator), None)
        stored_after = Location(plan.root).usage()
        dropped = stepper.last.decision.removed if done.is_step else {}
        handed = done.transformed.decision.counts if done.transformed else {}
        report = _report(
            spec.name,
            job,
            stepper.number if done.is_step else None,
            entries=counted.n_kept,
            entries_deleted=counted.n_doomed,
            entries_transformed=handed.get("transformed", 0),
            entries_filtered=handed.get("filtered", 0),
            rows_removed=plan.state.entry_rows(before.files.values()) - plan.state.entry_rows(after.files.values()),
            files_before=len(before.files),
            files_after=len(after.files),
            bytes_before=_bytes(before),
            bytes_after=_bytes(after),
            oldest_ms=counted.oldest_ms,
            stored_files_before=stored_before.files,
            stored_files_after=stored_after.files,
            stored_bytes_before=stored_before.bytes,
            stored_bytes_after=stored_after.bytes,
            reclaimed_bytes=stored_before.bytes - stored_after.bytes,
            quarantine_max_age=dropped.get("max_age", 0),
            quarantine_max_bytes=dropped.get("max_bytes", 0),
        )
        return with_rest(report, done.left)


def with_rest(report: Report, left: int) -> Report:
    """Return a report with the number of files that a bounded run has left.

    Args:
        report: The report.
        left: Files that are left to later runs.
    """
    if not left:
        return report
    line = f"{amount(left, 'file')} left, at least: the next run continues."
    lines = [*report.lines, line]
    counts = {**report.counts, "files_left": left}
    return replace(report, lines=lines, counts=counts)


def _report(pipeline: str, job: str, step: int | None = None, **measured: int | None) -> Report:
    """Make the report of a maintenance job.

    Args:
        pipeline: Name of the pipeline.
        job: Name of the job.
        step: The step that it made; None if there was nothing to do.
        measured: See `MEASURED`; missing counts are 0.
    """
    counts = {**MEASURED, **measured}
    details = {"job": job}
    entries = amount(counts["entries"] or 0, "entry", "entries")
    if step is None:
        # Vacuum makes no step: its effect shows only on disk.
        files_before = counts["stored_files_before"] or 0
        files_after = counts["stored_files_after"] or 0
        done = "found nothing to do"
        if files_after < files_before:
            done = ON_DISK.format(**counts)
        return Report(pipeline, [f"{job}: {done}; {entries}."], counts, details)
    removed = amount(counts["rows_removed"] or 0, "row")
    parts = [
        f"{removed} removed",
        f"{entries} kept",
        "files {files_before} -> {files_after}".format(**counts),
        "bytes {bytes_before} -> {bytes_after}".format(**counts),
    ]
    for what in ("transformed", "filtered"):
        n_entries = counts[f"entries_{what}"]
        if n_entries:
            parts.append(f"{amount(n_entries, 'entry', 'entries')} {what} by snapshot transformers")
    for limit in ("max_age", "max_bytes"):
        n_dropped = counts[f"quarantine_{limit}"]
        if n_dropped:
            records = amount(n_dropped, "quarantined record")
            parts.append(f"{records} dropped by {limit}")
    done = ", ".join(parts)
    return Report(pipeline, [f"{job}, step {step}: {done}."], counts, details, step)


def _bytes(state: Snapshot) -> int:
    return sum(file.size for file in state.files.values())
