"""A process of Dagster's with the processes that it starts: `make demo` has its daemon so, and the tests `dagster dev`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ENDS_WITHIN_S = 30
"""Maximum time that it gets to end its runs."""


@contextmanager
def dagster_process(
    command: Sequence[str],
    log: Path,
    folder: Path,
    environment: Mapping[str, str],
) -> Iterator[None]:
    """Start a process in a group of its own; interrupt the group at the end, and kill it if it does not end.

    Args:
        command: The command.
        log: File of its output.
        folder: Working folder.
        environment: Its environment variables.
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
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
