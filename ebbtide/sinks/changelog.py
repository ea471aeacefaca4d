"""The changelog table: what each record emitted, appended step by step.

| column | meaning |
|---|---|
| `_kind` | `+I`, `+U`, `-D`; `T`: the whole table was emptied (TRUNCATE), the row is null |
| the user's columns | the row |
| `_order` | struct(step, part, position): the order of the change that caused it; part -1: the row had expired |
| `_number` | distinguishes emissions of one `_order`: an update may be one record with two changes |

Per key, in the order of (`_order`, `_number`), +I comes only where the key is absent, +U and -D only where it is present, unless expired rows stay
in the sink (`on_expire: keep`). Every commit carries the step's identity, so that a replay is skipped.

Source: FLIP-544; Flink's `SinkUpsertMaterializer` emits so.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from ebbtide.delta.altering import FileUnderNewColumns
from ebbtide.delta.table import add_file, create_if_absent, emptied
from ebbtide.ledger.facts import StepFacts, TableFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.tables import OwnTable, refuse_lost
from ebbtide.model import decision
from ebbtide.model.changelog import ORDER, TRUNCATE
from ebbtide.model.schema_change import SchemaChange
from ebbtide.sinks import stage
from ebbtide.sinks.sink import Work, cannot_perform
from ebbtide.sinks.stage import alter_stage, commit_and_join, commit_stage

BOUNDED = ("_kind",)
"""Columns that statistics are kept of."""


@dataclass(frozen=True)
class ChangelogTable:
    """One pipeline's changelog table.

    Args:
        path: Its location.
        columns: The user's columns.
    """

    path: str
    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        row = [column.with_nullable(True) for column in self.columns]
        fields = [
            pa.field("_kind", pa.string()),
            *row,
            pa.field("_order", ORDER),
            pa.field("_number", pa.int64()),
        ]
        return pa.schema(fields)

    def create(self) -> None:
        """Create the table if it is not there."""
        create_if_absent(
            puts_of(self.path),
            self.path,
            self.schema,
            {},
            name="changelog",
        )

    def facts(self) -> TableFacts | None:
        """Return its id and the last step that wrote it; None if there is no table."""
        return OwnTable(self.path, "changelog").facts()

    def can(self, action: decision.Action) -> bool:
        """Return that it performs every action that a step decides for it."""
        return True

    def perform(self, action: decision.Action, work: Work) -> None:
        """Perform the action of a step, once; see `ebbtide.sinks.sink`."""
        facts = work.facts
        match action:
            case decision.Append():
                self.append(work.changes.emitted(self.schema), facts)
            case decision.Restore():
                stage.restore_stage(self.path, action, facts, "changelog")
            case decision.Alter():
                self.alter(work.spark, work.columns_before(action), action.change, facts)
            case decision.Clear():
                self.empty(facts)
            case _:
                raise cannot_perform(self.path, action)

    def last_step(self) -> int:
        """Return the last step that appended, 0 before the first."""
        return OwnTable(self.path, "changelog").last_step()

    def append(self, emitted: pa.Table, facts: StepFacts) -> None:
        """Append what a step emitted, and its TRUNCATE; a step that was appended is skipped.

        Args:
            emitted: Rows of this table.
            facts: The step's.

        Raises:
            TableMismatchError: the table was deleted.
        """
        rows = emitted
        if facts.raised_floor is not None:
            truncate = self._truncate(facts.raised_floor)
            rows = pa.concat_tables([rows, truncate])
        refuse_lost(self.path, "changelog", facts)
        self.create()
        name = f"part-{uuid.uuid4()}.parquet"
        commit_and_join(
            self.path,
            self.schema,
            lambda _: [add_file(self.path, name, rows, bounded=BOUNDED)],
            BOUNDED,
            facts,
            "changelog",
        )

    def _truncate(self, floor: tuple[int, ...]) -> pa.Table:
        """Make the row of a TRUNCATE; its order is the floor that it raised."""
        row = {
            "_kind": TRUNCATE,
            "_order": dict(zip(ORDER.names, floor, strict=True)),
        }
        return pa.Table.from_pylist([row], self.schema)

    def empty(self, facts: StepFacts) -> None:
        """Replace the table by an empty one with the spec's columns; its history stays. A step that was applied is skipped."""
        commit_stage(self.path, lambda found: emptied(found, self.schema, {}), facts, "changelog")

    def alter(
        self,
        spark: SparkSession,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Give the table the spec's columns; see `Sink.alter`. What was emitted before has the new columns too."""
        before = replace(self, columns=stored)
        work = FileUnderNewColumns(self.path, before.schema, self.schema, BOUNDED, change)
        alter_stage(spark, work, facts, "changelog")
