"""Files of ended processes that may quote rows: logs of commands and of jobs of SQL, results that sessions of SQL had. An erasure deletes them.

Those of processes that run here stay until these end.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ebbtide.delta import Held
from ebbtide.processes import Process
from ebbtide.storage import Location
from ebbtide.users import user_name

LOGS = ".logs"
"""Folder of the logs of commands, below the root."""
JOBS = ".sql/jobs"
"""Folder of the jobs of SQL: below the root, or below `JOBS_OF_STORES` if that is in a store."""
JOBS_OF_STORES = ".local/state/ebbtide"
"""Folder below the user's home."""
ERASED = "The log was deleted by an erasure.\n"
SESSIONS = "ebbtide-sql-"
"""Beginning of the names of the folders of SQL's sessions, in the folder for temporary files; the process's number follows."""


def delete_leftovers(root: str) -> Held:
    """Delete the files on this host.

    Args:
        root: Folder of all pipelines' tables.

    Returns:
        The files that were deleted.
    """
    total = Held()
    for path in [*_logs(root), *_results()]:
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            path.unlink()
            total += Held(0, 1, size)
    for path in _logs_of_jobs(root):
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            path.write_text(ERASED, encoding="utf-8")
            total += Held(0, 1, size)
    for folder in _ended_sessions():
        shutil.rmtree(folder, ignore_errors=True)
    return total


def _logs(root: str) -> Iterator[Path]:
    """Yield the logs of commands whose process has ended."""
    temporary = Path(tempfile.gettempdir(), f"ebbtide-logs-{user_name()}")
    folders = [Path(root, LOGS)] if Location(root).is_local else []
    if temporary.is_dir() and Location(temporary).is_ours():
        folders.append(temporary)
    for folder in folders:
        for log in sorted(folder.glob("*-*.log")):
            _, _, pid = log.stem.rpartition("-")
            if _has_ended(pid):
                yield log


def _logs_of_jobs(root: str) -> Iterator[Path]:
    """Yield the logs of the ended jobs of a root, which list them still."""
    home = Path(root) if Location(root).is_local else Path.home() / JOBS_OF_STORES
    for asked in sorted(Path(home, JOBS).glob("*/job.json")):
        folder = asked.parent
        process = folder / "process"
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = asked.read_text(encoding="utf-8")
            own_root: str = json.loads(text)["root"]
            is_of_root = own_root.rstrip("/") == root.rstrip("/") or Location(root).is_local
            has_exit = (folder / "exit").exists()
            is_ended = has_exit or Process(process.read_text(encoding="utf-8").strip()).is_gone
            if is_of_root and is_ended:
                yield folder / "log"


def _ended_sessions() -> list[Path]:
    """Return the folders of sessions of SQL whose process was killed."""
    found = []
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{SESSIONS}*-*")):
        pid, _, _ = folder.name.removeprefix(SESSIONS).partition("-")
        with contextlib.suppress(OSError):
            if folder.is_dir() and Location(folder).is_ours() and _has_ended(pid):
                found.append(folder)
    return found


def _results() -> Iterator[Path]:
    """Yield the files of these."""
    for folder in _ended_sessions():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path


def _has_ended(pid: str) -> bool:
    return pid.isdigit() and not Path("/proc", pid).exists()
