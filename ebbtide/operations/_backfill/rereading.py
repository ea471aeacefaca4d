"""Backfill into the sink: records of a topic before a paused pipeline's position are read, again or for the first time.

By sequence a record that was applied before changes nothing. So the sink becomes the same as if all records from there had been
read. Each step applies a range of offsets, named in its facts; the pipeline's position does not change.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ebbtide.amounts import amount
from ebbtide.errors import BackfillError, ConfigError
from ebbtide.ledger import NoStep, StepFacts
from ebbtide.operations._backfill.asked import Asked
from ebbtide.operations._operation import Report, ignore
from ebbtide.operations._stepping import stepping
from ebbtide.runtime import Phase, Plan, SourceSteps, Stepper, StepProgress, system_clock
from ebbtide.sources import Span
from ebbtide.spec import Pipeline, PositionedPart, SourceStart

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def _report(
    pipeline: str,
    records: int,
    waiting: int,
    steps: Sequence[int],
    counts: Mapping[str, int],
) -> Report:
    """Make the report of records read into a sink.

    Args:
        pipeline: Name of the pipeline.
        records: Records that were read.
        waiting: Offsets that remain after a stop.
        steps: Numbers of the steps.
        counts: Counts of their effects, by name.
    """
    named = []
    for name, n_rows in counts.items():
        if n_rows:
            words = name.replace("_", " ")
            named.append(f"{n_rows:,} {words}")
    did = ", ".join(named) or "nothing new"
    read = amount(records, "record")
    in_steps = amount(len(steps), "step")
    lines = [f"{read} read in {in_steps}: {did}."]
    next_step = "To read on: 'ebbtide resume'."
    if waiting:
        next_step = f"Left: {waiting:,}; the same command continues."
    return Report(
        pipeline,
        lines,
        {"records": records, "waiting": waiting},
        {"steps": list(steps), "counts": dict(counts)},
        steps[-1] if steps else None,
        next_step,
    )


def reread(
    executor: Executor,
    spec: Pipeline,
    root: str,
    begin: str | SourceStart,
    reason: str,
    *,
    on_progress: Callable[[StepProgress], None] = ignore,
    on_phase: Callable[[Phase], None] = ignore,
    stop: threading.Event | None = None,
    clock: Callable[[], int] = system_clock,
) -> Report:
    """Read records from a start up to a paused pipeline's position; continue an interrupted reading with the same reason.

    Args:
        spec: The pipeline; `max_records_per_second` applies.
        root: Folder of all pipelines' tables.
        begin: Start: earliest, a time, or offsets.
        reason: The reason, kept with the steps.
        on_progress: Called after each step.
        on_phase: Called as each phase begins.
        stop: Set it to end after the step under way.
        clock: Returns the time, epoch ms.

    Raises:
        ConfigError: there is no reason, or no record was read after the start.
        BackfillError: the pipeline is not paused, or does not recognize records that it has read before.
        LeaseHeldError: the pipeline is being run.
    """
    stop = stop or threading.Event()
    tables = Plan.under(root, spec)
    source = _source(tables, reason)
    with stepping(executor, tables, clock()) as stepper:
        _refuse_unpaused(stepper)
        stepper.diagnosis.refuse("spec")
        stepper.publish(executor)
        left = _left(stepper, begin, reason)
        n_places = left.size
        reading = SourceSteps.at_rate(source.max_records_per_second, stepper, stop)
        steps = []
        counts: Counter[str] = Counter()
        while left.size and not stop.is_set():
            next_step = stepper.number + 1
            phase = Phase(spec.name, "reading", next_step, places_read=reading.places_read, places=n_places)
            on_phase(phase)
            # Each step records its range in its facts, from which `_behind` resumes after a kill.
            some = left.first(source.records_per_step)
            done = reading.reread(executor, some, reason, clock())
            left = left.after(some.end)
            on_progress(done)
            steps.append(done.step)
            counts.update(done.metrics, records=done.records)
        n_records = counts.pop("records", 0)
        return _report(spec.name, n_records, left.size, steps, counts)


def _source(tables: Plan, reason: str) -> PositionedPart:
    """Return the source to read; refuse one that cannot be read again."""
    spec = tables.spec
    if not reason.strip():
        raise ConfigError.of(
            "Reading records again needs a reason.",
            got="none",
            allowed="a text, kept with the steps",
        )
    if spec.source.by_position and not spec.applies_in_order:
        return cast("PositionedPart", spec.source)
    got = "a folder, whose files are read once"
    if spec.source.by_position:
        got = "order: arrival, where a record that is read again applies again"
    raise BackfillError.of(
        f"'{spec.name}' cannot read records again into its sink.",
        got=got,
        allowed="a topic, with order: {sequence: ...}",
        next_step="Build new tables: 'ebbtide backfill start'.",
    )


def _refuse_unpaused(stepper: Stepper) -> None:
    name = stepper.spec.name
    if stepper.lease.seen.paused is None:
        raise BackfillError.of(
            f"'{name}' is not paused.",
            next_step="Run 'ebbtide pause --reason TEXT' first, and 'ebbtide resume' afterwards.",
        )
    if stepper.last_read is None:
        raise BackfillError.of(f"'{name}' has read nothing yet.", next_step="Set source.start in the spec, and run it.")


def _left(stepper: Stepper, begin: str | SourceStart, reason: str) -> Span:
    """Return the span to read: up to the pipeline's position, after offsets that were read for the same reason."""
    stands = stepper.last_read or Span({}, {}, {})
    from_there = replace(stepper.plan, spec=stepper.spec.with_source(start=begin))
    wanted = from_there.positioned_source.beginning()
    if wanted.identity != stands.identity:
        raise BackfillError.of(
            f"The source is not the one that '{stepper.spec.name}' has read.",
            got=wanted.source_text,
            allowed=stands.source_text,
        )
    start = {}
    end = {}
    for partition, first in wanted.start.items():
        end[partition] = stands.end.get(partition, first)
        start[partition] = min(first, end[partition])
    whole = replace(wanted, start=start, end=end)
    if not whole.size:
        raise ConfigError.of(
            f"'{stepper.spec.name}' has read no record after that start.",
            got=Asked(start=begin).text,
            allowed=f"a start before offsets {', '.join(map(str, stands.end.values()))}, the pipeline's position",
            next_step="Begin earlier.",
        )
    # All of the range was read before: the repeated command reads it again.
    left = _behind(stepper.last, reason, whole)
    return left if left.size else whole


def _behind(last: StepFacts | NoStep, reason: str, whole: Span) -> Span:
    """Return the rest of a span after the last step, if that step has read a part of it for the same reason."""
    if last.source.reread is None or last.cause.why != reason:
        return whole
    read = Span.from_json(last.source.reread)
    return whole.after(read.end)
