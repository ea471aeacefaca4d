"""A look at a pipeline without its lease: what the next run would meet, by its tables' logs and its source. Needs no JVM.

`status`, `lag`, metrics and a run that finds nothing to do ask the same questions in the same order as a run, so that none of them is
content with a pipeline whose next run is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Long
from ebbtide.delta import Snapshot
from ebbtide.entries import Step, live_entries
from ebbtide.errors import EbbtideError
from ebbtide.faults import Fault
from ebbtide.ledger import Head, LedgerFacts, NoStep, StepFacts
from ebbtide.model import Apply, Rewrite
from ebbtide.operators import Operator
from ebbtide.runtime._diagnosis import Diagnosis, of_rights
from ebbtide.runtime._own_tables import OwnTables
from ebbtide.runtime._plan import Plan
from ebbtide.sources import Discovery, Span
from ebbtide.spec import Pipeline
from ebbtide.users import user_name

MOST_ROWS = 200_000
"""Maximum stored entries that are searched for due ones."""
MOST_LOOKS = 10_000
"""Versions of states whose next end this process knows."""
_due_from_ms: dict[tuple[str, str, int, str], int] = {}
"""Version of a state, with its rules, to when its next entry ends."""


@dataclass(frozen=True)
class AtRest:
    """A pipeline as a look finds it.

    Args:
        plan: The pipeline.
        turn: The newest turn of its ledger; None: there is none.
        head: Its last step.
        state: The newest version of its state; None: there is none.
    """

    plan: Plan
    turn: LedgerFacts | None
    head: Head
    state: Snapshot | None

    @classmethod
    def of(cls, spec: Pipeline, root: str) -> Self:
        """Look at a pipeline.

        Args:
            root: Folder of all pipelines' tables.

        Raises:
            EbbtideError: a log cannot be read.
        """
        plan = Plan.under(root, spec)
        turn = plan.ledger.turn_of_whole
        # The step before the state: a run that commits between the two leaves a newer version, which the diagnosis lets through.
        head = Head.at_rest(plan.state.last())
        return cls(plan, turn, head, Snapshot.read(plan.at("state"), any_features=True))

    @cached_property
    def tables(self) -> OwnTables:
        """Its output tables."""
        return OwnTables(self.plan)

    @property
    def diagnosis(self) -> Diagnosis:
        """Finds its faults."""
        return Diagnosis(self.plan, self.tables, self.head, lambda: self.state)

    def refuse_tables(self) -> None:
        """Refuse tables that do not belong together.

        Raises:
            TableMismatchError, DamagedFileError: see `Diagnosis`.
        """
        if self._fault_of_tables is not None:
            raise self._fault_of_tables.error

    @cached_property
    def _fault_of_tables(self) -> Fault | None:
        # Looked for once: a look at the source refuses it too, often behind one that has.
        return self.diagnosis.at_rest(*Diagnosis.AT_REST)

    def discovered(self, clock_ms: int) -> Discovery:
        """Return what the next run would read.

        Args:
            clock_ms: The time, epoch ms.

        Raises:
            TableMismatchError: the tables do not belong together, so what was read is not known.
            SourceReadError: the source cannot be read.
            SourceUnavailableError: it does not answer.
            SourceLostError, FileChangedError, LateFileError: a run refuses it.
        """
        self.refuse_tables()
        source = self.plan.source
        if self.state is None:
            source.refuse_absent()
        files = self.state.files.values() if self.state else ()
        files_read = self.plan.state.files(files)
        return source.discover(files_read, clock_ms, self.since)

    @property
    def since(self) -> Span | None:
        """The span of the source that the next run reads after; None: it begins, or the source has no spans."""
        last_read = Span.from_stored(self.head.facts.source.position)
        return self.plan.follows_on(last_read, self.turn.beginning if self.turn else None)

    def is_due(self, clock_ms: int) -> bool:
        """Return whether the tick of a run might expire an entry or fire a timer; of a small state it is known.

        Args:
            clock_ms: The time, epoch ms.
        """
        facts = self.head.facts
        if self.state is None or isinstance(facts, NoStep) or not self.plan.may_expire:
            return False
        files = list(self.state.files.values())
        sizes = [file.rows for file in files]
        # The files' statistics first. Entries are read only where those leave it open, and only of a small state.
        at = _next_tick(self.plan, facts, clock_ms)
        if not self.plan.state.may_be_due(files, at):
            return False
        if None in sizes or sum(size or 0 for size in sizes) > MOST_ROWS:
            return True
        # Looks come every half a minute: a version is read once until processing time ends an entry. Only a step moves the watermark.
        looked = (self.state.table, self.state.id, self.state.version, repr(self.plan.operator.expiry))
        if at.now_ms < _due_from_ms.get(looked, Long.MIN):
            return False
        entries = self._entries(self.state)
        rules = self.plan.operator.expiry
        is_due = bool(rules.due(entries, at).any())
        if not is_due:
            if len(_due_from_ms) >= MOST_LOOKS:
                _due_from_ms.clear()
            _due_from_ms[looked] = rules.next_ms(entries, at)
        return is_due

    def _entries(self, state: Snapshot) -> pa.Table:
        """Read the newest version of each live entry and timer, with the columns that decide whether it is due."""
        operator = self.plan.operator
        asked = _columns_asked(operator)
        rows = self.plan.state.stored(state).read(asked.names)
        if operator.has_named_states:
            is_of_state = pc.is_valid(rows["_state"])  # entries without a state are rows for the sink
            rows = rows.filter(is_of_state)
        return live_entries(rows, asked, operator.entry_key)

    @property
    def refusal(self) -> EbbtideError | None:
        """Why the next run would be refused before it looks at its source; None: it would not be. See `refuse`."""
        try:
            self.refuse()
        except EbbtideError as error:
            return error
        return None

    def refuse(self) -> None:
        """Refuse what the next run would refuse before it looks at its source, other than a pause or a lease.

        A user who did not run the pipeline last is not asked for the right to write: a monitor may well have none.

        Raises:
            StoreRefusedError: this user, who runs the pipeline, may not write to its folders.
            TableMismatchError, DamagedFileError, SpecChangedError: see `Diagnosis`.
            ConfigError: the spec asks for what cannot be done.
        """
        plan = self.plan
        if self.turn is None or self.turn.taken_by == user_name():
            Fault.refuse(of_rights(plan))
        if plan.spec.engine == "local":
            Fault.refuse(plan.spark_needed())
        plan.refuse_unread_sink()
        self.refuse_tables()
        self.diagnosis.refuse_at_rest("files", "spec", "place of the source")
        plan.refuse_unable_outputs(Apply(), Rewrite())
        if self.head.facts.step:
            plan.sink.refuse_altered(self.tables.sink())


def _columns_asked(operator: Operator) -> pa.Schema:
    """Return the columns of entries that decide which version is the newest, and whether it is due."""
    names = {
        *operator.entry_key,
        *operator.expiry.columns,
        "_step",
        "_removed",
        "_position",
    }
    fields = [field for field in operator.schema if field.name in names]
    return pa.schema(fields)


def _next_tick(plan: Plan, facts: StepFacts, clock_ms: int) -> Step:
    """Return the number and the clocks of the tick of a run that reads nothing."""
    clock = plan.clock_after(facts.frontier, clock_ms)
    frontier = plan.rules.next_frontier(facts.frontier, clock)
    return frontier.operator_step(facts.step + 1)
