"""Vacuum: deletes files that are no longer needed, so that storage does not grow forever. It makes no step.

| files | deleted when |
|---|---|
| data files, vectors and change files that no version within Delta's retention names, including those of failed steps | older than `delta.deletedFileRetentionDuration` (7 days) |
| commits of the tables | older than `delta.logRetentionDuration` (30 days), once a checkpoint has their content |
| turns of the lease | all but the last thousand |
| staged files | at once: the last step is finished |
| the folders `checkpoint` and `requests` of releases before format 4 | at once: the ledger has their content |
| files of processes that died before committing them | older than a day |
| files of the source, by `source.after_read` | read by steps older than `after` and than the first of these |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.delta import Log, Snapshot
from ebbtide.ledger import writer_of
from ebbtide.model import Decision
from ebbtide.operations._maintenance.measuring import Done
from ebbtide.runtime import Plan, Stepper, system_clock
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor

DAY_S = 86_400
OF_EARLIER_RELEASES = ("checkpoint", "requests")
"""Folders of a pipeline that nothing reads any more."""


def vacuum(executor: Executor, stepper: Stepper, max_files: int | None = None) -> Done:
    """Delete files that no table of a pipeline needs; makes no step.

    Args:
        stepper: Holds the lease.
        max_files: Maximum data files, vectors and change files to delete; None: all.
    """
    plan = stepper.plan
    left = 0
    for name in ("state", *Decision.OWN_OUTPUTS):
        table = plan.at(name)
        if not Log(table).is_there():
            continue
        writer_of(table).trim_log(table)
        listed = list(unneeded(table))
        now = listed[:max_files]
        for location in now:
            Location(location).delete()
        if max_files is not None:
            max_files -= len(now)
        left += len(listed) - len(now)
    plan.ledger.trim()
    Location(plan.at("staged")).delete()
    Location(plan.rehearsal).delete()
    for name in OF_EARLIER_RELEASES:
        Location(plan.at(name)).delete()
    delete_all_unfinished(plan)
    read = leaves(plan)
    names = plan.source.leaving(read)
    now_leaving = names[:max_files]
    plan.source.leave(now_leaving, read)
    return Done(is_step=False, left=left + len(names) - len(now_leaving))


def leaves(plan: Plan) -> dict[str, tuple[int | None, int]]:
    """Return the files of the source that may leave it, by `source.after_read`: the bytes of each, and the step that has read it.

    A file stays while a step that has not read it can be gone back to.
    """
    stays_ms = plan.source.stays_ms
    state = Snapshot.read(plan.at("state"))
    if stays_ms is None or state is None:
        return {}
    return plan.state.files_read_until(state, system_clock() - max(stays_ms, state.retention_ms))


def unneeded(table: str) -> dict[str, int]:
    """Return the locations and bytes of the files of a table that a vacuum deletes.

    Raises:
        ConfigError: the table's retention is not an interval of fixed length.
    """
    snapshot = Snapshot.read(table, any_features=True)
    found = [] if snapshot is None else snapshot.unneeded_files()
    return {Location(table) / file.name: file.size for file in found}


def delete_all_unfinished(plan: Plan, *, older_than_s: float = DAY_S) -> None:
    """Delete a pipeline's files whose writers died before committing them; see `delete_unfinished`."""
    folders = [plan.root, plan.at("runs")]
    for name in ("state", *Decision.OWN_OUTPUTS, "ledger"):
        table = plan.at(name)
        folders += [table, Log(table).folder]
    for folder in folders:
        Location(folder).delete_unfinished(older_than_s=older_than_s)
