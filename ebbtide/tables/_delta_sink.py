"""The Delta sink that Ebbtide writes: each action is one commit with the step's identity, so that a replay is skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ebbtide.columns import Mask, columns_named
from ebbtide.delta import Action, DataFile, Definition, Snapshot, write_files
from ebbtide.entries import SinkChange
from ebbtide.errors import TableMismatchError
from ebbtide.faults import Fault
from ebbtide.ledger import StepFacts, writer_of
from ebbtide.model import Action as TableAction
from ebbtide.model import Alter, Apply, Clear, Erase, Replace, Restore, RestoreAndApply, Rewrite, SchemaChange
from ebbtide.tables._floor import Floors
from ebbtide.tables._replaced_rows import Upsert
from ebbtide.tables._sink_definition import SinkDefinition
from ebbtide.tables._step_commits import alter_stage, commit_stage, erase_stage, restore_stage
from ebbtide.tables._table import ChangePart, ChangeSet, Difference, Work, cannot_perform
from ebbtide.tables._upsert import Upserter

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass(frozen=True)
class SinkTable(SinkDefinition):
    """One pipeline's sink."""

    @cached_property
    def _upserter(self) -> Upserter:
        return Upserter(
            self.path,
            self.schema,
            self.key,
            writer_of(self.path),
            by_vectors=self.deletes_by == "vectors",
            with_images=self.with_images,
            hidden=self.hidden,
        )

    @property
    def _floors(self) -> Floors:
        return Floors(self.sequence)

    def can(self, action: TableAction) -> bool:
        """Return that it performs every action."""
        return True

    def perform(self, action: TableAction, work: Work) -> None:
        """Perform the action of a step, once; see `ebbtide.tables._table`."""
        executor = work.executor
        facts = work.facts
        match action:
            case Apply():
                self.apply(executor, work.changes, facts)
            case Restore():
                self.restore(action, work)
            case RestoreAndApply():
                self.restore_and_apply(action, work.net_changes(action), facts)
            case Replace():
                self.take_rows(action, work)
            case Alter():
                self.alter(executor, work.columns_before(action), action.change, facts)
            case Clear():
                self.empty(work)
            case Rewrite():
                self.rewrite(action, work)
            case Erase():
                erase_stage(executor, self, work.doomed(action), facts)
            case _:
                raise cannot_perform(self.path, action)

    def apply(
        self,
        executor: Executor,
        changes: ChangeSet,
        facts: StepFacts,
    ) -> None:
        """Apply a step's change set, in one transaction with the step's number."""
        committed = facts.committed("sink", "MERGE")
        floor = facts.raised_floor
        if floor is None:
            pieces = [DecidedUpsert(read, self.key) for read in changes.pieces(self.schema)]
            self._upserter.apply_pieces(executor, pieces, committed)
        else:  # a TRUNCATE deletes rows of any key: all changes are matched with these at once
            self._upserter.apply(self._upsert(changes.rows(self.schema), floor), committed)

    def _upsert(self, decided: pa.Table, floor: tuple[int, ...] | None) -> Upsert:
        floors = self._floors
        upsert = _upsert_of(decided, self.key)
        return replace(upsert, is_below=floors.marks(floor), floor_columns=(floors.column,))

    def restore(self, action: Restore, work: Work) -> None:
        """Bring the table back to an earlier version."""
        restore_stage(self.path, action, work.facts, "sink")

    def restore_and_apply(
        self,
        action: RestoreAndApply,
        changes: pa.Table,
        facts: StepFacts,
    ) -> None:
        """Bring the table back to an earlier version, and apply changes to that, in one commit."""
        # The greatest floor of all steps counts, not the one that a step raised: the restored rows may lie below an older one.
        upsert = self._upsert(changes, facts.frontier.floor)
        if upsert.is_below is not None:
            is_above = np.invert(upsert.is_below(upsert.rows))
            upsert = replace(upsert, rows=upsert.rows.filter(pa.array(is_above)))

        def back(found: Snapshot) -> list[Action]:
            if action.version is None:
                return DataFile.replacing(found.files.values(), [])
            return found.restoring(action.version)

        self._upserter.apply(upsert, facts.committed("sink", "RESTORE"), back)

    def take_rows(self, action: Replace, work: Work) -> None:
        """Take the differing rows of the table under another root, in one commit: the change feed shows only these."""
        if action.version is None:  # the other root has no sink
            return
        self.replace(work.difference(action, self.write_rows), work.facts)

    def rewrite(self, action: Rewrite, work: Work) -> None:
        """Replace the rows that differ from those that the state shows, or all rows."""
        # Other columns cannot be compared row by row.
        if action.overwrites or (action.alters and self._has_other_columns()):
            self.overwrite(action, work)
            return
        # A state that expires entries no longer shows all rows: the sink is then restored from one of its good versions.
        way = work.way_back()
        if way is not None:
            self.restore_and_apply(way, work.net_changes(way), work.facts)
            return
        self.replace(work.difference(action, self.write_rows), work.facts)

    @property
    def write_rows(self) -> RowFiles:
        """Writes rows as data files, in the task that has them."""
        found = self.snapshot()
        definition = Definition(self.schema)
        return RowFiles(self.path, self.schema, self.bounded, definition.partitioned(found) if found else ())

    def replace(self, difference: Difference, facts: StepFacts) -> None:
        """Give some keys other rows, in one commit.

        Args:
            difference: The keys whose rows are deleted, and the actions that add the files with their new rows.
        """
        adds = [add for actions in difference.taken for add in actions]
        keys = difference.present.select(self.key).cast(columns_named(self.columns, self.key))
        self._upserter.replace(keys, adds, facts.committed("sink", "MERGE"))

    def overwrite(self, action: Rewrite, work: Work) -> None:
        """Replace all rows by those that the state shows, and the columns by the spec's."""
        adds = [add for actions in work.take_shown(action, self.write_rows) for add in actions]

        def actions_of(found: Snapshot) -> list[Action]:
            without_rows = Definition(self.stored_schema, self.stored_properties).emptying(found)
            return [*without_rows, *adds]

        commit_stage(
            self.path,
            actions_of,
            work.facts,
            "sink",
            "REPLACE TABLE",
        )

    def empty(self, work: Work) -> None:
        """Replace the table by an empty one with the spec's columns and properties; its history stays."""
        commit_stage(
            self.path,
            lambda found: Definition(self.stored_schema, self.stored_properties).emptying(found),
            work.facts,
            "sink",
            "REPLACE TABLE",
        )

    def alter(
        self,
        executor: Executor,
        stored: pa.Schema,
        change: SchemaChange,
        facts: StepFacts,
    ) -> None:
        """Give the table the spec's columns; each row stays. Arguments as `alter_stage`."""
        alter_stage(executor, self, stored, change, facts)

    def extend(self, executor: Executor) -> None:
        """Add a sink's reserved columns and properties to a table that another client made."""
        definition = Definition(self.stored_schema, self.stored_properties)
        while (found := Snapshot.read(self.path)) is not None:
            self.refuse_unwritable(found)
            actions = definition.extending(found)
            if not actions or writer_of(self.path).commit(found, actions, {"operation": "SET TBLPROPERTIES"}):
                return
        raise Fault.of("sink", "gone", location=self.path).error

    def refuse_altered(self, newest: Snapshot | None) -> None:
        """Refuse a table with columns of another client, or without a change feed; see `Sink`."""
        if newest is None:
            raise Fault.of("sink", "gone", location=self.path).error
        self._upserter.begin(newest)
        _refuse_without_feed(newest)

    def fold(self, executor: Executor) -> None:
        """Join small files, if there is something to gain."""
        self._upserter.fold(executor)

    def join_files(self, executor: Executor) -> None:
        """Join all small files."""
        self._upserter.fold(executor, everything=True)

    def below(self, floor: tuple[int, ...] | None) -> Callable[[pa.Table], Mask] | None:
        """Return a function that marks the rows below a TRUNCATE; None without one."""
        return self._floors.marks(floor)


@dataclass(frozen=True)
class DecidedUpsert:
    """A part of a step's change set as an upsert; a `Piece`.

    Args:
        read: Reads the part: `_change` and the sink's columns.
        key: The sink's key.
    """

    read: ChangePart
    key: tuple[str, ...]

    def middle(self) -> int:
        """See `Piece`."""
        return self.read.middle()

    def __call__(self) -> Upsert:
        """Return the upsert."""
        return _upsert_of(self.read(), self.key)


def _upsert_of(decided: pa.Table, key: Sequence[str]) -> Upsert:
    # All keys of the change set lose their row, and those that are not deleted get a new one. So an apply that meets an
    # unexpected row, or none, ends the same.
    is_deleted = pc.equal(decided["_change"], SinkChange.DELETE)
    shown = decided.filter(pc.invert(is_deleted))
    return Upsert(keys=decided.select(list(key)), rows=shown.drop_columns("_change"))


@dataclass(frozen=True)
class RowFiles:
    """Writes rows as data files of a table; runs in workers.

    Args:
        table: Its location.
        columns: All its columns.
        bounded: Columns to keep statistics of.
        partitioned: Partition columns of the table.
    """

    table: str
    columns: pa.Schema
    bounded: tuple[str, ...]
    partitioned: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> list[Action]:
        """Write rows; return the actions that add the files."""
        return write_files(
            self.table, rows.cast(self.columns), self.bounded, data_change=True, partitioned=self.partitioned
        )


def _refuse_without_feed(found: Snapshot) -> None:
    """Refuse a table whose change feed another client has switched off: readers of the feed would stop at the next commit."""
    if not found.is_on("delta.enableChangeDataFeed"):
        raise TableMismatchError.of(
            f"The change feed of the table at '{found.table}' was switched off by another client.",
            got="delta.enableChangeDataFeed: false",
            allowed="true, since views, checks and readers follow it",
            next_step="Set the property (ALTER TABLE ... SET TBLPROPERTIES), then run again.",
        )
