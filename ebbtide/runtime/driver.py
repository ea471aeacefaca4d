"""Runs a pipeline: a bounded stream of steps and a tick, under the lease. Plain functions, at home in any process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from pyspark.sql import SparkSession

from ebbtide.delta import log
from ebbtide.errors import (
    CheckpointMismatchError,
    LeaseAskedError,
    LeaseHeldError,
    PausedError,
    SourceLostError,
    SourceStartError,
    SpecChangedError,
    Transient,
)
from ebbtide.ledger.facts import StepFacts
from ebbtide.ledger.lease import Lease
from ebbtide.ledger.pauses import refuse_paused, wait_until_resumed
from ebbtide.ledger.puts import puts_of
from ebbtide.ledger.requests import Requests
from ebbtide.model.durations import to_ms
from ebbtide.runtime.batches import Batches
from ebbtide.runtime.belonging import OwnTables, refuse_lost_state, refuse_others_sink
from ebbtide.runtime.clock import Clock, system_clock
from ebbtide.runtime.following import Age, Faults, Following, Watcher
from ebbtide.runtime.pace import Pace
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.progress import OnPhase, OnProgress, Phase, RunSummary, StepProgress
from ebbtide.runtime.step import Stepper
from ebbtide.sources.source import Discovery, beginning_of, n_places
from ebbtide.spec.pipeline import Pipeline
from ebbtide.views.inputs import ViewTables

START_WAITS_S = (2.0, 10.0, 30.0)
"""Waits before the source is started again. Spark gives its Python process 10 s to connect, and no setting changes that: a
machine that is busy for a while is waited for, one that is broken is reported within a minute and a half."""
MOST_STEPS = 10_000
"""Steps of one run that its summary tells of, the last ones: a run may go on for weeks."""
MOST_HELD = 10
"""How long a run that goes on waits for a lease taken by somebody who had not asked, in `lease_ttl`s."""
HELD_POLL_S = 1.0
"""How often it looks."""
SLOW_START = "failed to connect back"
"""What Spark says when that process did not come up in time (`PythonWorkerFactory.createSimpleWorker`)."""
_log = logging.getLogger(__name__)


def ignore(report: object) -> None:
    """Discard a report."""


def run(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    *,
    on_progress: OnProgress = ignore,
    on_phase: OnPhase = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
    accept_source_path: bool = False,
    accept_loss: bool = False,
    follow: Following | None = None,
) -> RunSummary:
    """Read all that is there, bring the sink up to date, expire what is due, and end, or go on with what comes.

    Args:
        spark: A session with Delta; `ebbtide.runtime.session.build_session` makes one.
        spec: The pipeline.
        root: Folder of all pipelines' tables; this one's are in `root/name`.
        on_progress: Called after each step.
        on_phase: Called as each phase begins.
        stop: Set it to end the run after the step under way.
        clock: Returns the time, epoch ms: of the closing tick, and that files' ages count to.
        accept_source_path: The source has moved: go on reading where the spec now says.
        accept_loss: Records of the source are lost: go on with those that are left, and note it.
        follow: Go on until `stop` is set. Default: as the spec's `run` says.

    Raises:
        EbbtideError: see `ebbtide.errors`; the step under way has then left nothing, or is finished by the next run.
    """
    plan = Plan.under(root, spec)
    summary = RunSummary(spec.name, plan.root)
    stop = stop or threading.Event()
    follow = follow or following_of(spec)
    age = Age(follow.max_age_s if follow else None, stop)
    faults = Faults((follow or Following()).fault_budget_s)
    turn = partial(
        _under_lease,
        spark,
        spec,
        root,
        summary,
        on_progress,
        on_phase,
        stop,
        clock,
        fresh=False,
        accepts=accept_source_path,
        follow=follow,
        age=age,
        faults=faults,
    )
    try:
        turn(accepts_loss=accept_loss)
    except LeaseAskedError:
        _go_on_after_others(turn, plan, faults, on_phase, stop)
    except PausedError:
        if follow is None:
            raise
        _go_on_after_others(turn, plan, faults, on_phase, stop)
    except LeaseHeldError:
        # Maintenance has an end, and is waited for: so a run can take the place of one that made way for it.
        is_held_for_ever = plan.turn is not None and plan.turn.makes_way
        if follow is None or is_held_for_ever:
            raise
        _go_on_after_others(turn, plan, faults, on_phase, stop)
    summary.is_aged = age.is_reached
    return summary


def refresh(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    *,
    on_progress: OnProgress = ignore,
    on_phase: OnPhase = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
) -> RunSummary:
    """Forget state, sink rows, quarantine and checkpoint, and rebuild them from the source as the spec now is.

    Whatever the spec and the stored format were before, the tables are made again as they must be now. Their history
    stays. Arguments and errors are those of `run`.
    """
    summary = RunSummary(spec.name, Plan.under(root, spec).root)
    _under_lease(
        spark,
        spec,
        root,
        summary,
        on_progress,
        on_phase,
        stop or threading.Event(),
        clock,
        fresh=True,
        accepts=True,
    )
    return summary


def _go_on_after_others(
    turn: Callable[[], None],
    plan: Plan,
    faults: Faults,
    on_phase: OnPhase,
    stop: threading.Event,
) -> None:
    """Let those who ask have the lease, and take the next turn, until the run is stopped.

    Everything is opened anew: what they did may have changed the tables, the checkpoint, even the columns. Brokers and stores
    that are away just then are waited for, too.
    """
    requests = Requests(plan.at("ledger"))
    patience_s = to_ms(plan.spec.lease_ttl) / 1000
    end_s = time.monotonic() + MOST_HELD * patience_s
    while not stop.is_set():
        _wait_for_others(plan, requests, patience_s, on_phase, stop)
        if stop.is_set():
            return
        try:
            turn()
        except (LeaseAskedError, PausedError):
            end_s = time.monotonic() + MOST_HELD * patience_s
        except LeaseHeldError:  # by somebody who had not asked
            if time.monotonic() > end_s:
                raise
            stop.wait(HELD_POLL_S)
        except Transient as error:
            stop.wait(faults.wait_after(error))


def _wait_for_others(
    plan: Plan,
    requests: Requests,
    patience_s: float,
    on_phase: OnPhase,
    stop: threading.Event,
) -> None:
    """Wait until nobody asks for the lease, and the pipeline is not paused."""
    name = plan.spec.name
    if requests.names:
        on_phase(Phase(name, "making way for maintenance"))
        requests.wait_until_served(patience_s, stop)
    try:
        refuse_paused(name, plan.turn)
    except PausedError as paused:
        _log.warning("%s", paused)
        on_phase(Phase(name, "paused"))
        wait_until_resumed(plan.at("ledger"), stop)


def _under_lease(
    spark: SparkSession,
    spec: Pipeline,
    root: str,
    summary: RunSummary,
    on_progress: OnProgress,
    on_phase: OnPhase,
    stop: threading.Event,
    clock: Clock,
    *,
    fresh: bool,
    accepts: bool,
    accepts_loss: bool = False,
    follow: Following | None = None,
    age: Age | None = None,
    faults: Faults | None = None,
) -> None:
    plan = Plan.under(root, spec)

    def report(progress: StepProgress | None) -> None:
        if progress is not None:
            summary.steps.append(progress)
            del summary.steps[:-MOST_STEPS]
            on_progress(progress)

    def begin(name: str, step: int | None = None) -> None:
        files_read = stepper.parts_read if step else 0
        places_read = stepper.places_read if step else 0
        phase = Phase(spec.name, name, step, files_read, n_files, places_read, places)
        on_phase(phase)

    n_files = 0
    places = 0
    begin("opening the tables")
    _refuse_unfit(spark, plan, fresh=fresh)
    ledger = plan.at("ledger")
    lease_ttl_s = to_ms(spec.lease_ttl) / 1000
    with Lease(
        ledger,
        spec.name,
        lease_ttl_s,
        makes_way=follow is not None,
        asks=fresh,
    ) as lease:
        if not fresh and not log.versions(plan.state.path):
            refuse_lost_state(plan, OwnTables(plan))  # before an empty one is made in its place
        plan.state.create()
        pace = Pace(spec.source.max_records_per_second, stop)
        stepper = Stepper(plan, lease, clock(), fresh=fresh, on_phase=begin, pace=pace)
        if fresh:
            refuse_others_sink(plan, stepper.tables)
        else:
            stepper.refuse_misfits()
            refuse_changed_spec(plan, stepper)
            _refuse_other_path(stepper, accepts=accepts)
        plan.sink.create(spark)
        if spec.emits_every:
            plan.changelog.create()
        stepper.source_path = spec.source_path
        if fresh:
            incarnation = lease.renew_incarnation()
            stepper.reset(spark, incarnation, clock())
        _refuse_other_checkpoint(plan, stepper)
        stepper.publish(spark)
        begin("listing the source")
        if accepts_loss:
            loss = _accept_loss(spark, plan, stepper, clock())
            report(loss)
        found = _discover(plan, stepper, clock())
        n_files = len(found.parts)
        places = 0 if follow else n_places(found.position)
        _note_found(summary, found)
        _read(spark, plan, found, stepper, report, stop, clock, begin, follow, age, faults)
        if not stop.is_set():
            tick = stepper.tick(spark, clock())
            report(tick)


def _refuse_unfit(spark: SparkSession, plan: Plan, *, fresh: bool) -> None:
    """Refuse a run before anything is made: of a pipeline that is paused, a source that is not there, a transform that cannot be.

    That a source is there is asked before tables are made, or emptied; else that is left to `discover`, which asks once.
    """
    refuse_paused(plan.spec.name, plan.turn)
    if fresh or not log.versions(plan.state.path):
        plan.source.refuse_absent()
    refuse_unfit_transform(spark, plan)


def _note_found(summary: RunSummary, found: Discovery) -> None:
    summary.nothing_matched = found.nothing_matched
    summary.files_unmatched = found.unmatched
    summary.files_young = found.young


def following_of(spec: Pipeline) -> Following | None:
    """Return how a spec's runs go on; None if they end."""
    if spec.run == "bounded":
        return None
    max_age_s = None if spec.max_run_age is None else spec.max_run_age.total_seconds()
    return Following(to_ms(spec.trigger_interval), max_age_s=max_age_s)


def refuse_unfit_transform(spark: SparkSession, plan: Plan) -> None:
    """Refuse a transform that Spark cannot evaluate row by row; without one nothing is asked of Spark.

    Raises:
        ConfigError: see `ebbtide.runtime.expressions`.
    """
    if not plan.spec.has_transform:
        return
    from ebbtide.runtime.selection import expressions_of

    expressions_of(spark, plan).refuse_unfit()


def _refuse_other_checkpoint(plan: Plan, stepper: Stepper) -> None:
    """Refuse a checkpoint that does not belong to the stored state."""
    last = stepper.last
    checkpoint = plan.checkpoint
    if last is None:
        if checkpoint.last_committed() is not None:
            raise CheckpointMismatchError.of(
                f"The checkpoint '{checkpoint.path}' has committed batches, but the state at '{plan.state.path}' has no steps.",
                next_step="Restore the state table, or run 'ebbtide refresh' to rebuild both.",
            )
        return
    if last.batch_id is None:
        return
    if checkpoint.query_id != last.query_id:
        got = "none" if checkpoint.query_id is None else f"another one ({checkpoint.query_id})"
        raise CheckpointMismatchError.of(
            f"The state at '{plan.state.path}' stands at step {last.step}, but its checkpoint is gone.",
            got=got,
            allowed=f"the checkpoint with id {last.query_id} at '{checkpoint.path}'",
            next_step="Restore it, or run 'ebbtide refresh' to rebuild the sink from the source.",
        )


def _accept_loss(spark: SparkSession, plan: Plan, stepper: Stepper, now_ms: int) -> StepProgress | None:
    """Note which records of the source are lost, if any are, and go on behind them."""
    since = plan.follows_on(stepper.position)
    if since is None:
        return None
    try:
        plan.source.discover(stepper.files_read(), now_ms, since)
    except SourceLostError as error:
        left = plan.source.discover_left(since).position
        if left is None:
            raise
        return stepper.accept_loss(spark, beginning_of(left), str(error), now_ms)
    return None


def _discover(plan: Plan, stepper: Stepper, now_ms: int) -> Discovery:
    """Find what the run reads."""
    files_read = stepper.files_read()
    since = plan.follows_on(stepper.position)
    found = plan.source.discover(files_read, now_ms, since)
    if since is None and found.position is not None:
        plan.checkpoint.note_start(found.position)
    last_batch = stepper.last.batch_id if stepper.last else None
    plan.checkpoint.forget_undecided(last_batch)
    return found


def refuse_changed_spec(plan: Plan, stepper: Stepper) -> None:
    """Refuse a spec that does not fit the stored state.

    Raises:
        SpecChangedError: source, format, key, order, columns or ttl are not those of the last step.
    """
    if stepper.last is not None:
        refuse_misfit(plan, stepper.last)


def refuse_misfit(plan: Plan, last: StepFacts) -> None:
    """Refuse a spec that does not fit the last step; see `refuse_changed_spec`."""
    given = plan.spec.identity
    stored = last.spec
    changed = plan.spec.misfits(stored)
    if not changed:
        return
    may_migrate = set(plan.spec.migrates)
    if "columns" in changed:
        may_migrate.add("format")  # what it says of single columns may change with them
    can_migrate = set(changed) <= may_migrate
    is_other_source = "source" in changed or "format" in changed
    if can_migrate:
        next_step = "Change it back, or run 'ebbtide migrate' to see what it would do to the stored state."
    elif is_other_source:
        next_step = "Is it another pipeline? Then give it a name of its own. Else change it back, or run 'ebbtide refresh' to rebuild the sink from this source."
    else:
        next_step = "Change it back, or run 'ebbtide refresh' to rebuild the sink from the source."
    given_parts = [f"{name}: {given.get(name)}" for name in changed]
    stored_parts = [f"{name}: {stored.get(name)}" for name in changed]
    raise SpecChangedError.of(
        f"The spec of '{plan.spec.name}' no longer fits its stored state.",
        got="; ".join(given_parts),
        allowed="; ".join(stored_parts),
        next_step=next_step,
    )


def _refuse_other_path(stepper: Stepper, *, accepts: bool) -> None:
    """Refuse a source that is somewhere else than at the last step, unless it is said to have moved."""
    stored = stepper.source_path
    given = stepper.spec.source_path
    has_moved = stored is not None and stored != given
    if has_moved and not accepts:
        raise SpecChangedError.of(
            f"The source of '{stepper.spec.name}' is not where it was.",
            got=given,
            allowed=stored,
            next_step="If the same files have moved there, run 'ebbtide run --accept-source-path' once. If it is another pipeline, give it a name of its own.",
        )


def start_patiently(attempt: Callable[[], None], begun: threading.Event, stop: threading.Event) -> None:
    """Run `attempt` again while Spark's process for the source does not come up in time.

    Args:
        attempt: Streams; fails with Spark's error.
        begun: Set once a step has begun: from then on nothing is tried again.
        stop: Ends the waiting.

    Raises:
        SourceStartError: it did not come up in any attempt.
    """
    for number, wait_s in enumerate((*START_WAITS_S, None), 1):
        try:
            attempt()
        except Exception as error:
            if begun.is_set() or SLOW_START not in str(error):
                raise
            if wait_s is None:
                raise SourceStartError.of(
                    f"Spark's Python process for the source did not connect within 10 s, {number} times; no step was begun.",
                    next_step="Run again when the machine is less busy.",
                ) from error
            _log.warning(
                "Spark's Python process for the source did not connect within 10 s, on a busy machine perhaps; "
                "attempt %d in %g s. No step was begun.",
                number + 1,
                wait_s,
            )
            if stop.wait(wait_s):
                return
        else:
            return


def _read(
    spark: SparkSession,
    plan: Plan,
    found: Discovery,
    stepper: Stepper,
    report: Callable[[StepProgress | None], None],
    stop: threading.Event,
    clock: Clock,
    begin: Callable[[str], None],
    follow: Following | None,
    age: Age | None,
    faults: Faults | None,
) -> None:
    """Read what was found, and with `follow` what comes."""
    if follow is not None:
        begin("starting the stream")
        age = age or Age(None, stop)
        faults = faults or Faults(follow.fault_budget_s)
        _follow(spark, plan, found, stepper, report, stop, clock, follow, age, faults)
    elif not (found.streams or plan.checkpoint.is_open):
        return
    elif isinstance(plan.source, ViewTables):
        report(_view_step(spark, plan, plan.source, stepper, clock()))
    else:
        begin("starting the stream")
        begun = threading.Event()
        attempt = partial(_stream, spark, plan, found, stepper, report, stop, begun)
        start_patiently(attempt, begun, stop)


def _view_step(spark: SparkSession, plan: Plan, tables: ViewTables, stepper: Stepper, now_ms: int) -> StepProgress:
    """Make the one step of a materialized view's run: up to the versions that its tables have now.

    A step that was decided, and not finished, is finished instead.
    """
    checkpoint = plan.checkpoint
    puts = puts_of(checkpoint.path)
    checkpoint.begin(puts)
    if not checkpoint.is_open:
        last = checkpoint.last_committed()
        batch_id = 0 if last is None else last + 1
        checkpoint.plan(puts, batch_id, now_ms, tables.pinned().model_dump_json())
    batch_id = checkpoint.last_planned() or 0
    nothing = spark.range(0)
    progress = stepper.batch(nothing, batch_id)
    checkpoint.commit(puts, batch_id)
    return progress


def _follow(
    spark: SparkSession,
    plan: Plan,
    found: Discovery,
    stepper: Stepper,
    report: Callable[[StepProgress | None], None],
    stop: threading.Event,
    clock: Clock,
    follow: Following,
    age: Age,
    faults: Faults,
) -> None:
    """Stream until `stop` is set. A fault that may pass ends the stream; it is started again where it was."""

    def report_success(progress: StepProgress | None) -> None:
        faults.passed()
        report(progress)
        age.look()

    def look_around() -> None:
        # Not while a fault is waited out, with which a new run would fail; nor before what waits is read.
        is_idle = watcher.look()
        if is_idle:
            age.look()

    is_again = False
    while not stop.is_set():
        watcher = Watcher(spark, plan, stepper, follow, faults, clock, report)
        begun = threading.Event()
        try:
            if is_again:
                stepper.publish(spark)
                found = _discover(plan, stepper, clock())
            attempt = partial(_stream, spark, plan, found, stepper, report_success, stop, begun, follow, look_around)
            start_patiently(attempt, begun, stop)
        except Transient as error:
            stop.wait(faults.wait_after(error))
            is_again = True


def _stream(
    spark: SparkSession,
    plan: Plan,
    found: Discovery,
    stepper: Stepper,
    report: Callable[[StepProgress | None], None],
    stop: threading.Event,
    begun: threading.Event,
    follow: Following | None = None,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Drive Spark's micro-batches until the source is read up or `stop` is set; `begun` is set with the first.

    With `follow` only `stop` ends it, and `between` is called now and then while no batch is under way.
    """
    batches = Batches(
        lambda frame, batch_id: report(stepper.batch(frame, batch_id)),
        between,
        stop,
        begun,
    )
    frame = plan.source.stream(spark, found, plan.at("plan.json"))
    writer = frame.writeStream.foreachBatch(batches.on_batch)
    writer = writer.queryName(plan.spec.name)
    writer = writer.option("checkpointLocation", plan.checkpoint.path)
    if follow is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{follow.interval_ms} milliseconds")
    query = writer.start()
    batches.drive(query, plan.spec.name)
