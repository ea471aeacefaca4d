"""Refuses tables of another copy of a pipeline. Two copies of one backup have steps with the same numbers but other rows."""

from __future__ import annotations

from collections.abc import Mapping

from ebbtide.errors import TableMismatchError
from ebbtide.ledger import Head, NoStep, StepFacts, TableFacts
from ebbtide.runtime._plan import Plan


def refuse_other_copies(plan: Plan, tables: Mapping[str, TableFacts], head: Head) -> None:
    """Refuse a table of another copy than the state.

    Args:
        plan: The pipeline.
        tables: Known facts of the output tables.
        head: Its last step.

    Raises:
        TableMismatchError: the step that wrote a table last is not the state's step of this number.
    """
    for name, table in tables.items():
        allowed = uid_of_step(plan, head.facts, name, table.step)
        refuse_other_uid(plan, name, table.step, table.uid, allowed)


def refuse_other_uid(plan: Plan, name: str, step: int, found: str | None, allowed: str | None) -> None:
    """Refuse a table that was written by another step of a number than the state's.

    Args:
        plan: The pipeline.
        name: The table's.
        step: The number.
        found: `uid` of the table's step; None if unknown.
        allowed: `uid` of the state's step; None if unknown.

    Raises:
        TableMismatchError: they differ.
    """
    if found is None or allowed is None or found == allowed:
        return
    raise TableMismatchError.of(
        f"The table at '{plan.at(name)}' is of another copy of '{plan.spec.name}' than its state.",
        got=f"another step {step} than the state's",
        allowed="tables that the steps of the state have written",
        next_step="Restore all folders of the pipeline from one copy; or run 'ebbtide refresh' to rebuild all tables from the source.",
    )


def uid_of_step(plan: Plan, last: StepFacts | NoStep, name: str, step: int) -> str | None:
    """Return the `uid` of a step of the state that wrote a table; None if unknown.

    Args:
        plan: The pipeline.
        last: Facts of the state's last step.
        name: The table's: one of `BESIDE_STATE`.
        step: Number of the step.
    """
    if isinstance(last, NoStep) or step > last.step:
        return None
    if step == last.step:
        return last.uid
    known = last.state.tables.get(name)
    if known is not None and known.step == step:
        return known.uid
    # A table that was put back: the state's log may still have the step.
    for _, facts in plan.state.steps():
        if facts.step == step:
            return facts.uid
        if facts.step < step:
            return None
    return None
