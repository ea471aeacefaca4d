"""Observers of runs. Every event of a run goes to each of its observers: the callbacks of its caller, metrics, traces, lineage.

An observer that fails is left out for the rest of the run, with one warning: nothing that only watches a run ends it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ebbtide.environment import is_any_set
from ebbtide.errors import MissingExtraError
from ebbtide.runtime._progress import OnPhase, OnProgress, Phase, RunSummary, StepProgress, ignore
from ebbtide.spec import Pipeline

if TYPE_CHECKING:  # they would load Spark's Python package
    from ebbtide.runtime._reading import SourceSteps
    from ebbtide.runtime._step import Stepper
    from ebbtide.sources import Discovery

BUILT_IN: Mapping[str, Sequence[str]] = {
    "ebbtide.inspect._spans:Spans": (
        "OTEL_TRACES_EXPORTER",
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    ),
    "ebbtide.inspect._lineage:Lineage": ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT__TYPE"),
    "ebbtide.inspect._pipes:Pipes": ("DAGSTER_PIPES_CONTEXT",),
}
"""Observers to the variables of the environment that switch each on. Without one its module, and the library it needs, is not loaded."""
ALWAYS_ON = "ebbtide.runtime._keeps_end:KeepsEnd"
"""The observer that no variable switches on."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunBegun:
    """A run that begins.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        goes_on: It reads what comes until it is stopped.
        is_fresh: It forgets all tables first.
    """

    spec: Pipeline
    root: str
    goes_on: bool
    is_fresh: bool = False

    def end_idle(self, summary: RunSummary) -> None:
        """Report a run that had nothing to do to the built-in observers: its beginning and its end."""
        events = Observers(ignore, ignore, built_in_observers())
        with events.watch(self, summary, threading.Event()):
            pass


@dataclass(frozen=True)
class Look:
    """A look of a run, which holds the lease, at its source.

    Args:
        steps: Makes the steps.
        found: What there was to read.
        parts_before: Parts of the source that this turn had read before.
    """

    steps: SourceSteps
    found: Discovery
    parts_before: int

    @property
    def stepper(self) -> Stepper:
        """The stepper, which knows the last step and the newest version of the state."""
        return self.steps.stepper

    @property
    def waiting(self) -> Discovery:
        """The input that was found, without the parts that steps have read since: they read them in order."""
        n_read = self.steps.parts_read - self.parts_before
        return replace(self.found, parts=self.found.parts[n_read:])


@dataclass(frozen=True)
class RunEnded:
    """A run that has ended.

    Args:
        summary: What it did.
        error: Why it failed; None if it did not.
        is_cut: It was stopped before it had read all that it was to read.
    """

    summary: RunSummary
    error: BaseException | None = None
    is_cut: bool = False


class Observer:
    """Base class of observers, whose methods do nothing. The run waits for each call."""

    def begun(self, run: RunBegun) -> None:
        """Take the run as it begins, before its first phase."""

    def phase(self, phase: Phase) -> None:
        """Take a phase as it begins; the one before it has ended."""

    def step(self, progress: StepProgress) -> None:
        """Take a finished step."""

    def look(self, look: Look) -> None:
        """Take a look at the source."""

    def ended(self, end: RunEnded) -> None:
        """Take the end of the run, failed or not."""


@dataclass
class Observers:
    """Reports the events of one run to its observers and to the callbacks of its caller, whose errors end the run.

    Args:
        on_progress, on_phase: See `ebbtide.run`.
        watching: The observers.
    """

    on_progress: OnProgress
    on_phase: OnPhase
    watching: list[Observer] = field(default_factory=list)

    def phase(self, phase: Phase) -> None:
        """Report a phase as it begins."""
        self._each(lambda observer: observer.phase(phase))
        self.on_phase(phase)

    def step(self, progress: StepProgress) -> None:
        """Report a finished step."""
        self._each(lambda observer: observer.step(progress))
        self.on_progress(progress)

    def look(self, look: Look) -> None:
        """Report a look at the source."""
        self._each(lambda observer: observer.look(look))

    @contextmanager
    def watch(self, run: RunBegun, summary: RunSummary, stop: threading.Event) -> Iterator[None]:
        """Report the beginning of a run, and the end once the block ends.

        Args:
            run: The run.
            summary: What it has done so far.
            stop: Ends it.
        """
        self._each(lambda observer: observer.begun(run))
        try:
            yield
        except BaseException as error:
            failed = RunEnded(summary, error)
            self._each(lambda observer: observer.ended(failed))
            raise
        end = RunEnded(summary, is_cut=stop.is_set() and not run.goes_on)
        self._each(lambda observer: observer.ended(end))

    def _each(self, report: Callable[[Observer], None]) -> None:
        """Report an event to all observers."""
        for observer in list(self.watching):
            try:
                report(observer)
            except Exception as error:  # noqa: BLE001 - the run continues
                self.watching.remove(observer)
                name = type(observer).__name__
                _log.warning("%s takes no more events of this run: %s: %s", name, type(error).__name__, error)


def built_in_observers() -> list[Observer]:
    """Return those that variables of the environment switch on, and the one that keeps the end."""
    keeps_end: Callable[[], Observer] = resolve_name(ALWAYS_ON)
    return [*observers_of_environment(), keeps_end()]


def observers_of_environment() -> list[Observer]:
    """Return the built-in observers that variables of the environment switch on."""
    switched_on = [name for name, variables in BUILT_IN.items() if is_any_set(variables)]
    found = [_made(name) for name in switched_on]
    return [observer for observer in found if observer is not None]


def _made(name: str) -> Observer | None:
    """Make a built-in observer; None where its library is not installed."""
    kind = _kind(name)
    return None if kind is None else kind()


@cache
def _kind(name: str) -> Callable[[], Observer] | None:
    """Return the class of a built-in observer; a missing library is said once a process."""
    try:
        kind: Callable[[], Observer] = resolve_name(name)
    except MissingExtraError as error:
        _log.warning("%s", error)
        return None
    return kind
