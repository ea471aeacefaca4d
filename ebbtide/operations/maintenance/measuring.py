"""The frame of a maintenance job: it makes one step and measures the tables before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ebbtide.amounts import amount
from ebbtide.delta.snapshot import Snapshot
from ebbtide.operations.operation import Report
from ebbtide.operations.stepping import has_state, stepping
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.refusals import refuse_changed_spec
from ebbtide.runtime.step import Stepper
from ebbtide.spec.pipeline import Pipeline
from ebbtide.storage.usage import usage
from ebbtide.tables.state.deciding import packed
from ebbtide.tables.state.doomed import find
from ebbtide.tables.state.layout import ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEASURED: dict[str, int | None] = {
    "entries": 0,  # entries kept
    "rows_removed": 0,  # stored rows that went: expired and dropped entries, superseded versions
    "files_before": 0,  # data files of the state
    "files_after": 0,
    "bytes_before": 0,
    "bytes_after": 0,
    "oldest_ms": None,  # stamp of the oldest entry kept, epoch ms
    "stored_files_before": 0,  # files of all tables on disk, logs and what no version names among them
    "stored_files_after": 0,
    "stored_bytes_before": 0,
    "stored_bytes_after": 0,
    "quarantine_max_age": 0,  # records of the quarantine that went because they were older than that
    "quarantine_max_bytes": 0,  # those that went because newer ones filled that
}
"""The counts of a maintenance job, with their values where there is nothing to measure."""
ON_DISK = (
    "on disk: files {stored_files_before} -> {stored_files_after}, bytes {stored_bytes_before} -> {stored_bytes_after}"
)


def maintained(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    job: str,
    step: Callable[[SparkSession, Stepper], bool],
) -> Report:
    """Do one step of maintenance, and measure the tables before and after.

    Args:
        spark: A session with Delta.
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        job: Name of the job.
        step: Does the work, the lease held and the last step finished; returns whether it made a step.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    plan = Plan.under(root, spec)
    if not has_state(plan):
        return _report(spec.name, job)
    with stepping(spark, plan) as stepper:
        if not stepper.number:
            return _report(spec.name, job)
        refuse_changed_spec(plan, stepper)
        # The open step belongs to the run that died: it is finished before anything is measured.
        stepper.publish(spark)
        before = stepper.newest()
        stored_before = usage(plan.root)
        is_done = step(spark, stepper)
        after = stepper.newest()
        counted = find(spark, plan.state.stored(after), packed(plan.operator), None)
        stored_after = usage(plan.root)
        dropped = stepper.last.decision.removed if is_done else {}
        return _report(
            spec.name,
            job,
            stepper.number if is_done else None,
            entries=counted.n_kept,
            rows_removed=_rows(before) - _rows(after),
            files_before=len(before.files),
            files_after=len(after.files),
            bytes_before=_bytes(before),
            bytes_after=_bytes(after),
            oldest_ms=counted.oldest_ms,
            stored_files_before=stored_before.files,
            stored_files_after=stored_after.files,
            stored_bytes_before=stored_before.bytes,
            stored_bytes_after=stored_after.bytes,
            quarantine_max_age=dropped.get("max_age", 0),
            quarantine_max_bytes=dropped.get("max_bytes", 0),
        )


def _report(pipeline: str, job: str, step: int | None = None, **measured: int | None) -> Report:
    """Make the report of a maintenance job.

    Args:
        pipeline: Name of the pipeline.
        job: Name of the job.
        step: The step that it made; None if there was nothing to do.
        measured: See `MEASURED`; what is not named is 0.
    """
    counts = {**MEASURED, **measured}
    details = {"job": job}
    entries = amount(counts["entries"] or 0, "entry", "entries")
    if step is None:
        # Vacuum makes no step: what it has freed shows on disk alone.
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
    for limit in ("max_age", "max_bytes"):
        n_dropped = counts[f"quarantine_{limit}"]
        if n_dropped:
            records = amount(n_dropped, "quarantined record")
            parts.append(f"{records} dropped by {limit}")
    done = ", ".join(parts)
    return Report(pipeline, [f"{job}, step {step}: {done}."], counts, details, step)


def _rows(state: Snapshot) -> int:
    """Count the rows of the state's entries, in files by their statistics; what is noted beside them is not counted."""
    n_rows = 0
    for file in state.files.values():
        has_entries = file.greatest("_entry") in (ROW, None)
        if has_entries:
            n_rows += file.live_rows or 0
    return n_rows


def _bytes(state: Snapshot) -> int:
    return sum(file.size for file in state.files.values())
