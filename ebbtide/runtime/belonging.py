"""Whether the tables of a pipeline belong together: what does not is refused, never made again in silence.

A step's facts hold the id of each table beside the state and the last step that wrote it. So a table that was deleted, replaced
by another, or put back to an older version is known, and so is a state that was.
"""

from __future__ import annotations

from ebbtide.delta import log
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import TableMismatchError
from ebbtide.ledger.facts import Head, TableFacts
from ebbtide.ledger.tables import BESIDE_STATE, OwnTable
from ebbtide.runtime.plan import Plan

REPAIR = "Run 'ebbtide repair' to bring it to what the state shows, or 'ebbtide refresh' to rebuild it from the source."
REFRESH = "Restore the state table, or run 'ebbtide refresh' to rebuild all tables from the source."


class OwnTables:
    """The tables beside a pipeline's state.

    Args:
        plan: The pipeline.
    """

    def __init__(self, plan: Plan) -> None:
        self._tables = {name: OwnTable(plan.at(name), name) for name in BESIDE_STATE}

    def facts(self) -> dict[str, TableFacts]:
        """Return what is known of those that are there, by name."""
        found = {}
        for name, table in self._tables.items():
            facts = table.find()
            if facts is not None:
                found[name] = facts
        return found

    def last_step(self, *names: str) -> int:
        """Return the last step that wrote any of them, or of those named; 0 before the first."""
        asked = names or self._tables
        return max(self._tables[name].last_step() for name in asked)


def refuse_misfits(plan: Plan, tables: OwnTables, head: Head, state: Snapshot) -> None:
    """Refuse tables that do not belong to the stored state.

    Args:
        plan: The pipeline.
        tables: Those beside its state.
        head: Its last step.
        state: The newest version of the state.

    Raises:
        TableMismatchError: see there.
    """
    refuse_other_state(plan, tables, head, state)
    if head.facts is None:
        return
    if head.facts.unadopted:
        raise TableMismatchError.of(
            f"Not all rows of '{plan.at('sink')}' were adopted.",
            got=f"{head.facts.unadopted} left",
            next_step="Run 'ebbtide adopt --apply' again: it goes on where it ended.",
        )
    found = tables.facts()
    for name, known in head.facts.tables.items():
        _refuse_other(plan.at(name), known, found.get(name))
    if "sink" not in found:
        raise _gone(plan.at("sink"))


def refuse_other_state(plan: Plan, tables: OwnTables, head: Head, state: Snapshot) -> None:
    """Refuse a state that is not the one that wrote the other tables last: nothing can be repaired from it.

    Args:
        plan: The pipeline.
        tables: Those beside its state.
        head: Its last step.
        state: The newest version of the state.

    Raises:
        TableMismatchError: it was lost, put back to an older version, or changed by others.
    """
    if head.facts is None:
        refuse_lost_state(plan, tables)
        return
    for name, table in tables.facts().items():
        if table.step > head.facts.step:
            raise TableMismatchError.of(
                f"The state at '{plan.state.path}' is older than '{plan.at(name)}'.",
                got=f"step {head.facts.step} in the state, {table.step} in the other",
                allowed="the state of the last step",
                next_step=REFRESH,
            )
    _refuse_changed(plan, head.version, state)


def refuse_others_sink(plan: Plan, tables: OwnTables) -> None:
    """Refuse a table with rows in the sink's place that no pipeline has written.

    Raises:
        TableMismatchError: there is one.
    """
    snapshot = Snapshot.read(plan.at("sink"), any_features=True)
    if snapshot is None or not snapshot.files:
        return
    if tables.last_step("sink") == 0:
        raise TableMismatchError.of(
            f"There is a table at '{plan.at('sink')}' that '{plan.spec.name}' has not written.",
            got=f"{len(snapshot.files)} data files, and no step",
            allowed="no table, or an empty one",
            next_step="Run 'ebbtide adopt' to make it the sink with its rows; or give the pipeline another name or root, or move the table away.",
        )


def refuse_lost_state(plan: Plan, tables: OwnTables) -> None:
    """Refuse to begin where other tables have steps that the state lacks.

    Args:
        plan: The pipeline; its state has no step.
        tables: Those beside its state.

    Raises:
        TableMismatchError: its state was lost.
    """
    for name, table in tables.facts().items():
        if table.step:
            raise TableMismatchError.of(
                f"The state at '{plan.state.path}' has no steps, but '{plan.at(name)}' has.",
                got=f"step {table.step}",
                allowed="the state that wrote it",
                next_step=REFRESH,
            )
    refuse_others_sink(plan, tables)


def _refuse_other(location: str, known: TableFacts, found: TableFacts | None) -> None:
    """Refuse a table that is not the one that the state knows, or that lacks a step."""
    if found is None:
        raise _gone(location)
    if found.id != known.id:
        raise TableMismatchError.of(
            f"The table at '{location}' is another one than the pipeline's.",
            got=f"id {found.id}",
            allowed=f"id {known.id}",
            next_step=REPAIR,
        )
    if found.step < known.step:
        raise TableMismatchError.of(
            f"The table at '{location}' is older than the state: it was put back to an earlier version.",
            got=f"step {found.step}",
            allowed=f"step {known.step} or the one after it",
            next_step=REPAIR,
        )


def _gone(location: str) -> TableMismatchError:
    return TableMismatchError.of(
        f"The table at '{location}' is gone.",
        allowed="the table that the pipeline has written",
        next_step=REPAIR,
    )


def _refuse_changed(plan: Plan, version: int, state: Snapshot) -> None:
    """Refuse a state whose rows others have changed since the last step; who changes them back is let through."""
    since = range(version + 1, state.version + 1)
    if not any(log.changed_files(log.actions(state.table, later)) for later in since):
        return
    decided = Snapshot.read(state.table, version)
    if decided is None or decided.files.keys() == state.files.keys():
        return
    at = decided
    same_rows = [decided.files.keys()]  # the files of all versions that have the rows of the last step
    changed_by = ""
    while at.version < state.version:
        actions = log.actions(state.table, at.version + 1)
        at = at.after(actions)
        if at.files.keys() in same_rows:
            changed_by = ""
        elif log.changed_files(actions):
            operation = log.commit_info(actions).get("operation", "unknown")
            changed_by = f"version {at.version}, {operation}"
        elif not changed_by:
            same_rows.append(at.files.keys())
    if changed_by:
        raise TableMismatchError.of(
            f"The state at '{plan.state.path}' was changed by somebody else.",
            got=changed_by,
            allowed=f"what version {version} holds",
            next_step=f"Bring it back (RESTORE TABLE delta.`{plan.state.path}` TO VERSION AS OF {version}), or run 'ebbtide refresh' to rebuild all tables from the source.",
        )
