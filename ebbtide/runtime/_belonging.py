"""Refuses tables of a pipeline that do not belong together: none is made again in silence.

A step's facts hold the id of each output table, and the last step that wrote it. So a table that was deleted, replaced by
another, or put back to an older version is known, and so is a state that was.
"""

from __future__ import annotations

from ebbtide.amounts import amount
from ebbtide.delta import Log, Snapshot
from ebbtide.errors import DamagedFileError, DeltaLogError, TableMismatchError
from ebbtide.ledger import BESIDE_STATE, Head, LedgerFacts, NoStep, OwnTable, StepFacts, TableFacts, gone
from ebbtide.model import Decision
from ebbtide.runtime._other_copies import refuse_other_copies
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location

REFRESH = "Restore the state table, or run 'ebbtide refresh' to rebuild all tables from the source."


class OwnTables:
    """A pipeline's output tables.

    Args:
        plan: The pipeline.
    """

    def __init__(self, plan: Plan) -> None:
        self._tables = {name: plan.known(name) for name in BESIDE_STATE}
        self._noted: dict[str, TableFacts] | None = None

    def facts(self) -> dict[str, TableFacts]:
        """Return the known facts of existing tables, by name."""
        found = {}
        for name, table in self._tables.items():
            facts = table.facts()
            if facts is not None:
                found[name] = facts
        return found

    def noted(self) -> dict[str, TableFacts]:
        """Return what `facts` returned first, with the steps since that they have performed here: no look at their logs."""
        if self._noted is None:
            self._noted = self.facts()
        return self._noted

    def performed(self, name: str, facts: StepFacts) -> None:
        """Note that one of them has performed a step of this run; one that was not there before is looked for again."""
        known = None if self._noted is None else self._noted.get(name)
        if self._noted is None or known is None:
            self._noted = None
            self.facts()
        else:
            self._noted = {**self._noted, name: known.model_copy(update={"step": facts.step, "uid": facts.uid})}

    def last_performed(self, name: str) -> int:
        """Return the last step that one of them has performed, 0 before the first.

        Raises:
            TableMismatchError: it was deleted since it was last read.
        """
        table = self._tables[name]
        if not isinstance(table, OwnTable):
            return table.last_step()
        # In a store looks cost, and what is noted is enough: its commit fails if another run has committed since, and then its marks are
        # read. A table that was deleted is missed by the commit too.
        noted = self._noted or {}
        if name in noted and Location(table.location).is_in_object_store:
            return noted[name].step
        table.refuse_gone()
        return table.last_step()

    def sink(self) -> Snapshot | None:
        """Return the newest version of the sink; None if it is not there, or no Delta table."""
        table = self._tables.get("sink")
        if table is None:
            return None
        return table.snapshot()

    def leave_out_unreadable(self) -> dict[str, str]:
        """Take those whose log cannot be read for tables that are not there; return why, by name."""
        reasons = {}
        for name, table in self._tables.items():
            try:
                table.facts()
            except (DeltaLogError, DamagedFileError) as error:
                reasons[name] = str(error)
        for name in reasons:
            del self._tables[name]
        return reasons

    def lacking(self, decision: Decision, step: int) -> list[str]:
        """Return the names of existing tables that have not performed a step's action.

        Args:
            decision: Decision of the step.
            step: Its number.
        """
        present = self.facts()
        there = [name for name in decision.tables if name in present]
        lacking = [name for name in there if present[name].step < step]
        return sorted(lacking)

    def last_step(self, *names: str) -> int:
        """Return the last step that wrote any of them, or of those named; 0 before the first."""
        asked = names or self._tables
        there = [self._tables[name] for name in asked if name in self._tables]
        return max((table.last_step() for table in there), default=0)


def refuse_misfits(plan: Plan, tables: OwnTables, head: Head, state: Snapshot) -> None:
    """Refuse tables that do not belong to the stored state.

    Args:
        plan: The pipeline.
        tables: The output tables.
        head: Its last step.
        state: The newest version of the state.

    Raises:
        TableMismatchError: see there.
    """
    refuse_older_state(plan, tables, head)
    refuse_changed(plan, head, state)
    refuse_other_tables(plan, tables, head)


def refuse_misfits_at_rest(plan: Plan, tables: OwnTables, head: Head, state: Snapshot | None) -> None:
    """Refuse tables that do not belong together, without the lease; changes by a run meanwhile are accepted.

    Args:
        plan: The pipeline.
        tables: The output tables.
        head: Its last step.
        state: The newest version of the state; None if there is none.

    Raises:
        TableMismatchError: see there.
    """
    try:
        refuse_lost_ledger(plan, plan.ledger.turn)
        if state is None:
            refuse_lost_state(plan, tables)
        else:
            refuse_misfits(plan, tables, head, state)
    except TableMismatchError:
        newest = Head.at_rest(plan.state.last())
        if newest.facts == head.facts:
            raise


def refuse_older_state(plan: Plan, tables: OwnTables, head: Head) -> None:
    """Refuse a state that is not the one that wrote the other tables last: nothing can be repaired from it.

    Args:
        plan: The pipeline.
        tables: The output tables.
        head: Its last step.

    Raises:
        TableMismatchError: it was lost, or restored to an older version.
    """
    step = head.facts.step
    if not step:
        refuse_lost_state(plan, tables)
        return
    found = tables.facts()
    for name, table in found.items():
        if table.step <= step:
            continue
        way_out = REFRESH
        if _can_go_back(plan, tables, head):
            way_out = f"Restore the state table; or run 'ebbtide rewind --to-step {step} --apply' to restore the other tables to it, and read later records again; or 'ebbtide refresh' to rebuild all tables from the source."
        raise TableMismatchError.of(
            f"The state at '{plan.state.path}' is older than '{plan.at(name)}'.",
            got=f"step {step} in the state, {table.step} in the other",
            allowed="the state of the last step",
            next_step=way_out,
        )
    refuse_other_copies(plan, found, head)


def _can_go_back(plan: Plan, tables: OwnTables, head: Head) -> bool:
    """Return whether a rewind finds all tables that it brings back."""
    try:
        refuse_other_tables(plan, tables, head)
    except TableMismatchError:
        return False
    return True


def refuse_other_tables(plan: Plan, tables: OwnTables, head: Head) -> None:
    """Refuse output tables that are not the pipeline's, or lack a step that the state knows they had.

    Args:
        plan: The pipeline.
        tables: The output tables.
        head: Its last step.

    Raises:
        TableMismatchError: one was lost, replaced or restored to an older version; or there is no state.
    """
    if isinstance(head.facts, NoStep):
        refuse_lost_state(plan, tables)
        return
    unadopted = head.facts.state.unadopted
    if unadopted:
        raise TableMismatchError.of(
            f"Not all rows of '{plan.at('sink')}' were adopted.",
            got=f"{unadopted} left",
            next_step="Run 'ebbtide adopt --apply' again: it continues where it ended.",
        )
    found = tables.facts()
    for name, known in head.facts.state.tables.items():
        _refuse_other(plan.at(name), known, found.get(name))
    refuse_other_copies(plan, found, head)
    if "sink" not in found:
        raise gone(plan.at("sink"))
    quarantine = found.get("quarantine")
    if quarantine is None or quarantine.step < head.facts.step:
        _refuse_lost_bad_records(plan.at("quarantine"), head.facts)


def _refuse_lost_bad_records(quarantine: str, facts: StepFacts) -> None:
    """Refuse a quarantine that must still apply a step whose files are missing: its log would name missing files."""
    adds = [action["add"] for action in facts.decision.bad_rows if "add" in action]
    for add in adds:
        path = add["path"]
        if not Location(Log(quarantine).location_of(path)).exists():
            raise TableMismatchError.of(
                f"The quarantine at '{quarantine}' was deleted or put back: it lacks the bad records of step {facts.step}.",
                got=f"no file '{path}'",
                allowed="the files that the step has written there",
                next_step=OwnTable.REPAIR,
            )


def refuse_lost_ledger(plan: Plan, turn: LedgerFacts | None) -> None:
    """Refuse a ledger that does not know of the state's last step: the pipeline may have been paused.

    Call it before the lease is taken, which would make a new ledger.

    Args:
        plan: The pipeline.
        turn: The newest one of its ledger; None if there is none.

    Raises:
        TableMismatchError: the ledger was deleted, or restored to an older version.
    """
    newest = plan.state.last(older=True)
    if newest is None:
        return
    _, last = newest
    epoch = turn.epoch if turn else 0
    if last.epoch <= epoch:
        return
    ledger = plan.at("ledger")
    raise TableMismatchError.of(
        f"The ledger at '{ledger}' was deleted or put back: it does not say whether '{plan.spec.name}' is paused.",
        got=f"epoch {epoch}",
        allowed=f"epoch {last.epoch}, which made step {last.step}, or a later one",
        next_step="Restore it; or run 'ebbtide pause', which makes a new one, and 'ebbtide resume' once records may be read. Time before that pause counts for what expires, unless 'ebbtide clock' sets it back.",
    )


def refuse_foreign_sink(plan: Plan, tables: OwnTables) -> None:
    """Refuse a table with rows in the sink's place that no pipeline has written.

    Raises:
        TableMismatchError: there is one.
    """
    snapshot = tables.sink()
    if snapshot is None or not snapshot.files:
        return
    if tables.last_step("sink") == 0:
        sink = plan.at("sink")
        files = amount(len(snapshot.files), "data file")
        raise TableMismatchError.of(
            f"There is a table at '{sink}' that '{plan.spec.name}' has not written.",
            got=f"{files}, and no step",
            allowed="no table, or an empty one",
            next_step="Run 'ebbtide adopt' to make it the sink with its rows; or give the pipeline another name or root, or move the table away.",
        )


def refuse_lost_state(plan: Plan, tables: OwnTables) -> None:
    """Refuse to begin where other tables have steps that the state lacks.

    Args:
        plan: The pipeline; its state has no step.
        tables: The output tables.

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
    refuse_foreign_sink(plan, tables)


def _refuse_other(location: str, known: TableFacts, found: TableFacts | None) -> None:
    """Refuse a table that is not the one that the state knows, or that lacks a step."""
    if found is None:
        raise gone(location)
    if found.id != known.id:
        raise TableMismatchError.of(
            f"The table at '{location}' is another one than the pipeline's.",
            got=f"id {found.id}",
            allowed=f"id {known.id}",
            next_step=OwnTable.REPAIR,
        )
    if found.step < known.step:
        raise TableMismatchError.of(
            f"The table at '{location}' is older than the state: it was put back to an earlier version.",
            got=f"step {found.step}",
            allowed=f"step {known.step} or the one after it",
            next_step=OwnTable.REPAIR,
        )


def refuse_changed(plan: Plan, head: Head, state: Snapshot) -> None:
    """Refuse a state whose rows another client has changed since the last step; a change that was taken back is let through.

    Args:
        plan: The pipeline.
        head: Its last step.
        state: The newest version of the state.

    Raises:
        TableMismatchError: another client has.
    """
    if head.facts.step:
        plan.state.refuse_changed(state, head.version)
