"""Base class of the tables that steps append to: changelog and quarantine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from ebbtide.delta import Action as LogAction
from ebbtide.delta import DataFile, Definition, Snapshot
from ebbtide.ledger import OwnTable, StepFacts, TableFacts, writer_of
from ebbtide.model import Action, Append, Clear, Erase, Replace, Restore, Rewrite
from ebbtide.tables import _step_commits as step_commits
from ebbtide.tables._bounded import statistics_property
from ebbtide.tables._step_commits import commit_and_join, commit_stage, erase_stage
from ebbtide.tables._table import Work, cannot_perform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class AppendTable(ABC):
    """A table that steps append to.

    Args:
        path: Its location.

    Attributes:
        STAGE: Name of the stage that writes it.
        BOUNDED: Columns that statistics are kept of.
    """

    STAGE: ClassVar[str]
    BOUNDED: ClassVar[tuple[str, ...]]
    path: str

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns."""

    @property
    def stored_schema(self) -> pa.Schema:
        """The same: every column may be null."""
        return self.schema

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns that statistics are kept of."""
        return self.BOUNDED

    def schema_of(self, columns: pa.Schema) -> pa.Schema:
        """Return all columns of a table with the given user columns; by default user columns are not part of it."""
        return self.schema

    @abstractmethod
    def perform_append(self, action: Append, work: Work) -> None:
        """Perform an `Append`, once."""

    @abstractmethod
    def files_of(self, taken: Snapshot) -> list[LogAction]:
        """Write the rows of the same table under another root as files of this one; return the actions that add them."""

    def create(self) -> None:
        """Create the table if it does not exist."""
        writer_of(self.path).create_if_absent(self.path, Definition(self.schema, self.properties), name=self.STAGE)

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it; None without a table."""
        return OwnTable(self.path, self.STAGE).facts()

    def last_step(self) -> int:
        """Return the last step that changed the table, 0 before the first."""
        return OwnTable(self.path, self.STAGE).last_step()

    def can(self, action: Action) -> bool:
        """Return whether it performs an action: not those that change rows by their keys."""
        return isinstance(action, Append | Restore | Clear | Replace | Rewrite | Erase)

    def perform(self, action: Action, work: Work) -> None:
        """Perform the action of a step, once; see `ebbtide.tables._table`."""
        facts = work.facts
        match action:
            case Append():
                self.perform_append(action, work)
            case Restore():
                step_commits.restore_stage(self.path, action, facts, self.STAGE)
            case Clear():
                self.empty(facts)
            case Replace():
                self.take_rows(action, work)
            case Rewrite():
                self.append_missed(work)
            case Erase():
                erase_stage(work.executor, self, work.doomed(action), facts)
            case _:
                raise cannot_perform(self.path, action)

    def empty(self, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns, if it exists; its history stays."""

        def actions_of(found: Snapshot) -> Sequence[LogAction]:
            properties = self.properties_after(found)
            return Definition(self.schema, properties).emptying(found)

        commit_stage(self.path, actions_of, facts, self.STAGE)

    def properties_after(self, found: Snapshot) -> dict[str, str]:
        """Return the properties of the table after it is emptied."""
        return self.properties

    @property
    def properties(self) -> dict[str, str]:
        """Its properties: other writers too keep the values of its rows out of the log."""
        bounded = [self.schema.field(name) for name in self.BOUNDED]
        return statistics_property(bounded)

    def take_rows(self, action: Replace, work: Work) -> None:
        """Replace all rows by those of the same table under another root."""
        if action.version is None and self.facts() is None:
            return  # neither root has the table
        taken = work.taken(action)
        self.create()  # only the other root may have the table
        adds = [] if taken is None else self.files_of(taken)

        def actions_of(found: Snapshot) -> Sequence[LogAction]:
            return DataFile.replacing(found.files.values(), adds)

        commit_stage(self.path, actions_of, work.facts, self.STAGE)

    def append_missed(self, work: Work) -> None:
        """Perform the actions of earlier steps that the table lacks, as far as the state's commits still hold them."""
        if self.facts() is None:
            return
        # The oldest first, each with its step's mark: after a crash this continues after the last one committed.
        for action, earlier in work.missed():
            self.perform(action, earlier)
        # An empty commit with this step's mark: nothing more is missing.
        commit_stage(self.path, lambda _: [], work.facts, self.STAGE)

    def commit_append(
        self,
        actions_of: Callable[[Snapshot], Sequence[LogAction]],
        facts: StepFacts,
    ) -> None:
        """Commit an append of a step, once, and join small files; the first append creates the table.

        Args:
            actions_of: Returns the log actions for a version of the table.

        Raises:
            TableMismatchError: the table was deleted.
        """
        # Checked first: `create` would replace a table that was deleted by one without the earlier rows.
        OwnTable(self.path, self.STAGE).refuse_lost(facts)
        self.create()

        def with_own_properties(found: Snapshot) -> Sequence[LogAction]:
            return Definition(self.schema, self.properties).completing(found, actions_of(found))

        commit_and_join(
            self.path,
            self.schema,
            with_own_properties,
            self.BOUNDED,
            facts,
            self.STAGE,
        )
