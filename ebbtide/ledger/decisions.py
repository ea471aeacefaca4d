"""What the facts of a step say as a decision. Kinds of steps are compared by name here, and by nothing that publishes."""

from __future__ import annotations

from collections.abc import Mapping

from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.tables import BESIDE_STATE
from ebbtide.model.decision import Action, Alter, Append, Apply, Clear, Decision, Replace, Restore, Rewrite, Source
from ebbtide.model.step import StepKind

OVERWRITING = ("updated", "deleted", "filled")
"""Counts of a step that changes rows which the sink has."""


def decision_of(facts: StepFacts, counts: Mapping[str, int], *, emits: bool) -> Decision:
    """Return what a step decided for the tables beside the state.

    Args:
        facts: The step's.
        counts: What it decided, by name; empty of one that decides nothing for the sink.
        emits: The pipeline has a changelog.
    """
    actions = _actions(facts, counts)
    tells_changelog = isinstance(actions.get("changelog"), Append | Rewrite)
    if tells_changelog and not emits:  # one of an earlier spec is cleared, restored and altered all the same
        del actions["changelog"]
    return Decision(actions, _source(facts.kind))


def _source(kind: StepKind) -> Source:
    if kind.discards_checkpoint:
        return Source.BEGIN
    return Source.ADVANCE if kind is StepKind.BATCH else Source.KEEP


def _actions(facts: StepFacts, counts: Mapping[str, int]) -> dict[str, Action]:
    if facts.kind is StepKind.RESET:
        return {name: Clear() for name in BESIDE_STATE}
    if facts.kind is StepKind.REPAIR:
        return {name: Rewrite() for name in BESIDE_STATE}
    if facts.swap is not None:
        versions = facts.swap.versions
        return {name: Replace(facts.swap.incarnation, versions.get(name)) for name in BESIDE_STATE}
    if facts.restores:
        changes_rows = facts.kind is StepKind.REWIND
        return {name: Restore(version, changes_rows) for name, version in facts.restores.items()}
    return _of_columns(facts) | _of_rows(facts, counts)


def _of_columns(facts: StepFacts) -> dict[str, Action]:
    """Return what a migration does to sink and changelog."""
    actions: dict[str, Action] = {}
    if facts.schema_change is not None:
        alter = Alter(facts.schema_change, facts.columns_before or "")
        actions = {"sink": alter, "changelog": alter}
    if facts.reselects:
        actions["sink"] = Rewrite(alters=True)
    return actions


def _of_rows(facts: StepFacts, counts: Mapping[str, int]) -> dict[str, Action]:
    """Return what a step does that decided on rows, or on bad records."""
    actions: dict[str, Action] = {}
    raises_floor = facts.kind.is_published and facts.floor_raised
    overwrites = raises_floor or any(counts.get(name) for name in OVERWRITING)
    if overwrites or counts.get("inserted"):
        # Rows that were in the sink before the first step are adopted as if they came.
        actions["sink"] = Apply(only_inserts=not overwrites and facts.kind is not StepKind.ADOPT)
    if raises_floor or counts.get("emitted"):
        actions["changelog"] = Append()
    # A step of an older release did not write its bad records down.
    is_unknown = facts.bad_rows is None and facts.quarantined > 0
    if facts.bad_rows or is_unknown:
        actions["quarantine"] = Append()
    return actions
