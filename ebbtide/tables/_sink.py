"""The base class of a sink that a project brings along.

A sink implements `facts` and `perform`, and allows further actions than `Apply` by `can`. The other methods have
defaults for a sink without a Delta log: it has no files to join, and no commits to scan. Importing this loads no Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
from pydantic import BaseModel

from ebbtide.delta import Snapshot
from ebbtide.errors import ConfigError
from ebbtide.ledger import TableFacts
from ebbtide.model import Action, Apply, NoOptions
from ebbtide.tables._table import Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ebbtide.executors import Executor


class Sink(ABC):
    """The table that a pipeline keeps right: one row per key, and which step wrote last.

    A project's own derives from this, and is made as `Class(options, location, columns, key)`. Its package names it by an entry point of the
    group `ebbtide.sinks`; the entry point's name is the `type` in a spec's `sink`.

    Attributes:
        Options: Model of the fields other than `type` in a spec's `sink`.
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
        """Return its id and the last step that wrote it, 0 before the first; None without a table.

        The id is made with the table: a table that replaces it has another one. The step is stored with that step's rows.
        """

    @abstractmethod
    def perform(self, action: Action, work: Work) -> None:
        """Perform the action of a step that the table lacks, and store the number of the step with it, in one piece.

        Args:
            action: `Apply`: write `work.changes`. Other actions only if `can` allows them. `Clear`: delete all rows, and take the columns
                of the spec. `Restore`: show the rows after the step whose number is `version`. `Erase`: delete the rows that
                `work.doomed(action)` marks, also where earlier steps are stored. `Rewrite`, of a further output: replace all rows by those that
                `work.take_shown` takes, and take the columns of the spec.
            work: The decision of the step.
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
            f"The sink '{self.path}' is not a Delta table: Ebbtide cannot read it.",
            got=type(self).__name__,
            allowed="a sink of type delta",
            next_step="Read it with its own client.",
        )

    @property
    def schema(self) -> pa.Schema:
        """The user's columns, and the sink's reserved ones."""
        return self.columns

    def create(self, executor: Executor) -> None:
        """Make the table if it does not exist; `facts` then returns its id. Called at the start of each run."""

    def last_step(self) -> int:
        """Return the last step that changed the sink, 0 before the first."""
        found = self.facts()
        return 0 if found is None else found.step

    def snapshot(self) -> Snapshot | None:
        """Return the newest version of its Delta log; None if it has no Delta log."""
        return None

    def refuse_altered(self, newest: Snapshot | None) -> None:
        """Refuse a table to which another client gave new columns, or a feature that Ebbtide does not write.

        Args:
            newest: Newest version of its Delta log; None if it has none.
        """

    def refuse_unalterable(self, stored: pa.Schema) -> None:
        """Refuse a table whose columns cannot be changed.

        Args:
            stored: The user's columns before the change.
        """

    def fold(self, executor: Executor) -> None:
        """Join small files when enough have come together; called after each step. Changes no row."""

    def join_files(self, executor: Executor) -> None:
        """Join all small files; called by the compaction job. Changes no row."""
