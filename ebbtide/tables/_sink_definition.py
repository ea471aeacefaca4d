"""The definition of a Delta sink: its columns, its properties, and the comparison with those of the stored table.

| column | meaning |
|---|---|
| `_sequence` | sequence mode: the columns of the row's sequence and the rank of the operation (`op`), see `ebbtide.changelog._sequences`; never null |
| `_changed_by` | struct(step, part, position): the order of the input that caused the row's last change |

The change feed is on from the first commit: checks and views read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import pyarrow as pa

from ebbtide.changelog import ORDER, SequenceColumns
from ebbtide.delta import Action, Definition, Log, Snapshot
from ebbtide.errors import MigrationError
from ebbtide.ledger import OwnTable, TableFacts, writer_of
from ebbtide.tables._bounded import bounded_columns, hiding_properties, refuse_shown
from ebbtide.tables._sink import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ebbtide.executors import Executor


@dataclass(frozen=True)
class SinkDefinition(Sink):
    """Base class of the Delta sinks: everything but the actions.

    Args:
        path: Its location.
        columns: The user's columns.
        key: Names of the key's columns.
        sequence: Columns that order the changes; rows then carry `_sequence`. Empty in arrival mode.
        deletes_by: Old rows of a step's keys are deleted by deletion vectors, or by rewriting their files.
        with_images: The change feed shows each row before and after its change, from separate files.
        properties: Delta table properties, set when the table is made.
        sequence_columns: The columns that `sequence` may name, if they are not the table's.
        personal: Columns whose values the log does not show.
    """

    STAGE: ClassVar[str] = "sink"
    RESERVED: ClassVar[tuple[str, ...]] = ("_sequence", "_changed_by")
    """Columns that views and comparisons leave out."""
    path: str
    columns: pa.Schema
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    deletes_by: Literal["vectors", "rewrite"] = "vectors"
    with_images: bool = True
    properties: Mapping[str, str] = field(default_factory=dict)
    sequence_columns: pa.Schema | None = None
    personal: frozenset[str] = frozenset()

    @property
    def schema(self) -> pa.Schema:
        """The user's columns and the reserved ones."""
        return self.schema_of(self.columns)

    def schema_of(self, columns: pa.Schema) -> pa.Schema:
        """Return all columns of a sink with these columns of the user's."""
        fields = list(columns)
        if self.sequence:
            of_sequence = SequenceColumns(self.sequence, self.sequence_columns or columns)
            fields.append(pa.field("_sequence", of_sequence.stored_type))
        fields.append(pa.field("_changed_by", ORDER))
        return pa.schema(fields)

    @property
    def stored_schema(self) -> pa.Schema:
        """The same as stored: all but the key's may be null."""
        fields = []
        for column_field in self.schema:
            is_key = column_field.name in self.key
            fields.append(column_field if is_key else column_field.with_nullable(True))
        return pa.schema(fields)

    @property
    def stored_properties(self) -> dict[str, str]:
        """The user's properties, and those that every sink has."""
        return {
            "delta.enableDeletionVectors": str(self.deletes_by == "vectors").lower(),
            **self.properties,
            **hiding_properties(self.schema, self.hidden),
            "delta.enableChangeDataFeed": "true",
        }

    @property
    def hidden(self) -> frozenset[str]:
        """Columns whose values the log does not show."""
        shows_sequence = self.personal.isdisjoint(self.sequence)
        return self.personal if shows_sequence else self.personal | {"_sequence"}

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns that statistics are kept of."""
        return bounded_columns(self.schema, self.hidden)

    @cached_property
    def _own(self) -> OwnTable:
        return OwnTable(self.path, "sink")

    def create(self, executor: Executor) -> None:
        """Create the table if it does not exist."""
        writer_of(self.path).create_if_absent(
            self.path, Definition(self.stored_schema, self.stored_properties), name="sink"
        )

    def last_step(self) -> int:
        """Return the last step that changed the sink, 0 before the first.

        Raises:
            TableMismatchError: the sink was deleted since it was last read.
        """
        self._own.refuse_gone()
        return self._own.last_step()

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it; see `Sink`."""
        return self._own.facts()

    def snapshot(self) -> Snapshot | None:
        """Return its newest version; None if it does not exist."""
        return self._own.snapshot()

    def version(self) -> int:
        """Return the newest version."""
        return Log(self.path).versions()[-1]

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """Read the rows as of a version."""
        from ebbtide.sessions import Frames

        return Frames(spark).of_delta(self.path, version)

    def _has_other_columns(self) -> bool:
        found = self.snapshot()
        return found is not None and not found.has_types(self.schema)

    def refuse_unalterable(self, stored: pa.Schema) -> None:
        """Refuse a table with columns of another client, which would be lost, or with a feature that Ebbtide does not write."""
        # Read with any feature: this method is what refuses those that are not written.
        snapshot = Snapshot.read(self.path, any_features=True)
        if snapshot is None:
            return
        reserved = [name for name in self.schema.names if name in self.RESERVED]
        known = [*stored.names, *reserved]
        found = list(snapshot.column_types)
        if set(found) != set(known):
            raise MigrationError.of(
                f"The sink '{self.path}' has other columns than the pipeline has given it.",
                got=", ".join(found),
                allowed=", ".join(known),
                next_step="Undo the change (ALTER TABLE), or run 'ebbtide refresh' to rebuild the sink from the source.",
            )
        self.refuse_unwritable(snapshot)

    def refuse_unwritable(self, found: Snapshot) -> None:
        """Refuse a version with a feature that Ebbtide does not write, or whose log shows values of personal columns."""
        found.refuse_unwritable()
        refuse_shown(found, self.hidden)

    def definition(self, found: Snapshot) -> list[Action]:
        """Return the actions that give a version this definition's columns and properties."""
        return Definition(self.stored_schema, self.stored_properties).redefining(found)
