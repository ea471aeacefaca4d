"""Clock: a pipeline's processing time and its watermark are set by hand, as a step of its own, with a reason.

For when the machine's clock was wrong, or the event time of a record: both only rise by themselves, so that all later steps would
go by the wrong time. Nothing else is changed: what expired by then stays gone, and a rewind to a step before brings it back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from ebbtide.delta import log
from ebbtide.errors import ConfigError
from ebbtide.ledger.facts import Cause, StepFacts
from ebbtide.maintenance.job import stepping
from ebbtide.model.clock import Reading
from ebbtide.model.step import next_frontier, watermark_after
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.refusals import refuse_changed_spec
from ebbtide.spec.pipeline import Pipeline


@dataclass(frozen=True)
class ClockReport:
    """Where a pipeline's clock and watermark stand, and where they are set to.

    Args:
        pipeline: Its name.
        now_ms: Processing time of its last step, epoch ms; None before the first.
        watermark_ms: The watermark that its next step goes by, epoch ms; None before the first event.
        to_ms: What processing time is set to; None: it is left.
        to_watermark_ms: What the watermark is set to; None: it is left.
        reason: Why; empty of a plan.
        step: The step that did it; None of a plan, and where nothing is set.
    """

    pipeline: str
    now_ms: int | None = None
    watermark_ms: int | None = None
    to_ms: int | None = None
    to_watermark_ms: int | None = None
    reason: str = ""
    step: int | None = None

    @property
    def sets(self) -> bool:
        """Whether anything is set."""
        return self.to_ms is not None or self.to_watermark_ms is not None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return asdict(self)

    def text(self) -> str:
        """Write it for a terminal."""
        clock = _set_text("clock", self.now_ms, self.to_ms)
        watermark = _set_text("watermark", self.watermark_ms, self.to_watermark_ms)
        lines = [f"{self.pipeline}: {clock}; {watermark}."]
        if self.step is not None:
            lines.append(f"Done in step {self.step}: {self.reason}")
        elif self.sets:
            lines.append("To do it: the same with '--reason TEXT --apply'.")
        return "\n  ".join(lines)


def plan(
    spec: Pipeline,
    root: str,
    clock_ms: int,
    to_ms: int | None = None,
    to_watermark_ms: int | None = None,
) -> ClockReport:
    """Return where the clock stands and what would be set. Changes nothing.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        clock_ms: The wall clock, epoch ms.
        to_ms: Processing time to go on from, epoch ms. Default: it is left.
        to_watermark_ms: Watermark to go on from, epoch ms. Default: it is left.

    Raises:
        ConfigError: the clock would be ahead of the wall clock, or the watermark ahead of itself.
    """
    tables = Plan.under(root, spec)
    if not log.versions(tables.state.path):
        return ClockReport(spec.name)
    newest = tables.state.last()
    last = None if newest is None else newest[1]
    return _planned(tables, last, clock_ms, to_ms, to_watermark_ms)


def apply(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    clock_ms: int,
    reason: str,
    to_ms: int | None = None,
    to_watermark_ms: int | None = None,
) -> ClockReport:
    """Set clock and watermark; arguments and errors as `plan`.

    Args:
        spark: A session with Delta.
        spec: See `plan`.
        root: The same.
        clock_ms: The same.
        reason: Kept with the step.
        to_ms: See `plan`.
        to_watermark_ms: The same.

    Raises:
        LeaseHeldError: the pipeline is being run.
        SpecChangedError: the spec no longer fits the stored state.
    """
    if not reason.strip():
        raise ConfigError.of(
            "To set a clock takes a reason.",
            got="none",
            allowed="a text, kept with the step",
        )
    tables = Plan.under(root, spec)
    if not log.versions(tables.state.path):
        return ClockReport(spec.name)
    with stepping(spark, tables) as stepper:
        report = _planned(tables, stepper.last, clock_ms, to_ms, to_watermark_ms)
        if stepper.last is None or not report.sets:
            return report
        refuse_changed_spec(tables, stepper)
        stepper.publish(spark)
        clock = stepper.last.frontier.clock
        if to_ms is not None:
            # Time goes on from there: what the wall clock is ahead by counts as downtime.
            paused_ms = stepper.lease.seen.paused_until(clock_ms)
            clock = Reading(to_ms, clock_ms, downtime_ms=clock_ms - to_ms, paused_ms=paused_ms)
        frontier = next_frontier(stepper.last.frontier, clock, tables.rules)
        if to_watermark_ms is not None:
            greatest_ms = to_watermark_ms + tables.rules.allowed_delay_ms
            frontier = frontier.model_copy(update={"watermark_ms": to_watermark_ms, "max_event_ms": greatest_ms})
        facts = stepper.facts(Cause(what="clock", why=reason), frontier=frontier)
        stepper.commit(facts, [])
        return replace(report, reason=reason, step=facts.step)


@dataclass(frozen=True)
class Setting:
    """What a user asks to be set.

    Args:
        to: Processing time, as `time_ms` reads it; None: it is left.
        watermark: The watermark, likewise.
        reason: Why; needed to do it.
        applies: Do it; else tell what it would do.
    """

    to: str | None = None
    watermark: str | None = None
    reason: str = ""
    applies: bool = False

    def run(
        self,
        spark: Callable[[], SparkSession],
        spec: Pipeline,
        root: str,
        clock_ms: int,
    ) -> ClockReport:
        """Do it for a pipeline, or tell what it would do; errors as `apply`.

        Args:
            spark: Gives the session; a plan asks for none.
            spec: See `apply`.
            root: The same.
            clock_ms: The same.
        """
        to_ms = time_ms(self.to, clock_ms)
        watermark_ms = time_ms(self.watermark, clock_ms)
        if not self.applies:
            return plan(spec, root, clock_ms, to_ms, watermark_ms)
        return apply(
            spark(),
            spec,
            root,
            clock_ms,
            self.reason,
            to_ms,
            watermark_ms,
        )


def time_ms(text: str | None, now_ms: int) -> int | None:
    """Read a time: `now`, or one in ISO 8601, UTC unless it says otherwise; epoch ms.

    Args:
        text: The time; None is none.
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
    last: StepFacts | None,
    clock_ms: int,
    to_ms: int | None,
    to_watermark_ms: int | None,
) -> ClockReport:
    name = tables.spec.name
    if last is None:
        return ClockReport(name)
    watermark_ms = watermark_after(last.frontier, tables.rules)
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
    return ClockReport(name, last.now_ms, watermark_ms, to_ms, to_watermark_ms)


def _set_text(what: str, now_ms: int | None, to_ms: int | None) -> str:
    text = f"{what} at {_text(now_ms)}"
    return text if to_ms is None else f"{text}, set to {_text(to_ms)}"


def _text(time_ms: int | None) -> str:
    if time_ms is None:
        return "none yet"
    time = datetime.fromtimestamp(time_ms / 1000, UTC)
    return time.isoformat(timespec="milliseconds")
