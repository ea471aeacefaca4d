"""Whether the tables of a pipeline belong together: what does not is refused, never made again in silence.

A step's facts hold the id of each table beside the state and the last step that wrote it. So a table that was deleted, replaced
by another, or put back to an older version is known, and so is a state that was.
"""

from __future__ import annotations

from ebbtide.amounts import amount
from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import DamagedFileError, DeltaLogError, TableMismatchError
from ebbtide.ledger.facts import Head, LedgerFacts, TableFacts
from ebbtide.ledger.tables import BESIDE_STATE, REPAIR, OwnTable, gone
from ebbtide.runtime.plan import Plan

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

    def leave_out_unreadable(self) -> dict[str, str]:
        """Take those whose log cannot be read for tables that are not there; return why, by name."""
        reasons = {}
        for name, table in self._tables.items():
            try:
                table.find()
            except (DeltaLogError, DamagedFileError) as error:
                reasons[name] = str(error)
        for name in reasons:
            del self._tables[name]
        return reasons

    def last_step(self, *names: str) -> int:
        """Return the last step that wrote any of them, or of those named; 0 before the first."""
        asked = names or self._tables
        return max((self._tables[name].last_step() for name in asked if name in self._tables), default=0)


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
    refuse_older_state(plan, tables, head)
    refuse_changed(plan, head, state)
    refuse_other_tables(plan, tables, head)


def refuse_older_state(plan: Plan, tables: OwnTables, head: Head) -> None:
    """Refuse a state that is not the one that wrote the other tables last: nothing can be repaired from it.

    Args:
        plan: The pipeline.
        tables: Those beside its state.
        head: Its last step.

    Raises:
        TableMismatchError: it was lost, or put back to an older version.
    """
    if head.facts is None:
        refuse_lost_state(plan, tables)
        return
    step = head.facts.step
    for name, table in tables.facts().items():
        if table.step > step:
            raise TableMismatchError.of(
                f"The state at '{plan.state.path}' is older than '{plan.at(name)}'.",
                got=f"step {step} in the state, {table.step} in the other",
                allowed="the state of the last step",
                next_step=f"Restore the state table; or run 'ebbtide rewind --to-step {step} --apply' to bring the other tables back to it, and read again what was read since; or 'ebbtide refresh' to rebuild all tables from the source.",
            )


def refuse_other_tables(plan: Plan, tables: OwnTables, head: Head) -> None:
    """Refuse tables beside the state that are not the pipeline's, or lack a step that the state knows they had.

    Args:
        plan: The pipeline.
        tables: Those beside its state.
        head: Its last step.

    Raises:
        TableMismatchError: one was lost, replaced or put back to an older version; or there is no state.
    """
    if head.facts is None:
        refuse_lost_state(plan, tables)
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
        raise gone(plan.at("sink"))


def refuse_lost_ledger(plan: Plan, turn: LedgerFacts | None) -> None:
    """Refuse a ledger that does not know of the state's last step: the pipeline may have been paused.

    To be asked before the lease is taken, which would make the ledger anew.

    Args:
        plan: The pipeline.
        turn: The newest one of its ledger; None if there is none.

    Raises:
        TableMismatchError: the ledger was deleted, or put back to an older version.
    """
    last = plan.state.last(older=True)
    epoch = turn.epoch if turn else 0
    if last is None or last[1].epoch <= epoch:
        return
    raise TableMismatchError.of(
        f"The ledger at '{plan.at('ledger')}' was deleted or put back: it does not say whether '{plan.spec.name}' is paused.",
        got=f"epoch {epoch}",
        allowed=f"epoch {last[1].epoch}, which made step {last[1].step}, or a later one",
        next_step="Restore it; or run 'ebbtide pause', which makes it anew, and 'ebbtide resume' once records may be read. Time before that pause counts for what expires, unless 'ebbtide clock' sets it back.",
    )


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
            got=f"{amount(len(snapshot.files), 'data file')}, and no step",
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
        raise gone(location)
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


def refuse_changed(plan: Plan, head: Head, state: Snapshot) -> None:
    """Refuse a state whose rows others have changed since the last step; who changes them back is let through.

    Args:
        plan: The pipeline.
        head: Its last step.
        state: The newest version of the state.

    Raises:
        TableMismatchError: they have.
    """
    if head.facts is not None:
        plan.state.refuse_changed(state, head.version)
