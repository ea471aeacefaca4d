"""Jobs: runs of pipelines that outlive the session that began them; each is a separate process.

A job is a folder ROOT/.sql/jobs/ID:

| file | holds |
|---|---|
| `job.json` | the pipelines, the time, whether the runs repeat, the client of a gateway, files of Python code |
| `process` | the process, as `ebbtide.processes` names it |
| `lock` | locked while the process, or the run that it began, lives |
| `log` | the output |
| `stop` | present once the job was asked to stop |
| `exit` | the exit code, once the job has ended |

The process is `python -m ebbtide.sql._jobs FOLDER`. The job of a view repeats its run, at an interval or when a table that the view
reads has changed, until it is asked to stop. A failed run is repeated; after `MOST_FAILURES` in a row the job has failed.

A job without an exit code whose lock is free is lost: the system ended it. The system frees the lock of a process, however that ended,
and of a machine that was started again; names of processes say nothing of another boot. The run inherits the lock, as it outlives a
job's process that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ebbtide.errors import SqlError
from ebbtide.processes import Process, Stop
from ebbtide.sql._py_files import for_process, for_spark

if TYPE_CHECKING:  # a job's process stays small: it loads neither Arrow nor the models of specs
    from ebbtide import MaterializedView, Pipeline
    from ebbtide.sql._catalog import Filled

FOLDER = ".sql/jobs"
STARTS_WITHIN_S = 30
"""Maximum time until a job's process has begun."""
LOG_TAIL = 4_000
"""Bytes at the end of a log that are read for its last line."""
LOOKS_EVERY_S = 2.0
"""Interval at which the tables of a view are checked for changes."""
MOST_FAILURES = 3
LOCK = "lock"
_Run = subprocess.Popen[bytes]


class JobStatus(StrEnum):
    """Status of a job."""

    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    LOST = "LOST"
    """Its process has gone without an exit code."""

    @property
    def is_live(self) -> bool:
        """True before the end."""
        return self in (JobStatus.RUNNING, JobStatus.STOPPING)


@dataclass(frozen=True)
class Job:
    """A run of pipelines in the background.

    Args:
        folder: Folder of the job's files.
        pipelines: Names of the pipelines.
        started: Time of the start, as ISO 8601 in UTC.
        started_by: Name of the gateway's client that began it; empty for other jobs, and those of older releases.
        repeats: The runs repeat until the job is stopped.
    """

    folder: Path
    pipelines: tuple[str, ...]
    started: str
    started_by: str = ""
    repeats: bool = False

    @classmethod
    def read(cls, folder: Path) -> Job:
        """Read a job from its folder."""
        asked = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        return cls(
            folder,
            tuple(asked["pipelines"]),
            asked["started"],
            asked.get("client", ""),
            asked.get("repeats", False),
        )

    @property
    def id(self) -> str:
        """Id of the job."""
        return self.folder.name

    @property
    def status(self) -> JobStatus:
        """Status of the job."""
        code = self._text("exit")
        if not code and self._is_lock_free():
            code = self._text("exit")  # it may have ended since the first look
            if not code:
                return JobStatus.LOST
        if code:
            return JobStatus.FINISHED if int(code) == 0 else JobStatus.FAILED
        return JobStatus.STOPPING if (self.folder / "stop").exists() else JobStatus.RUNNING

    @property
    def message(self) -> str:
        """Last line of the log."""
        log = self.folder / "log"
        n_bytes = log.stat().st_size
        with log.open("rb") as file:
            file.seek(max(n_bytes - LOG_TAIL, 0))
            tail = file.read()
        *_, last_line = tail.decode("utf-8", errors="replace").strip().split("\n")
        return last_line.strip()

    def stop(self) -> None:
        """Ask the job to end after its step.

        Raises:
            SqlError: the job runs on another machine.
        """
        if self.status is not JobStatus.RUNNING:
            return
        process = Process(self._text("process"))
        if not process.is_here:
            what = f"The job '{self.id}' runs on another machine."
            raise SqlError.of(what, got=process.host, next_step=f"Stop it on '{process.host}'.")
        (self.folder / "stop").touch()
        pid = int(process.pid)
        # The process passes the signal on to its run. A run that outlived it is in the group that the process led.
        send = os.killpg if process.is_gone else os.kill
        send(pid, signal.SIGTERM)

    def _is_lock_free(self) -> bool:
        """Return whether the lock is free; of a job of an older release, which has none, whether its process has gone."""
        path = self.folder / LOCK
        if not path.exists():
            return Process(self._text("process")).is_gone
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""


@dataclass(frozen=True)
class Jobs:
    """The jobs below a root.

    Args:
        root: Folder of all pipelines' tables.
        py_files: Files of Python code for the jobs that begin.
    """

    root: str
    py_files: tuple[str, ...] = ()

    def all(self) -> list[Job]:
        """Return all jobs, the newest first."""
        processes = self._folder.glob("*/process")
        jobs = [Job.read(process.parent) for process in processes]
        jobs.sort(key=lambda job: (job.started, job.id), reverse=True)
        return jobs

    def get(self, wanted: str) -> Job:
        """Return one job.

        Args:
            wanted: Its id, or the name of a pipeline, whose newest job is returned.

        Raises:
            SqlError: there is none of this id or name.
        """
        found = self.all()
        for job in found:
            if job.id == wanted or wanted in job.pipelines:
                return job
        running = [job.id for job in found if job.status is JobStatus.RUNNING]
        allowed = ", ".join(running) or "none: no job is running"
        raise SqlError.of("There is no such job.", got=wanted, allowed=allowed)

    def is_running(self, pipeline: str) -> bool:
        """Return whether a job runs a pipeline."""
        of_pipeline = [job for job in self.all() if pipeline in job.pipelines]
        return any(job.status is JobStatus.RUNNING for job in of_pipeline)

    @contextmanager
    def alone(self, pipelines: Sequence[str], definitions: Path) -> Iterator[None]:
        """Begin a job in the block, which no other session of the same definitions does meanwhile.

        The folder itself is locked, so that a statement that is refused leaves no file.

        Args:
            pipelines: Names of the pipelines that the job is to run.
            definitions: The folder of their definitions, which the block may write.

        Raises:
            SqlError: a job runs one of them.
        """
        definitions.mkdir(parents=True, exist_ok=True)
        lock = os.open(definitions, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for job in self.all():
                shared = [name for name in job.pipelines if name in pipelines]
                if shared and job.status.is_live:
                    raise SqlError.of(
                        f"Job '{job.id}' runs '{shared[0]}'.",
                        got=job.status.value,
                        allowed="one job at a time for a table",
                        next_step=f"Wait for its end, or STOP JOB '{job.id}'.",
                    )
            yield
        finally:
            os.close(lock)

    def start(
        self,
        pipelines: Sequence[Filled],
        *,
        once: bool = False,
        by: str = "",
    ) -> Job:
        """Begin a job that runs pipelines in order; the run of a view repeats by its `refresh`.

        Args:
            pipelines: Pipelines of the job, in order.
            once: Run a view once too.
            by: Name of the gateway's client that begins the job.

        Raises:
            SqlError: the process did not begin.
        """
        from ebbtide.storage import Location

        now = datetime.now(UTC)
        folder = self._folder / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        Location(folder).make_private()
        asked = {
            "pipelines": [pipeline.name for pipeline in pipelines],
            "locations": [str(pipeline.location.resolve()) for pipeline in pipelines],
            "root": self.root,
            "started": now.isoformat(timespec="milliseconds"),
            "client": by,
            "py_files": self.py_files,
            "repeats": not once and any(repeats(pipeline.spec) for pipeline in pipelines),
        }
        (folder / "job.json").write_text(json.dumps(asked, indent=1), encoding="utf-8")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ebbtide.sql._jobs", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # neither Ctrl-C nor the end of the session reaches it
            )
        _await_start(folder, process)
        # Waited for, a job that ends before its session leaves no entry among the system's processes.
        threading.Thread(target=process.wait, name=f"job-{folder.name}", daemon=True).start()
        return Job.read(folder)

    @property
    def _folder(self) -> Path:
        """Folder of the root's jobs; for a root in a store it is below this user's home."""
        from ebbtide.storage import Location

        if Location(self.root).is_local:
            return Path(self.root) / FOLDER
        return Path.home() / ".local/state/ebbtide" / FOLDER


def repeats(spec: Pipeline) -> bool:
    """Return whether the job of a pipeline repeats its run."""
    view = cast("MaterializedView", spec)
    return spec.is_view and view.refresh != "manual"


def _await_start(folder: Path, process: _Run) -> None:
    ends_at = time.monotonic() + STARTS_WITHIN_S
    begun = folder / "process"
    while not begun.exists():
        is_late = time.monotonic() > ends_at
        has_ended = process.poll() is not None
        if is_late or has_ended:
            log = folder / "log"
            printed = log.read_text(encoding="utf-8", errors="replace")
            raise SqlError.of(
                "The job's process did not begin.",
                got=printed[-500:] or "nothing printed",
            )
        time.sleep(0.02)


def main(folder: Path) -> int:
    """Run the pipelines of a job's folder, and record the exit code; return it."""
    asked = json.loads((folder / "job.json").read_text(encoding="utf-8"))
    files = asked.get("py_files", ())
    of_spark = [f"--conf={name}={value}" for name, value in for_spark(files).items()]
    command = [sys.executable, "-m", "ebbtide.cli", "run", *asked["locations"], "--root", asked["root"], *of_spark]
    environment = for_process(files, os.environ)
    stop = Stop()
    runs: list[_Run] = []

    def end(number: int, frame: Any) -> None:
        stop.on_signal()
        for run in runs:
            run.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    _write(folder / "process", Process.this())
    # Each run is a separate process, so that its memory is released between two runs. The handler of SIGTERM passes the signal
    # on, and the run ends after its step.
    code = n_failures = 0
    while not stop.is_signalled():
        started = time.monotonic()
        runs[:] = [subprocess.Popen(command, pass_fds=[lock], env=environment)]
        if stop.is_signalled():
            runs[0].send_signal(signal.SIGTERM)  # the stop came before the process was in `runs`
        code = runs[0].wait()
        has_failed = code != 0
        n_failures = n_failures + 1 if has_failed else 0
        repeats_run = asked.get("repeats") and n_failures < MOST_FAILURES
        if not repeats_run or not _await_next(asked, started, stop, has_failed=has_failed):
            break
    _write(folder / "exit", str(code))
    return code


def _await_next(
    asked: dict[str, Any],
    started: float,
    stop: Stop,
    *,
    has_failed: bool,
) -> bool:
    """Wait until a view has to be run again; return False if the job is to stop."""
    is_due = _at_once if has_failed else _due(asked["locations"][0], asked["root"], started)
    while not stop.wait(LOOKS_EVERY_S):
        if is_due():
            return True
    return False


def _at_once() -> bool:
    """Return that a failed run is repeated at the next look."""
    return True


def _due(location: str, root: str, started: float) -> Callable[[], bool]:
    """Return a function that returns whether a view has to be run again.

    Args:
        location: Folder of the view's definition.
        root: Folder of all pipelines' tables.
        started: Start of the last run, by the monotonic clock.
    """
    from ebbtide import load
    from ebbtide.runtime import Plan

    view = cast("MaterializedView", load(location))
    if not isinstance(view.refresh, str):
        interval_s = view.refresh.every.total_seconds()
        return lambda: time.monotonic() - started >= interval_s
    source = Plan.under(root, view).source
    return lambda: source.discover({}, 0).streams


def _write(path: Path, text: str) -> None:
    """Write a file at once, since other processes wait for it."""
    beside = path.with_suffix(".new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
