"""Builds a backfill: a pipeline's tables are built again beside those in use, from the source's beginning or another offset, and swapped in.

A backfill is a pipeline of its own under `ROOT/NAME/backfill`. Ordinary runs build it, so an interrupted build is resumed, and the pipeline
itself runs meanwhile. The swap holds the pipeline's lease, lets the backfill read the rest, and is one step: its decision is the backfill's
state; publishing it gives the sink the rows that differ, in one commit (`ebbtide.runtime._swap`).
"""

from __future__ import annotations

import threading
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
from ebbtide.operations._operation import Report
from ebbtide.operations._places import of_folder, with_places
from ebbtide.operations._stepping import has_state, stepping
from ebbtide.runtime import NOW, Clock, OnPhase, OnProgress, Place, Plan, ignore, refuse_action, system_clock
from ebbtide.runtime import _driver as driver
from ebbtide.runtime._swap import delete_backfill
from ebbtide.sources import begun_at
from ebbtide.spec import Pipeline, SourceStart
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    begin: str | SourceStart | None = None,
    *,
    snapshot: str | None = None,
    max_records_per_second: int | None = None,
    on_progress: OnProgress = ignore,
    on_phase: OnPhase = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
) -> Report:
    """Build a pipeline's tables beside those in use, up to the newest record; resume a build that was begun.

    Args:
        spark: A session with Delta.
        spec: The pipeline, as its tables are to be.
        root: Folder of all pipelines' tables.
        begin: Where to begin to read. None: as the begun backfill does, else at the earliest record.
        snapshot: Topic of the same cluster with rows of the same form, read whole before the source. None: as begun, or none.
        max_records_per_second: Its pace. Default: as the spec says.
        on_progress: Called after each of its steps.
        on_phase: Called as each phase begins.
        stop: Set it to end after the step under way.
        clock: Returns the time, epoch ms.

    Raises:
        BackfillError: the pipeline cannot be built beside itself, or another backfill was begun.
        ConfigError: the place is not one of the topic, or no record is behind it.
        EbbtideError: as of a run.
    """
    tables = Plan.under(root, spec)
    refuse_action(tables, Replace("", None), "backfill")
    refuse_unfit(tables)
    asked = _begun(tables, begin, snapshot, clock())
    stop = stop or threading.Event()
    beside = beside_of(spec, asked, max_records_per_second)
    _take_erasures(tables, beside)
    refuse_other_log(tables, Plan.under(tables.backfills, beside))
    run = partial(
        driver.run,
        spark,
        root=tables.backfills,
        on_progress=on_progress,
        on_phase=on_phase,
        stop=stop,
        clock=clock,
        log_begins=log_begins_of(tables),
    )
    # The snapshot is read by a pipeline over its own topic, under the backfill's name; then the source is changed by a step.
    if asked.snapshot is not None and not has_read_snapshot(tables, beside):
        run(spec=of_topic(beside, asked.snapshot))
        if stop.is_set():
            return status(spec, root, clock())
        _turn_to(spark, tables, beside, clock())
    # Each run reads what has arrived meanwhile. The loop ends when a run needs one batch at most, or reads no less than the
    # one before: then records arrive as fast as they are read, and the swap reads the rest.
    n_before = None
    while not stop.is_set():
        done = run(spec=beside)
        n_read = done.totals["records"]
        n_batches = sum(step.kind == "batch" for step in done.steps)
        does_not_catch_up = n_before is not None and n_read >= n_before
        if n_batches <= 1 or does_not_catch_up:
            break
        n_before = n_read
    return status(spec, root, clock())


def _take_erasures(tables: Plan, beside: Pipeline) -> None:
    """Have a backfill without a step refuse the records of keys that were erased in the pipeline."""
    commit = tables.state.last()
    taken = Plan.under(tables.backfills, beside)
    if commit is None or has_state(taken):
        return
    name = commit[1].state.erased
    if name is not None:
        taken.erasures.begin_with(name, tables.erasures.read(name))


def _turn_to(spark: SparkSession, tables: Plan, beside: Pipeline, now_ms: int) -> None:
    """Make the step by which a backfill that has read its snapshot goes on to the pipeline's own source."""
    plan = Plan.under(tables.backfills, beside)
    there = plan.source.discover({}, now_ms).span
    if not Log(plan.state.path).versions() or plan.state.last() is None:
        raise BackfillError.of(
            f"The snapshot of '{beside.name}' is empty.",
            next_step="Run 'ebbtide backfill drop', and begin without it; or fill the topic first.",
        )
    with stepping(spark, plan) as stepper:
        stepper.publish(spark)
        position = None if there is None else there.beginning
        source = stepper.source_begun(position, begun_at(stepper.source_start, position))
        facts = stepper.facts(Cause(what="source"), decision=Decision(source=Source.BEGIN), source=source)
        stepper.commit(facts, [])
        stepper.publish(spark)


def drop(spec: Pipeline, root: str) -> Report:
    """Delete a backfill. Starts no Spark.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.

    Raises:
        BackfillError: it is being swapped in.
        LeaseHeldError: it is being built.
    """
    tables = Plan.under(root, spec)
    commit = tables.state.last()
    asked = asked_of(tables)
    # A swap deletes the folder itself when it is published; until then the decided step needs it.
    if commit is not None and asked is not None and is_swapped(tables, commit[1], asked):
        raise BackfillError.of(
            f"The backfill of '{spec.name}' is being swapped in, in step {commit[1].step}.",
            next_step="Run 'ebbtide run' or 'ebbtide backfill swap --apply': either ends that, and drops it.",
        )
    if tables.backfill.ledger.turn is not None:
        lease_ttl_s = to_ms(spec.lease_ttl) / 1000
        with tables.backfill.ledger.lease(lease_ttl_s):
            pass  # holding the lease shows that no run builds it
    places = places_of(tables)
    delete_backfill(tables)
    line = "there was no backfill." if asked is None else "backfill dropped."
    report = Report(spec.name, [line], details={"dropped": asked is not None})
    return with_places(report, places)


def plan_drop(spec: Pipeline, root: str) -> Report:
    """Plan it. Changes nothing."""
    tables = Plan.under(root, spec)
    places = places_of(tables)
    line = "there is no backfill." if asked_of(tables) is None else "the backfill to delete:"
    next_step = "To do it: 'ebbtide backfill drop'." if places else ""
    return with_places(Report(spec.name, [line], next_step=next_step), places)


def places_of(tables: Plan) -> list[Place]:
    """Return the place of the files of a backfill."""
    return of_folder("backfill", tables.backfills, NOW)


def _refuse_nothing(tables: Plan, wanted: Asked, now_ms: int) -> None:
    """Refuse a start without a record behind it, before the request is stored: another one can then be named."""
    if wanted.start == "earliest":
        return
    beside = beside_of(tables.spec, wanted)
    built = Plan.under(tables.backfills, beside)
    there = built.source.discover({}, now_ms)
    if not there.streams and wanted.snapshot is None:
        raise ConfigError.of(
            f"There is no record to build the backfill of '{tables.spec.name}' from.",
            got=wanted.text,
            allowed="a place before the last record of the topic",
            next_step="Begin earlier.",
        )


def _begun(tables: Plan, begin: str | SourceStart | None, snapshot: str | None, now_ms: int) -> Asked:
    """Store the request if no backfill was begun; refuse a request that differs from the stored one."""
    wanted = Asked(start="earliest" if begin is None else begin, snapshot=snapshot)
    by_position = tables.spec.source.by_position
    has_topic = tables.spec.source.topic is not None
    if snapshot is not None and (not (by_position and has_topic) or tables.spec.applies_in_order):
        raise BackfillError.of(
            f"'{tables.spec.name}' cannot begin with a snapshot: its rows would be applied beside the changes that they are made of.",
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
        # Put if absent: of two processes that begin a backfill, one stores its request and the other reads it.
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
            next_step="Go on with that one, or run 'ebbtide backfill drop' first.",
        )
    return known
