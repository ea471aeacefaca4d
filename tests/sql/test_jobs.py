"""Jobs of SQL outlive what began them: a shell that is left, a gateway that is killed."""

import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from clusters.spark_support import change, write
from frame.terminal import Terminal
from frame.waiting import PATIENCE_S
from statements.gateway_support import running

from ebbtide.sql import Catalog, EmbeddedSession, RemoteSession
from ebbtide.sql._jobs import Jobs, JobStatus

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
INSERT = "INSERT INTO kept SELECT * FROM log;"


@pytest.fixture
def home(tmp_path):
    """A source and a table are declared."""
    source = write(tmp_path / "in", [change("+I", 1, "a", 1), change("+I", 2, "b", 2), change("-D", 1, "a", 3)])
    session = EmbeddedSession({"default": Catalog(str(tmp_path / "root"), tmp_path / "defs")}, {})
    for text in (
        f"""CREATE SOURCE log (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))
            WITH (path = '{source}', format = plain, records = value, sequence = seq)""",
        "CREATE TABLE kept (id BIGINT NOT NULL, v STRING, seq BIGINT, PRIMARY KEY (id))",
    ):
        session.execute(text).result(PATIENCE_S)
    session.close()
    return tmp_path


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
    ends_at = time.monotonic() + PATIENCE_S
    while job.status in (JobStatus.RUNNING, JobStatus.STOPPING):
        assert time.monotonic() < ends_at
        time.sleep(0.05)
    return job.status


@pytest.mark.parametrize("begin", [insert_and_quit, insert_and_kill])
@pytest.mark.demand("sql-insert")
def test_job_outlives_what_began_it_and_can_be_stopped(home, begin):
    begin(home)
    [job] = Jobs(str(home / "root")).all()
    assert (job.pipelines, job.status) == (("kept",), JobStatus.RUNNING)
    job.stop()
    ended(job)
    assert (job.folder / "exit").exists()


@pytest.mark.grid
@pytest.mark.parametrize("begin", [insert_and_quit, insert_and_kill])
def test_job_outlives_what_began_it_and_its_table_is_right(home, begin):
    begin(home)
    [job] = Jobs(str(home / "root")).all()
    assert ended(job) is JobStatus.FINISHED, job.message
    rows = ds.dataset(home / "root" / "kept" / "sink", exclude_invalid_files=True).to_table(columns=["id", "v"])
    assert rows.to_pylist() == [{"id": 2, "v": "b"}]
    with running(home, *options(home)) as (_, url):
        session = RemoteSession(url)
        [row] = session.execute("SHOW JOBS").page(0, 60).rows
        session.close()
    assert row[1:3] == ["kept", "FINISHED"]
