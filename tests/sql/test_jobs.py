"""Jobs of SQL outlive what began them: a shell that is left, a gateway that is killed."""

import os
import signal
import threading
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from clusters.spark_support import change, write
from frame.terminal import Terminal
from frame.waiting import PATIENCE_S
from statements.gateway_support import running

from ebbtide.errors import SqlError
from ebbtide.sql import Catalog, EmbeddedSession, RemoteSession
from ebbtide.sql._jobs import JobStatus

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
INSERT = "INSERT INTO kept SELECT * FROM log;"


@pytest.fixture
def home(tmp_path):
    """A source and a table are declared."""
    source = write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("-D", 1, "a", 3)])
    session = opened(tmp_path)
    for text in (
        f"""CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
            WITH (path = '{source}', format = plain, records = value, sequence = seq)""",
        "CREATE TABLE kept (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))",
    ):
        session.execute(text).result(PATIENCE_S)
    session.close()
    return tmp_path


@pytest.fixture
def session(home):
    """A session of this process."""
    session = opened(home)
    yield session
    session.close()


def opened(home):
    return EmbeddedSession({"default": Catalog(str(home / "root"), home / "defs")}, {})


def options(home):
    return ["--defs", str(home / "defs"), "--root", str(home / "root")]


def insert_and_quit(home):
    """Begin a job in a shell, and leave that."""
    state = {"XDG_STATE_HOME": str(home / "state")}
    with Terminal(["-m", "ebbtide.cli", "sql", *options(home)], ENVIRONMENT | state) as terminal:
        terminal.prompts()
        terminal.type(INSERT, "enter")
        terminal.prompts("fills kept")
        terminal.type("QUIT;", "enter")
        assert terminal.ends() == 0


def insert_and_kill(home):
    """Begin a job through a gateway, and kill that."""
    with running(home, *options(home)) as (process, url):
        session = RemoteSession(url)
        assert "fills kept" in session.execute(INSERT).result(PATIENCE_S).message
        process.kill()
        process.wait()
        session.close()


def ended(job):
    """Wait for the end of a job."""
    until(lambda: not job.status.is_live)
    return job.status


def until(holds):
    """Wait for something, and return it."""
    ends_at = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    return found


@pytest.mark.parametrize("begin", [insert_and_quit, insert_and_kill])
@pytest.mark.demand("sql-insert", "sql-exit")
def test_job_outlives_what_began_it_and_can_be_stopped(home, session, begin):
    begin(home)
    [job] = session.jobs.all()
    assert (job.pipelines, job.status) == (("kept",), JobStatus.RUNNING)
    job.stop()
    ended(job)
    assert (job.folder / "exit").exists()


@pytest.mark.grid
@pytest.mark.parametrize("begin", [insert_and_quit, insert_and_kill])
def test_job_outlives_what_began_it_and_its_table_is_right(home, session, begin):
    begin(home)
    [job] = session.jobs.all()
    assert ended(job) is JobStatus.FINISHED, job.message
    rows = ds.dataset(home / "root" / "kept" / "sink", exclude_invalid_files=True).to_table(columns=["id", "v"])
    assert rows.to_pylist() == [{"id": 2, "v": "b"}]
    with running(home, *options(home)) as (_, url):
        session = RemoteSession(url)
        [row] = session.execute("SHOW JOBS").page(0, 60).rows
        session.close()
    assert row[1:3] == ["kept", "FINISHED"]


def message(session, text):
    """Execute a statement; return its message."""
    return session.execute(text).result(PATIENCE_S).message


def newest(session):
    return session.jobs.all()[0]


def pid_of(job):
    return int((job.folder / "process").read_text().rsplit(":", 2)[1])


def run_of(job):
    """Wait for the run that a job's process has begun; return its process."""
    pid = pid_of(job)
    [run] = until(lambda: Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return int(run)


def rows(session):
    return sorted(session.execute("SELECT id, v FROM kept").page(0, PATIENCE_S).rows)


@pytest.mark.parametrize("killed_when", ["it began", "its table is there"])
@pytest.mark.demand("sql-restart")
def test_job_that_is_lost_with_its_run_is_started_again_and_its_table_is_right(home, session, killed_when):
    message(session, INSERT)
    lost = newest(session)
    if killed_when == "its table is there":
        until((home / "root" / "kept" / "sink" / "_delta_log" / f"{0:020}.json").exists)
    os.killpg(pid_of(lost), signal.SIGKILL)
    until(lambda: lost.status in (JobStatus.LOST, JobStatus.FINISHED))
    assert "runs kept again" in message(session, "RESTART JOB 'kept'")
    assert ended(newest(session)) is JobStatus.FINISHED, newest(session).message
    assert rows(session) == [[2, "b"]]
    write(home / "in", [change("+I", 3, "c", 4)], first=1)
    message(session, f"RESTART JOB '{newest(session).id}'")
    assert ended(newest(session)) is JobStatus.FINISHED, newest(session).message
    assert rows(session) == [[2, "b"], [3, "c"]]
    assert [job.status for job in session.jobs.all()][:2] == [JobStatus.FINISHED, JobStatus.FINISHED]


@pytest.mark.demand("sql-restart")
def test_run_that_outlived_its_job_holds_the_table_and_is_stopped_by_name(session):
    message(session, INSERT)
    job = newest(session)
    run = run_of(job)
    os.kill(run, signal.SIGSTOP)
    os.kill(pid_of(job), signal.SIGKILL)
    for again in (INSERT, "RESTART JOB 'kept'"):
        with pytest.raises(SqlError, match=f"Job '{job.id}' runs 'kept'. Got: RUNNING. Allowed: one job at a time"):
            message(session, again)
    message(session, "STOP JOB 'kept'")
    assert job.status is JobStatus.STOPPING
    os.kill(run, signal.SIGCONT)
    assert ended(job) is JobStatus.LOST


def test_two_sessions_begin_one_job_of_a_table(home, session):
    said = []

    def insert():
        other = opened(home)
        try:
            said.append(message(other, INSERT))
        except SqlError as error:
            said.append(str(error))
            assert "runs 'kept'" in said[-1]
        other.close()

    threads = [threading.Thread(target=insert) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ended(newest(session))
    assert len(session.jobs.all()) == sum("fills kept" in text for text in said)
    assert len(said) == 3
