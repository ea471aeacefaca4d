"""The process of one job: `python -m ebbtide.sql.job FOLDER`. Runs its pipelines and writes down how that ended.

A view that is to be kept up to date is run again: at its interval, or when a table that it reads has changed, until the job is
asked to stop. Runs that fail are tried again; after `MOST_FAILURES` in a row the job has failed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ebbtide.ledger.process import this_process

LOOKS_EVERY_S = 2.0
"""Between two looks at the tables that a view reads."""
MOST_FAILURES = 3


def main(folder: Path) -> int:
    """Run what a job's folder asks for; return the exit code.

    Args:
        folder: See `ebbtide.sql.jobs`.
    """
    asked = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "ebbtide.cli", "run", *asked["locations"], "--root", asked["root"]]
    stop = threading.Event()
    runs: list[subprocess.Popen[bytes]] = []

    def end(number: int, frame: Any) -> None:
        stop.set()
        for run in runs:
            run.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    _write(folder / "process", this_process())
    code = 0
    n_failures = 0
    while not stop.is_set():
        started = time.monotonic()
        runs[:] = [subprocess.Popen(command)]
        if stop.is_set():
            runs[0].send_signal(signal.SIGTERM)  # it was set between the two
        code = runs[0].wait()
        n_failures = n_failures + 1 if code else 0
        is_over = not asked.get("repeats") or n_failures >= MOST_FAILURES
        if is_over or not _await_next(asked, started, stop, is_again=code != 0):
            break
    _write(folder / "exit", str(code))
    return code


def _await_next(
    asked: dict[str, Any],
    started: float,
    stop: threading.Event,
    *,
    is_again: bool,
) -> bool:
    """Wait until a view has to be run again; False if the job is to stop."""
    if is_again:
        return not stop.wait(LOOKS_EVERY_S)
    is_due = _due(asked["locations"][0], asked["root"], started)
    while not stop.wait(LOOKS_EVERY_S):
        if is_due():
            return True
    return False


def _due(location: str, root: str, started: float) -> Callable[[], bool]:
    """Return what tells whether a view has to be run again.

    Args:
        location: Its folder.
        root: Folder of all pipelines' tables.
        started: When it was run last, by the monotonic clock.
    """
    from ebbtide.runtime.plan import Plan
    from ebbtide.spec.load import load
    from ebbtide.spec.view import MaterializedView, RefreshEvery

    view = load(location)
    if isinstance(view, MaterializedView) and isinstance(view.refresh, RefreshEvery):
        interval_s = view.refresh.every.total_seconds()
        return lambda: time.monotonic() - started >= interval_s
    source = Plan.under(root, view).source
    return lambda: source.discover({}, 0).streams


def _write(path: Path, text: str) -> None:
    """Put a file in place whole: others wait for it."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
