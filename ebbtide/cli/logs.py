"""Structured logs: with `--log-format json` a command writes JSON to standard error, one object per line.

`{"time": "2026-01-01T00:00:00.000Z", "level": "INFO", "logger": "ebbtide.run", "message": ..., "pipeline": "orders", "step": 7}`. The last two
fields name the current work; a finished step also has its counts.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import click

from ebbtide.cli.commands import LEVEL
from ebbtide.redaction import redacted
from ebbtide.runtime import Phase, StepProgress

_LOG = "ebbtide.cli.log"
TEXT, JSON = "text", "json"
_run = logging.getLogger("ebbtide.run")
_command = logging.getLogger("ebbtide.command")
_place: ContextVar[Mapping[str, Any]] = ContextVar("place", default=MappingProxyType({}))
"""The pipeline, and perhaps the step, of this thread's work."""
LEVELS = {-1: logging.WARNING, 0: logging.INFO, 1: logging.DEBUG}
"""Verbosity (`-q`, neither, `-v`) to the lowest level of records."""


class JsonLog(logging.Handler):
    """Writes log records as lines of JSON while a command runs.

    Args:
        shown: Returns the command's verbosity.
    """

    def __init__(self, shown: Callable[[], int]) -> None:
        super().__init__()
        self._shown = shown

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        is_own = record.name.partition(".")[0] == "ebbtide"
        least = LEVELS[self._shown()] if is_own else logging.WARNING
        if record.levelno < least:
            return
        try:
            # The current standard error: a command called from Python may have another one.
            sys.stderr.write(f"{self._line(record)}\n")
            sys.stderr.flush()
        except Exception:  # noqa: BLE001 - like every handler of `logging`
            self.handleError(record)

    def _line(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        message = record.getMessage()
        fields = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": redacted(message),
            **_place.get(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            traceback = logging.Formatter().formatException(record.exc_info)
            fields["traceback"] = redacted(traceback)
        return json.dumps(fields, default=str)

    def say(self, line: str) -> None:
        """Write a remark of the command."""
        _command.info(line)

    def error(self, text: str, error: Exception, *, has_traceback: bool) -> None:
        """Write the error that ends the command's work on a pipeline."""
        fields = {"error": type(error).__name__}
        _command.error(text, exc_info=error if has_traceback else None, extra={"fields": fields})

    def step(self, progress: StepProgress) -> None:
        """Write a finished step."""
        log_names(progress.pipeline)
        counts = {name: n for name, n in progress.counts.items() if n}
        fields = {
            "step": progress.step,
            "kind": progress.kind,
            "seconds": round(progress.seconds, 3),
            "counts": counts,
        }
        _run.info("step finished", extra={"fields": fields})

    def phase(self, phase: Phase) -> None:
        """Write a phase as it begins, with `-v`; later records name its pipeline and step."""
        step = {} if phase.step is None else {"step": phase.step}
        _place.set({"pipeline": phase.pipeline, **step})
        _run.debug(phase.name)


def log_names(pipeline: str) -> None:
    """Have the log name a pipeline as the work of this thread."""
    _place.set({"pipeline": pipeline})


def json_log() -> JsonLog | None:
    """Return the log of the current command; None: it writes text."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_LOG)


def begin_log(context: click.Context, _: click.Parameter, given: str) -> None:
    """If requested, write records as JSON until the command ends."""
    if given != JSON:
        return
    _place.set({})
    root, own = logging.getLogger(), logging.getLogger("ebbtide")
    handler = JsonLog(lambda: int(context.meta.get(LEVEL, 0)))
    before = own.level

    def end() -> None:
        root.removeHandler(handler)
        own.setLevel(before)
        logging.captureWarnings(capture=False)

    root.addHandler(handler)
    own.setLevel(logging.DEBUG)
    logging.captureWarnings(capture=True)
    context.meta[_LOG] = handler
    context.call_on_close(end)
