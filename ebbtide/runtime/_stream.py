"""Reads the found records in batches, each a step; continuous runs also read new records."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ebbtide.errors import SourceLostError, Transient
from ebbtide.executors import InProcess
from ebbtide.ledger import Beginning
from ebbtide.runtime._batches import Query, nothing_between
from ebbtide.runtime._engines import Engine, OtherEngineError
from ebbtide.runtime._following import GoingOn, Watcher
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._progress import StepProgress
from ebbtide.runtime._reading import PlannedBatch, SourceSteps
from ebbtide.runtime._step import Stepper
from ebbtide.runtime._timing import Clock, InTurn, at_once
from ebbtide.sources import BatchPlanner, Discovery, FileSource
from ebbtide.storage import Location, Together

if TYPE_CHECKING:
    from ebbtide.executors import Executor


@dataclass
class Stream:
    """The stream of a run that has the lease.

    Args:
        engine: Engine of the steps; chosen again when the amount to read is known.
        steps: Makes them.
        report: Takes each step's progress; None where a tick found nothing to do.
        begin: Called with the name of each phase as it begins.
        stop: Ends it after the step under way.
        clock: Returns the time, epoch ms.
        in_turn: Makes a piece of its work when it is its turn.
        rereads_changed: Read files again that have changed since they were read, once.
    """

    engine: Engine
    steps: SourceSteps
    report: Callable[[StepProgress | None], None]
    begin: Callable[[str], None]
    stop: threading.Event
    clock: Clock
    in_turn: InTurn = at_once
    rereads_changed: bool = False

    @property
    def executor(self) -> Executor:
        """Runs the work of the steps."""
        return self.engine.executor

    @property
    def stepper(self) -> Stepper:
        """The stepper, which commits the steps."""
        return self.steps.stepper

    @property
    def plan(self) -> Plan:
        """The pipeline, with the columns that it has by now."""
        return self.stepper.plan

    def discover(self) -> Discovery:
        """Find the records to read; store the start of the first step."""
        plan = self.plan
        stepper = self.stepper
        files_read = stepper.files_read()
        if self.rereads_changed and isinstance(plan.source, FileSource):
            files_read = plan.source.unchanged(files_read)
            self.rereads_changed = False
        since = stepper.follows_on
        found = plan.source.look(files_read, self.clock(), since)
        if since is None and found.span is not None:
            position = found.span.beginning.to_json()
            stepper.lease.note_beginning(Beginning(position=position, asked=plan.start_asked))
        self.steps.on_look(found)
        return found

    def accept_loss(self) -> None:
        """Record lost records of the source, if any, and continue after them."""
        source = self.plan.source
        stepper = self.stepper
        since = stepper.follows_on
        if since is None:
            return
        now_ms = self.clock()
        try:
            source.discover(stepper.files_read(), now_ms, since)
        except SourceLostError as error:
            left = source.discover_left(since).span
            if left is None:
                raise
            noted = self.steps.accept_loss(self.executor, left.beginning, str(error), now_ms)
            self.report(noted)

    def read(self, found: Discovery) -> None:
        """Read only the found records."""
        if not found.streams:
            return
        self.engine = self.engine.for_found(found)
        self.begin("starting the stream")
        self._drive(self._query(self._planner(found), self._step(self.report)))

    def follow(self, found: Discovery, going_on: GoingOn) -> None:
        """Read found and new records until stopped. A temporary fault ends the stream, which is restarted at the same place."""
        age = going_on.age
        faults = going_on.faults
        how = going_on.following

        def report_success(progress: StepProgress | None) -> None:
            faults.passed()
            self.report(progress)
            age.look()

        def look_around() -> None:
            # Not while waiting after a fault, with which a new run would fail; nor before waiting records are read.
            is_idle = watcher.look()
            if is_idle:
                age.look()
            self.engine.refuse_other(watcher.found)

        self.begin("starting the stream")
        stop = self.stop
        is_again = False
        while not stop.is_set():
            try:
                if is_again:
                    found = self.in_turn(partial(self._found_again, report_success))
                self.engine = self.engine.for_found(found)
                planner = self._planner(found)
                watcher = Watcher(self.executor, self.steps, planner, how, faults, self.clock, self.report)
                step = self._step(report_success, watcher.expire_due)
                wait = partial(watcher.wait, stop=stop)
                self._drive(self._query(planner, step, following=how, between=look_around, wait=wait))
            except OtherEngineError:
                is_again = True
            except Transient as error:
                stop.wait(faults.wait_after(error))
                is_again = True

    def _found_again(self, report: Callable[[StepProgress], None]) -> Discovery:
        """Find the records to read after a fault, which may have left a decided step unfinished."""
        is_open = self.steps.is_open
        self.stepper.publish(self.executor)
        if is_open:
            report(self.steps.replayed(self.executor))
        return self.discover()

    def _query(self, planner: BatchPlanner, step: Callable[[PlannedBatch], None], **how: Any) -> Query:
        """Return the batches of a planner; `how` has the fields that differ for a continuous run."""
        last = self.stepper.last.source.batch_id
        return Query(
            self.plan,
            planner,
            0 if last is None else last + 1,
            self.stepper.read_up_to,
            step,
            self.stop,
            self.clock,
            hold=self.steps.hold,
            in_turn=self.in_turn,
            **how,
        )

    def _planner(self, found: Discovery) -> BatchPlanner:
        """Return the planner of the found records."""
        return self.plan.source.planner(found, self.plan.batch_sizes)

    def _step(
        self, report: Callable[[StepProgress], None], behind: Callable[[], None] = nothing_between
    ) -> Callable[[PlannedBatch], None]:
        """Return what makes the step of a batch, reports it, and does something behind it."""

        def step(planned: PlannedBatch) -> None:
            report(self.steps.batch(self.executor, planned))
            behind()

        return step

    def _drive(self, query: Query) -> None:
        """Make the batches of a query."""
        executor = self.executor
        is_together = Location(self.plan.root).is_in_object_store and not executor.has_spark
        made = query.made(executor.batch_time, Together.step if is_together else nullcontext)
        # A view reads no records that come by a stream, and a stream of Spark has a query already: their batches need no other one.
        spec = self.plan.spec
        driver = InProcess() if spec.is_view or spec.reads_stream_of_spark else executor
        driver.drive(self.plan.spec.name, made, self.stop)
