"""The observer that keeps the end of a run with its pipeline, for people who ask the day after."""

from __future__ import annotations

import time

from ebbtide.errors import EbbtideError, LeaseHeldError, PausedError
from ebbtide.runtime._kept_runs import begun, note
from ebbtide.runtime._observers import Observer, RunBegun, RunEnded
from ebbtide.storage import Location

STOPPED, NOTHING_MATCHED = 1, 3
"""Exit codes of runs that ended without an error."""


class KeepsEnd(Observer):
    """Keeps the end of one run."""

    def begun(self, run: RunBegun) -> None:
        """Note the start."""
        self._spec = run.spec
        self._home = Location(run.root) / run.spec.name
        self._cpu_s = time.process_time()
        self._kept = begun(run.spec.name, "refresh" if run.is_fresh else "run")

    def ended(self, end: RunEnded) -> None:
        """Keep the end, by one write."""
        summary = end.summary
        if summary.epoch is None and isinstance(end.error, LeaseHeldError | PausedError):
            return  # the pipeline is well: another process runs it, or a person has paused it
        done = {
            "epoch": summary.epoch,
            "engine": summary.engine,
            "records": summary.totals["records"],
            "cpu_seconds": round(time.process_time() - self._cpu_s, 3),
            "first_step": summary.steps[0].step if summary.steps else None,
            "last_step": summary.steps[-1].step if summary.steps else None,
        }
        kept = self._kept.model_copy(update=done)
        if end.error is not None:
            kept = kept.failed_with(end.error)
        elif summary.is_all_bad and not self._spec.checks.may_all_be_bad:
            bad = {"outcome": "failed", "exit_code": EbbtideError.exit_code}
            kept = kept.model_copy(update={**bad, "message": "All records that it read were bad."})
        elif end.is_cut:
            kept = kept.model_copy(update={"outcome": "interrupted", "exit_code": STOPPED})
        elif summary.nothing_matched:
            kept = kept.model_copy(update={"exit_code": NOTHING_MATCHED})
        note(kept, self._home, end.error)
