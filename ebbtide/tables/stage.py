"""Commits to tables that are the same whatever a step decided: changelog, quarantine, an emptied sink, other columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from ebbtide.delta.altering import BYTES_IN_DRIVER, FileUnderNewColumns, under_columns
from ebbtide.delta.fitting import refuse_nulls, refuse_other_columns
from ebbtide.delta.joining import commit_joined, small_files, write_files
from ebbtide.delta.restoring import restoring
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import commit_on, read_files, replacing
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.puts import puts_of
from ebbtide.model.decision import Restore
from ebbtide.tasks import run_tasks


def commit_stage(
    table: str,
    actions_of: Callable[[Snapshot], Sequence[Action]],
    facts: StepFacts,
    stage: str,
    operation: str = "WRITE",
) -> Snapshot | None:
    """Commit a stage of a step, once; nothing happens if it was committed, or there is no table.

    Args:
        table: Location of the table.
        actions_of: Returns what to change in a version; not asked where nothing is to be committed.
        facts: The step's.
        stage: `sink`, `changelog` or `quarantine`.
        operation: What the commit calls itself.

    Returns:
        The version that it made; None if nothing happened.
    """
    snapshot = Snapshot.read(table)
    if snapshot is None:
        return None
    return commit_on(puts_of(table), snapshot, actions_of, facts.committed(stage, operation))


def restore_stage(table: str, action: Restore, facts: StepFacts, stage: str) -> None:
    """Bring a table back to an earlier version, once; arguments as `commit_stage`.

    Args:
        table: Location of the table.
        action: Which version.
        facts: Facts of the step.
        stage: As in `commit_stage`.
    """
    commit_stage(
        table,
        lambda found: restoring(found, action.version, data_change=action.changes_rows),
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
    """Commit a stage of a step to a table, once, and join small files if there is something to gain.

    Args:
        table: Location of the table.
        columns: Its columns.
        actions_of: Returns what to change in a version; not asked where it was committed.
        bounded: Columns to keep statistics of.
        facts: The step's.
        stage: As in `commit_stage`.
    """

    def fitting_actions_of(found: Snapshot) -> Sequence[Action]:
        refuse_other_columns(table, found.metadata, columns)
        actions = actions_of(found)
        refuse_nulls(table, found.metadata, columns, actions)
        return actions

    made = commit_stage(table, fitting_actions_of, facts, stage)
    if made is None:
        return
    files = small_files(made.files.values())
    if not files:
        return
    rows = read_files(table, files, columns)
    adds = write_files(
        table,
        rows,
        bounded,
        rows_per_file=max(len(rows), 1),
        data_change=False,
    )
    commit_joined(puts_of(table), made, files, adds, {})


def alter_stage(
    spark: SparkSession,
    work: FileUnderNewColumns,
    facts: StepFacts,
    stage: str,
) -> None:
    """Give a table other columns, as a stage of a step; its rows stay the same. Nothing happens if it was committed.

    Args:
        spark: Runs the tasks that write files again, if any must be.
        work: Which table, which columns, and what writes a file again.
        facts: The step's.
        stage: As in `commit_stage`.
    """

    def actions_of(found: Snapshot) -> Sequence[Action]:
        definition = under_columns(found, work.columns)
        if not work.change.rewrites:
            return definition
        # Written again for each version that is tried: another client may have written meanwhile.
        files = list(found.files.values())
        n_bytes = sum(file.size for file in files)
        parts = run_tasks(spark, work, files, in_driver=n_bytes <= BYTES_IN_DRIVER)
        adds = [add for part in parts for add in part]
        return replacing(files, [*definition, *adds], data_change=False)

    commit_stage(work.table, actions_of, facts, stage, "CHANGE COLUMNS")
