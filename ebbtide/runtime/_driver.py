"""Runs a pipeline: a bounded stream of steps and a tick, under the lease. At home in any process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebbtide.delta import Log
from ebbtide.durations import to_ms
from ebbtide.errors import (
    ConfigError,
    LeaseAskedError,
    LeaseHeldError,
    PausedError,
    QuarantineThresholdError,
    Transient,
)
from ebbtide.executors import Executor
from ebbtide.ledger import Lease
from ebbtide.model import Apply, Clear, Decision, Frontier, Rewrite
from ebbtide.runtime._diagnosis import Diagnosis
from ebbtide.runtime._engines import Engine, in_own_steps
from ebbtide.runtime._following import Faults, Following, GoingOn
from ebbtide.runtime._kept_runs import note_left
from ebbtide.runtime._observers import Look, Observer, Observers, RunBegun, built_in_observers
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._progress import OnPhase, OnProgress, Phase, RunSummary, StepProgress, ignore
from ebbtide.runtime._purging import finish_purge, purge_view
from ebbtide.runtime._reading import SourceSteps
from ebbtide.runtime._refusals import (
    lost_by_refresh,
    refuse_rereading,
    refuse_unfit,
)
from ebbtide.runtime._step import Stepper
from ebbtide.runtime._stream import Stream
from ebbtide.runtime._timing import Clock, InTurn, at_once, system_clock
from ebbtide.runtime._unused import drop_unused_of_another_spec
from ebbtide.sessions import executor_of
from ebbtide.sources import Discovery
from ebbtide.spec import Pipeline
from ebbtide.storage import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_HELD = 10
"""Time that a continuous run waits for a lease that another process took without a request, in `lease_ttl`s."""
HELD_POLL_S = 1.0
"""Seconds between two looks for it."""
_log = logging.getLogger(__name__)


def run(
    executor: Executor | SparkSession,
    spec: Pipeline,
    root: str,
    *,
    on_progress: OnProgress = ignore,
    on_phase: OnPhase = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
    accept_source_path: bool = False,
    accept_loss: bool = False,
    accept_changed_files: bool = False,
    follow: Following | None = None,
    observers: Sequence[Observer] = (),
    in_turn: InTurn = at_once,
    log_begins: tuple[int, ...] = (),
) -> RunSummary:
    """Process all waiting input, update the sink and expire old state; then end, or continue with new input.

    Args:
        executor: Runs the work: a session of Spark with Delta, as `ebbtide.build_session` makes one; `ebbtide.InProcess()`; or
            `ebbtide.Automatic()`, which lets the run choose.
        root: Folder of all pipelines' tables; this one's are in `root/name`.
        on_progress: Called after each step.
        on_phase: Called as each phase begins.
        stop: Set it to end the run after the step under way.
        clock: Returns the time for the closing tick and for files' ages, epoch ms.
        accept_source_path: The source has moved: continue reading at the spec's new path.
        accept_loss: Records of the source are lost: continue with the remaining ones, and note the loss.
        accept_changed_files: By sequence: read files again that have changed since they were read.
        follow: Continue until `stop` is set. Default: from the spec's `run`.
        observers: Watch it, in addition to observers from the environment (docs/how-to/observability.md).
        in_turn: Makes a piece of work when it is this run's turn, in a process with many (`ebbtide.fleet`).
        log_begins: What tables without a step know of the source's log, see `ebbtide.model._step.Frontier.log_begins`.

    Raises:
        EbbtideError: see `ebbtide.errors`; the step under way has then left nothing, or is finished by the next run.
    """
    stop = stop or threading.Event()
    follow = follow or following_of(spec)
    going_on = GoingOn.of(follow, stop) if follow else None
    events = Observers(on_progress, on_phase, [*observers, *built_in_observers()])
    asked = _Run(
        executor_of(executor),
        spec,
        root,
        events,
        stop,
        clock,
        going_on,
        in_turn=in_turn,
        rereads_changed=accept_changed_files,
        log_begins=log_begins,
    )
    begun = RunBegun(spec, root, goes_on=going_on is not None)
    with events.watch(begun, asked.summary, stop):
        if going_on is None:
            asked.turn(accepts_path=accept_source_path, accepts_loss=accept_loss)
        else:
            asked.go_on(going_on, accepts_path=accept_source_path, accepts_loss=accept_loss)
    return asked.summary


def refresh(
    executor: Executor | SparkSession,
    spec: Pipeline,
    root: str,
    *,
    on_progress: OnProgress = ignore,
    on_phase: OnPhase = ignore,
    stop: threading.Event | None = None,
    clock: Clock = system_clock,
    accept_loss: bool = False,
    observers: Sequence[Observer] = (),
) -> RunSummary:
    """Forget state, sink rows and quarantine, and rebuild them from the source as the spec now is.

    The tables are created again for the present spec and format, regardless of the former ones. Their history
    stays, and so does what was acknowledged of the source's log. The first step is first tried separately: a refusal
    changes nothing. Arguments and errors are those of `run`. With `accept_loss` it is rebuilt from what is left of the
    source, and what is gone is noted.
    """
    stop = stop or threading.Event()
    events = Observers(on_progress, on_phase, [*observers, *built_in_observers()])
    asked = _Run(executor_of(executor), spec, root, events, stop, clock, is_fresh=True)
    with events.watch(RunBegun(spec, root, goes_on=False, is_fresh=True), asked.summary, stop):
        asked.turn(accepts_path=True, accepts_loss=accept_loss)
    return asked.summary


def _clear_the_way(plan: Plan) -> None:
    """Before tables are made that are not there: refuse a state that was lost, and drop tables that the spec's change left unused."""
    if not Log(plan.state.path).is_there():
        Diagnosis.before_first_step(plan).refuse("state")
    drop_unused_of_another_spec(plan)


def _set_unreadable_aside(plan: Plan, stepper: Stepper) -> None:
    """Move the folders of tables aside whose log cannot be read: a refresh makes them again."""
    for name, reason in stepper.tables.leave_out_unreadable().items():
        aside = Location(plan.at(name)).move_aside()
        _log.warning("The %s could not be read, and is now at '%s'. %s", name, aside, reason)
    stepper.look_again()


def reset(stepper: Stepper, clock_ms: int, lost: str | None) -> None:
    """Commit the step that starts over: an empty state is the decision; the sink and the quarantine follow.

    Args:
        stepper: Makes it; under a new incarnation from then on.
        clock_ms: The time, epoch ms.
        lost: What cannot be read again, where a user accepted that.
    """
    frontier = Frontier.reset(stepper.next_clock(clock_ms), _log_begins_kept(stepper))
    begun = stepper.source_begun(read=None, start=None)
    source = begun.model_copy(update={"lost": lost})
    cleared = {name: Clear() for name in Decision.OWN_OUTPUTS}
    forgotten = {"pending_key_changes": False}
    facts = stepper.begun_elsewhere("reset", cleared, source, frontier, forgotten)
    emptied = stepper.plan.state.emptied(stepper.found())
    stepper.commit(facts, emptied)


def _log_begins_kept(stepper: Stepper) -> tuple[int, ...]:
    """Return the event times at which the source's log restarted, for an order that can have epochs."""
    return stepper.log_begins if stepper.plan.has_epochs else ()


def following_of(spec: Pipeline) -> Following | None:
    """Return the settings of a spec's continuous runs; None for bounded runs."""
    if spec.run == "bounded":
        return None
    max_age_s = None if spec.max_run_age is None else spec.max_run_age.total_seconds()
    return Following(to_ms(spec.trigger_interval), max_age_s=max_age_s)


@dataclass
class _Run:
    """A run, and its summary. Each turn takes the lease and opens all tables again.

    Args:
        spark, spec, root, stop, clock: See `run`.
        events: Takes what happens.
        going_on: Settings of a continuous run; None: a bounded run.
        is_fresh: All is forgotten first, and read again.
        in_turn, log_begins: See `run`.
    """

    executor: Executor
    spec: Pipeline
    root: str
    events: Observers
    stop: threading.Event
    clock: Clock
    going_on: GoingOn | None = None
    is_fresh: bool = False
    in_turn: InTurn = at_once
    rereads_changed: bool = False
    log_begins: tuple[int, ...] = ()
    summary: RunSummary = field(init=False)

    _query: AbstractContextManager[object] = field(default_factory=nullcontext, init=False)
    """The query of a function, which hands rows over while the lease is held."""

    def __post_init__(self) -> None:
        """Begin the summary."""
        self.spec = in_own_steps(self.executor, self.spec, self.root)
        self.summary = RunSummary(self.spec.name, self.plan.root)
        if self.spec.awaits_stream:
            self._start_query_with_lease()

    def _start_query_with_lease(self) -> None:
        """Have the rows of the pipeline's function handed over, by a query that runs while the lease is held.

        Raises:
            ConfigError: the pipeline has no function.
        """
        spec = self.spec
        if spec.stream_function is None:
            raise ConfigError.of(
                f"'{spec.name}' gets its rows from a query of Spark, and reads none by itself.",
                got="no rows",
                allowed="rows of the program that has the query, or source.function",
                next_step="Hand them over there: writeStream.foreachBatch(ebbtide.spark.into(spec, root)).",
            )
        from ebbtide.runtime._function_query import FunctionQuery  # loads PySpark

        query = FunctionQuery(
            spec.name,
            spec.stream_function,
            self.plan.root,
            self.executor.spark,
            every_ms=self.going_on.following.interval_ms if self.going_on else None,
            reads_twice=spec.has_transform,
        )
        self._query = query
        self.spec = spec.handed(query)

    @property
    def plan(self) -> Plan:
        """The pipeline's tables and source, opened again."""
        return Plan.under(self.root, self.spec)

    def turn(self, *, accepts_path: bool = False, accepts_loss: bool = False) -> None:
        """Take the lease, read, and tick at the end.

        Args:
            accepts_path: The source may be somewhere else than at the last step.
            accepts_loss: Records of it may be lost.
        """
        plan = self.plan
        mark = plan.erasures.unfinished() if self.spec.is_view else None
        if mark is not None:
            self.is_fresh = True  # an input's rows were erased
        shown = _Phases(self.spec.name, self.events.phase)
        shown.begin("opening the tables")
        engine = Engine.for_spec(self.executor, self.spec, self.root)
        self.executor = engine.executor
        refuse_unfit(self.executor, plan, fresh=self.is_fresh)
        if self.rereads_changed:
            refuse_rereading(plan)
        with (
            plan.ledger.lease(
                self._lease_ttl_s,
                makes_way=self.going_on is not None,
                asks=self.is_fresh,
            ) as lease,
            self._query,
        ):
            self.summary.epoch = lease.facts.epoch
            note_left(plan.root, lease)
            steps = self.in_turn(
                lambda: self._opened(plan, lease, shown, accepts_path=accepts_path, accepts_loss=accepts_loss)
            )
            stepper = steps.stepper
            stream = Stream(engine, steps, self._report, shown.begin, self.stop, self.clock, self.in_turn)
            stream.rereads_changed, self.rereads_changed = self.rereads_changed, False  # in the first turn alone
            shown.begin("listing the source")
            if accepts_loss and not self.is_fresh:
                stream.accept_loss()
            found = self.in_turn(stream.discover)
            self._note(found)
            if self.going_on is None:
                shown.found = found
                stream.read(found)
            else:
                stream.follow(found, self.going_on)
            if not self.stop.is_set():
                tick = steps.tick(self.executor, self.clock())
                self._report(tick)
            if mark is not None and not self.stop.is_set():
                purge_view(stepper, mark)
            self.summary.engine = stream.engine.text()
            look = plan.look_for_foreign_writes(lease.facts)
            lease.note(look.looked)
        self.summary.foreign_writes = look.writes

    def _opened(
        self,
        plan: Plan,
        lease: Lease,
        shown: _Phases,
        *,
        accepts_path: bool,
        accepts_loss: bool,
    ) -> SourceSteps:
        """Open the tables, make those that are not there, and return what makes steps in them."""
        if not self.is_fresh:
            _clear_the_way(plan)
        lease.settle(is_fresh=self.is_fresh)
        plan.state.create()
        stepper = Stepper(plan, lease, self.clock(), fresh=self.is_fresh, log_begins=self.log_begins)
        steps = SourceSteps.at_rate(self.spec.source.max_records_per_second, stepper, self.stop, shown.begin)
        steps.on_look = lambda found: self.events.look(Look(steps, found, steps.parts_read))
        shown.steps = steps
        self._open(plan, steps, accepts_path=accepts_path, accepts_loss=accepts_loss)
        return steps

    def go_on(self, going_on: GoingOn, *, accepts_path: bool, accepts_loss: bool) -> None:
        """Read what comes until it is stopped, in as many turns as maintenance makes of it.

        Args:
            going_on: How.
            accepts_path: Of the first turn, see `turn`.
            accepts_loss: The same.
        """
        has_ended = False
        try:
            self.turn(accepts_path=accepts_path, accepts_loss=accepts_loss)
            has_ended = True
        except (LeaseAskedError, PausedError):
            pass  # continues below: an error that is being handled would be held meanwhile, with all tables of its turn
        except LeaseHeldError:
            # Maintenance has an end, and is waited for: so a run can take the place of one that made way for it.
            newest = self.plan.ledger.turn
            is_held_by_a_run = newest is not None and newest.makes_way
            if is_held_by_a_run:
                raise
        if not has_ended:
            self.go_on_after_maintenance(going_on)
        self.summary.is_aged = going_on.age.is_reached

    def go_on_after_maintenance(self, going_on: GoingOn) -> None:
        """Give the lease to processes that ask for it, and take the next turn, until the run is stopped.

        Everything is opened again: maintenance may have changed the tables, even the columns. Brokers and stores
        that are unreachable at that moment are also waited for.

        Args:
            going_on: Its faults.
        """
        patience_s = MOST_HELD * self._lease_ttl_s
        end_s = time.monotonic() + patience_s
        while not self.stop.is_set():
            try:
                self._wait_for_the_lease(going_on.faults)
                if self.stop.is_set():
                    return
                self.turn()
            except (LeaseAskedError, PausedError):
                end_s = time.monotonic() + patience_s
            except LeaseHeldError:  # by a process that had not asked
                if time.monotonic() > end_s:
                    raise
                self.stop.wait(HELD_POLL_S)
            except Transient as error:
                self.stop.wait(going_on.faults.wait_after(error))

    @property
    def _lease_ttl_s(self) -> float:
        return to_ms(self.spec.lease_ttl) / 1000

    def _open(
        self,
        plan: Plan,
        steps: SourceSteps,
        *,
        accepts_path: bool,
        accepts_loss: bool,
    ) -> None:
        """Refuse what does not fit, and make or empty the tables; a step that was decided is finished."""
        stepper = steps.stepper
        lost: str | None = None
        if self.is_fresh:
            _set_unreadable_aside(plan, stepper)
            stepper.diagnosis.refuse("place of the sink")
            lost = lost_by_refresh(plan, stepper, accepts=accepts_loss)
            self._rehearse(stepper)
        else:
            stepper.diagnosis.refuse(*Diagnosis.BELONGING, "files", "spec")
            if not accepts_path:
                stepper.diagnosis.refuse("place of the source")
        plan.refuse_unable_outputs(Apply(), Rewrite())
        plan.create_outputs(self.executor)
        stepper.source_path = self.spec.source_path
        if self.is_fresh:
            reset(stepper, self.clock(), lost)
        is_open = steps.is_open
        stepper.publish(self.executor)
        finish_purge(stepper)
        stepper.plan.sink.refuse_altered(stepper.tables.sink())
        if is_open:
            self._report(steps.replayed(self.executor))
        stepper.fill_new_outputs(self.executor)

    def _rehearse(self, stepper: Stepper) -> None:
        """Make the first step in a temporary folder, so that a failure or refusal does not empty a table in use.

        Not of a view, whose only step would be computed twice. Records of erased keys are refused there, too.

        Args:
            stepper: Knows the source's log and what was erased.
        """
        if self.spec.is_view:
            return
        self.events.phase(Phase(self.spec.name, "trying the first step"))
        plan = stepper.plan
        Location(plan.rehearsal).delete()
        erased = plan.erasures.newest(stepper.last)
        if erased is not None:
            Plan.under(plan.rehearsal, self.spec).erasures.begin_with(erased, plan.erasures.read(erased))
        stop = threading.Event()

        def end(_: StepProgress) -> None:
            stop.set()

        try:
            events = Observers(end, ignore)
            _Run(
                self.executor,
                self.spec.without_outputs(),
                plan.rehearsal,
                events,
                stop,
                self.clock,
                log_begins=_log_begins_kept(stepper),
            ).turn()
        except QuarantineThresholdError:
            raise  # the staged rows show the reasons
        except BaseException:
            Location(plan.rehearsal).delete()
            raise
        Location(plan.rehearsal).delete()

    def _note(self, found: Discovery) -> None:
        summary = self.summary
        summary.nothing_matched = found.nothing_matched
        summary.files_unmatched = found.unmatched
        summary.files_young = found.young

    def _report(self, progress: StepProgress | None) -> None:
        if progress is None:
            return
        self.summary.add(progress)
        self.events.step(progress)

    def _wait_for_the_lease(self, faults: Faults) -> None:
        """Wait until no process asks for the lease, and the pipeline is not paused; a look that finds it paused ends faults."""
        plan = self.plan
        name = self.spec.name
        ledger = plan.ledger
        if ledger.requests.names:
            self.events.phase(Phase(name, "making way for maintenance"))
            ledger.requests.wait_until_served(self._lease_ttl_s, self.stop)
        try:
            ledger.refuse_paused()
        except PausedError as paused:
            _log.warning("%s", paused)
            self.events.phase(Phase(name, "paused"))
            ledger.wait_until_resumed(self.stop, faults.passed)


@dataclass
class _Phases:
    """Reports the phases of a turn, and in steps the share of the found records that is read.

    Args:
        pipeline: Its name.
        on_phase: Takes them.
    """

    pipeline: str
    on_phase: OnPhase
    steps: SourceSteps | None = None
    found: Discovery = field(default_factory=Discovery)

    def begin(self, name: str, step: int | None = None) -> None:
        """Report a phase as it begins."""
        making = self.steps if step else None
        files_read = making.parts_read if making else 0
        places_read = making.places_read if making else 0
        n_files = len(self.found.parts)
        places = self.found.span.size if self.found.span else 0
        phase = Phase(self.pipeline, name, step, files_read, n_files, places_read, places)
        Executor.describe(f"{self.pipeline}: step {step}: {name}" if step else f"{self.pipeline}: {name}")
        self.on_phase(phase)
