"""Clock: sets a pipeline's processing time and watermark by hand, in a separate step, with a reason.

This corrects a wrong clock of the machine, or a record's wrong event time: both times only rise by themselves, so all later steps
would use the wrong time. Nothing else changes: expired entries stay gone, unless a rewind to an earlier step restores them.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ebbtide.errors import ConfigError
from ebbtide.ledger import Cause, Head, NoStep, StepFacts
from ebbtide.model import Reading
from ebbtide.operations._operation import Report
from ebbtide.operations._stepping import has_state, stepping
from ebbtide.runtime import Plan
from ebbtide.spec import Pipeline

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def plan(
    spec: Pipeline,
    root: str,
    clock_ms: int,
    to_ms: int | None = None,
    to_watermark_ms: int | None = None,
) -> Report:
    """Return the present clock and the values that would be set. Changes nothing.

    Args:
        root: Folder of all pipelines' tables.
        clock_ms: The wall clock, epoch ms.
        to_ms: New processing time, epoch ms. Default: unchanged.
        to_watermark_ms: New watermark, epoch ms. Default: unchanged.

    Raises:
        TableMismatchError: the state is gone.
        ConfigError: the clock would be ahead of the wall clock, or the watermark would rise.
    """
    tables = Plan.under(root, spec)
    if not has_state(tables):
        return _report(spec.name)
    last = Head.at_rest(tables.state.last()).facts
    return _planned(tables, last, clock_ms, to_ms, to_watermark_ms)


def apply(
    executor: Executor,
    spec: Pipeline,
    root: str,
    clock_ms: int,
    reason: str,
    to_ms: int | None = None,
    to_watermark_ms: int | None = None,
) -> Report:
    """Set clock and watermark; arguments and errors as `plan`.

    Args:
        root: Folder of all pipelines' tables.
        clock_ms: The wall clock, epoch ms.
        reason: Kept with the step.
        to_ms: New processing time, epoch ms. Default: unchanged.
        to_watermark_ms: New watermark, epoch ms. Default: unchanged.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    tables = Plan.under(root, spec)
    if not has_state(tables):
        return _report(spec.name)
    with stepping(executor, tables) as stepper:
        report = _planned(tables, stepper.last, clock_ms, to_ms, to_watermark_ms)
        if isinstance(stepper.last, NoStep) or (to_ms is None and to_watermark_ms is None):
            return report
        stepper.diagnosis.refuse("spec")
        stepper.publish(executor)
        clock = stepper.last.frontier.clock
        if to_ms is not None:
            # Time continues from there: the distance to the wall clock counts as downtime.
            paused_ms = stepper.lease.seen.paused_until(clock_ms)
            clock = Reading(to_ms, clock_ms, downtime_ms=clock_ms - to_ms, paused_ms=paused_ms)
        frontier = tables.rules.next_frontier(stepper.last.frontier, clock)
        if to_watermark_ms is not None:
            greatest_ms = to_watermark_ms + tables.rules.allowed_delay_ms
            frontier = frontier.model_copy(update={"watermark_ms": to_watermark_ms, "max_event_ms": greatest_ms})
        facts = stepper.facts(Cause(what="clock", why=reason), frontier=frontier)
        stepper.commit(facts, [])
        done = f"Done in step {facts.step}: {reason}"
        return replace(
            report,
            lines=[*report.lines, done],
            details={"reason": reason},
            step=facts.step,
            next_step="",
        )


def time_ms(text: str | None, now_ms: int) -> int | None:
    """Parse a time: `now`, or ISO 8601, UTC unless stated otherwise; epoch ms.

    Args:
        text: The time; None: no time.
        now_ms: The wall clock, epoch ms.

    Raises:
        ConfigError: it is neither.

    Example:
        >>> time_ms("1970-01-01T01:00:00+01:00", 7), time_ms("1970-01-02", 7), time_ms("now", 7)
        (0, 86400000, 7)
    """
    if text is None:
        return None
    if text == "now":
        return now_ms
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError.of(
            "A time cannot be read.",
            got=text,
            allowed="now, or as 2026-01-31T12:00:00",
        ) from error
    known = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round(known.timestamp() * 1000)


def _planned(
    tables: Plan,
    last: StepFacts | NoStep,
    clock_ms: int,
    to_ms: int | None,
    to_watermark_ms: int | None,
) -> Report:
    name = tables.spec.name
    if isinstance(last, NoStep):
        return _report(name)
    watermark_ms = tables.rules.watermark_after(last.frontier)
    if to_ms is not None and to_ms > clock_ms:
        raise ConfigError.of(
            f"The clock of '{name}' cannot be set ahead of the wall clock.",
            got=_text(to_ms),
            allowed=f"no later than {_text(clock_ms)}",
        )
    is_ahead = to_watermark_ms is not None and (watermark_ms is None or to_watermark_ms > watermark_ms)
    if is_ahead:
        raise ConfigError.of(
            f"The watermark of '{name}' can only be set back; it rises with the events.",
            got=_text(to_watermark_ms),
            allowed=f"no later than {_text(watermark_ms)}",
        )
    return _report(name, last.now_ms, watermark_ms, to_ms, to_watermark_ms)


def _report(
    name: str,
    now_ms: int | None = None,
    watermark_ms: int | None = None,
    to_ms: int | None = None,
    to_watermark_ms: int | None = None,
) -> Report:
    """Return the report of a pipeline's clock and watermark with their new values; None: unchanged."""
    clock = _set_text("clock", now_ms, to_ms)
    watermark = _set_text("watermark", watermark_ms, to_watermark_ms)
    sets = to_ms is not None or to_watermark_ms is not None
    return Report(
        name,
        [f"{clock}; {watermark}."],
        {"now_ms": now_ms, "watermark_ms": watermark_ms, "to_ms": to_ms, "to_watermark_ms": to_watermark_ms},
        {"reason": ""},
        next_step="To do it: the same with '--reason TEXT --apply'." if sets else "",
    )


def _set_text(what: str, now_ms: int | None, to_ms: int | None) -> str:
    text = f"{what} at {_text(now_ms)}"
    if to_ms is None:
        return text
    new = _text(to_ms)
    return f"{text}, set to {new}"


def _text(time_ms: int | None) -> str:
    if time_ms is None:
        return "none yet"
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds")
