"""The facts of a step that reads the source from another position: a reset, a rewind, a swap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.ledger import Cause, SourceFacts, StepFacts
from ebbtide.model import Action, Decision, Frontier, Source
from ebbtide.runtime._step import Stepper


def begun_elsewhere(
    stepper: Stepper,
    what: str,
    tables: Mapping[str, Action],
    source: SourceFacts,
    frontier: Frontier,
    state: Mapping[str, Any],
    *,
    after: int = 0,
) -> StepFacts:
    """Return the facts of a step that reads the source from another position; starts a new incarnation.

    Step numbers rise over all incarnations: the state may have been restored, but not the other tables.

    Args:
        stepper: Makes the step, and those that follow.
        what: What makes it: its cause.
        tables: Actions of the output tables.
        source: Where the source is read from then.
        frontier: Where the pipeline then stands.
        state: Fields of the state's facts that are other than after the last step.
        after: A step that this one must follow, in addition to those of the pipeline.
    """
    stepper.lease.renew_incarnation()
    decision = Decision(tables=dict(tables), source=Source.BEGIN)
    facts = stepper.facts(Cause(what=what), decision=decision, source=source, frontier=frontier)
    number = 1 + max(stepper.last_number, after)
    return facts.with_state(dict(state)).model_copy(update={"step": number})
