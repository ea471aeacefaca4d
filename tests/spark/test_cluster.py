"""A standalone cluster: workers as processes, each with local disks of its own; the root is all that they share with the driver."""

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
import yaml
from installed import Environment, build_wheel
from spark_support import cut, same_as_truth, shop_lines, shop_spec, write

HERE = Path(__file__).parent
SHOP = HERE.parents[1] / "pipelines" / "defs" / "shop"
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
def cluster(folder, *names):
    """A master and workers of one core; yields the master's address and the workers."""
    port = free_port()
    processes = []
    with (folder / "cluster.log").open("ab") as log:
        master = "org.apache.spark.deploy.master.Master"
        here = ["--host", "127.0.0.1"]
        processes.append(started(log, master, *here, "--port", str(port), "--webui-port", str(free_port())))
        address = f"spark://127.0.0.1:{port}"
        workers = []
        for name in names:
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
    with cluster(tmp_path, "one", "two") as (address, workers):
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


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Returns the command line's way to run the shop's orders, by an installed wheel; and the archive for executors."""
    write(tmp_path / "in", *cut(shop_lines("orders"), 3))
    document = yaml.safe_load((SHOP / "orders" / "defs.yaml").read_text())
    document["attributes"]["source"] |= {"path": "in", "max_files_per_step": 2}
    (tmp_path / "defs.yaml").write_text(yaml.safe_dump(document))
    environment = Environment(tmp_path / "env", build_wheel(tmp_path / "dist"))
    monkeypatch.setenv("EBBTIDE_CACHE", str(tmp_path / "driver"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))

    def run(address, *options):
        asked = ["run", "defs.yaml", "--root", "root", "--engine", "spark", "--master", address, *options]
        small = ["--conf", "spark.executor.memory=512m", "--conf", "spark.driver.memory=1g"]
        return environment.call(tmp_path, "python", str(HERE / "command_on_cluster.py"), *asked, *small)

    return run


def packed(environment, archive):
    """Pack an environment for executors; Spark's jars are there already."""
    subprocess.run(["tar", "-czf", archive, "--exclude=pyspark/jars", "-C", environment, "."], check=True)
    return archive


@pytest.mark.grid
def test_command_sends_executors_their_code_and_refuses_those_that_have_none(spark, tmp_path, command):
    with cluster(tmp_path, "one", "two", "three") as (address, _):
        refused = command(address, "--conf", f"spark.pyspark.python={sys.base_exec_prefix}/bin/python3")
        assert (refused.returncode, "ebbtide none" in refused.stderr) == (2, True), refused.stderr
        archive = packed(tmp_path / "env", tmp_path / "env.tar.gz")
        sent = [f"spark.archives={archive}#env", "spark.pyspark.python=./env/bin/python"]
        done = command(address, "--conf", sent[0], "--conf", sent[1])
        assert done.returncode == 0, done.stderr[-3000:]
    unpacked = {path.parts[-4] for path in tmp_path.glob("*/work/app-*/*/env/bin/python")}
    assert unpacked, "executors ran by the archive"
    assert any(copies(tmp_path, name) for name in ("one", "two", "three")), "an executor has copies of its own"
    assert same_as_truth(spark, tmp_path / "root", shop_spec("orders", tmp_path / "in"))
