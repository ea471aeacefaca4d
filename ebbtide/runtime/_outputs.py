"""Further outputs: sinks of other packages that show the rows that a pipeline's sink shows.

They perform three kinds of actions. Where the sink applies a step's change set, so do they. Where it erases keys, so do they. After any
other action of the sink they take all its rows: what rewinds, repairs, migrates or refreshes the sink need not know of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.ledger import NoStep, StepFacts
from ebbtide.model import Action, Apply, Erase, Rewrite

if TYPE_CHECKING:
    from ebbtide.runtime._plan import Plan


def to_commit(plan: Plan, last: StepFacts | NoStep, facts: StepFacts) -> StepFacts:
    """Return the facts of a step as they are committed: with the actions of further outputs, which follow from that of the sink.

    An output that was added to the spec is filled by the first step in which the sink changes, or by `Stepper.fill_new_outputs`.

    Args:
        last: Facts of the step before.

    Raises:
        ConfigError: the sink, or a further output, cannot perform its action.
    """
    plan.refuse_unable_step(facts)
    there = [name for name in plan.outputs if name in facts.state.tables]
    if not there:
        return facts
    given = facts.decision.tables
    actions = {}
    for name in there:
        action = given.get(name) or _following(given.get("sink"), facts, is_filled=_is_filled(name, last))
        if action is not None:
            plan.refuse_unable_output(name, action)
            actions[name] = action
    # One that lacks rows is left out of the facts until it has them: a later step would take it for whole.
    lacking = [name for name in there if name not in actions and not _is_filled(name, last)]
    known = {name: table for name, table in facts.state.tables.items() if name not in lacking}
    return facts.with_tables(actions).with_state({"tables": known})


def new_outputs(plan: Plan, last: StepFacts | NoStep) -> list[str]:
    """Return the names of outputs that were added to the spec and are not filled yet.

    Args:
        last: Facts of the last step.
    """
    return [name for name in plan.outputs if not _is_filled(name, last)]


def _is_filled(name: str, last: StepFacts | NoStep) -> bool:
    """Return whether an output has all rows after a step; before the first step there are none."""
    if isinstance(last, NoStep):
        return True
    return name in last.state.tables or name in last.decision.tables


def _following(of_sink: Action | None, facts: StepFacts, *, is_filled: bool) -> Action | None:
    """Return the action of an output in a step; None: it has none.

    Args:
        of_sink: The sink's action in the step.
        facts: Of the step.
        is_filled: The output has all rows.
    """
    match of_sink:
        case None:
            return None
        case Apply() if is_filled and facts.raised_floor is None:
            return of_sink
        case Erase():
            return of_sink
        case _:
            return Rewrite()
