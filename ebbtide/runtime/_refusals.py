"""Refusals before a run reads: a spec, a source or a transform that does not fit the stored data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide.delta import Log
from ebbtide.errors import DamagedFileError, DeltaLogError
from ebbtide.faults import Fault
from ebbtide.model import Clear
from ebbtide.runtime._diagnosis import of_ledger, of_rights
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._step import Stepper
from ebbtide.sources import FileSource

if TYPE_CHECKING:
    from ebbtide.executors import Executor

UNKNOWN = "perhaps files: which of them were read is not known, as the state is damaged"
"""Stands for the files that a refresh over a damaged state may lose."""


def refuse_unfit(executor: Executor, plan: Plan, *, fresh: bool) -> None:
    """Refuse a run before anything is created: a paused pipeline, a missing source, an impossible transform.

    That a source's first batch can be read is asked before tables are made, or emptied; else that is left to `discover`, which asks once.
    """
    Fault.refuse(of_rights(plan))
    turn = plan.ledger.turn_of_whole
    Fault.refuse(of_ledger(plan, turn))
    if turn is not None:
        turn.refuse_paused()
    if not executor.has_spark:
        Fault.refuse(plan.spark_needed())
    plan.refuse_unread_sink()
    if fresh:
        plan.refuse_unable(Clear(), "refresh")
        refuse_start_at_end(plan)
    if fresh or not Log(plan.state.path).is_there():
        plan.source.refuse_absent()
    refuse_unfit_transform(executor, plan)


def refuse_rereading(plan: Plan) -> None:
    """Refuse to read files again that have changed: only by the source's own sequence is a change that comes twice known.

    Raises:
        ConfigError: the pipeline reads no files, or orders changes by their arrival.
    """
    if isinstance(plan.source, FileSource) and not plan.spec.applies_in_order:
        return
    raise Fault.of("source", "not read twice", pipeline=plan.spec.name).error


def refuse_start_at_end(plan: Plan) -> None:
    """Refuse to read a source again from its end: all records that it has would be left out.

    Raises:
        ConfigError: the spec says to begin there.
    """
    if plan.start_asked == "latest":
        raise Fault.of("source", "starts at the end", pipeline=plan.spec.name).error


def lost_by_refresh(plan: Plan, stepper: Stepper, *, accepts: bool) -> str | None:
    """Return the records that a refresh could not read again; None if there are none.

    Refusals of the first batch also happen here: nothing has been emptied yet. What was read of another source than the spec
    now names is given up on purpose, and of a state of an older format it is not known.

    Args:
        stepper: Has the positions that were read.
        accepts: Accept the loss.

    Raises:
        SourceLostError: something is, and it is not accepted.
        EbbtideError: as `discover` of a first run.
    """
    last = stepper.last
    source = plan.spec.identity.get("source")
    is_same_source = last.state.spec.get("source") == source
    span = stepper.all_read if is_same_source else None
    has_parts = is_same_source and span is None and not plan.spec.is_view
    read: dict[str, int | None] = {}
    unknown = None
    if has_parts:
        try:
            read = stepper.files_decided()
        except (DamagedFileError, DeltaLogError):
            unknown = UNKNOWN
    lost = plan.source.gone(read, span) or unknown
    if lost is None and last.decision.is_reset:
        return last.source.lost  # of a refresh that is made once more
    if lost is not None and accepts:
        plan.source.forget_lost()
    if lost is None or accepts:
        return lost
    raise Fault.of("source", "lost to a refresh", pipeline=plan.spec.name, lost=lost).error


def refuse_unfit_transform(executor: Executor, plan: Plan) -> None:
    """Refuse a transform that Spark cannot evaluate row by row; without one nothing is asked of Spark.

    Raises:
        ConfigError: see `ebbtide.expressions._expressions`.
    """
    if not plan.spec.has_transform:
        return
    from ebbtide.runtime._selection import expressions_of

    expressions_of(executor, plan).refuse_unfit()
