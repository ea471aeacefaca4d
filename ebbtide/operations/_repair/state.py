"""Repair of a state without the source: rows that another client changed are brought back, a lost file is named.

A state is brought back to a version that holds the rows of the last step, as long as the files of one are there. A data file
that is gone or damaged has no second copy, and the sink's rows do not replace it: they show neither what was deleted, nor
since when a value is known, nor which files were read. Its rows come back with a rewind to a step whose files are whole.
"""

from __future__ import annotations

from ebbtide.delta import Snapshot, WholeFiles
from ebbtide.errors import HistoryGoneError, LeaseLostError, RepairError
from ebbtide.ledger import writer_of
from ebbtide.operations._rewind import can_go_back
from ebbtide.runtime import Stepper
from ebbtide.tables import foreign_change


def decided_version(stepper: Stepper) -> int:
    """Return the newest version of the state that has the rows of the last step."""
    state = stepper.found()
    _, versions = foreign_change(stepper.version, state)
    return versions[-1]


def restore_state(stepper: Stepper) -> int | None:
    """Bring back the rows of the last step where another client changed them, by a commit that is no step.

    Returns:
        The version that they are taken from; None if no other client has changed them.

    Raises:
        HistoryGoneError: files of that version are gone.
        LeaseLostError: another process committed at the same time.
    """
    state = stepper.found()
    changed_by, versions = foreign_change(stepper.version, state)
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
    """Refuse a state of which a data file is gone or damaged, and say how far back its files are whole.

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
    rewind = f"'ebbtide rewind --to-step {step} --apply': the files of that step are whole, and what was read since is read again; or "
    raise RepairError.of(
        f"The state of '{stepper.spec.name}' has lost data files: what was in them is nowhere else.",
        got="; ".join(file.location(whole.table) for file in damaged),
        allowed="the files as they were written",
        next_step=f"Restore them from a copy, or run {rewind if step else ''}{refresh}.",
    )


def _last_whole_step(stepper: Stepper, whole: WholeFiles) -> int | None:
    """Return the newest step that can be gone back to: of this spec, since the last refresh, its files and the other tables' whole."""
    tables = stepper.plan
    # From the newest step back: the first whose files are all there can be gone back to.
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
