"""Builds a backfill: new tables of a pipeline, from the source's beginning or another offset, to be swapped with those in use.

A backfill is a separate pipeline under `ROOT/NAME/backfill`. Ordinary runs build it, so an interrupted build can be resumed, and
the pipeline itself keeps running. The swap holds the pipeline's lease, lets the backfill read the rest, and is one
step: its decision is the backfill's state; publishing it gives the sink the rows that differ, in one commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ebbtide.delta import Log
from ebbtide.durations import to_ms
from ebbtide.errors import BackfillError, ConfigError
from ebbtide.ledger import Cause, writer_of
from ebbtide.model import Decision, Replace, Source
from ebbtide.operations._backfill.asked import (
    ASKED,
    Asked,
    asked_of,
    beside_of,
    has_read_snapshot,
    is_swapped,
    log_begins_of,
    of_topic,
    refuse_other_log,
    refuse_unfit,
)
from ebbtide.operations._backfill.status import status
from ebbtide.operations._operation import Report, ignore
from ebbtide.operations._places import NOW, Place, of_folder, with_places
from ebbtide.operations._stepping import executor_of_runs, has_state, stepping
from ebbtide.runtime import Phase, Plan, StepProgress, run, system_clock
from ebbtide.sources import Span
from ebbtide.spec import Pipeline, SourceStart
from ebbtide.storage import Location

if TYPE_CHECKING:
    from ebbtide.executors import Executor


def start(
    executor: Executor,
    spec: Pipeline,
    root: str,
    begin: str | SourceStart | None = None,
    *,
    snapshot: str | None = None,
    max_records_per_second: int | None = None,
    on_progress: Callable[[StepProgress], None] = ignore,
    on_phase: Callable[[Phase], None] = ignore,
    stop: threading.Event | None = None,
    clock: Callable[[], int] = system_clock,
) -> Report:
    """Build a pipeline's new tables up to the newest record; resume an interrupted build.

    Args:
        spec: The pipeline, with the spec of the new tables.
        root: Folder of all pipelines' tables.
        begin: Start of reading. None: that of the present backfill, else the earliest record.
        snapshot: Topic of the same cluster with rows of the same form, completely read before the source. None: that of
            the present backfill, or none.
        max_records_per_second: Maximum rate. Default: from the spec.
        on_progress: Called after each of its steps.
        on_phase: Called as each phase begins.
        stop: Set it to end after the current step.
        clock: Returns the time, epoch ms.

    Raises:
        BackfillError: the pipeline cannot have a backfill, or another backfill was begun.
        ConfigError: the topic does not have the start, or no record after it.
        EbbtideError: as in a run.
    """
    tables = Plan.under(root, spec)
    tables.refuse_unable(Replace("", None), "backfill")
    refuse_unfit(tables)
    asked = _begun(tables, begin, snapshot, clock())
    stop = stop or threading.Event()
    beside = beside_of(spec, asked, max_records_per_second)
    _take_erasures(tables, beside)
    refuse_other_log(tables, Plan.under(tables.backfills, beside))
    build = partial(
        run,
        executor_of_runs(executor),
        root=tables.backfills,
        on_progress=on_progress,
        on_phase=on_phase,
        stop=stop,
        clock=clock,
        log_begins=log_begins_of(tables),
    )
    # A pipeline over the snapshot's topic reads it under the backfill's name. Then a step changes the source.
    if asked.snapshot is not None and not has_read_snapshot(tables, beside):
        build(spec=of_topic(beside, asked.snapshot))
        if stop.is_set():
            return status(spec, root, clock())
        _turn_to(executor, tables, beside, clock())
    # Each run reads records that arrived meanwhile. The loop ends when a run needs at most one batch, or does not read less than
    # the one before. Then records arrive as fast as they are read, and the swap reads the rest.
    n_before = None
    while not stop.is_set():
        done = build(spec=beside)
        n_read = done.totals["records"]
        n_batches = sum(step.kind == "batch" for step in done.steps)
        does_not_catch_up = n_before is not None and n_read >= n_before
        if n_batches <= 1 or does_not_catch_up:
            break
        n_before = n_read
    return status(spec, root, clock())


def _take_erasures(tables: Plan, beside: Pipeline) -> None:
    """Make a new backfill refuse records of keys that were erased in the pipeline."""
    commit = tables.state.last()
    taken = Plan.under(tables.backfills, beside)
    if commit is None or has_state(taken):
        return
    name = commit[1].state.erased
    if name is not None:
        taken.erasures.begin_with(name, tables.erasures.read(name))


def _turn_to(executor: Executor, tables: Plan, beside: Pipeline, now_ms: int) -> None:
    """Make the step with which a backfill continues from its snapshot to the pipeline's source."""
    plan = Plan.under(tables.backfills, beside)
    there = plan.source.discover({}, now_ms).span
    if not Log(plan.state.path).is_there() or plan.state.last() is None:
        raise BackfillError.of(
            f"The snapshot of '{beside.name}' is empty.",
            next_step="Run 'ebbtide backfill drop', and begin without it; or fill the topic first.",
        )
    with stepping(executor, plan) as stepper:
        stepper.publish(executor)
        position = None if there is None else there.beginning
        source = stepper.source_begun(position, Span.begun_at(stepper.source_start, position))
        facts = stepper.facts(Cause(what="source"), decision=Decision(source=Source.BEGIN), source=source)
        stepper.commit(facts, [])
        stepper.publish(executor)


def drop(spec: Pipeline, root: str) -> Report:
    """Delete a backfill. Starts no Spark.

    Args:
        root: Folder of all pipelines' tables.

    Raises:
        BackfillError: it is being swapped in.
        LeaseHeldError: it is being built.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    asked = asked_of(tables)
    # Publishing a swap deletes the folder; until then the decided step needs it.
    if commit is not None and asked is not None and is_swapped(tables, commit[1], asked):
        raise BackfillError.of(
            f"The backfill of '{spec.name}' is being swapped in, in step {commit[1].step}.",
            next_step="Run 'ebbtide run' or 'ebbtide backfill swap --apply': either completes the swap and drops the backfill.",
        )
    if tables.backfill.ledger.turn is not None:
        lease_ttl_s = to_ms(spec.lease_ttl) / 1000
        with tables.backfill.ledger.lease(lease_ttl_s):
            pass  # holding the lease proves that no run builds it
    places = places_of(tables)
    tables.delete_backfill()
    line = "there was no backfill." if asked is None else "backfill dropped."
    report = Report(spec.name, [line], details={"dropped": asked is not None})
    return with_places(report, places)


def plan_drop(spec: Pipeline, root: str) -> Report:
    """Plan the deletion of a backfill. Changes nothing."""
    tables = Plan.under(root, spec)
    places = places_of(tables)
    line = "there is no backfill." if asked_of(tables) is None else "the backfill to delete:"
    next_step = "To do it: 'ebbtide backfill drop'." if places else ""
    return with_places(Report(spec.name, [line], next_step=next_step), places)


def places_of(tables: Plan) -> list[Place]:
    """Return the place of a backfill's files."""
    return of_folder("backfill", tables.backfills, NOW)


def _refuse_nothing(tables: Plan, wanted: Asked, now_ms: int) -> None:
    """Refuse a start without later records before the request is stored, so that another start can be given."""
    if wanted.start == "earliest":
        return
    beside = beside_of(tables.spec, wanted)
    built = Plan.under(tables.backfills, beside)
    there = built.source.discover({}, now_ms)
    if not there.streams and wanted.snapshot is None:
        raise ConfigError.of(
            f"There is no record to build the backfill of '{tables.spec.name}' from.",
            got=wanted.text,
            allowed="a start before the last record of the topic",
            next_step="Begin earlier.",
        )


def _begun(tables: Plan, begin: str | SourceStart | None, snapshot: str | None, now_ms: int) -> Asked:
    """Store the request if no backfill was begun; refuse a request that differs from the stored one."""
    wanted = Asked(start="earliest" if begin is None else begin, snapshot=snapshot)
    by_position = tables.spec.source.by_position
    has_topic = tables.spec.source.topic is not None
    if snapshot is not None and (not (by_position and has_topic) or tables.spec.applies_in_order):
        raise BackfillError.of(
            f"'{tables.spec.name}' cannot begin with a snapshot: its rows would be applied in addition to their changes.",
            allowed="a topic, with order: {sequence: ...}",
        )
    if not by_position and wanted.start != "earliest":
        raise BackfillError.of(
            f"A backfill from a folder reads all its files, and '{tables.spec.name}' reads one.",
            got=wanted.text,
            allowed="earliest",
        )
    known = asked_of(tables)
    if known is None:
        _refuse_nothing(tables, wanted, now_ms)
        # Put if absent: if two processes begin a backfill, one stores its request and the other reads it.
        location = Location(tables.backfills) / ASKED
        content = wanted.model_dump_json().encode()
        writer_of(tables.backfills).put_if_absent(location, content)
        return asked_of(tables) or wanted
    is_named = begin is not None or snapshot is not None
    if is_named and known != wanted:
        raise BackfillError.of(
            f"Another backfill of '{tables.spec.name}' was begun.",
            got=wanted.text,
            allowed=known.text,
            next_step="Continue that one, or run 'ebbtide backfill drop' first.",
        )
    return known
