"""Data files of the sink that are gone or damaged: a repair takes them out, so that the sink can be read and compared; their rows come back from the state."""

from __future__ import annotations

from ebbtide.delta import vectors
from ebbtide.delta.commit import now_ms
from ebbtide.delta.log import footer_of
from ebbtide.delta.snapshot import DataFile, Snapshot
from ebbtide.errors import DamagedFileError, DeltaLogError, RepairError
from ebbtide.maintenance.state_repair import commit_beside_steps
from ebbtide.paths import read_parquet
from ebbtide.runtime.foreign import REMOVES_DAMAGED, foreign_commits, has_taken_out, may_forget
from ebbtide.runtime.step import Stepper


def damaged_files(sink: str) -> list[DataFile]:
    """Return the data files of a sink that cannot be read, each read whole, and those whose deletion vector cannot.

    Args:
        sink: Its location.
    """
    snapshot = Snapshot.read(sink, any_features=True)
    files = [] if snapshot is None else snapshot.files.values()
    return [file for file in files if not _can_be_read(sink, file)]


def _can_be_read(table: str, file: DataFile) -> bool:
    location = file.location(table)
    try:
        read_parquet(location, footer=footer_of(file.add))
        if file.vector is not None:
            vectors.read(table, file.vector)
    except (DamagedFileError, DeltaLogError):
        return False
    return True


def take_out(stepper: Stepper, files: list[DataFile]) -> None:
    """Take data files out of the sink, by a commit that is no step.

    Args:
        stepper: Of the pipeline.
        files: Those that cannot be read.

    Raises:
        LeaseLostError: another process committed at the same time.
    """
    sink = stepper.plan.sink.path
    snapshot = Snapshot.read(sink, any_features=True)
    if snapshot is None or not files:
        return
    at_ms = now_ms()
    removes = [file.removed(at_ms, data_change=True) for file in files]
    commit_beside_steps(stepper, snapshot, removes, REMOVES_DAMAGED)


def was_taken_out(stepper: Stepper, state_version: int) -> bool:
    """Return whether a repair that was killed before its step has taken data files out of the sink.

    Args:
        stepper: Of the pipeline.
        state_version: The state's version that has the rows of the last step.
    """
    last = stepper.last
    plan = stepper.plan
    if last is None or not may_forget(plan, last):
        return False  # all its rows come back
    return has_taken_out(plan, last, state_version=state_version, sink_version=plan.sink.version())


def refuse_unknown(stepper: Stepper, files: list[DataFile], state_version: int) -> None:
    """Refuse to take files out where changes of others are to be undone first, which may have to be read from them.

    Args:
        stepper: Of the pipeline.
        files: Those that cannot be read.
        state_version: The state's version that has the rows of the last step.

    Raises:
        RepairError: others changed rows that the state has forgotten.
    """
    last = stepper.last
    plan = stepper.plan
    if not files or last is None or not may_forget(plan, last):
        return
    commits = foreign_commits(plan, last, state_version=state_version, sink_version=plan.sink.version())
    if commits:
        named = "; ".join(commit.text() for commit in commits)
        raise RepairError.of(
            f"Data files of the sink of '{stepper.spec.name}' are gone or damaged, and others have changed rows that its state may have forgotten.",
            got=f"{', '.join(file.path for file in files)}; {named}",
            next_step="Restore the files from a copy, or run 'ebbtide refresh' to rebuild all tables from the source.",
        )
