"""Ends a command after the current step when a signal arrives, or replaces its process by a new one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ebbtide.cli.live import Live
from ebbtide.processes import Stop

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ONE_RUN_OPTIONS = ("--accept-loss", "--accept-source-path")
"""Options that apply to one run only."""


@contextmanager
def stop_on_signal(live: Live) -> Iterator[Stop]:
    """Turn the first SIGINT or SIGTERM into a stop after the current step; the second ends at once.

    Args:
        live: Announces it.
    """
    stop = Stop()

    def announce() -> None:
        live.say("Stopping after this step. Send the signal again (Ctrl-C) to stop immediately.")

    def on_signal(number: int, frame: Any) -> None:
        if stop.is_signalled():
            sys.exit(128 + number)
        stop.on_signal(announce)

    handlers = {}
    for number in SIGNALS:
        handlers[number] = signal.signal(number, on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # `restart` blocked them in the process before this one
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def restart(stop: Stop) -> None:
    """Replace the process by a new one: the same command without `ONE_RUN_OPTIONS`, with the same process id and outputs.

    A signal that arrives meanwhile waits until the new process can handle it.

    Args:
        stop: If a signal has set it, no process starts.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    sys.stdout.flush()
    sys.stderr.flush()
    arguments = [each for each in sys.orig_argv[1:] if each not in ONE_RUN_OPTIONS]
    if stop.is_signalled():  # checked last: another thread may have received a signal meanwhile
        return
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted
