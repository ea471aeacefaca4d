"""Repairs a state without the source: restores rows that another client changed, and reports lost files.

A state is restored to a version with the rows of the last step, if the files of one exist. A lost or damaged data file has no
second copy. The sink's rows cannot replace it: they do not show deleted rows, the age of values, or the files read. Its rows come
back by a rewind to a step whose files are complete.
"""

from __future__ import annotations

from ebbtide.delta import Snapshot, WholeFiles
from ebbtide.errors import HistoryGoneError, LeaseLostError, RepairError
from ebbtide.ledger import writer_of
from ebbtide.operations._rewind import can_go_back
from ebbtide.runtime import Stepper


def decided_version(stepper: Stepper) -> int:
    """Return the newest version of the state that has the rows of the last step."""
    state = stepper.found()
    _, versions = stepper.plan.state.foreign_change(stepper.version, state, counts_rows=True)
    return versions[-1]


def restore_state(stepper: Stepper) -> int | None:
    """Restore the rows of the last step if another client changed them, by a commit that is not a step.

    Returns:
        The restored version; None if no other client has changed the state.

    Raises:
        HistoryGoneError: files of that version are gone.
        LeaseLostError: another process committed at the same time.
    """
    state = stepper.found()
    changed_by, versions = stepper.plan.state.foreign_change(stepper.version, state, counts_rows=True)
    if not changed_by:
        return None
    version = versions[-1]
    stepper.lease.check()
    actions = state.restoring(version)
    puts = writer_of(state.table)
    made = puts.commit(state, actions, {"operation": "RESTORE"})
    if made is None:
        raise LeaseLostError.of(
            f"Another process has committed to '{state.table}' at the same time.",
            next_step="Run 'ebbtide repair' again.",
        )
    stepper.newest()  # a step that follows is of this version
    return version


def refuse_damaged_state(stepper: Stepper) -> None:
    """Refuse a state with a lost or damaged data file; name the newest step whose files are complete.

    Raises:
        RepairError: there is such a file.
    """
    whole = WholeFiles(stepper.plan.state.path)
    state = Snapshot.read(stepper.plan.state.path, decided_version(stepper))
    damaged = []
    if state is not None:
        damaged = list(whole.damaged(state))
    if not damaged:
        return
    step = _last_whole_step(stepper, whole)
    refresh = "'ebbtide refresh' to rebuild all tables from the source"
    rewind = f"'ebbtide rewind --to-step {step} --apply': the files of that step are complete, and later records are read again; or "
    raise RepairError.of(
        f"The state of '{stepper.spec.name}' has lost data files, which have no other copy.",
        got="; ".join(file.location(whole.table) for file in damaged),
        allowed="the files as they were written",
        next_step=f"Restore them from a copy, or run {rewind if step else ''}{refresh}.",
    )


def _last_whole_step(stepper: Stepper, whole: WholeFiles) -> int | None:
    """Return the newest step for a rewind: of this spec, since the last refresh, with complete files of all tables."""
    tables = stepper.plan
    # From the newest step back: the first whose files all exist.
    for version, facts in tables.state.steps():
        if tables.spec.misfits(facts.state.spec):
            return None
        try:
            snapshot = Snapshot.read(tables.state.path, version)
        except HistoryGoneError:
            return None
        if snapshot is None or snapshot.version != version:
            return None
        if not any(whole.damaged(snapshot)) and can_go_back(stepper, facts.step):
            return facts.step
        if facts.decision.is_reset:
            return None
    return None
