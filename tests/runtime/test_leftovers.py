"""Files of ended processes go with an erasure; those of living ones, and of jobs that run, stay."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from frame.stored_names import ERASED, FOLDER, JOBS, JOBS_OF_STORES

from ebbtide.processes import Process
from ebbtide.runtime._leftovers import delete_leftovers
from ebbtide.sql import EmbeddedSession
from ebbtide.sql import _jobs as jobs
from ebbtide.users import user_name


@pytest.fixture
def temporary(tmp_path, shell):
    shell.keep_temporary_files(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.fixture(scope="module")
def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def job(root, name, process, exit_code=None):
    folder = Path(root, JOBS, name)
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"root": str(root), "pipelines": ["orders"], "started": "2026"}))
    (folder / "process").write_text(process)
    (folder / "log").write_text("key 7 is malformed\n")
    if exit_code is not None:
        (folder / "exit").write_text(exit_code)
    return folder / "log"


def test_logs_of_ended_commands_and_jobs_are_deleted(tmp_path, temporary, ended):
    logs = tmp_path / "root" / ".logs"
    in_temporary = temporary / f"ebbtide-logs-{user_name()}"
    for folder in (logs, in_temporary):
        folder.mkdir(mode=0o700, parents=True)
        for pid in (ended, os.getpid()):
            (folder / f"20260101T000000-{pid}.log").write_text("key 7")
    left = job(tmp_path / "root", "a", Process.this(), "0")
    running = job(tmp_path / "root", "b", Process.this())
    found = delete_leftovers(str(tmp_path / "root"))
    assert found.files == 3
    for folder in (logs, in_temporary):
        assert [path.name for path in folder.iterdir()] == [f"20260101T000000-{os.getpid()}.log"]
    assert (left.read_text(), running.read_text()) == (ERASED, "key 7 is malformed\n")
    [first, second] = sorted(jobs.Jobs(str(tmp_path / "root")).all(), key=lambda each: each.id)
    assert (first.message, second.message) == (ERASED.strip(), "key 7 is malformed")


def test_results_of_a_killed_session_of_sql_are_deleted(tmp_path, temporary, ended):
    session = EmbeddedSession({"default": None}, {})
    killed = session.folder.with_name(session.folder.name.replace(str(os.getpid()), str(ended)))
    for folder in (session.folder, killed):
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "rows.arrow").write_text("key 7")
    killed.chmod(0o700)
    assert delete_leftovers(str(tmp_path)).files == 1
    assert not killed.exists()
    assert (session.folder / "1" / "rows.arrow").exists()
    session.close()


def test_jobs_are_looked_for_where_sql_has_them():
    assert JOBS == FOLDER
    assert str(jobs.Jobs("s3://bucket/root")._folder).endswith(f"{JOBS_OF_STORES}/{JOBS}")
