"""Clusters: the root is all that executors share with the driver. Each kind of pipeline: `test_cluster_kinds.py`."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import yaml
from clusters.spark_cluster import Driver, cluster, home_of_spark, written_spec
from clusters.spark_support import cut, shop_lines, shop_spec, write
from frame.installed import Environment, build_wheel
from oracles.shop_truth import same_as_truth

HERE = Path(__file__).parent
SHOP = HERE.parents[1] / "pipelines" / "defs" / "shop"


@pytest.mark.group("launched")  # it mostly waits, as they do, and has no use for a session
def test_executors_share_the_root_alone_and_those_that_die_take_nothing_along(tmp_path):
    """By `local-cluster`: executors are processes, each with a folder of its own; master and workers are threads of the driver's JVM, which
    saves the start of three.
    """
    source = write(tmp_path / "in", *cut(shop_lines("price_list"), 4))
    spec = shop_spec("price_list", source, files=2)
    home = home_of_spark(tmp_path / "spark")
    where_it_works = "."
    own = {f"spark.executorEnv.{name}": where_it_works for name in ("EBBTIDE_CACHE", "TMPDIR")}
    events = []
    with closing(Driver(tmp_path, "local-cluster[2,1,512]", "executor", own, {"SPARK_HOME": str(home)})) as driver:
        folder = written_spec(tmp_path / "spec", spec)
        driver.do("run", folder, tmp_path / "root", seen=events.append)
        places = [driver.do("place", folder, tmp_path / "root")["done"]]
        while len(set(places[-1])) < 2 or places[-1] not in places[:-1]:  # an executor comes for the one that died last
            places.append(driver.do("place", folder, tmp_path / "root")["done"])
        again = [driver.do("place", folder, tmp_path / "root")["done"] for _ in range(3)]
    assert again == [places[-1]] * 3, "each executor has the same keys"
    assert [event["deaths"] for event in events if event["kind"] == "batch"] == [1, 1]
    assert same_as_truth(spec, tmp_path / "root")
    assert list(home.glob("work/app-*/*/*.arrow")), "an executor has copies of its own"


@pytest.fixture
def command(tmp_path, shell):
    """Returns the command line's way to run the shop's orders, by an installed wheel; and the archive for executors."""
    write(tmp_path / "in", *cut(shop_lines("orders"), 3))
    document = yaml.safe_load((SHOP / "orders" / "defs.yaml").read_text())
    document["attributes"]["source"] |= {"path": "in", "max_files_per_step": 2}
    (tmp_path / "defs.yaml").write_text(yaml.safe_dump(document))
    environment = Environment(tmp_path / "env", build_wheel(tmp_path / "dist"))
    shell.export(EBBTIDE_CACHE=tmp_path / "driver", SPARK_LOCAL_DIRS=tmp_path / "local")

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
def test_command_sends_executors_their_code_and_refuses_those_that_have_none(tmp_path, command):
    with cluster(tmp_path, 3) as running:
        refused = command(running.address, "--conf", f"spark.pyspark.python={sys.base_exec_prefix}/bin/python3")
        assert (refused.returncode, "ebbtide none" in refused.stderr) == (2, True), refused.stderr
        archive = packed(tmp_path / "env", tmp_path / "env.tar.gz")
        sent = [f"spark.archives={archive}#env", "spark.pyspark.python=./env/bin/python"]
        done = command(running.address, "--conf", sent[0], "--conf", sent[1])
        assert done.returncode == 0, done.stderr[-3000:]
        assert any(worker.copies() for worker in running.workers), "an executor has copies of its own"
    assert list(tmp_path.glob("*/work/app-*/*/env/bin/python")), "executors ran by the archive"
    assert same_as_truth(shop_spec("orders", tmp_path / "in"), tmp_path / "root")
