"""Commits to tables whose changes do not depend on what is in them: changelog, quarantine, an emptied sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from ebbtide.delta.joining import commit_joined, small_files, write_files
from ebbtide.delta.restoring import restoring
from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import commit_on, read_files
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.puts import puts_of


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
    info = {"operation": operation, "userMetadata": facts.to_json()}
    return commit_on(
        puts_of(table),
        snapshot,
        actions_of,
        facts.transaction(stage),
        facts.step,
        info,
    )


def restore_stage(table: str, version: int, facts: StepFacts, stage: str) -> None:
    """Bring a table back to an earlier version, once; arguments as `commit_stage`.

    Args:
        table: The same.
        version: The earlier version.
        facts: The same.
        stage: The same.
    """
    commit_stage(table, lambda found: restoring(found, version), facts, stage, "RESTORE")


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
    made = commit_stage(table, actions_of, facts, stage)
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
