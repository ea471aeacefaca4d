"""What a run needs of a sink."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession

from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.ledger.facts import StepFacts
from ebbtide.model.decision import Restore
from ebbtide.model.schema_change import SchemaChange


class ChangeSet(Protocol):
    """What a step decided for the sink: at most one row per key, `_change` (I, U, D) and the columns of the sink."""

    def frame(self, spark: SparkSession) -> DataFrame:
        """Read it in Spark."""

    def rows(self, columns: pa.Schema) -> pa.Table:
        """Read it here: `_change` and some columns, in these types."""


class Sink(Protocol):
    """The table that a pipeline keeps right: one row per key, and which step wrote last."""

    @property
    def path(self) -> str:
        """Its location."""

    @property
    def columns(self) -> pa.Schema:
        """The user's columns."""

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the key's columns."""

    @property
    def schema(self) -> pa.Schema:
        """The user's columns and the reserved ones."""

    def create(self, spark: SparkSession) -> None:
        """Create the table if it is not there."""

    def last_step(self) -> int:
        """Return the last step that changed the sink, 0 before the first. It must be stored with that step's rows."""

    def version(self) -> int:
        """Return the newest version."""

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows as of a version."""

    def apply(
        self,
        spark: SparkSession,
        changes: ChangeSet,
        facts: StepFacts,
        *,
        only_inserts: bool,
    ) -> None:
        """Apply a step's change set, in one transaction with the step's number.

        Args:
            spark: The session to write in.
            changes: What the step decided.
            facts: The step's. With `floor_raised` all rows below its floor go too.
            only_inserts: No key is in the sink yet.
        """

    def replace(
        self,
        spark: SparkSession,
        keys: DataFrame,
        rows: DataFrame,
        facts: StepFacts,
    ) -> None:
        """Give some keys other rows, in one transaction with the step's number: whatever they have goes.

        Args:
            spark: The session to write in.
            keys: The key's columns, each key once.
            rows: All columns of the sink: the rows that these keys have afterwards.
            facts: The step's.
        """

    def overwrite(self, spark: SparkSession, rows: DataFrame, facts: StepFacts) -> None:
        """Replace all rows, and the columns by the spec's, in one transaction with the step's number; its history stays.

        Args:
            spark: The session to write in.
            rows: All columns of the sink, each key once.
            facts: The step's.
        """

    def refuse_altered(self) -> None:
        """Refuse a table that others have given other columns, or a feature that is not written.

        Raises:
            EbbtideError: they have.
        """

    def refuse_unalterable(self, stored: pa.Schema) -> None:
        """Refuse a table that cannot be given other columns here.

        Args:
            stored: The user's columns as they were.

        Raises:
            EbbtideError: it has columns of others, or a feature that is not written.
        """

    def alter(
        self,
        spark: SparkSession,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Give the table the spec's columns, in one transaction with the step's number; its rows stay the same.

        Args:
            spark: The session to write in.
            stored: The user's columns as they were.
            change: What becomes of them.
            facts: The step's.
        """

    def extend(self, spark: SparkSession) -> None:
        """Give a table that others made the reserved columns, null in its rows, and the properties of a sink."""

    def restore(self, spark: SparkSession, action: Restore, facts: StepFacts) -> None:
        """Bring the table back to an earlier version, as a step."""

    def fold(self) -> None:
        """Join small files, if there is something to gain; called after each step. Changes no row."""

    def join_files(self, spark: SparkSession) -> None:
        """Join all small files; called by the compaction job. Changes no row."""

    def empty(self, spark: SparkSession, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns, as a step; its history stays."""

    def definition(self, found: Snapshot) -> list[Action]:
        """Return the actions that give a version the columns that the table is to have.

        Args:
            found: A version.
        """

    def below(self, floor: tuple[int, ...], side: str = "") -> Column:
        """Return the condition that is true for rows that a TRUNCATE left dead."""
