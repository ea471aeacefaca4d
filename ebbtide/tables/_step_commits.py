"""Commits of a step to the output tables: each once, with the step's transaction mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from ebbtide.delta import Action, DataFile, Definition, Doomed, FileWithout, Snapshot, write_files
from ebbtide.executors import Executor
from ebbtide.ledger import StepFacts, writer_of
from ebbtide.model import Restore, SchemaChange
from ebbtide.tables._altering import FileUnderNewColumns
from ebbtide.tables._joining import small_files


def commit_stage(
    table: str,
    actions_of: Callable[[Snapshot], Sequence[Action]],
    facts: StepFacts,
    stage: str,
    operation: str = "WRITE",
    *,
    adds_rows: bool = True,
) -> Snapshot | None:
    """Commit a stage of a step, once; nothing happens if it was committed before, or without a table.

    Args:
        table: Location of the table.
        actions_of: Returns the log actions for a version; not called if there is nothing to commit.
        stage: `sink`, `changelog` or `quarantine`.
        operation: Name of the operation, in the commit's info.
        adds_rows: See `Snapshot.refuse_unwritable`.

    Returns:
        The version that it made; None if nothing happened.
    """
    snapshot = Snapshot.read(table)
    if snapshot is None:
        return None
    return writer_of(table).commit_once(snapshot, actions_of, facts.committed(stage, operation), adds_rows=adds_rows)


def restore_stage(table: str, action: Restore, facts: StepFacts, stage: str) -> None:
    """Bring a table back to an earlier version, once.

    Args:
        table: Location of the table.
        action: Names the version.
        stage: As in `commit_stage`.
    """
    commit_stage(
        table,
        lambda found: found.restoring(action.version, data_change=action.changes_rows),
        facts,
        stage,
        "RESTORE",
    )


def commit_and_join(
    table: str,
    columns: pa.Schema,
    actions_of: Callable[[Snapshot], Sequence[Action]],
    bounded: Sequence[str],
    facts: StepFacts,
    stage: str,
) -> None:
    """Commit a stage of a step to a table, once, and join small files when enough have come together.

    Args:
        table: Location of the table.
        actions_of: Returns the log actions for a version; not called if the stage was committed.
        bounded: Columns to keep statistics of.
        stage: As in `commit_stage`.
    """

    # Judged for each version that is tried: a lost race may have brought other columns.
    def fitting_actions_of(found: Snapshot) -> Sequence[Action]:
        found.refuse_other_columns(columns)
        actions = actions_of(found)
        found.refuse_nulls(columns, actions)
        return actions

    made = commit_stage(table, fitting_actions_of, facts, stage)
    if made is None:
        return
    # A separate commit, without the step's mark: if the run is killed before it, small files remain, and the next step
    # joins them.
    files = small_files(made.files.values())
    if not files:
        return
    rows = made.rows(columns, files)
    adds = write_files(
        table,
        rows,
        bounded,
        data_change=False,
    )
    writer_of(table).join(made, files, adds, {})


class AlterableTable(Protocol):
    """A table whose columns a migration can change, and whose files an erasure can rewrite."""

    @property
    def STAGE(self) -> str:  # noqa: N802 - a constant of the class
        """Name of the stage that writes it."""

    @property
    def path(self) -> str:
        """Its location."""

    @property
    def stored_schema(self) -> pa.Schema:
        """All columns, as stored."""

    @property
    def bounded(self) -> tuple[str, ...]:
        """Columns to keep statistics of."""

    def schema_of(self, columns: pa.Schema) -> pa.Schema:
        """Return all columns of a table with these columns of the user's."""


def alter_stage(
    executor: Executor,
    table: AlterableTable,
    stored: pa.Schema,
    change: SchemaChange,
    facts: StepFacts,
) -> None:
    """Give a table its new columns, once, as a stage of a step; its rows stay the same.

    Args:
        executor: Runs the tasks that rewrite files, if any must be rewritten.
        table: The table, with the new columns.
        stored: The user's columns before.
        change: How the new columns follow from those.
    """
    before = table.schema_of(stored)

    def actions_of(found: Snapshot) -> Sequence[Action]:
        definition = Definition(table.stored_schema)
        altering = definition.altering(found, change.renamed)
        if not change.rewrites:
            return altering
        # Rewritten for each version that is tried: another client may have written meanwhile.
        partitioned = definition.partitioned(found, change.renamed)
        rewrite = FileUnderNewColumns(table.path, before, table.stored_schema, table.bounded, change, partitioned)
        files = list(found.files.values())
        parts = executor.map(rewrite, files, is_little=_are_small(files))
        added = list(altering)
        for adds in parts:
            added += adds
        return DataFile.replacing(files, added, data_change=False)

    commit_stage(table.path, actions_of, facts, table.STAGE, "CHANGE COLUMNS")


def erase_stage(executor: Executor, table: AlterableTable, doomed: Doomed, facts: StepFacts) -> None:
    """Rewrite the files of a table that hold rows of erased keys, without these, once, as a stage of a step.

    Args:
        executor: Runs the tasks that rewrite files.
        doomed: Selects the rows.
    """
    rewrite = FileWithout(table.path, table.stored_schema, table.bounded, doomed)

    def actions_of(found: Snapshot) -> list[Action]:
        return erasing(executor, rewrite, found)

    commit_stage(
        table.path,
        actions_of,
        facts,
        table.STAGE,
        "ERASE",
        adds_rows=False,
    )


def erasing(executor: Executor, rewrite: FileWithout, found: Snapshot) -> list[Action]:
    """Rewrite the files of a version that hold rows of erased keys; return the actions that replace them.

    Args:
        executor: Runs the tasks that rewrite files.
        rewrite: Rewrites one of them.
        found: The version.
    """
    files = list(found.files.values())
    rewritten = executor.map(rewrite, files, is_little=_are_small(files))
    return FileWithout.actions_of(rewritten)


def _are_small(files: Sequence[DataFile]) -> bool:
    """Return whether the driver rewrites some files itself."""
    n_bytes = sum(file.size for file in files)
    return n_bytes <= Executor.LITTLE_BYTES
