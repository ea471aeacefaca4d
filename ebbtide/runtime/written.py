"""Which tables beside the state a step writes, by what its commit tells: one that lacks the step has not taken it yet."""

from __future__ import annotations

from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.step import StepKind
from ebbtide.runtime.plan import Plan
from ebbtide.state_table.layout import counts

WRITES = ("inserted", "updated", "deleted", "filled")
"""Counts of a step that changes the sink."""


def tables_written(plan: Plan, version: int, facts: StepFacts) -> set[str]:
    """Return the names of the tables beside the state that a step writes, of those that there are.

    Args:
        plan: The pipeline.
        version: Version of the state that holds the step.
        facts: The step's.
    """
    if facts.kind in (StepKind.RESET, StepKind.SWAP):
        return set(BESIDE_STATE)
    if facts.kind is StepKind.REPAIR:
        return {"sink"}
    if facts.changes_columns:
        return {"sink", "changelog"}
    written = set(facts.restores)
    if facts.bad_rows or facts.kind in (StepKind.QUARANTINE_REPLAY, StepKind.QUARANTINE_DROP):
        written.add("quarantine")
    if not facts.kind.is_published:
        return written
    metrics = counts(plan.at("state"), version, facts.counts)
    if facts.floor_raised or any(metrics[name] for name in WRITES):
        written.add("sink")
    if facts.floor_raised or metrics["emitted"]:
        written.add("changelog")
    return written
