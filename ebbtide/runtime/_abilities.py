"""Refuses, before a step is committed, the actions that a sink of another package cannot perform."""

from __future__ import annotations

from ebbtide.errors import ConfigError
from ebbtide.ledger import StepFacts
from ebbtide.model import Action, Apply, Clear, Erase, Restore
from ebbtide.runtime._plan import Plan

PERFORMABLE = (Apply, Clear, Restore, Erase)
"""The actions that a sink other than a Delta table may perform; all further actions compare it with the state."""


def refuse_unable(plan: Plan, facts: StepFacts) -> None:
    """Refuse a step that the sink cannot take.

    Args:
        plan: The pipeline.
        facts: Of the step, which is not committed yet.

    Raises:
        ConfigError: its action is one that the sink cannot perform, or a TRUNCATE has raised the floor.
    """
    if plan.sink_log is not None:
        return
    action = facts.decision.tables.get("sink")
    if action is not None:
        refuse_action(plan, action, facts.cause.what)
    if facts.raised_floor is not None:
        raise ConfigError.of(
            f"The sink of '{plan.spec.name}' cannot delete the rows that a TRUNCATE leaves dead.",
            got=f"a TRUNCATE in step {facts.step}; sink.type: {plan.spec.sink.type}",
            allowed="changes that name their keys",
            next_step="Nothing was changed. Take the TRUNCATE out of the source, or use a sink of type delta under another name.",
        )


def refuse_action(plan: Plan, action: Action, work: str) -> None:
    """Refuse an action of the sink that it cannot perform.

    Args:
        plan: The pipeline.
        action: The action.
        work: What asks for it, in a word.

    Raises:
        ConfigError: it cannot.
    """
    if plan.sink_log is not None or (isinstance(action, PERFORMABLE) and plan.sink.can(action)):
        return
    clears = plan.sink.can(Clear())
    rebuild = (
        "run 'ebbtide refresh' to rebuild all tables from the source" if clears else "give the pipeline another name"
    )
    raise ConfigError.of(
        f"The sink of '{plan.spec.name}' cannot perform the action '{action.do}', which the {work} asks for.",
        got=f"sink.type: {plan.spec.sink.type}",
        allowed="a sink that says by 'can' that it performs it",
        next_step=f"Nothing was changed. Use a sink of type delta, or {rebuild}.",
    )


def refuse_unfit_sink(plan: Plan) -> None:
    """Refuse a pipeline that reads its own sink if that is not a Delta table.

    Raises:
        ConfigError: it does.
    """
    if plan.sink_log is not None:
        return
    needs = []
    if plan.spec.is_view:
        needs.append("a materialized view")
    if plan.spec.expires_live:
        needs.append("ttl.expire_live: true")
    if needs:
        raise ConfigError.of(
            f"'{plan.spec.name}' reads its own sink, which is not a Delta table.",
            got=f"sink.type: {plan.spec.sink.type} with {' and '.join(needs)}",
            allowed="delta",
            next_step="Set sink.type to delta, or leave that out.",
        )
