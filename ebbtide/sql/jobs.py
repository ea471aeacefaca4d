"""Jobs: runs of pipelines that go on when the session that began them is over; here each is a process of its own.

A job is a folder ROOT/.sql/jobs/ID:

| file | holds |
|---|---|
| `job.json` | what was asked: the pipelines, when, whether they are run again and again, by which client of a gateway |
| `process` | what runs it, as `ebbtide.ledger.process` names it |
| `log` | what it printed |
| `stop` | it was asked to stop |
| `exit` | its exit code, once it is over |
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from ebbtide.errors import SqlError
from ebbtide.ledger.process import host_and_pid, is_gone, is_here
from ebbtide.paths import is_local, make_private
from ebbtide.spec.pipeline import Pipeline
from ebbtide.spec.view import MaterializedView
from ebbtide.sql.catalog import Filled

FOLDER = ".sql/jobs"
STARTS_WITHIN_S = 30
"""How long a job's process may take to say that it runs."""
LOG_TAIL = 4_000
"""Bytes of a log in which its last line is looked for."""


class JobStatus(StrEnum):
    """Where a job stands."""

    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    FINISHED = "FINISHED"
    FAILED = "FAILED"


class Job(Protocol):
    """A run of pipelines that goes on by itself."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def pipelines(self) -> tuple[str, ...]:
        """Names of what it runs."""

    @property
    def started(self) -> str:
        """When, as ISO 8601 in UTC."""

    @property
    def started_by(self) -> str:
        """Name of the gateway's client that began it; empty: not a gateway's."""

    @property
    def status(self) -> JobStatus:
        """Where it stands."""

    @property
    def message(self) -> str:
        """What it said last; empty if nothing."""

    def stop(self) -> None:
        """Ask it to end after its step.

        Raises:
            SqlError: it cannot be asked from here.
        """


class Jobs(Protocol):
    """What runs jobs."""

    def all(self) -> Sequence[Job]:
        """Return all jobs, the newest first."""

    def start(self, pipelines: Sequence[Filled], *, once: bool = False, by: str = "") -> Sequence[Job]:
        """Begin to run pipelines.

        Args:
            pipelines: They.
            once: Views that are kept up to date by a job are only brought up to date.
            by: Name of the gateway's client that begins it.

        Raises:
            SqlError: they cannot be run.
        """


def repeats(spec: Pipeline) -> bool:
    """Return whether a pipeline is run again and again by its job."""
    return isinstance(spec, MaterializedView) and spec.refresh != "manual"


def job_of(jobs: Jobs, id_: str) -> Job:
    """Return one job.

    Raises:
        SqlError: there is none of this id.
    """
    found = jobs.all()
    for job in found:
        if job.id == id_:
            return job
    running = [job.id for job in found if job.status is JobStatus.RUNNING]
    raise SqlError.of(
        "There is no such job.",
        got=id_,
        allowed=", ".join(running) or "none: no job is running",
    )


@dataclass(frozen=True)
class ProcessJob:
    """A job that is a process.

    Args:
        folder: Of its files.
        pipelines: Names of what it runs.
        started: When, as ISO 8601 in UTC.
        started_by: Name of the gateway's client that began it; empty: not a gateway's, or of an older release.
    """

    folder: Path
    pipelines: tuple[str, ...]
    started: str
    started_by: str = ""

    @classmethod
    def read(cls, folder: Path) -> ProcessJob:
        """Read it from its folder."""
        asked = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        return cls(
            folder,
            tuple(asked["pipelines"]),
            asked["started"],
            asked.get("client", ""),
        )

    @property
    def id(self) -> str:
        """Its id."""
        return self.folder.name

    @property
    def status(self) -> JobStatus:
        """Where it stands; a process that is gone without a word has failed."""
        code = self._text("exit")
        if code:
            return JobStatus.FINISHED if int(code) == 0 else JobStatus.FAILED
        if is_gone(self._process):
            return JobStatus.FAILED
        return JobStatus.STOPPING if (self.folder / "stop").exists() else JobStatus.RUNNING

    @property
    def message(self) -> str:
        """The last line that it printed."""
        log = self.folder / "log"
        n_bytes = log.stat().st_size
        with log.open("rb") as file:
            file.seek(max(n_bytes - LOG_TAIL, 0))
            tail = file.read()
        text = tail.decode("utf-8", errors="replace").strip()
        *_, last_line = text.split("\n")
        return last_line.strip()

    def stop(self) -> None:
        """Ask it to end after its step.

        Raises:
            SqlError: it runs on another machine.
        """
        if self.status is not JobStatus.RUNNING:
            return
        process = self._process
        host, pid = host_and_pid(process)
        if not is_here(process):
            raise SqlError.of(
                f"The job '{self.id}' runs elsewhere.",
                got=host,
                next_step=f"Stop it on '{host}'.",
            )
        (self.folder / "stop").touch()
        os.kill(int(pid), signal.SIGTERM)

    @property
    def _process(self) -> str:
        return self._text("process")

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text(encoding="utf-8").strip() if path.exists() else ""


@dataclass(frozen=True)
class ProcessJobs:
    """The jobs below a root, as processes of this machine.

    Args:
        root: Folder of all pipelines' tables.
    """

    root: str

    def all(self) -> list[ProcessJob]:
        """Return all jobs, the newest first."""
        folders = self._folder.glob("*/process")
        jobs = [ProcessJob.read(process.parent) for process in folders]
        jobs.sort(key=lambda job: (job.started, job.id), reverse=True)
        return jobs

    def start(self, pipelines: Sequence[Filled], *, once: bool = False, by: str = "") -> list[ProcessJob]:
        """Begin a job that runs pipelines one after the other; a view again and again, as its `refresh` says.

        Args:
            pipelines: They.
            once: Each is run once, whatever it is.
            by: Name of the gateway's client that begins it.

        Raises:
            SqlError: its process did not begin.
        """
        now = datetime.now(UTC)
        folder = self._folder / f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
        make_private(str(folder))
        asked = {
            "pipelines": [pipeline.name for pipeline in pipelines],
            "locations": [str(pipeline.location.resolve()) for pipeline in pipelines],
            "root": self.root,
            "started": now.isoformat(timespec="seconds"),
            "client": by,
            "repeats": not once and any(repeats(pipeline.spec) for pipeline in pipelines),
        }
        (folder / "job.json").write_text(json.dumps(asked, indent=1), encoding="utf-8")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ebbtide.sql.job", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C, or the end of the session, is none of its business
            )
        self._await_start(folder, process)
        return [ProcessJob.read(folder)]

    @property
    def _folder(self) -> Path:
        """Where the jobs of the root are; a root in a store has them in this user's folder."""
        if is_local(self.root):
            return Path(self.root) / FOLDER
        return Path.home() / ".local/state/ebbtide" / FOLDER

    def _await_start(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        ends_at = time.monotonic() + STARTS_WITHIN_S
        begun = folder / "process"
        while not begun.exists():
            is_late = time.monotonic() > ends_at
            if is_late or process.poll() is not None:
                log = folder / "log"
                printed = log.read_text(encoding="utf-8", errors="replace")
                raise SqlError.of(
                    "The job's process did not begin.",
                    got=printed[-500:] or "nothing printed",
                )
            time.sleep(0.02)
