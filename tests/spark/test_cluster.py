"""A standalone cluster: two workers as processes, each with local disks of its own; one is killed while a step is under way."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from spark_support import cut, same_as_truth, shop_lines, shop_spec, write

HERE = Path(__file__).parent
SPARK = Path(pyspark.__file__).parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def started(log, *command, **more):
    env = os.environ | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", **more}
    return subprocess.Popen(
        [str(SPARK / "bin" / "spark-class"), *command], env=env, stdout=log, stderr=log, start_new_session=True
    )


@contextlib.contextmanager
def cluster(folder):
    """A master and two workers of one core; yields the master's address and the workers."""
    port = free_port()
    processes = []
    with (folder / "cluster.log").open("ab") as log:
        master = "org.apache.spark.deploy.master.Master"
        here = ["--host", "127.0.0.1"]
        processes.append(started(log, master, *here, "--port", str(port), "--webui-port", str(free_port())))
        address = f"spark://127.0.0.1:{port}"
        workers = []
        for name in ("one", "two"):
            own = folder / name
            own.mkdir()
            worker = ["org.apache.spark.deploy.worker.Worker", *here, "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(own / "work"), "--webui-port", str(free_port()), address]
            disks = {"SPARK_LOCAL_DIRS": str(own / "local"), "EBBTIDE_CACHE": str(own / "cache")}
            workers.append(started(log, *worker, **disks))
        processes += workers
        try:
            yield address, workers
        finally:
            for process in processes:
                kill(process)


def kill(process):
    """Kill a process and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def copies(folder, name):
    return list((folder / name / "cache").glob("*.arrow"))


@pytest.mark.grid
def test_worker_that_is_killed_in_a_step_takes_nothing_along(spark, tmp_path):
    source = write(tmp_path / "in", *cut(shop_lines("orders"), 12))
    with cluster(tmp_path) as (address, workers):
        command = [sys.executable, str(HERE / "on_cluster.py"), address, str(source), str(tmp_path)]
        path = os.pathsep.join([str(HERE.parent / "support"), str(HERE)])
        env = os.environ | {"PYTHONPATH": path, "EBBTIDE_CACHE": str(tmp_path / "driver")}
        with (
            (tmp_path / "run.log").open("ab") as log,
            subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True) as run,
        ):
            said = []
            for line in run.stdout:
                said.append(line.strip())
                if line.strip() == "step 3":
                    assert copies(tmp_path, "one"), "each worker has copies of its own"
                    assert copies(tmp_path, "two")
                    time.sleep(0.3)  # the next step is under way
                    kill(workers[0])
        assert run.returncode == 0, (tmp_path / "run.log").read_text()[-3000:]
        assert said[-1] == "done"
    assert same_as_truth(spark, tmp_path, shop_spec("orders", source))
