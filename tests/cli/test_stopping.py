"""How a command ends: signals, and a new process in its place."""

import os
import signal
import subprocess
import sys

from frame.waiting import PATIENCE_S
from local.local_pipeline import up
from local.metrics_support import write_spec

SCRIPT = """
import os, signal, sys
from ebbtide.cli.live import Live
from ebbtide.cli.stopping import SIGNALS, restart, stop_on_signal

with stop_on_signal(Live(sys.stderr)) as stop:
    print(os.getpid(), sys.argv[1:], flush=True)
    if "--accept-loss" in sys.argv:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # as `restart` does first
        os.kill(os.getpid(), signal.SIGTERM)
        restart(stop)
    print("stopped", stop.wait(30), stop.is_signalled())
    restart(stop)
    print("ended")
"""


def test_new_process_has_the_number_takes_a_signal_that_came_meanwhile_and_forgets_what_was_said_once():
    command = [sys.executable, "-c", SCRIPT, "run", "--accept-loss", "--follow"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    first, second, *rest = done.stdout.splitlines()
    pid = first.partition(" ")[0]
    assert first == f"{pid} ['run', '--accept-loss', '--follow']"
    assert second == f"{pid} ['run', '--follow']"
    assert rest == ["stopped True True", "ended"], "a run that was stopped does not go on"
    assert "Stopping after this step" in done.stderr


WITHIN_A_WAIT = """
import os, signal, sys, threading
from ebbtide.cli.live import Live
from ebbtide.cli.stopping import stop_on_signal

with stop_on_signal(Live(sys.stderr)) as stop:
    with stop._cond:  # as within `wait`, before it sleeps
        os.kill(os.getpid(), signal.SIGTERM)
    print("stopped", stop.wait(30))
"""


def test_signal_that_comes_within_a_wait_for_the_stop_does_not_wait_for_itself():
    done = subprocess.run(
        [sys.executable, "-c", WITHIN_A_WAIT], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stdout == "stopped True\n"


def test_interrupted_run_ends_after_its_step_and_the_next_goes_on(make, tmp_path):
    pipeline = make()
    for number in range(20):
        pipeline.put(up(number, number))
    options = ["--root", pipeline.root, "--engine", "local", "--json"]
    command = [sys.executable, "-m", "ebbtide.cli", "run", write_spec(pipeline, tmp_path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert '"step"' in run.stdout.readline()
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, "Stopping after this step" in said) == (1, True)
    assert pipeline.last.step < 20
    pipeline.run()
    assert pipeline.rows() == {number: number for number in range(20)}
