"""A continuous run: between batches it polls for new records, ticks when there are none, and waits after faults."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ebbtide.errors import SourceUnavailableError, StoreUnavailableError, Transient
from ebbtide.runtime._plan import Plan
from ebbtide.runtime._timing import Clock
from ebbtide.sources import BatchPlanner, Discovery, Span

if TYPE_CHECKING:
    from ebbtide.executors import Executor
    from ebbtide.runtime._progress import StepProgress
    from ebbtide.runtime._reading import SourceSteps

FAULTS = (SourceUnavailableError, StoreUnavailableError)
"""Errors that are waited out: brokers or stores that are away for a while. A lost lease is none: another run has it."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
WHOLE_LOOK_S = 30.0
"""From one look at a source that shows another topic, new partitions and lost records to the next, while it is idle."""
TICK_SHARE = 0.01
"""Maximum share of the time for ticks by what may be due. Statistics also count entries that were written again, so such a tick may find nothing."""
MOST_PAUSE_S = 30.0
"""Maximum seconds from one such tick to the next, however long they take, where a state has `cleanup.timers`: half of its minute."""
NEWS_S = 0.05
"""Least seconds from a look that found nothing to the next: news may be of what is not read."""
MOST_FILES_HELD = 4_000_000
"""Source files whose names are held between two looks: some 0.2 KB each."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Following:
    """The settings of a continuous run.

    Args:
        interval_ms: Least time from one batch to the next, and from one look at the source to the next.
        tick_every_ms: Time from one tick to the next while there is nothing to read, if nothing may be due before.
        fault_budget_s: How long faults of brokers and stores are waited out, from the first on without a success between: a step, a tick where
            nothing is left to do, or, after a look at the source that failed, one that did not.
        max_age_s: Maximum age of the run; None: it continues until it is stopped.
    """

    interval_ms: int = 1_000
    tick_every_ms: int = 30_000
    fault_budget_s: float = Plan.FAULT_BUDGET_S
    max_age_s: float | None = None


class Age:
    """Stops a run that is as old as it may get.

    Args:
        max_age_s: How old that is; None: as old as it likes.
        stop: Set to end the run after the step under way.
        now_s: A monotonic clock.
    """

    def __init__(
        self,
        max_age_s: float | None,
        stop: threading.Event,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_reached = False
        self._stop = stop
        self._now_s = now_s
        self._end_s = math.inf if max_age_s is None else now_s() + max_age_s

    def look(self) -> None:
        """Stop the run if it is that old and was not stopped before."""
        is_old = self._now_s() >= self._end_s
        if is_old and not self._stop.is_set():
            self.is_reached = True
            self._stop.set()


class Faults:
    """Waits faults out: longer each time, up to a bound.

    Args:
        budget_s: How long, from the first on.
        now_s: A monotonic clock.
    """

    def __init__(self, budget_s: float, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self._budget_s = budget_s
        self._first_s: float | None = None
        self._wait_s = FIRST_WAIT_S

    @property
    def are_over(self) -> bool:
        """Return whether none is waited out."""
        return self._first_s is None

    def wait_after(self, error: Transient) -> float:
        """Return how long to wait until the next attempt, seconds.

        Raises:
            Transient: `error`, if it is none to be waited out, or the budget is used up.
        """
        now_s = self.now_s()
        if self._first_s is None:
            self._first_s = now_s
        is_over = now_s - self._first_s > self._budget_s
        if is_over or not isinstance(error, FAULTS):
            raise error
        wait_s, self._wait_s = self._wait_s, min(2 * self._wait_s, LONGEST_WAIT_S)
        _log.warning("%s Again in %g s.", error, wait_s)
        return wait_s

    def passed(self) -> None:
        """Note a success."""
        self._first_s = None
        self._wait_s = FIRST_WAIT_S


@dataclass(frozen=True)
class GoingOn:
    """A continuous run, over all its turns of the lease.

    Args:
        following: How it does.
        age: Ends it once it is old.
        faults: Waits out those that pass.
    """

    following: Following
    age: Age
    faults: Faults

    @classmethod
    def of(cls, following: Following, stop: threading.Event) -> Self:
        """Begin one.

        Args:
            following: Its settings.
            stop: Ends it after the step under way.
        """
        age = Age(following.max_age_s, stop)
        faults = Faults(following.fault_budget_s)
        return cls(following, age, faults)


class Watcher:
    """Looks after a stream between its batches; the caller sees to it that no batch is under way.

    Args:
        executor: Runs the work of a tick.
        steps: Makes the pipeline's steps.
        planner: Plans the batches.
        following: How often.
        faults: Waits out those of the brokers.
        clock: Returns the time, epoch ms.
        report: Takes the ticks' progress.
    """

    def __init__(
        self,
        executor: Executor,
        steps: SourceSteps,
        planner: BatchPlanner,
        following: Following,
        faults: Faults,
        clock: Clock,
        report: Callable[[StepProgress | None], None],
    ) -> None:
        self._executor = executor
        self._steps = steps
        self._planner = planner
        self._following = following
        self._faults = faults
        self._clock = clock
        self._report = report
        self._looks_s = self._looks_at_news_s = faults.now_s() + following.interval_ms / 1000
        self._news = steps.stepper.plan.source.news()
        self._has_news = self._has_found = False
        self._whole_look_s = 0.0
        self._ticked_ms = clock()
        self._ticks_s = 0.0
        self._known_files: dict[str, int | None] | None = None
        self.found: Discovery | None = None
        """The input as of the last look; None before it."""
        # Nothing else is known about a source without positions; the start of reading does not change during the stream.
        self._begin = steps.stepper.follows_on
        self._began_with_look = False
        """Return whether the faults that are waited out began with one of a look: then a good look ends them."""

    def look(self) -> bool:
        """Yield the lease on request; poll for new records for the next batch; tick if there are none. Each at its interval.

        Returns:
            Whether the source was looked at, and there is nothing to read.

        Raises:
            LeaseAskedError: another process needs the lease.
            EbbtideError: see `ebbtide.errors`; a fault that could not be waited out among them.
        """
        now_s = self._faults.now_s()
        if now_s < self._next_look_s:
            return False
        self._has_news = False
        self._looks_s = now_s + self._following.interval_ms / 1000
        self._steps.stepper.lease.make_way(looks=True)
        try:
            found = self._discover()
        except Transient as error:
            self._began_with_look |= self._faults.are_over
            self._looks_s = self._looks_at_news_s = now_s + self._faults.wait_after(error)
            return False
        # That brokers answer says nothing of a step that fails by a store, or as it reads: its faults end with a step.
        if self._began_with_look:
            self._end_faults()
        is_idle = not found.streams
        if is_idle:
            self._tick_while_idle()
        self._looks_at_news_s = now_s + NEWS_S if is_idle else self._looks_s
        self._has_found = not is_idle
        self._steps.on_look(found)
        return is_idle

    @property
    def _next_look_s(self) -> float:
        """The time of the next look: with news at once, but an interval behind one that has found records."""
        return min(self._looks_s, self._looks_at_news_s) if self._has_news else self._looks_s

    def wait(self, longest_s: float, stop: threading.Event) -> None:
        """Wait until the next look is due, or the source has news for it; not while what a look has found waits.

        Args:
            longest_s: Longest time to wait.
            stop: Ends the waiting.
        """
        if self._has_found:
            self._has_found = False
            return
        wait_s = min(longest_s, max(0.0, self._next_look_s - self._faults.now_s()))
        if self._news is None or self._has_news:
            stop.wait(wait_s)
        else:
            self._has_news = self._news.wait(wait_s, stop)

    def _discover(self) -> Discovery:
        stepper = self._steps.stepper
        plan = stepper.plan
        since = stepper.last_read or self._begin
        now_s = self._faults.now_s()
        if self.found is not None and now_s < self._whole_look_s and self._is_still_idle(self.found, since):
            return self.found
        self._whole_look_s = now_s + WHOLE_LOOK_S
        found = plan.source.look(self._files_read(), self._clock(), since)
        if found != self.found:
            self._planner.note(found)
            self.found = found
        return found

    def _is_still_idle(self, found: Discovery, since: Span | None) -> bool:
        """Return whether a source without news still ends where it was read up to."""
        return not found.streams and since is not None and self._steps.stepper.plan.source.ends_at(since)

    def _files_read(self) -> dict[str, int | None]:
        """Return the source files that were read: those of the state, which are read once, and those of the steps since."""
        steps = self._steps
        steps.stepper.newest(looks=False)  # refuses a state that another client has changed
        newly_read, steps.newly_read = steps.newly_read, {}
        if self._known_files is None:
            files = steps.stepper.files_read()
            self._known_files = files if len(files) <= MOST_FILES_HELD else None
            return files
        self._known_files.update(newly_read)
        return self._known_files

    def expire_due(self) -> None:
        """Tick where an entry or a timer may be due; also between two batches, as a stream may never be idle."""
        now_s = self._faults.now_s()
        if now_s < self._ticks_s or not self._steps.may_be_due(self._clock()):
            return
        self._tick(is_extra=True)
        ended_s = self._faults.now_s()
        pause_s = (ended_s - now_s) / TICK_SHARE
        if self._steps.expires_on_time:
            pause_s = min(pause_s, MOST_PAUSE_S)
        self._ticks_s = ended_s + pause_s

    def _tick_while_idle(self) -> None:
        now_ms = self._clock()
        if now_ms - self._ticked_ms < self._following.tick_every_ms:
            self.expire_due()
            return
        self._ticked_ms = now_ms
        self._tick()
        # Nothing is left to do, so that no step will come that could end them.
        if not self._faults.are_over:
            self._end_faults()

    def _tick(self, *, is_extra: bool = False) -> None:
        tick = self._steps.tick(self._executor, self._clock(), is_extra=is_extra)
        self._report(tick)

    def _end_faults(self) -> None:
        self._faults.passed()
        self._began_with_look = False
