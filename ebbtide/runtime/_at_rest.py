"""A look at a pipeline without its lease: what the next run would meet, by its tables' logs and its source. Needs no JVM.

`status`, `lag`, metrics and a run that finds nothing to do ask the same questions in the same order as a run, so that none of them is
content with a pipeline whose next run is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

from ebbtide.delta import Snapshot
from ebbtide.faults import Fault
from ebbtide.ledger import Head, LedgerFacts
from ebbtide.model import Apply, Rewrite
from ebbtide.runtime._diagnosis import Diagnosis
from ebbtide.runtime._own_tables import OwnTables
from ebbtide.runtime._plan import Plan
from ebbtide.sources import Discovery, Span
from ebbtide.spec import Pipeline


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
        turn = plan.ledger.turn
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

    def refuse(self) -> None:
        """Refuse what the next run would refuse before it looks at its source, other than a pause or a lease.

        Raises:
            TableMismatchError, DamagedFileError, SpecChangedError: see `Diagnosis`.
            ConfigError: the spec asks for what cannot be done.
        """
        plan = self.plan
        if plan.spec.engine == "local":
            Fault.refuse(plan.spark_needed())
        plan.refuse_unread_sink()
        self.refuse_tables()
        self.diagnosis.refuse_at_rest("files", "spec", "place of the source")
        plan.refuse_unable_outputs(Apply(), Rewrite())
        if self.head.facts.step:
            plan.sink.refuse_altered(self.tables.sink())
