"""The commands of the page on clusters, as they stand there: packed here, unpacked where nothing of the packager is left."""

import shlex
import shutil
import subprocess
import tarfile
from contextlib import ExitStack

import pytest
import yaml
from clusters.page import PYTHON, PYTHON_OF_PAGE, Reader, blocks
from clusters.spark_cluster import SPARK, free_port
from clusters.spark_support import PROJECT, cut, shop_lines, shop_spec, write
from clusters.yarn import yarn
from frame.installed import build_wheel, uv
from oracles.shop_truth import same_as_truth

from ebbtide.cli import main

N_WORKERS = 2
SENT = (
    "--conf spark.archives=env.tar.gz#env",
    "--conf spark.executorEnv.PYTHONPATH=env",
    f"--conf spark.pyspark.python=python{PYTHON}",
)
"""The refusal of unfit executors says it, too."""
PARTS = {"reading", "deciding", "merging"}


@pytest.mark.parametrize("section", ["Standalone", "YARN"])
def test_command_of_the_page_is_one_and_sends_the_archive(section):
    """All that can be seen without a cluster."""
    text = blocks()[section][-1]
    assert all(option.replace(PYTHON, PYTHON_OF_PAGE) in text for option in SENT)
    command = text.replace("\\\n", "").splitlines()[-1]
    _, name, _, *options = shlex.split(command)
    main.get_command(None, name).make_context(name, [str(PROJECT), *options])  # refuses options that there are not


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The archive that the page packs; the folder in which it was packed is gone, with its path."""
    packer = tmp_path_factory.mktemp("packer")
    dist, locked = packer / "dist", packer / "locked.txt"
    build_wheel(dist)
    export = ["export", "--quiet", "--frozen", "--no-hashes", "--no-emit-project", "--extra", "spark", "-o", locked]
    subprocess.run([uv(), *export], cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
    reader = Reader(packer, environment={"UV_FIND_LINKS": str(dist), "UV_CONSTRAINT": str(locked)})
    packed = reader.run("Pack")
    assert packed.returncode == 0, packed.stderr
    assert (packer / "env" / "ebbtide").is_dir()
    kept = tmp_path_factory.mktemp("kept") / "env.tar.gz"
    (packer / "env.tar.gz").rename(kept)
    shutil.rmtree(packer)
    yield kept, packer
    kept.unlink()


@pytest.fixture
def folder(tmp_path):
    """A folder for what executors unpack, which is large."""
    yield tmp_path
    shutil.rmtree(tmp_path)


def reader_of(folder, archive, **given):
    """A reader with the shop's orders to run."""
    shutil.copy(archive[0], folder)
    write(folder / "in", *cut(shop_lines("orders"), 3))
    document = yaml.safe_load((PROJECT / "pipelines" / "defs" / "shop" / "orders" / "defs.yaml").read_text())
    document["attributes"]["source"] |= {"path": "../in", "max_files_per_step": 2}
    (folder / "spec").mkdir()
    (folder / "spec" / "defs.yaml").write_text(yaml.safe_dump(document))
    return Reader(folder, **given)


def assert_all_was_done_by_tasks(reader, folder):
    assert same_as_truth(shop_spec("orders", folder / "in"), folder / "root")
    assert {f"orders: step {step}: {part}" for step in (1, 2) for part in PARTS} <= reader.jobs()
    assert "driver" not in reader.tasks()
    assert sum(reader.tasks().values()) >= 2 * len(PARTS)


@pytest.mark.grid
def test_archive_has_no_path_of_its_packager(archive):
    packed, packer = archive
    here = [str(path).encode() for path in (packer, PROJECT, uv())]
    with tarfile.open(packed) as opened:
        members = list(opened)
        assert [member.name for member in members if member.issym() or member.islnk()] == []
        files = (opened.extractfile(member) for member in members if member.isfile())
        assert [file.name for file in files if any(path in file.read() for path in here)] == []


@pytest.mark.grid
@pytest.mark.spark
def test_standalone_cluster_of_the_page_makes_the_sink_by_tasks_and_refuses_executors_without_the_archive(
    folder, archive
):
    port = str(free_port())
    settings = {"spark.executorEnv.EBBTIDE_CACHE": "copies"}
    reader = reader_of(folder, archive, replaced={"HOST": "127.0.0.1", "7077": port}, settings=settings)
    hosts = {"SPARK_HOME": str(SPARK), "SPARK_MASTER_WEBUI_PORT": "0", "SPARK_WORKER_WEBUI_PORT": "0"}
    with ExitStack() as cluster:
        cluster.enter_context(reader.running("Standalone", 0, {**hosts, "SPARK_MASTER_PORT": port}))
        for number in range(N_WORKERS):
            own = {"SPARK_WORKER_DIR": str(folder / f"worker {number}"), "SPARK_WORKER_CORES": "1"}
            cluster.enter_context(reader.running("Standalone", 1, {**hosts, **own, "SPARK_WORKER_MEMORY": "1g"}))
        refused = reader.run("Standalone", without="--conf spark.executorEnv.PYTHONPATH=env")
        assert (refused.returncode, "ebbtide none" in refused.stderr) == (2, True), refused.stderr
        assert [option for option in SENT if option not in refused.stderr] == []
        done = reader.run("Standalone")
        assert done.returncode == 0, done.stderr
        assert_all_was_done_by_tasks(reader, folder)
        assert list(folder.glob("worker */app-*/*/env/ebbtide/__init__.py")), "executors ran by the archive"


@pytest.mark.grid
@pytest.mark.spark
def test_yarn_of_the_page_makes_the_sink_by_tasks_in_containers(folder, archive):
    settings = {
        "spark.yarn.stagingDir": str(folder / "staging"),
        "spark.yarn.jars": f"local:{SPARK}/jars/*",
        "spark.yarn.am.memory": "256m",
    }
    with yarn(folder) as conf:
        reader = reader_of(folder, archive, replaced={"/etc/hadoop/conf": str(conf)}, settings=settings)
        done = reader.run("YARN")
        assert done.returncode == 0, done.stderr
    assert_all_was_done_by_tasks(reader, folder)
    assert all("/containerlogs/container_" in where for where in reader.tasks())
