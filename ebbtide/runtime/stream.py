"""Reads what a run has found, in batches, each a step; and, if it is asked to, what comes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ebbtide.amounts import amount
from ebbtide.errors import SourceLostError, SourceStartError, Transient
from ebbtide.runtime import batches, local
from ebbtide.runtime.batches import Query
from ebbtide.runtime.clock import Clock
from ebbtide.runtime.engines import Engine, OutgrownError
from ebbtide.runtime.following import GoingOn, Watcher
from ebbtide.runtime.plan import Plan
from ebbtide.runtime.progress import StepProgress
from ebbtide.runtime.reading import SourceSteps
from ebbtide.runtime.step import Stepper
from ebbtide.sources.source import Discovery
from ebbtide.tasks import LocalSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_WAITS_S = (2.0, 10.0, 30.0, *[60.0] * 20)
"""Waits before the source is started again, 25 minutes with the attempts. Spark gives its Python process 10 s to connect, and no
setting changes that; the process needs 0.4 CPU s until then, which a busy host may not give it for long. A Python that is
broken does not get here: Spark has run it before, to plan the source."""
SLOW_START = "failed to connect back"
"""Part of Spark's message when that process did not come up in time (`PythonWorkerFactory.createSimpleWorker`)."""
_log = logging.getLogger(__name__)


@dataclass
class Stream:
    """The stream of a run that has the lease.

    Args:
        engine: Where steps are made; chosen again once it is known what there is to read.
        steps: Makes them.
        report: Takes each step's progress; None where a tick found nothing to do.
        begin: Called with the name of each phase as it begins.
        stop: Ends it after the step under way.
        clock: Returns the time, epoch ms.
    """

    engine: Engine
    steps: SourceSteps
    report: Callable[[StepProgress | None], None]
    begin: Callable[[str], None]
    stop: threading.Event
    clock: Clock

    @property
    def spark(self) -> SparkSession:
        """The session of the engine."""
        return self.engine.spark

    @property
    def stepper(self) -> Stepper:
        """The stepper, which commits the steps."""
        return self.steps.stepper

    @property
    def plan(self) -> Plan:
        """The pipeline, with the columns that it has by now."""
        return self.stepper.plan

    def discover(self) -> Discovery:
        """Find what there is to read; where the first step begins is noted."""
        plan = self.plan
        stepper = self.stepper
        files_read = stepper.files_read()
        since = plan.follows_on(stepper.last_read)
        found = plan.source.discover(files_read, self.clock(), since)
        if since is None and found.span is not None:
            plan.checkpoint.note_start(found.span.to_json(), plan.start_asked)
        plan.checkpoint.forget_undecided(stepper.last.source.batch_id)
        return found

    def accept_loss(self) -> None:
        """Note which records of the source are lost, if any are, and go on behind them."""
        source = self.plan.source
        stepper = self.stepper
        since = self.plan.follows_on(stepper.last_read)
        if since is None:
            return
        now_ms = self.clock()
        try:
            source.discover(stepper.files_read(), now_ms, since)
        except SourceLostError as error:
            left = source.discover_left(since).span
            if left is None:
                raise
            noted = self.steps.accept_loss(self.spark, left.beginning, str(error), now_ms)
            self.report(noted)

    def read(self, found: Discovery) -> None:
        """Read what was found, and no more."""
        has_something = found.streams or self.plan.checkpoint.is_open
        if not has_something:
            return
        self.engine = self.engine.for_found(found)
        self.begin("starting the stream")
        begun = threading.Event()
        attempt = partial(drive, self.spark, self._query(found, self.report, begun))
        start_patiently(attempt, begun, self.stop)

    def follow(self, found: Discovery, going_on: GoingOn) -> None:
        """Read what was found and what comes, until it is stopped. A fault that may pass ends the stream; it is started again where it was."""
        age = going_on.age
        faults = going_on.faults
        how = going_on.following

        def report_success(progress: StepProgress | None) -> None:
            faults.passed()
            self.report(progress)
            age.look()

        def look_around() -> None:
            # Not while a fault is waited out, with which a new run would fail; nor before what waits is read.
            is_idle = watcher.look()
            if is_idle:
                age.look()
            self.engine.refuse_outgrown(watcher.found)

        self.begin("starting the stream")
        stop = self.stop
        is_again = False
        while not stop.is_set():
            begun = threading.Event()
            try:
                if is_again:
                    self.stepper.publish(self.spark)
                    found = self.discover()
                self.engine = self.engine.for_found(found)
                watcher = Watcher(self.spark, self.steps, how, faults, self.clock, self.report)
                query = self._query(found, report_success, begun)
                attempt = partial(drive, self.spark, replace(query, following=how, between=look_around))
                start_patiently(attempt, begun, stop)
            except OutgrownError:
                is_again = True
            except Transient as error:
                stop.wait(faults.wait_after(error))
                is_again = True

    def _query(self, found: Discovery, report: Callable[[StepProgress], None], begun: threading.Event) -> Query:
        """Return the batches of what was found."""

        def step(frame: DataFrame, batch_id: int) -> None:
            report(self.steps.batch(frame, batch_id))

        return Query(self.plan, found, step, begun, self.stop, self.clock)


def drive(spark: SparkSession | LocalSession, query: Query) -> None:
    """Drive batches: as Spark plans them, or as this process does where there is no stream of Spark's."""
    is_one_moment = query.plan.spec.is_view and query.following is None  # a view does not go on with what comes
    if isinstance(spark, LocalSession) or is_one_moment:
        local.drive(spark, query)
    else:
        batches.drive(spark, query)


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
                    f"Spark's Python process for the source did not connect within 10 s, {amount(number, 'time')}; no step was begun.",
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
