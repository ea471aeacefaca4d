"""Reports of runs to the Dagster asset that started the process, by Dagster Pipes. Needs `pip install 'ebbtide[pipes]'`.

The asset's client sets the variable `DAGSTER_PIPES_CONTEXT`: of a pod, a container or a process. Dagster itself is not loaded here.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from functools import cache

from ebbtide.errors import MissingExtraError
from ebbtide.redaction import shown
from ebbtide.runtime import Observer, RunBegun, RunEnded, StepProgress

try:
    from dagster_pipes import PipesContext, open_dagster_pipes
except ModuleNotFoundError as missing:
    raise MissingExtraError.of_extra("pipes", "Dagster Pipes") from missing

LOGGED_EVERY_S = 60.0
"""Minimum time between two lines of a continuous run; each is a row of Dagster's event log."""


class Pipes(Observer):
    """Reports one run.

    Args:
        context: Takes the reports. Default: that of the process.
        now_s: A monotonic clock.
    """

    def __init__(self, context: PipesContext | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._given = context
        self._now_s = now_s
        self._logs_s = float("-inf")

    def begun(self, run: RunBegun) -> None:
        """Open the connection, once for all runs of the process."""
        self._context = self._given or _context_of_process()
        self._begun = run

    def step(self, progress: StepProgress) -> None:
        """Log a step's line; in a continuous run periodically."""
        now_s = self._now_s()
        if self._begun.goes_on and now_s < self._logs_s:
            return
        self._logs_s = now_s + LOGGED_EVERY_S
        self._context.log.info(progress.line())

    def ended(self, end: RunEnded) -> None:
        """Report that the sink is materialized, with the totals of the run; or why it is not."""
        if end.error is not None:
            message = shown(f"{type(end.error).__name__}: {end.error}")
            self._context.log.error(message)
            return
        metadata: dict[str, int | str] = {}
        for name, total in end.summary.totals.items():
            if total or name == "steps":
                metadata[f"run_{name}"] = total
        metadata["dagster/uri"] = f"{end.summary.root}/sink"
        for asset in self._assets():
            self._context.report_asset_materialization(metadata, asset_key=asset)

    def _assets(self) -> list[str]:
        """Return the asset with the pipeline's name; else the step's only asset."""
        if not self._context.is_asset_step:
            return []
        assets = list(self._context.asset_keys)
        named = []
        for asset in assets:
            _, _, name = asset.rpartition("/")
            if name == self._begun.spec.name:
                named.append(asset)
        is_only_one = len(assets) == 1
        return assets if is_only_one and not named else named


@cache
def _context_of_process() -> PipesContext:
    """Open the connection to Dagster; it is closed as the process ends."""
    context = open_dagster_pipes()
    atexit.register(context.close)
    return context
