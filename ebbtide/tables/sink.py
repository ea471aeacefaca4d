"""The contract of a pipeline's tables, and the base class of a sink that a project brings along.

| member | what it does |
|---|---|
| `facts` | returns the table's id and the last step that wrote it |
| `perform` | performs the action of one step, once, and stores the step's number with the rows in one piece |
| `can` | returns whether it can perform an action: a step with another one is refused before it is committed |
| `read` | reads the rows as of a version |

A sink of a project's own has `facts` and `perform`, and says by `can` what it performs beside `Apply`. What only a Delta table has, files
to join or a log to look through, is never asked of it. Importing this loads no Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Protocol

import pyarrow as pa
from pydantic import BaseModel

from ebbtide.delta.snapshot import Snapshot
from ebbtide.errors import ConfigError, EbbtideError
from ebbtide.ledger.facts import StepFacts, TableFacts
from ebbtide.model.decision import Action, Alter, Apply, Replace, RestoreAndApply, Rewrite
from ebbtide.model.options import NoOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ChangeSet(Protocol):
    """What a step decided for the sink: at most one row per key, `_change` (I, U, D) and the columns of the sink."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """Read it in Spark."""

    def rows(self, columns: pa.Schema) -> pa.Table:
        """Read it here: `_change` and some columns, in these types."""

    def emitted(self, columns: pa.Schema) -> pa.Table:
        """Read what the step emitted record by record, in the columns of the changelog."""


class Difference(Protocol):
    """What differs between the rows that a sink has and those that it must have."""

    @property
    def rows(self) -> DataFrame:
        """All rows that it must have."""

    @property
    def present(self) -> DataFrame:
        """The keys that differ, those that it has a row of."""

    @property
    def coming(self) -> DataFrame:
        """The rows that it must have of the keys that differ."""


class Work(Protocol):
    """What a table may ask for while it performs an action of a step. A sink that is no Delta table needs the first three."""

    @property
    def spark(self) -> SparkSession:
        """The session to write in."""

    @property
    def facts(self) -> StepFacts:
        """Facts of the step."""

    @property
    def changes(self) -> ChangeSet:
        """What the step decided for the sink, and emitted."""

    def columns_before(self, action: Alter) -> pa.Schema:
        """Return the user's columns as they were before the step.

        Raises:
            SpecChangedError: the spec is not the one that was migrated to.
        """

    def net_changes(self, action: RestoreAndApply) -> pa.Table:
        """Return what the steps to apply again come to: `_change` and all columns, each key once."""

    def way_back(self) -> RestoreAndApply | None:
        """Find the way back of a sink whose state may have forgotten rows; None if there is none, or none is needed."""

    def decided_rows(self, action: Rewrite) -> DataFrame:
        """Return all rows that the state shows.

        Raises:
            SpecChangedError: the spec is not the one that the state has.
        """

    def difference(self, action: Rewrite | Replace) -> Difference:
        """Compare a sink with what the state shows, or with the sink under another root; errors as `decided_rows` and `taken`."""

    def taken(self, action: Replace) -> Snapshot | None:
        """Return the same table under another root; None: there is none.

        Raises:
            BackfillError: the root is gone.
        """

    def missed(self) -> Iterator[tuple[Action, Work]]:
        """Yield the actions of earlier steps that the table lacks and that can be performed again, the oldest first."""


class Table(Protocol):
    """A table of a pipeline, as a step writes it."""

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it, 0 before the first; None if there is no table."""

    def last_step(self) -> int:
        """Return the last step that wrote it; 0 before the first, or if there is no table."""

    def can(self, action: Action) -> bool:
        """Return whether it can perform an action."""

    def perform(self, action: Action, work: Work) -> None:
        """Perform the action of a step, once. A table that is not there has nothing to clear, to restore or to alter."""

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read its rows as of a version."""


class Sink(ABC):
    """The table that a pipeline keeps right: one row per key, and which step wrote last.

    A project's own derives from this, and is made as `Class(options, location, columns, key)`. Its package names it by an entry point of the
    group `ebbtide.sinks`; the entry point's name is the `type` in a spec's `sink`.

    Attributes:
        Options: Model of what stands beside `type` in a spec's `sink`.
        path: Its location, for messages.
        columns: The user's columns.
        key: Names of the key's columns.
    """

    Options: ClassVar[type[BaseModel]] = NoOptions
    path: str
    columns: pa.Schema
    key: tuple[str, ...]

    @abstractmethod
    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it, 0 before the first; None if there is no table.

        The id is minted when the table is made: another table in its place has another one. The step is stored with that step's rows.
        """

    @abstractmethod
    def perform(self, action: Action, work: Work) -> None:
        """Perform the action of a step that the table lacks, and store the number of the step with it, in one piece.

        Args:
            action: `Apply`: write `work.changes`. Another one only if `can` says so. `Clear`: delete all rows, and take the columns of the
                spec. `Restore`: show what was shown after the step whose number is `version`.
            work: What the step decided.
        """

    def can(self, action: Action) -> bool:
        """Return whether `perform` knows an action; asked before a step with it is committed. By itself only `Apply`."""
        return isinstance(action, Apply)

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows as of a version.

        Raises:
            ConfigError: the sink cannot be read by Ebbtide.
        """
        raise ConfigError.of(
            f"The sink '{self.path}' is no Delta table, and is not read.",
            got=type(self).__name__,
            allowed="a sink of type delta",
            next_step="Read it by its own means.",
        )

    @property
    def schema(self) -> pa.Schema:
        """The user's columns, and those that the sink has beside them."""
        return self.columns

    def create(self, spark: SparkSession) -> None:
        """Make the table if it is not there; `facts` then returns something. Called at the start of each run."""

    def last_step(self) -> int:
        """Return the last step that changed the sink, 0 before the first."""
        found = self.facts()
        return 0 if found is None else found.step

    def snapshot(self) -> Snapshot | None:
        """Return the newest version of its Delta log; None of a sink that has none."""
        return None

    def refuse_altered(self) -> None:
        """Refuse a table that other clients have given other columns, or a feature that is not written."""

    def refuse_unalterable(self, stored: pa.Schema) -> None:
        """Refuse a table that cannot be given other columns.

        Args:
            stored: The user's columns as they were.
        """

    def fold(self) -> None:
        """Join small files, if there is something to gain; called after each step. Changes no row."""

    def join_files(self, spark: SparkSession) -> None:
        """Join all small files; called by the compaction job. Changes no row."""


def cannot_perform(path: str, action: Action) -> EbbtideError:
    """Return the error of a table that is asked for an action that it does not know.

    Args:
        path: The table's location.
        action: The action.
    """
    return ConfigError.of(
        f"The table at '{path}' cannot perform what a step has decided for it.",
        got=f"the action '{action.do}'",
        next_step="Run the release of Ebbtide, or of the sink's package, that has made the step.",
    )
