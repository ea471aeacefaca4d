"""Watches the continuous runs of a process: the values of their metrics, and their health.

A run that has failed is begun again by its fleet. That makes the process no less healthy: a probe that ended it would end all other runs too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from ebbtide.inspect._exposition import Exposition
from ebbtide.inspect._host import host_values, local_copies
from ebbtide.inspect._metrics import Values
from ebbtide.inspect._watched_run import Health, WatchedRun
from ebbtide.spec import Pipeline

MEASURE_S = 15.0
"""Seconds between two measurements of the sources and the host."""
CHECKS_EVERY = 4
"""Measurements between two readings of the checks' verdicts: in an object store each is a request."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FleetHealth:
    """The health of all runs.

    Args:
        runs: That of each.
    """

    runs: tuple[Health, ...]

    @property
    def reason(self) -> str:
        """Why some are stuck; empty if all continue or restart."""
        stuck = [health for health in self.runs if health.reason]
        reasons = [f"{health.pipeline}: {health.reason}" for health in stuck]
        return "; ".join(reasons)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        reason = self.reason
        return {
            "is_healthy": not reason,
            "reason": reason,
            "pipelines": [health.as_dict() for health in self.runs],
        }


class WatchedFleet:
    """Watches runs.

    Args:
        runs: Each watched on its own.
        root: Folder of all pipelines' tables.
    """

    def __init__(self, runs: Sequence[WatchedRun], root: str) -> None:
        self._runs = {run.spec.name: run for run in runs}
        self._root = root
        self._host = Values("run")

    @classmethod
    def of(cls, specs: Sequence[Pipeline], root: str, healthy_within_s: float | None) -> Self:
        """Return a watcher of continuous runs.

        Args:
            specs: Their pipelines.
            root: Folder of all pipelines' tables.
            healthy_within_s: Longest silence of a healthy run; None: see `WatchedRun`.
        """
        return cls([WatchedRun(spec, root, healthy_within_s) for spec in specs], root)

    def run(self, name: str) -> WatchedRun:
        """Return the one of a pipeline."""
        return self._runs[name]

    def health(self) -> FleetHealth:
        """Judge whether the runs continue."""
        runs = [run.health() for run in self._runs.values()]
        return FleetHealth(tuple(runs))

    def values(self) -> list[Values]:
        """Return the values of the host and of all runs."""
        of_runs = [run.values() for run in self._runs.values()]
        return [self._host, *of_runs]

    def exposition(self) -> Exposition:
        """Return what collects the values for a registry of Prometheus's library."""
        return Exposition(self.values)

    def measure(self, *, reads_verdicts: bool = True) -> None:
        """Measure the host, and for each run what waits in its source, its local copies, and the checks' verdicts.

        Args:
            reads_verdicts: Also of the checks.
        """
        copies = local_copies()
        self._host = host_values("run", self._root, copies)
        for run in self._runs.values():
            try:
                run.measure(copies, reads_verdicts=reads_verdicts)
            except Exception as error:  # noqa: BLE001 - the run and its other values continue
                _log.warning("The source of '%s' could not be measured: %s", run.spec.name, error)

    def keep_measuring(self, stop: threading.Event) -> None:
        """Measure now and then until it is stopped."""
        number = 0
        while not stop.is_set():
            is_turn_of_checks = number % CHECKS_EVERY == 0
            try:
                self.measure(reads_verdicts=is_turn_of_checks)
            except Exception as error:  # noqa: BLE001 - the next measurement may pass; else all values would stand still unseen
                _log.warning("The host could not be measured: %s", error)
            number += 1
            have_begun = all(run.has_begun for run in self._runs.values())
            pause_s = MEASURE_S if have_begun else 1.0
            stop.wait(pause_s)
