"""The outputs of a pipeline: the last step of each, as far as a run knows it."""

from __future__ import annotations

from ebbtide.delta import Snapshot
from ebbtide.errors import DamagedFileError, DeltaLogError
from ebbtide.ledger import OwnTable, StepFacts, TableFacts
from ebbtide.model import Decision
from ebbtide.runtime._plan import Plan
from ebbtide.storage import Location


class OwnTables:
    """A pipeline's outputs.

    Args:
        plan: The pipeline.
    """

    def __init__(self, plan: Plan) -> None:
        self._tables = {name: plan.known(name) for name in (*Decision.OWN_OUTPUTS, *plan.outputs)}
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

    def leave_out(self, name: str) -> None:
        """Take one of them for a table that is not there."""
        del self._tables[name]

    def quarantine(self) -> Snapshot | None:
        """Return the newest version of the quarantine; None without one."""
        table = self._tables.get("quarantine")
        return table.snapshot() if isinstance(table, OwnTable) else None

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
