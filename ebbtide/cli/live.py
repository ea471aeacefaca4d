"""The live line of a terminal: current work, elapsed time, and work left."""

from __future__ import annotations

import json
import shutil
import sys
import threading
import time
from types import TracebackType
from typing import Self, TextIO

import click

from ebbtide.amounts import amount
from ebbtide.cli.logs import JsonLog
from ebbtide.runtime import Phase, StepProgress

REFRESH_S = 0.5
ERASE = "\r\x1b[2K"


class Live:
    """Rewrites the last line of a terminal; elsewhere it writes nothing. A context manager.

    Args:
        stream: Output, such as standard error.
        is_quiet: Show only texts of `say`, no progress.
        log: Receives all texts instead; None: they are written.
    """

    def __init__(self, stream: TextIO, *, is_quiet: bool = False, log: JsonLog | None = None) -> None:
        self._stream = stream
        self.is_quiet = is_quiet
        self.log = log
        self._is_terminal = stream.isatty() and not is_quiet and log is None
        self._text = ""
        self._since = time.monotonic()
        self._lock = threading.RLock()
        self._done = threading.Event()
        self._clock = threading.Thread(target=self._keep, daemon=True, name="live")

    def __enter__(self) -> Self:
        if self._is_terminal:
            self._clock.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._is_terminal:
            self._clock.join()
        self.show("")

    def show(self, text: str) -> None:
        """Show the current work; an empty text clears the line."""
        with self._lock:
            self._text = text
            self._since = time.monotonic()
            self._draw()

    def say(self, line: str) -> None:
        """Write a line that stays, above the live one."""
        if self.log is not None:
            self.log.say(line)
            return
        with self._lock:
            if self._is_terminal:
                self._stream.write(ERASE)
            self._stream.write(f"{line}\n")
            self._draw()

    def _keep(self) -> None:
        while not self._done.wait(REFRESH_S):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._is_terminal:
            return
        line = ""
        if self._text:
            seconds = time.monotonic() - self._since
            line = f"{self._text}  {seconds:.0f} s"
        width = shutil.get_terminal_size().columns - 1
        self._stream.write(ERASE + line[:width])
        self._stream.flush()


class RunView:
    """Shows a pipeline's run: one line per step, and a live line with current work, rate and remaining time.

    Args:
        live: The live line.
        as_json: Steps go to standard output, as JSON.
    """

    def __init__(self, live: Live, *, as_json: bool) -> None:
        self._live = live
        self._as_json = as_json
        self._stdout = sys.stdout  # during a step, prints go to standard error
        self._started = time.monotonic()
        self._records = 0

    def step(self, progress: StepProgress) -> None:
        """Show a finished step."""
        self._records += progress.records
        if self._as_json:
            click.echo(json.dumps(progress.as_dict()), file=self._stdout)
        if self._live.log is not None:
            self._live.log.step(progress)
        elif not self._as_json and not self._live.is_quiet:
            self._live.say(progress.line())

    def phase(self, phase: Phase) -> None:
        """Show a phase that begins."""
        if self._live.log is not None:
            self._live.log.phase(phase)
            return
        if phase.step is None:
            self._started = time.monotonic()  # work before the steps does not count for the rate
            self._records = 0  # nor do records of an earlier run, such as a backfill's snapshot
        step = f" step {phase.step}" if phase.step else ""
        parts = [phase.name]
        if phase.files_read and phase.files:
            files = amount(phase.files, "file")
            parts.append(f"{phase.files_read} of {files}")
            parts += self._pace(phase.files_read, phase.files)
        elif phase.places_read and phase.places:
            percent = 100 * phase.places_read / phase.places
            records = amount(phase.places, "record")
            parts.append(f"{percent:.0f} % of {records}")
            parts += self._pace(phase.places_read, phase.places)
        done = ", ".join(parts)
        self._live.show(f"{phase.pipeline}{step}: {done}")

    def _pace(self, n_read: int, n: int) -> list[str]:
        """Return the rate of the run, and the remaining time at this rate."""
        seconds = time.monotonic() - self._started
        rate = self._records / seconds
        seconds_left = max(0, n - n_read) * seconds / n_read
        return [
            f"{rate:,.0f} records/s",
            f"about {seconds_left:.0f} s left",
        ]
