"""The changelog table: the emissions of each record, appended step by step.

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

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from ebbtide.changelog import ORDER, TRUNCATE
from ebbtide.delta import Action as LogAction
from ebbtide.delta import Snapshot, write_files
from ebbtide.ledger import StepFacts
from ebbtide.model import Action, Alter, Append, SchemaChange
from ebbtide.tables._append_table import AppendTable
from ebbtide.tables._step_commits import alter_stage
from ebbtide.tables._table import Work

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass(frozen=True)
class ChangelogTable(AppendTable):
    """One pipeline's changelog table.

    Args:
        path: Its location.
        columns: The user's columns.
    """

    STAGE: ClassVar[str] = "changelog"
    BOUNDED: ClassVar[tuple[str, ...]] = ("_kind",)
    columns: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return self.schema_of(self.columns)

    def schema_of(self, columns: pa.Schema) -> pa.Schema:
        """Return all columns of a changelog with these columns of the user's."""
        row = [column.with_nullable(True) for column in columns]
        fields = [
            pa.field("_kind", pa.string()),
            *row,
            pa.field("_order", ORDER),
            pa.field("_number", pa.int64()),
        ]
        return pa.schema(fields)

    def can(self, action: Action) -> bool:
        """Return whether it performs an action."""
        return isinstance(action, Alter) or super().can(action)

    def perform(self, action: Action, work: Work) -> None:
        """Perform the action of a step, once; see `ebbtide.tables._table`."""
        if isinstance(action, Alter):
            self.alter(work.executor, work.columns_before(action), action.change, work.facts)
        else:
            super().perform(action, work)

    def perform_append(self, action: Append, work: Work) -> None:
        """Append the emissions of a step."""
        self.append(work.changes.emitted(self.schema), work.facts)

    def append(self, emitted: pa.Table, facts: StepFacts) -> None:
        """Append the emissions of a step, and its TRUNCATE; a step that was appended is skipped.

        Args:
            emitted: Rows of this table.

        Raises:
            TableMismatchError: the table was deleted.
        """
        rows = emitted
        if facts.raised_floor is not None:
            truncate = self._truncate(facts.raised_floor)
            rows = pa.concat_tables([rows, truncate])

        def actions_of(_: Snapshot) -> list[LogAction]:
            return write_files(self.path, rows, self.BOUNDED, data_change=True)

        self.commit_append(actions_of, facts)

    def _truncate(self, floor: tuple[int, ...]) -> pa.Table:
        """Make the row of a TRUNCATE; its order is the floor that it raised."""
        order = dict(zip(ORDER.names, floor, strict=True))
        row = {"_kind": TRUNCATE, "_order": order}
        return pa.Table.from_pylist([row], self.schema)

    def files_of(self, taken: Snapshot) -> list[LogAction]:
        """Copy the files of another changelog with the same columns."""
        return taken.copied_to(self.path)

    def alter(
        self,
        executor: Executor,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Give the table the spec's columns; earlier emissions get them too. Arguments as `alter_stage`."""
        alter_stage(executor, self, stored, change, facts)
