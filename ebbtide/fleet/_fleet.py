"""Follows many pipelines in one process: each by a separate run, which `ebbtide.fleet._slots` schedules.

A pipeline that fails stops no other one: its run ends, gives its lease back, and is begun again after a while that doubles with each
failure. Once no pipeline continues, the fleet ends; so a fleet of one ends by its first failure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from ebbtide.fleet._slots import Slots
from ebbtide.runtime import InTurn, Observer, Plan, RunSummary, StepProgress
from ebbtide.spec import Pipeline

if TYPE_CHECKING:  # a code location in Dagster loads this module, and no step
    from ebbtide.runtime import Look

FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 300.0
STEP_RECORDS = 20_000
"""Records that one step reads while other pipelines wait for their turns: some tenths of a second."""
STEP_BYTES = 16 * 2**20
"""Bytes of files, likewise; a larger file is a separate step."""


class Follow(Protocol):
    """Follows one pipeline until it is stopped."""

    def __call__(self, spec: Pipeline, *, in_turn: InTurn, observers: Sequence[Observer]) -> RunSummary:
        """Return the summary of the run.

        Args:
            in_turn: See `ebbtide.runtime._driver.run`.
            observers: Likewise.
        """


@dataclass(frozen=True)
class Failed:
    """A run has failed.

    Args:
        spec: The pipeline.
        error: Why.
        again_s: Seconds until it is begun again; None: the fleet ends.
    """

    spec: Pipeline
    error: Exception
    again_s: float | None


@dataclass(frozen=True)
class GoesOn:
    """A run that was begun again after a failure has read what it failed at, or finds nothing to read.

    Args:
        spec: The pipeline.
    """

    spec: Pipeline


@dataclass(frozen=True)
class Ended:
    """A run has ended since it was stopped, or is as old as it may get.

    Args:
        spec: The pipeline.
        summary: Its summary.
    """

    spec: Pipeline
    summary: RunSummary


Event = Failed | GoesOn | Ended


@dataclass
class Retries:
    """The time until a failed run restarts: longer each time, up to a bound, and short again after it has run for that long.

    Args:
        now_s: A monotonic clock.
        first_s: The first time, seconds.
        longest_s: The bound.
    """

    now_s: Callable[[], float] = time.monotonic
    first_s: float = FIRST_RETRY_S
    longest_s: float = LONGEST_RETRY_S
    _wait_s: float = field(init=False)
    _begun_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin with the first time."""
        self._wait_s = self.first_s
        self.begin()

    def begin(self) -> None:
        """Note that the run is begun."""
        self._begun_s = self.now_s()

    def wait_after_failure(self) -> float:
        """Return how long to wait now that it has failed, seconds."""
        has_gone_on = self.now_s() - self._begun_s >= self.longest_s
        if has_gone_on:
            self._wait_s = self.first_s
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, self.longest_s)
        return wait_s


class Fleet:
    """Follows pipelines.

    Args:
        specs: The pipelines; the steps of several are bounded by `in_fair_steps`.
        follow: Follows one.
        stop: Ends all after the steps under way.
        slots: Where their work is made.
        retries: Makes what says when a run is begun again.

    Attributes:
        failing: Names of the pipelines whose last run has failed.
    """

    def __init__(
        self,
        specs: Sequence[Pipeline],
        follow: Follow,
        stop: threading.Event,
        slots: Slots | None = None,
        retries: Callable[[], Retries] = Retries,
    ) -> None:
        self._specs = specs if len(specs) == 1 else [in_fair_steps(spec) for spec in specs]
        self._follow = follow
        self._stop = stop
        self._slots = slots or Slots()
        self._retries = retries
        self._events: SimpleQueue[Event | None] = SimpleQueue()
        self._lock = threading.Lock()
        self.failing: set[str] = set()

    @staticmethod
    def once(operate: Callable[..., RunSummary], **accepted: bool) -> Callable[..., RunSummary]:
        """Return what runs a pipeline, and accepts something of it until it has looked at its source.

        Args:
            operate: Runs it.
            accepted: What is accepted.
        """
        done: set[str] = set()

        def run(session: Any, spec: Pipeline, root: str, *, observers: Sequence[Observer], **how: Any) -> RunSummary:
            name = spec.name
            first_look = _FirstLook(partial(done.add, name))
            watching = [*observers, first_look]
            options = {} if name in done else accepted
            return operate(session, spec, root, observers=watching, **how, **options)

        return run

    def events(self) -> Iterator[Event]:
        """Follow all pipelines until all have ended; yield what happens, on the caller's thread."""
        threads = [
            threading.Thread(target=self._keep, args=(spec,), daemon=True, name=f"run-{spec.name}")
            for spec in self._specs
        ]
        for thread in threads:
            thread.start()
        n_left = len(threads)
        while n_left:
            event = self._events.get()
            if event is None:
                n_left -= 1
            else:
                yield event

    def _keep(self, spec: Pipeline) -> None:
        """Follow a pipeline until it is stopped, however often it fails."""
        retries = self._retries()
        try:
            while not self._stop.is_set():
                wait_s = self._followed(spec, retries)
                if wait_s is None:
                    break
                # Not while the error is handled, which would hold the tables of its run.
                self._stop.wait(wait_s)
        finally:
            self._events.put(None)

    def _followed(self, spec: Pipeline, retries: Retries) -> float | None:
        """Follow a pipeline until it is stopped or fails; return how long to wait then, None if it has not failed."""
        retries.begin()
        try:
            watching = [_FirstSuccess(partial(self._succeeded, spec))]
            summary = self._follow(spec, in_turn=self._slots.in_turn, observers=watching)
        except BaseException as error:  # noqa: BLE001 - reported; the other pipelines continue
            # A panic of a library, or `sys.exit` of a user's code, is no Exception, and would end this thread unseen.
            wait_s = retries.wait_after_failure()
            self._events.put(Failed(spec, _named(error), self._noted(spec, wait_s)))
            return wait_s
        self._events.put(Ended(spec, summary))
        return None

    def _noted(self, spec: Pipeline, wait_s: float) -> float | None:
        """Record that a pipeline has failed; if none continues, end all. Return how long to wait."""
        with self._lock:
            self.failing.add(spec.name)
            if len(self.failing) == len(self._specs):
                self._stop.set()
        return None if self._stop.is_set() else wait_s

    def _succeeded(self, spec: Pipeline) -> None:
        """Record that a pipeline continues."""
        with self._lock:
            if spec.name not in self.failing:
                return
            self.failing.remove(spec.name)
        self._events.put(GoesOn(spec))


def _named(error: BaseException) -> Exception:
    """Return an error that ended a run; one that is no Exception is named by another, which has it as its cause."""
    if isinstance(error, Exception):
        return error
    named = RuntimeError(f"The run was ended by {type(error).__name__}: {error}")
    named.__cause__ = error
    return named


def in_fair_steps(spec: Pipeline) -> Pipeline:
    """Return a pipeline with steps that are no longer than other pipelines should wait for.

    Steps on Spark are unchanged: they take long enough for a separate slot.
    """
    if spec.engine == "spark" or Plan("", spec).spark_needed_for:
        return spec
    return spec.in_steps_of(STEP_RECORDS, STEP_BYTES)


class _First(Observer):
    """Calls a function the first time that something comes of a run.

    Args:
        came: The function.
    """

    def __init__(self, came: Callable[[], None]) -> None:
        self._came: Callable[[], None] | None = came

    def _note(self) -> None:
        if self._came is not None:
            self._came()
            self._came = None


class _FirstLook(_First):
    """At a run's first poll of its source: then it continues."""

    def look(self, look: Look) -> None:
        """Take a look."""
        self._note()


class _FirstSuccess(_First):
    """Once a run has read records, or has found that nothing waits: then it is past what it failed at.

    A look alone shows nothing: a run that fails at its next step looks at its source first, each time it is begun again.
    """

    def step(self, progress: StepProgress) -> None:
        """Take a step; a tick reads nothing."""
        if progress.batch_id is not None:
            self._note()

    def look(self, look: Look) -> None:
        """Take a look."""
        if not look.found.streams:
            self._note()
