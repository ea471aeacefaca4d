"""A process of Dagster's with the processes that it starts: `make demo` has its run so, and the tests `dagster dev`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

ENDS_WITHIN_S = 30
"""Maximum time that it gets to end its runs."""


@contextmanager
def dagster_process(
    command: Sequence[str],
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
    *,
    inherited: Sequence[int] = (),
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own; interrupt the group at the end, and kill it if it does not end.

    Args:
        command: The command.
        log: File of its output.
        folder: Working folder.
        environment: Its environment variables.
        inherited: File descriptors that it has too.
    """
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - it may be ignored here
            pass_fds=inherited,
        )
        try:
            yield process
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        _signal_group(process, signal.SIGINT)
        process.wait(ENDS_WITHIN_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):  # who interrupts a second time does not want to wait
        _signal_group(process, signal.SIGKILL)
        process.wait(ENDS_WITHIN_S)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):  # all have ended
        os.killpg(process.pid, number)
