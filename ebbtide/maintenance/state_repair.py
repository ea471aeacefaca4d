"""What can be mended of a state without the source, and what cannot: rows that others changed are brought back, a lost file is named.

A state is brought back to a version that holds the rows of the last step, as long as the files of one are there. A data file
that is gone or damaged has no second copy, and the sink's rows do not make up for it: they tell neither what was deleted, nor
since when a value is known, nor which files were read. Its rows come back with a rewind to a step whose files are whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ebbtide.delta.restoring import restoring
from ebbtide.delta.snapshot import Action, DataFile, FileId, Snapshot
from ebbtide.delta.table import commit_after, read_file
from ebbtide.errors import DamagedFileError, HistoryGoneError, LeaseLostError, RepairError
from ebbtide.ledger.puts import puts_of
from ebbtide.maintenance.rewind import can_go_back
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.step import Stepper
from ebbtide.state_table.others import change_of_others


def decided_version(stepper: Stepper) -> int:
    """Return the newest version of the state that has the rows of the last step."""
    state = stepper.found()
    _, versions = change_of_others(stepper.version, state)
    return versions[-1]


def restore_state(stepper: Stepper) -> int | None:
    """Bring back the rows of the last step where others changed them, by a commit that is no step.

    Returns:
        The version that they are taken from; None if nobody changed them.

    Raises:
        HistoryGoneError: files of that version are gone.
        LeaseLostError: another process committed at the same time.
    """
    state = stepper.found()
    changed_by, versions = change_of_others(stepper.version, state)
    if not changed_by:
        return None
    version = versions[-1]
    commit_beside_steps(stepper, state, restoring(state, version), "RESTORE")
    stepper.newest()  # a step that follows is of this version
    return version


def commit_beside_steps(stepper: Stepper, found: Snapshot, actions: Sequence[Action], operation: str) -> None:
    """Commit to one of the pipeline's tables what is no step, right behind what was found.

    Args:
        stepper: Of the pipeline; holds its lease.
        found: The table's newest version.
        actions: What is committed.
        operation: What the commit calls itself.

    Raises:
        LeaseLostError: another process committed at the same time.
    """
    stepper.lease.check()
    made = commit_after(puts_of(found.table), found, actions, {"operation": operation})
    if made is None:
        raise LeaseLostError.of(
            f"Another process has committed to '{found.table}' at the same time.",
            next_step="Run 'ebbtide repair' again.",
        )


def refuse_damaged_state(stepper: Stepper) -> None:
    """Refuse a state of which a data file is gone or damaged, and say how far back its files are whole.

    Raises:
        RepairError: there is such a file.
    """
    reading = _Reading(stepper.plan)
    state = Snapshot.read(stepper.plan.state.path, decided_version(stepper))
    damaged = [] if state is None else list(reading.damaged(state))
    if not damaged:
        return
    step = _last_whole_step(stepper, reading)
    refresh = "'ebbtide refresh' to rebuild all tables from the source"
    rewind = f"'ebbtide rewind --to-step {step} --apply': the files of that step are whole, and what was read since is read again; or "
    raise RepairError.of(
        f"The state of '{stepper.spec.name}' has lost data files: what was in them is nowhere else.",
        got="; ".join(damaged),
        allowed="the files as they were written",
        next_step=f"Restore them from a copy, or run {rewind if step else ''}{refresh}.",
    )


class _Reading:
    """Reads data files of the state, each once, to see whether they are whole.

    Args:
        plan: The pipeline.
    """

    def __init__(self, plan: Plan) -> None:
        self._state = plan.state
        self._is_whole: dict[FileId, bool] = {}

    def damaged(self, snapshot: Snapshot) -> Iterator[str]:
        """Yield the locations of a version's files that are not."""
        for id_, file in snapshot.files.items():
            if id_ not in self._is_whole:
                self._is_whole[id_] = self._can_be_read(file)
            if not self._is_whole[id_]:
                yield file.location(snapshot.table)

    def _can_be_read(self, file: DataFile) -> bool:
        try:
            read_file(self._state.path, file, self._state.schema)
        except DamagedFileError:
            return False
        return True


def _last_whole_step(stepper: Stepper, reading: _Reading) -> int | None:
    """Return the newest step that can be gone back to: of this spec, since the last refresh, its files and the other tables' whole."""
    tables = stepper.plan
    for version, facts in tables.state.steps():
        if tables.spec.misfits(facts.state.spec):
            return None
        try:
            snapshot = Snapshot.read(tables.state.path, version)
        except HistoryGoneError:
            return None
        if snapshot is None or snapshot.version != version:
            return None
        if not any(reading.damaged(snapshot)) and can_go_back(stepper, facts.step):
            return facts.step
        if facts.decision.is_reset:
            return None
    return None
