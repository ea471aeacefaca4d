"""Facts of steps that no run has made."""

from typing import Any

from ebbtide.ledger import Cause, SourceFacts, StateFacts, StepFacts
from ebbtide.model import Frontier, Reading, StepRecords


def made_facts(step: int = 1, what: str = "batch", *, raises: tuple[int, ...] | None = None, **given: Any) -> StepFacts:
    """Make the facts of a step.

    Args:
        step: Its number.
        what: Its cause.
        raises: A floor that it raises.
        given: Other fields.
    """
    fields: dict[str, Any] = {
        "pipeline": "t",
        "incarnation": "i",
        "epoch": 1,
        "code": "0",
        "cause": Cause(what=what),
        "frontier": Frontier(clock=Reading(1000, 1000), floor=raises),
        "read": StepRecords(floor_raised=raises is not None),
        "source": SourceFacts(),
        "state": StateFacts(version=step - 1, spec={}),
    }
    return StepFacts(step=step, **fields | given)


def stands_above(step: int, floor: tuple[int, ...]) -> StepFacts:
    """Make the facts of a step behind one that has raised the floor."""
    return made_facts(step, frontier=Frontier(clock=Reading(1000, 1000), floor=floor))
