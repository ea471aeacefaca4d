"""Commits of a step to tables whose changes do not depend on what is in them: changelog, quarantine, an emptied sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ebbtide.delta.snapshot import Action, Snapshot
from ebbtide.delta.table import commit_on
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.puts import puts_of


def commit_stage(
    table: str,
    actions_of: Callable[[Snapshot], Sequence[Action]],
    facts: StepFacts,
    stage: str,
    operation: str = "WRITE",
) -> None:
    """Commit a stage of a step, once; nothing happens if it was committed, or there is no table.

    Args:
        table: Location of the table.
        actions_of: Returns what to change in a version; not asked where nothing is to be committed.
        facts: The step's.
        stage: `sink`, `changelog` or `quarantine`.
        operation: What the commit calls itself.
    """
    snapshot = Snapshot.read(table)
    if snapshot is not None:
        info = {"operation": operation, "userMetadata": facts.to_json()}
        commit_on(puts_of(table), snapshot, actions_of, facts.transaction(stage), facts.step, info)
