"""Watches a continuous run: the values of its metrics, and its health.

The run calls `phase`, `step` and `look`. A thread measures the source now and then (`ebbtide.inspect._watched_fleet`). Reading the values
takes what is in memory, and neither waits for a source nor reads a log.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ebbtide.durations import to_ms
from ebbtide.errors import EbbtideError
from ebbtide.inspect._backlog import Lag, lag_of
from ebbtide.inspect._host import Copies
from ebbtide.inspect._measuring import set_checks, set_copies, set_lag, set_status
from ebbtide.inspect._metrics import Distribution, Values
from ebbtide.inspect._status import LastStep, LeaseStatus, RecordsRead, Status, TableStatus, time_of
from ebbtide.ledger import Holder, LastVerdict, NoStep
from ebbtide.redaction import redacted
from ebbtide.runtime import Look, Observer, Phase, Plan, StepProgress, system_clock
from ebbtide.spec import Pipeline

TRIGGERS = 10
"""Trigger intervals without progress after which a run counts as stuck, if that is longer than faults are waited out."""
WAITING = "waiting"
FAILED = "failed"
AT_REST = ("making way for maintenance", "paused", FAILED)
"""Phases that last as long as someone wants them to."""
COUNTS = ("records", "inserted", "updated", "deleted", *StepProgress.SHOWN_IF_ANY)


@dataclass(frozen=True)
class Health:
    """The health of a run: it continues, or why not.

    Args:
        pipeline: Its name.
        phase: Its phase; `waiting` between steps.
        step: Number of its last step; None before the first look at the source.
        progress_s: Seconds since its last step, phase or look at the source.
        reason: Why it is stuck; empty if it continues.
        failure: Why it has failed, if it is begun again.
    """

    pipeline: str
    phase: str
    step: int | None
    progress_s: float
    reason: str = ""
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        is_healthy = not (self.reason or self.failure)
        return {
            **vars(self),
            "progress_s": round(self.progress_s, 3),
            "is_healthy": is_healthy,
        }


class WatchedRun(Observer):
    """Watches one run.

    Args:
        spec: The pipeline.
        root: Folder of all pipelines' tables.
        healthy_within_s: The longest time without a step, a phase or a look at the source. Default: `longest_silence_s`.
        clock: Returns the time, epoch ms.
        now_s: A monotonic clock.
    """

    def __init__(
        self,
        spec: Pipeline,
        root: str,
        healthy_within_s: float | None = None,
        clock: Callable[[], int] = system_clock,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec = spec
        self._root = root
        self._healthy_within_s = self.longest_silence_s if healthy_within_s is None else healthy_within_s
        self._clock = clock
        self._now_s = now_s
        self._lock = threading.Lock()
        self._phase = WAITING
        self._since_s = now_s()
        self._progress_s = self._since_s
        self._progress_ms = clock()
        self._phase_s: dict[str, float] = {}
        self._kinds: Counter[str] = Counter()
        self._counts: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
        self._seconds = Distribution()
        self._look: Look | None = None
        self._status = Status(spec.name, root)
        self._lag: Lag | None = None
        self._source_error: EbbtideError | None = None
        self._verdicts: tuple[LastVerdict, ...] = ()
        self._copies: Copies = []
        self._failure = ""
        self._n_failures = 0

    @property
    def longest_silence_s(self) -> float:
        """The longest time that a healthy run goes without a step, a phase or a look at the source, seconds, unless a user says otherwise."""
        interval_s = to_ms(self.spec.trigger_interval) / 1000
        # As long as faults of brokers and stores are waited out: after that the run ends by itself.
        return max(TRIGGERS * interval_s, Plan.FAULT_BUDGET_S)

    def phase(self, phase: Phase) -> None:
        """Take a phase as it begins."""
        with self._lock:
            self._begin(phase.name)
            if phase.name in AT_REST and self._look is not None:
                # The tables of the turn that has ended are not held any longer.
                self._status = self._known(self._look)
                self._look = None

    def step(self, progress: StepProgress) -> None:
        """Take a finished step."""
        with self._lock:
            self._begin(WAITING)
            self._kinds[progress.kind] += 1
            self._counts.update(progress.counts)
            self._seconds.add(progress.seconds)

    def look(self, look: Look) -> None:
        """Take a look at the source."""
        with self._lock:
            self._begin(WAITING)
            self._look = look

    def goes_on(self) -> None:
        """Note that the run is past what it failed at."""
        with self._lock:
            self._failure = ""

    def failed(self, error: Exception) -> None:
        """Take the error that has ended the run; it is begun again."""
        self.phase(Phase(self.spec.name, FAILED))
        kind = type(error).__name__
        with self._lock:
            self._failure = redacted(f"{kind}: {error}")
            self._n_failures += 1

    @property
    def has_begun(self) -> bool:
        """Return whether the run has looked at its source."""
        return self._look is not None

    def health(self) -> Health:
        """Judge whether the run continues."""
        with self._lock:
            return self._health()

    def values(self) -> Values:
        """Return the values of the run."""
        look = self._look
        # Not under the lock, on which the run would wait: the rows of a large state are counted over its files.
        known = self._status if look is None else self._known(look)
        with self._lock:
            return self._values(look, known)

    def measure(self, copies: Copies, *, reads_verdicts: bool = True) -> None:
        """Measure what waits in the source, and the checks' verdicts.

        Args:
            copies: The local copies of this host.
            reads_verdicts: Also of the checks.
        """
        self._copies = copies
        look = self._look
        if look is not None:
            self._measure_source(look)
        if reads_verdicts:
            with suppress(OSError, EbbtideError):  # the status names a file that cannot be read
                self._verdicts = LastVerdict.of_checks(self._plan.root)

    @cached_property
    def _plan(self) -> Plan:
        """The pipeline with a separate source: the run's clients are not shared between threads."""
        return Plan.under(self._root, self.spec)

    def _measure_source(self, look: Look) -> None:
        """Measure what waits: of a topic by its offsets now, of files by the run's last look."""
        try:
            found = lag_of(self._plan, look.waiting, look.stepper.last_read, self._clock())
        except EbbtideError as error:
            self._lag = None
            self._source_error = error
        else:
            self._lag = found
            self._source_error = None

    def _begin(self, phase: str) -> None:
        """Note that a phase ends and another begins, which is progress."""
        now_s = self._now_s()
        self._phase_s = self._phases_until(now_s)
        self._phase = phase
        self._since_s = now_s
        self._progress_s = now_s
        self._progress_ms = self._clock()

    def _phases_until(self, now_s: float) -> dict[str, float]:
        """Return the seconds of each phase, with those of the one under way."""
        before_s = self._phase_s.get(self._phase, 0.0)
        under_way_s = now_s - self._since_s
        return {**self._phase_s, self._phase: before_s + under_way_s}

    def _health(self) -> Health:
        look = self._look
        progress_s = self._now_s() - self._progress_s
        is_stuck = self._phase not in AT_REST and progress_s > self._healthy_within_s
        reason = ""
        if _has_lost_its_lease(look):
            reason = "lease lost: another process has taken the pipeline over"
        elif is_stuck:
            allowed = f"{self._healthy_within_s:g} s"
            reason = f"no step, phase or look at the source for {progress_s:.0f} s; allowed: {allowed}"
        step = look.stepper.number if look is not None else self._status.last.step or None
        return Health(self.spec.name, self._phase, step, progress_s, reason, self._failure)

    def _known(self, look: Look) -> Status:
        """Return what the run knows of its tables, as the status has it."""
        stepper = look.stepper
        turn = stepper.lease.facts
        last = stepper.last
        holder = None if stepper.lease.taken_by else Holder.of(turn)
        known = Status(
            self.spec.name,
            stepper.plan.root,
            state=TableStatus.of(stepper.snapshot, last.step),
            lease=LeaseStatus(holder, turn.epoch),
        )
        if isinstance(last, NoStep):
            return known
        frontier = last.frontier
        n_records = frontier.total_records or 0
        n_quarantined = frontier.total_quarantined or 0
        read = RecordsRead(n_records, time_of(frontier.read_ms), n_quarantined)
        return replace(known, last=LastStep.of(last, self._clock()), read=read)

    def _values(self, look: Look | None, known: Status) -> Values:
        values = Values("run", self.spec.name)
        set_status(values, self.spec, known)
        is_paused = self._phase == "paused"
        values.set("ebbtide_paused", float(is_paused))
        if is_paused:
            values.set("ebbtide_paused_timestamp_seconds", self._progress_ms / 1000)
        if look is None:
            values.set("ebbtide_lease_held", 0)
        if self._lag is not None:
            set_lag(values, self._lag)
        if self._source_error is not None:
            values.set("ebbtide_readable", 0, "source")
        elif self._lag is not None:
            values.set("ebbtide_readable", 1, "source")
        set_checks(values, self._verdicts)
        set_copies(values, known.root, self._copies)
        self._set_run(values, look)
        return values

    def _set_run(self, values: Values, look: Look | None) -> None:
        """Set what only a run has."""
        for kind, n_steps in self._kinds.items():
            values.set("ebbtide_run_steps", n_steps, kind)
        for name, count in self._counts.items():
            values.set("ebbtide_run_counts", count, name)
        phases = self._phases_until(self._now_s())
        for phase, seconds in phases.items():
            values.set("ebbtide_run_phase_seconds", seconds, phase)
        health = self._health()
        values.update(
            {
                "ebbtide_run_step_seconds": self._seconds,
                "ebbtide_run_progress_timestamp_seconds": self._progress_ms / 1000,
                "ebbtide_run_failures": self._n_failures,
                "ebbtide_run_failing": float(bool(self._failure)),
                "ebbtide_run_healthy": float(not health.reason),
                "ebbtide_run_lease_lost": float(_has_lost_its_lease(look)),
            }
        )


def _has_lost_its_lease(look: Look | None) -> bool:
    return look is not None and look.stepper.lease.taken_by is not None
