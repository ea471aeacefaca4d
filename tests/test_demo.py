"""`make demo`: a second time, after a Dagster that was ended, and after it was interrupted or killed itself."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import demo
import pytest
from dagster._daemon.types import DaemonHeartbeat
from dagster_process import dagster_process
from frame.waiting import PATIENCE_S, until
from servers.kafka_broker import free_port

from ebbtide.sessions._settings import settings_of_file

PROJECT = demo.PROJECT
JOB = """
import os, time
from pathlib import Path
import dagster as dg

HERE = Path(__file__).parent

@dg.op
def steps(context):
    context.log.info("orders: step 1")
    while (HERE / "held").exists():
        (HERE / "reached").touch()
        time.sleep(0.05)
    if (HERE / "broken").exists():
        raise ValueError("no such table")

@dg.job(executor_def=dg.in_process_executor)
def shop():
    steps()
"""
LAUNCH = """
import signal, sys
from pathlib import Path
import demo

signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background it is ignored

here = Path(sys.argv[1])
demo.EVENTS = here / "events"
demo.HOME, demo.ROOT, demo.JOB = here / "home", here / "root", ["-f", str(here / "job.py"), "-j", "shop"]
sys.exit(demo.main())
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home of Dagster's; to make one takes seconds."""
    home = tmp_path_factory.mktemp("demo") / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text((PROJECT / "dagster.yaml").read_text())
    return home


@pytest.fixture
def place(home, monkeypatch, shell):
    """The folder of the home, and of a job in the place of the shop's."""
    folder = home.parent
    (folder / "job.py").write_text(JOB)
    monkeypatch.setattr(demo, "HOME", home)
    monkeypatch.setattr(demo, "ROOT", folder / "root")
    monkeypatch.setattr(demo, "JOB", ["-f", str(folder / "job.py"), "-j", "shop"])
    shell.export(DAGSTER_HOME=home)
    monkeypatch.setattr(demo, "EVENTS", folder / "events")
    shell.export(EBBTIDE_ROOT=folder / "root", SPARK_CONF_DIR=folder)
    (folder / "spark-defaults.conf").write_text("spark.executor.cores 3\n")
    with dg.DagsterInstance.get() as instance:
        for run in instance.get_runs():
            instance.delete_run(run.run_id)
    yield folder
    for name in ("held", "reached", "broken"):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def held(place):
    """Start a demo in a process of its own, whose run waits in its first step."""
    (place / "held").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, place],
        env={**os.environ, "PYTHONPATH": str(Path(demo.__file__).parent)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: (place / "reached").exists() or process.poll() is not None)
        assert process.poll() is None, process.stderr.read()
        yield process
    finally:
        (place / "held").unlink()
        process.kill()
        process.communicate()


def statuses(place):
    """Return the statuses of all runs, the newest first."""
    with dg.DagsterInstance.get() as instance:
        return [run.status.value for run in instance.get_runs()]


def leave_heartbeats():
    """Leave what a daemon leaves that has just ended."""
    with dg.DagsterInstance.get() as instance:
        for kind in instance.get_required_daemon_types():
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time(), kind, "ended", []))


def test_interrupted_demo_is_canceled_and_runs_again_behind_an_ended_daemon(place, monkeypatch, capfd):
    leave_heartbeats()
    (place / "held").touch()
    report = demo.report

    def interrupted_at_the_step(entries):
        report(entries)
        if "step 1" in capfd.readouterr().out:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo, "report", interrupted_at_the_step)
        assert demo.main() == 130
    assert statuses(place) == ["CANCELED"]
    (place / "held").unlink()
    assert demo.launch()
    assert statuses(place) == ["SUCCESS", "CANCELED"]
    assert "orders: step 1" in capfd.readouterr().out


def test_run_that_did_not_begin_is_reported_with_its_log(place, monkeypatch, capfd):
    monkeypatch.setattr(demo, "command", lambda _: "false")
    assert demo.main() == 1
    assert f"did not begin. Its log: {place}/home/demo.log" in capfd.readouterr().err


@pytest.mark.grid
def test_job_that_cannot_be_loaded_is_in_the_log(place):
    (place / "job.py").write_text("1 / 0")
    assert demo.main() == 1
    assert "ZeroDivisionError" in (place / "home" / "demo.log").read_text()


def test_silent_run_is_ended(place, monkeypatch, capfd):
    (place / "job.py").write_text("import time; time.sleep(600)")
    monkeypatch.setattr(demo, "SILENT_S", 0)
    assert demo.main() == 1
    assert "has reported nothing" in capfd.readouterr().err


def test_run_of_a_killed_demo_is_canceled(place, capfd):
    @dg.job
    def shop():
        pass

    with dg.DagsterInstance.get() as instance:
        for tags in ({demo.TAG: "token"}, {}):
            instance.create_run_for_job(shop, tags=tags, status=dg.DagsterRunStatus.STARTED)
        demo.cancel_left_runs(instance)
    assert sorted(statuses(place)) == ["CANCELED", "STARTED"]
    assert "the demo that started it was killed" in capfd.readouterr().out


def test_tasks_of_spark_are_counted_by_the_pipeline_of_their_job(place):
    demo.log_events()
    assert settings_of_file().items() >= {"spark.executor.cores": "3", "spark.eventLog.enabled": "true"}.items()
    events = [
        {"Event": "SparkListenerApplicationStart"},
        {
            "Event": "SparkListenerJobStart",
            "Stage IDs": [0, 1],
            "Properties": {"spark.job.description": "orders: step 1: reading"},
        },
        {"Event": "SparkListenerJobStart", "Stage IDs": [2], "Properties": {}},
        *[{"Event": "SparkListenerTaskEnd", "Stage ID": stage} for stage in (0, 1, 1, 2)],
    ]
    (demo.EVENTS / "local-1").write_text("".join(json.dumps(event) + "\n" for event in events))
    assert demo.spark_tasks(demo.EVENTS) == {"orders": 3, "": 1}


def test_demo_beside_another_one_is_refused(place, capfd):
    with demo.alone(place / "home" / "demo.lock"):
        assert demo.main() == 1
    assert f"Another demo is at work on the same tables. It ends by itself; to end it now: kill {os.getpid()}" in (
        capfd.readouterr().err
    )
    assert statuses(place) == []


@pytest.mark.grid
def test_demo_in_a_process_is_interrupted_and_runs_again(place):
    with held(place) as process:
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, printed.splitlines()[-1][:11]) == (130, "Interrupted")
        assert statuses(place) == ["CANCELED"]
    assert demo.launch()
    assert statuses(place) == ["SUCCESS", "CANCELED"]


@pytest.mark.grid
def test_run_goes_on_behind_a_killed_demo_and_holds_its_lock(place):
    with held(place) as process:
        process.kill()
        process.wait()
        with pytest.raises(demo.DemoError, match=r"kill (\d+)") as refused:
            demo.launch()
        os.killpg(int(str(refused.value).split()[-1]), signal.SIGKILL)
        until(lambda: not is_held(place))
    assert statuses(place) == ["STARTED"]
    assert demo.launch()
    assert statuses(place) == ["SUCCESS", "CANCELED"]


def is_held(place):
    """Return whether a demo's lock is held."""
    try:
        with demo.alone(place / "home" / "demo.lock"):
            return False
    except demo.DemoError:
        return True


@contextmanager
def ui_running(folder):
    """Have `make ui` run, until it answers."""
    port = free_port()
    with dagster_process(["make", "ui", f"PORT={port}"], folder / "ui.log", PROJECT, os.environ):
        until(lambda: answers(port))
        yield


def answers(port):
    """Return whether a port is listened at."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def make_demo():
    """Run `make demo`; return what it prints."""
    made = subprocess.run(["make", "demo"], cwd=PROJECT, capture_output=True, text=True, timeout=900, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    return made.stdout


@pytest.mark.grid
def test_make_demo_twice_beside_make_ui_and_after_it(tmp_path):
    assert "all equal, all checks passed" in make_demo()
    assert re.search(r"Spark ran \d{2,} tasks", make_demo())
    with ui_running(tmp_path):
        assert "all equal, all checks passed" in make_demo()
    assert "all equal, all checks passed" in make_demo()
