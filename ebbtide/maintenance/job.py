"""What all maintenance jobs share: the lease, the open step finished first, a report at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.amounts import amount
from ebbtide.delta import log
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import ConfigError
from ebbtide.ledger.facts import Head
from ebbtide.ledger.lease import Lease
from ebbtide.maintenance.jobs import job_named
from ebbtide.model.durations import to_ms
from ebbtide.paths import usage
from ebbtide.runtime.belonging import OwnTables, refuse_lost_ledger, refuse_lost_state, refuse_misfits
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.refusals import refuse_changed_spec
from ebbtide.runtime.step import Stepper
from ebbtide.spec.pipeline import Pipeline
from ebbtide.state_table.deciding import packed
from ebbtide.state_table.layout import ROW
from ebbtide.state_table.rewriting import Census, StoredEntries
from ebbtide.tasks import run_tasks


@dataclass(frozen=True)
class MaintenanceReport:
    """What a maintenance job did to a pipeline's state.

    Args:
        pipeline: Its name.
        job: Its name in `ebbtide.maintenance.jobs.JOBS`.
        step: Its step in the ledger; None if there was nothing to do.
        entries: Entries kept.
        rows_removed: Stored rows that went: expired and dropped entries, superseded versions.
        files_before: Data files of the state.
        files_after: The same at the end.
        bytes_before: Their bytes.
        bytes_after: The same at the end.
        oldest_ms: Stamp of the oldest entry kept, epoch ms; None if none is.
        stored_files_before: Files of all tables on disk, logs and what no version names among them.
        stored_files_after: The same at the end.
        stored_bytes_before: Their bytes.
        stored_bytes_after: The same at the end.
        quarantine_max_age: Records of the quarantine that went because they were older than that.
        quarantine_max_bytes: Those that went because newer ones filled that.
    """

    pipeline: str
    job: str
    step: int | None = None
    entries: int = 0
    rows_removed: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    oldest_ms: int | None = None
    stored_files_before: int = 0
    stored_files_after: int = 0
    stored_bytes_before: int = 0
    stored_bytes_after: int = 0
    quarantine_max_age: int = 0
    quarantine_max_bytes: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        stored = f"on disk: files {self.stored_files_before} -> {self.stored_files_after}, bytes {self.stored_bytes_before} -> {self.stored_bytes_after}"
        entries = amount(self.entries, "entry", "entries")
        if self.step is None:
            has_freed = self.stored_files_after < self.stored_files_before
            done = stored if has_freed else "found nothing to do"
            return f"{self.pipeline}: {self.job}: {done}; {entries}."
        parts = [
            f"{amount(self.rows_removed, 'row')} removed",
            f"{entries} kept",
            f"files {self.files_before} -> {self.files_after}",
            f"bytes {self.bytes_before} -> {self.bytes_after}",
        ]
        if self.quarantine_max_age:
            parts.append(f"{amount(self.quarantine_max_age, 'quarantined record')} dropped by max_age")
        if self.quarantine_max_bytes:
            parts.append(f"{amount(self.quarantine_max_bytes, 'quarantined record')} dropped by max_bytes")
        counts = ", ".join(parts)
        return f"{self.pipeline}: {self.job}, step {self.step}: {counts}."


@contextmanager
def stepping(
    spark: SparkSession,
    plan: Plan,
    started_ms: int = 0,
    *,
    refuse: Callable[[Plan, OwnTables, Head], None] | None = None,
) -> Iterator[Stepper]:
    """Hold a pipeline's lease, and yield what makes its steps.

    Args:
        spark: A session with Delta.
        plan: The pipeline's.
        started_ms: The time, epoch ms; needed where a step moves the pipeline's clock on.
        refuse: Refuses tables that do not fit each other. Default: all that a run refuses; what mends them lets some through.

    Raises:
        LeaseHeldError: the pipeline is being run.
        TableMismatchError: see `ebbtide.runtime.belonging`.
        ConfigError: it has no tables yet.
    """
    if not log.versions(plan.state.path):
        refuse_lost_state(plan, OwnTables(plan))
        raise ConfigError.of(
            f"'{plan.spec.name}' has made no step yet.",
            got=f"no state at '{plan.state.path}'",
            next_step="Run 'ebbtide run' first.",
        )
    refuse_lost_ledger(plan, plan.turn)
    spec = plan.spec
    ledger = plan.at("ledger")
    lease_ttl_s = to_ms(spec.lease_ttl) / 1000
    with Lease(ledger, spec.name, lease_ttl_s, asks=True) as lease:
        stepper = Stepper(plan, lease, started_ms)
        if refuse is None:
            refuse_misfits(plan, stepper.tables, stepper.head, stepper.found())
        else:
            refuse(plan, stepper.tables, stepper.head)
        yield stepper


def maintain(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    job: str,
) -> MaintenanceReport:
    """Run one job on a pipeline's state.

    Args:
        spark: A session with Delta.
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        job: Its name in `ebbtide.maintenance.jobs.JOBS`.

    Raises:
        ConfigError: there is no job of this name.
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    step = job_named(job).load()
    plan = Plan.under(root, spec)
    if not log.versions(plan.state.path):
        refuse_lost_state(plan, OwnTables(plan))
        return MaintenanceReport(spec.name, job)
    with stepping(spark, plan) as stepper:
        if stepper.last is None:
            return MaintenanceReport(spec.name, job)
        refuse_changed_spec(plan, stepper)
        stepper.publish(spark)
        before = stepper.newest()
        stored_before = usage(plan.root)
        is_done = step(spark, stepper)
        after = stepper.newest()
        n_entries, oldest_ms = _census(spark, plan, after)
        stored_after = usage(plan.root)
        dropped = stepper.last.decision.removed if is_done else {}
        return MaintenanceReport(
            pipeline=spec.name,
            job=job,
            step=stepper.number if is_done else None,
            entries=n_entries,
            rows_removed=_rows(before) - _rows(after),
            files_before=len(before.files),
            files_after=len(after.files),
            bytes_before=_bytes(before),
            bytes_after=_bytes(after),
            oldest_ms=oldest_ms,
            stored_files_before=stored_before.files,
            stored_files_after=stored_after.files,
            stored_bytes_before=stored_before.bytes,
            stored_bytes_after=stored_after.bytes,
            quarantine_max_age=dropped.get("max_age", 0),
            quarantine_max_bytes=dropped.get("max_bytes", 0),
        )


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


def _census(spark: SparkSession, plan: Plan, state: Snapshot) -> tuple[int, int | None]:
    """Return how many entries there are, and the stamp of the oldest."""
    stored = plan.state.stored(state)
    entries = StoredEntries(stored, packed(plan.operator))
    counted = run_tasks(
        spark,
        Census(entries),
        entries.parts(),
        in_driver=entries.is_small,
    )
    n_entries = 0
    stamps_ms = []
    for n_in_part, oldest_ms in counted:
        n_entries += n_in_part
        if oldest_ms is not None:
            stamps_ms.append(oldest_ms)
    return n_entries, min(stamps_ms, default=None)
