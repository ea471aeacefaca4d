"""Spark for a command: started on first use, silent; its output goes to a log file.

Logs are at ROOT/.logs, or in the system's folder for temporary files if ROOT is a URI or may not be written to; the
newest 20 are kept.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ebbtide.cli.commands import QUIET, level
from ebbtide.cli.live import Live
from ebbtide.cli.logs import json_log
from ebbtide.cli.options import spark_settings
from ebbtide.lines import lines_of
from ebbtide.sessions import OnSpark
from ebbtide.users import user_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 20
TAIL_LINES = 20


class QuietSpark:
    """A lazy session. A context manager that stops it, and names the log if workers printed anything.

    Args:
        root: Folder of all pipelines' tables.
        live: Shows that Spark is being started.
        settings: Spark settings, which override all other settings. Default: none.
    """

    def __init__(self, root: str, live: Live, settings: Mapping[str, str] | None = None) -> None:
        self.live = live
        self._root = root
        self.settings = settings or {}
        self._session: SparkSession | None = None
        self._log: Path | None = None
        self._started_bytes = 0
        self._starting = threading.Lock()

    @property
    def session(self) -> SparkSession:
        """The session; started if necessary."""
        with self._starting:
            return self._session or self._start()

    def _start(self) -> SparkSession:
        from ebbtide.sessions import build_session

        self.live.show("starting Spark")
        self._log = new_log(self._root)
        self._session = build_session(settings=self.settings, log_file=self._log, keeps_sigint=True)
        self._started_bytes = self._log.stat().st_size
        self.live.show("")
        return self._session

    @property
    def executor(self) -> OnSpark:
        """Runs work in the session, which starts once it is needed; at once if the JVM writes the root's files."""
        return OnSpark.for_root(lambda: self.session, self._root)

    def tail(self) -> str:
        """Return the end of Spark's log since its start (or of a failed start), and the log's location; empty without Spark."""
        if self._log is None:
            return ""
        # Spark's output during the start is noise, unless the start fails.
        raw = self._log.read_bytes()[self._started_bytes :]
        logged = lines_of(raw.decode(errors="replace"))
        lines = []
        if logged:
            lines.append("Spark's last lines:")
            lines += [f"  {line}" for line in logged[-TAIL_LINES:]]
        lines.append(f"Spark's log: {self._log}")
        return "\n".join(lines)

    @property
    def has_died(self) -> bool:
        """Return whether the JVM of a started session has ended by itself."""
        if self._session is None:
            return False
        return OnSpark.has_died(self._session)

    def end(self) -> None:
        """Stop the session and its JVM, if started."""
        if self._session is None:
            return
        from ebbtide.sessions import end_session

        session, self._session = self._session, None
        end_session(session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or self._session is None or self._log is None or self.has_died:
            return  # after an error the JVM may be gone; it ends with this process anyway
        self._session.stop()
        has_printed = self._log.stat().st_size > self._started_bytes
        if has_printed:
            self.live.say(f"The output of Spark's workers is in {self._log}")


@contextmanager
def quiet_spark(root: str) -> Iterator[QuietSpark]:
    """Yield a session for a command, with the live line on standard error."""
    with (
        Live(sys.stderr, is_quiet=level() == QUIET, log=json_log()) as live,
        QuietSpark(root, live, spark_settings()) as spark,
    ):
        yield spark


def new_log(root: str) -> Path:
    """Create a new log file; delete the oldest ones."""
    started = datetime.now(UTC)
    name = f"{started:%Y%m%dT%H%M%S}-{os.getpid()}.log"
    log = _log_under(root, name) or _temporary_log(name)
    logs = sorted(log.parent.glob("*.log"))
    for old in logs[:-KEPT]:
        old.unlink(missing_ok=True)
    return log


def _log_under(root: str, name: str) -> Path | None:
    """Create a log file under the root; None if that is a URI or not writable."""
    from ebbtide.storage import Location

    if not Location(root).is_local:
        return None
    try:
        return _touched(Path(root) / ".logs" / name)
    except OSError:
        return None


def _temporary_log(name: str) -> Path:
    from ebbtide.storage import Location

    folder = Path(tempfile.gettempdir()) / f"ebbtide-logs-{user_name()}"
    if folder.exists() and not Location(folder).is_ours():  # another user could read the log
        folder = Path(tempfile.mkdtemp(prefix="ebbtide-logs-"))
    return _touched(folder / name)


def _touched(log: Path) -> Path:
    from ebbtide.storage import Location

    Location(log.parent).make_private()
    log.touch(mode=0o600)
    return log
