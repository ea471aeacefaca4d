"""Judges from source and logs alone that a run would find nothing to do: no JVM, about a CPU second.

Anything uncertain counts as something to do: the run then starts as usual, with its refusals.
"""

from __future__ import annotations

from ebbtide.delta import Snapshot
from ebbtide.errors import EbbtideError
from ebbtide.faults import Fault
from ebbtide.ledger import Head, LedgerFacts, StepFacts
from ebbtide.runtime._at_rest import AtRest
from ebbtide.runtime._diagnosis import of_rights
from ebbtide.runtime._outputs import new_outputs
from ebbtide.runtime._own_tables import OwnTables
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._progress import RunSummary
from ebbtide.runtime._unused import has_unused_of_spec
from ebbtide.sources import Discovery
from ebbtide.spec import Pipeline
from ebbtide.tables import StateTable

MOST_FILES = 1_000
"""Maximum data files that are opened; for more, Spark does not cost more."""


def idle_run(spec: Pipeline, root: str, clock_ms: int) -> RunSummary | None:
    """Run a pipeline that has nothing to do: all files are read, or there never was one; the last step is finished, nothing is due.

    Args:
        root: Folder of all pipelines' tables.
        clock_ms: The time, epoch ms.

    Returns:
        The summary, without a step; None if there may be something to do.

    Raises:
        PausedError: the pipeline is paused.
        SourceReadError: the source folder is not there.
        TableMismatchError: see `ebbtide.runtime._diagnosis`.
        DamagedFileError: data files of the state or the sink are missing.
        FileChangedError, LateFileError, SourceLostError: see `discover` of the source.
    """
    plan = Plan.under(root, spec)
    turn = plan.ledger.turn
    if turn is not None:
        turn.refuse_paused()
    spec = plan.spec
    state = plan.at("state")
    # The step before the snapshot: a run that commits between the two leaves a newer snapshot, which the refusals below let through.
    last = StateTable.newest_step(state)
    snapshot = _snapshot(state)
    if snapshot is None:
        return None
    if last is None:
        return _idle_before_first_step(plan, turn, snapshot, clock_ms)
    version, facts = last
    found = AtRest(plan, turn, Head(version, facts), snapshot)
    found.refuse_tables()
    is_idle = (
        not spec.misfits(facts.state.spec)
        and spec.source_path == facts.source.path
        and _is_free(plan)
        and _is_finished(found.tables, facts)
        and not _has_erased_rows(plan, facts)
        and not new_outputs(plan, facts)
        and not _may_expire(found, clock_ms)
    )
    if not is_idle:
        return None
    Fault.refuse(of_rights(plan))
    found.diagnosis.refuse("files")
    listed = found.discovered(clock_ms)
    if listed.nothing_matched:
        return None
    return _summary(plan, turn, listed)


def _idle_before_first_step(plan: Plan, turn: LedgerFacts | None, state: Snapshot, clock_ms: int) -> RunSummary | None:
    """Return the summary of a run that finds no first record, where an earlier one has made the tables; else None.

    Args:
        plan: The pipeline; it has made no step.
        turn: The newest one of its ledger.
        state: The newest version of its state.
        clock_ms: The time, epoch ms.
    """
    found = AtRest(plan, turn, Head(state.version), state)
    found.refuse_tables()
    spec = plan.spec
    asks_spark = spec.has_transform or spec.is_view
    if asks_spark or not _is_free(plan):
        return None
    if not has_unused_of_spec(plan):
        return None
    listed = found.discovered(clock_ms)
    begins = found.since is None and listed.span is not None  # a run stores where it will begin
    return None if begins else _summary(plan, turn, listed)


def _summary(plan: Plan, turn: LedgerFacts | None, listed: Discovery) -> RunSummary | None:
    """Return the summary of a run that reads nothing; None if there is something to read."""
    if listed.streams:
        return None
    return RunSummary(
        plan.spec.name,
        plan.root,
        nothing_matched=listed.nothing_matched,
        files_unmatched=listed.unmatched,
        files_young=listed.young,
        foreign_writes=plan.look_for_foreign_writes(turn).writes,
    )


def _snapshot(state: str) -> Snapshot | None:
    """Return the newest version of the state; None if there is none, or it is nothing to look through without Spark."""
    try:
        snapshot = Snapshot.read(state)
    except EbbtideError:
        return None
    if snapshot is None or len(snapshot.files) > MOST_FILES:
        return None
    return snapshot


def _is_free(plan: Plan) -> bool:
    """Return whether no run holds the pipeline, nor died with it."""
    turn = plan.ledger.turn
    return turn is not None and turn.is_free


def _is_finished(tables: OwnTables, facts: StepFacts) -> bool:
    """Return whether the last step reached the tables, and the source is read on where it stands."""
    decision = facts.decision
    begins_again = decision.begins and decision.swapped is None  # after a swap the source is read on
    return not begins_again and not tables.lacking(decision, facts.step)


def _has_erased_rows(plan: Plan, facts: StepFacts) -> bool:
    """Return whether an erasure, here or in the inputs of a view, has left files with erased rows, which the run deletes."""
    may_have = plan.spec.is_view or facts.state.erased is not None
    return may_have and plan.erasures.unfinished() is not None


def _may_expire(found: AtRest, clock_ms: int) -> bool:
    """Return whether a tick might expire an entry or fire a timer, or notes when the run ended."""
    plan = found.plan
    return plan.may_expire and (plan.spec.downtime_over is not None or found.is_due(clock_ms))
